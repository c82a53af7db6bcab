//! The error body of all responses: `{"error", "code", "requestId"}`, with `retryAfter` when a limit was hit or a viewer should
//! try again, and `reasons` when the service is not ready.
//!
//! Texts of a framework or a database may hold parts of a body, a header or a path, so they are never sent, only logged.

use poem::error::{MethodNotAllowedError, NotFoundError, ResponseError};
use poem::http::StatusCode;
use poem_openapi::error::{ContentTypeError, ParseParamError, ParsePathError};
use serde_json::json;

use super::codes::Code;
use satcast_core::feed::WATCHERS_PER_ACCOUNT_MAX;
use satcast_core::rate::RateRule;
use satcast_drivers::RecordingsError;
use satcast_live::ingest::{WhipRefusal, WhipRefused};
use satcast_store::StoreError;

pub(crate) const INVALID_PUBLIC_KEY_TEXT: &str = "Invalid API key or destination disabled";
pub(crate) const INVALID_SESSION_TEXT: &str = "The session has ended; log in again";
const KEY_REQUIRED_TEXT: &str = "An API key is required: send it as X-API-Key header, as Authorization: Bearer \
    header, or as apiKey (or key) query parameter";

/// `Retry-After` for viewers, in seconds: most temporary conditions have passed by then.
const VIEWER_RETRY_SECS: u64 = 1;

/// `Retry-After` for encoders, in seconds.
const ENCODER_RETRY_SECS: u64 = 10;

/// An error response.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    code: Code,
    message: String,
    retry_after_secs: Option<u64>,
    /// Parts of the service that are not ready, and why.
    not_ready: Vec<(&'static str, &'static str)>,
}

impl ApiError {
    fn new(status: StatusCode, code: Code, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after_secs: None, not_ready: Vec::new() }
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// 400: the request cannot be read; `message` names the field.
    pub fn malformed(code: Code, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 401: no key was sent.
    pub fn key_required() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, Code::KeyRequired, KEY_REQUIRED_TEXT)
    }

    /// 400: no key was sent to a public operation.
    pub fn public_key_required() -> Self {
        Self::new(StatusCode::BAD_REQUEST, Code::KeyRequired, KEY_REQUIRED_TEXT)
    }

    /// 401: the key is unknown or revoked.
    pub fn invalid_key() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, Code::InvalidKey, "Invalid API key")
    }

    /// 401: the key is unknown, not public, or revoked, or its destination is disabled or deleted.
    pub fn invalid_public_key() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, Code::InvalidKey, INVALID_PUBLIC_KEY_TEXT)
    }

    /// 401: the token of an owner's address is over, or not whole.
    pub fn invalid_token() -> Self {
        let text = "The address is too old or not complete; its owner gets a new one from the list of recordings or clips";
        Self::new(StatusCode::UNAUTHORIZED, Code::InvalidKey, text)
    }

    /// 401: the login session is unknown or has ended.
    pub fn invalid_session() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, Code::InvalidSession, INVALID_SESSION_TEXT)
    }

    /// 401: wrong name or password; the text does not say which.
    pub fn invalid_login() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, Code::InvalidLogin, "Wrong name or password")
    }

    /// 402: the account cannot pay; `message` has the price and the balance.
    pub fn insufficient_funds(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYMENT_REQUIRED, Code::InsufficientFunds, message)
    }

    /// 403: the key is valid but not allowed to do this.
    pub fn forbidden(code: Code, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, message)
    }

    /// 403: the key, session or password is valid, but an operator disabled the account.
    pub fn account_disabled() -> Self {
        Self::forbidden(Code::AccountDisabled, "This account is disabled; ask the operator of the service")
    }

    /// 404: unknown, or owned by another account.
    pub fn not_found(resource: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, Code::NotFound, format!("No such {resource}"))
    }

    /// 404: the invite link is unknown, was used, or is too old.
    pub fn link_ended() -> Self {
        let text =
            "This link was used, is older than a day, or does not exist; ask the operator for a new one";
        Self::new(StatusCode::NOT_FOUND, Code::NotFound, text)
    }

    /// 404: the stream is not live.
    pub fn offline() -> Self {
        Self::new(StatusCode::NOT_FOUND, Code::Offline, "The stream is offline")
    }

    /// 404 with `Retry-After`: the stream is live, but its first segment is not ready yet.
    pub fn starting() -> Self {
        let error =
            Self::new(StatusCode::NOT_FOUND, Code::Starting, "The stream is starting; try again in a second");
        Self { retry_after_secs: Some(VIEWER_RETRY_SECS), ..error }
    }

    /// 405: the `Allow` header lists the methods.
    pub fn method_not_allowed() -> Self {
        let text = "This path does not support that method; see the Allow header";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, Code::MethodNotAllowed, text)
    }

    /// 409: the state does not allow it.
    pub fn conflict(code: Code, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// 413: the body is larger than `max` bytes.
    pub fn too_large(max: usize) -> Self {
        let text = format!("The request body is larger than {max} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Code::BodyTooLarge, text)
    }

    /// 415: the body is not JSON.
    pub fn not_json() -> Self {
        let text = "Send the body as JSON with the header Content-Type: application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::ContentTypeNotSupported, text)
    }

    /// 415: the body is not announced as an MP4.
    pub fn not_mp4() -> Self {
        let text = "Send the file as the body, with the header Content-Type: video/mp4";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::ContentTypeNotSupported, text)
    }

    /// 415: the body is not an offer of WHIP.
    pub fn not_sdp() -> Self {
        let text = "Send the offer as SDP with the header Content-Type: application/sdp";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::ContentTypeNotSupported, text)
    }

    /// 404: the service takes no WHIP.
    pub fn whip_off() -> Self {
        let text = "WHIP is off in this service; the operator turns it on with [ingest] webrtc_listen. Use RTMP or SRT meanwhile";
        Self::new(StatusCode::NOT_FOUND, Code::WhipOff, text)
    }

    /// The refusal of a WHIP encoder: 401 for its key, 403 or 409 for its stream, 400 or 422 for its offer, 404 for the address of its
    /// publish, 429 for its network, 503 for the service.
    pub fn publish_refused(refused: WhipRefused) -> Self {
        let text = sentence(&refused.reason);
        let error = match refused.why {
            WhipRefusal::NoKey => Self::new(StatusCode::UNAUTHORIZED, Code::KeyRequired, text),
            WhipRefusal::UnknownKey => Self::new(StatusCode::UNAUTHORIZED, Code::InvalidKey, text),
            WhipRefusal::Denied => Self::new(StatusCode::FORBIDDEN, Code::PublishRefused, text),
            WhipRefusal::Conflict => Self::new(StatusCode::CONFLICT, Code::AlreadyPublished, text),
            WhipRefusal::Offer => Self::new(StatusCode::BAD_REQUEST, Code::MalformedBody, text),
            WhipRefusal::Codec => Self::new(StatusCode::UNPROCESSABLE_ENTITY, Code::CodecRefused, text),
            WhipRefusal::Full => Self::new(StatusCode::TOO_MANY_REQUESTS, Code::TooManyEncoders, text),
            WhipRefusal::Unavailable => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::PublishUnavailable, text)
            }
            WhipRefusal::NoPublish => Self::new(StatusCode::NOT_FOUND, Code::NotFound, text),
        };
        let waits = matches!(refused.why, WhipRefusal::Full | WhipRefusal::Unavailable);
        Self { retry_after_secs: waits.then_some(ENCODER_RETRY_SECS), ..error }
    }

    /// 416: the `Content-Range` header has the size.
    pub fn range_not_satisfiable() -> Self {
        let text = "The range starts after the end of the file; the Content-Range header has the size";
        Self::new(StatusCode::RANGE_NOT_SATISFIABLE, Code::RangeNotSatisfiable, text)
    }

    /// 422: the request is readable, but a value is refused; `message` names the field.
    pub fn refused(code: Code, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    /// 429: over the limit of `rule`, whose window is a minute; the client may try again after `secs`.
    pub fn rate_limited(rule: &RateRule, secs: u64) -> Self {
        let text = format!("Rate limit exceeded. Maximum {} requests per minute.", rule.max);
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, Code::RateLimited, text);
        error.retry_after_secs = Some(secs);
        error
    }

    /// 429: another login to the same account from the same network is in progress and ends in `secs`.
    pub fn login_waits(secs: u64) -> Self {
        let text = format!("Another login to this account is in progress. Try again in {secs} s.");
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, Code::RateLimited, text);
        error.retry_after_secs = Some(secs);
        error
    }

    /// 429: the account has too many open event streams.
    pub fn too_many_streams() -> Self {
        let text = format!(
            "This account has {WATCHERS_PER_ACCOUNT_MAX} open event streams, which is the maximum; close one first"
        );
        Self::new(StatusCode::TOO_MANY_REQUESTS, Code::TooManyStreams, text)
    }

    /// 503: all accounts together have too many open event streams.
    pub fn no_streams_left() -> Self {
        let text = "The service has reached its maximum of open event streams; try again later";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::TooManyStreams, text)
    }

    /// 500: an internal error; the log has details under the request's id.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Code::Internal,
            "Internal error; give the requestId to the operator",
        )
    }

    /// 502: the database failed.
    pub fn store_failed() -> Self {
        let text = "The database failed; try again, then give the requestId to the operator";
        Self::new(StatusCode::BAD_GATEWAY, Code::StoreFailed, text)
    }

    /// 502: the driver that made a recording, or its store, does not respond. `effect` says that nothing was changed or charged.
    pub fn archive_unavailable(effect: &str, reason: &RecordingsError) -> Self {
        let text = format!("The archive driver or its store failed, {effect}: {reason}; try again later");
        Self::new(StatusCode::BAD_GATEWAY, Code::ArchiveUnavailable, text)
    }

    /// 502: a wallet failed; `message` says what to do next.
    pub fn wallet_failed(code: Code, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, code, message)
    }

    /// 503: the balance of the connected wallet is not available.
    pub fn wallet_silent() -> Self {
        let text = "The connected wallet does not respond, and its last known balance is over a minute old; try again in a moment";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::WalletSilent, text)
    }

    /// 503: too many logins at once.
    pub fn busy() -> Self {
        let text = "Too many logins are running; try again in a few seconds";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::Busy, text)
    }

    /// 503: too many clips of all accounts are being made.
    pub fn clips_busy() -> Self {
        let text = "Too many clips are being made; try again in a few seconds";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::Busy, text)
    }

    /// 503: too many uploads at once.
    pub fn uploads_busy() -> Self {
        let text = "Too many files are being uploaded; try again when another upload has ended";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::Busy, text)
    }

    /// 503: too many webhook tests at once.
    pub fn tests_busy() -> Self {
        let text = "Too many webhook tests are running; try again in a few seconds";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::Busy, text)
    }

    /// 503 to a viewer, with `Retry-After` of [`VIEWER_RETRY_SECS`].
    fn retry_soon(code: Code, message: &'static str) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        Self { retry_after_secs: Some(VIEWER_RETRY_SECS), ..error }
    }

    /// 503: a published asset cannot be read.
    pub fn asset_unreadable() -> Self {
        let text = "The file cannot be read now; try again";
        Self::retry_soon(Code::AssetUnreadable, text)
    }

    /// 503: too many viewers are waiting for the next version of a playlist.
    pub fn too_many_waiting() -> Self {
        let text = "Too many viewers are waiting for the next part of this stream; request the playlist without _HLS_msn";
        Self::retry_soon(Code::TooManyWaiting, text)
    }

    /// 503: the media that a viewer waits for did not arrive in time.
    pub fn not_in_time() -> Self {
        let text =
            "The requested media did not arrive in time, because the encoder is not sending; try again";
        Self::retry_soon(Code::NotInTime, text)
    }

    /// 500: the driver of a destination failed to answer a viewer.
    pub fn driver_failed() -> Self {
        let text = "The driver of this destination failed to answer; try again";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, Code::DriverFailed, text)
    }

    /// 503: too many viewers are waiting for the driver of a destination.
    pub fn driver_busy() -> Self {
        let text = "Too many requests are waiting for the driver of this destination; try again in a second";
        Self::retry_soon(Code::DriverBusy, text)
    }

    /// 504: the driver of a destination did not answer a viewer in time.
    pub fn driver_silent() -> Self {
        let text = "The driver of this destination did not answer in time; try again";
        Self::new(StatusCode::GATEWAY_TIMEOUT, Code::DriverSilent, text)
    }

    /// 503: the node that has the stream or recording does not answer.
    pub fn node_silent() -> Self {
        let text = "The node of the service that has this stream or recording does not answer; try again";
        Self::retry_soon(Code::NodeSilent, text)
    }

    /// 503: another node has the file of a recording, and does not run.
    pub fn recording_elsewhere() -> Self {
        let text = "Another node of the service has this recording, and does not run; try again when that node is back";
        Self::retry_soon(Code::RecordingElsewhere, text)
    }

    /// 503: too many viewers are reading recordings.
    pub fn too_many_readers() -> Self {
        let text = "Too many viewers are watching recordings at this moment; try again in a second";
        Self::retry_soon(Code::TooManyReaders, text)
    }

    /// 503: this node relays as much from other nodes as its limits allow.
    pub fn relay_full() -> Self {
        let text = "Too many streams and recordings of other nodes are played at this node; try again";
        Self::retry_soon(Code::RelayFull, text)
    }

    /// The error in the body of another node's answer; `None` if another service wrote it.
    pub(crate) fn relayed(status: StatusCode, body: &[u8]) -> Option<Self> {
        let body: serde_json::Value = serde_json::from_slice(body).ok()?;
        let code = Code::of(body["code"].as_str()?)?;
        let error = Self::new(status, code, body["error"].as_str()?);
        Some(Self { retry_after_secs: body["retryAfter"].as_u64(), ..error })
    }

    /// 503: these parts are not ready, each with its reason.
    pub fn not_ready(parts: Vec<(&'static str, &'static str)>) -> Self {
        let text = "The service is not ready; see `reasons`, and try again in a moment";
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::NotReady, text);
        Self { not_ready: parts, ..error }
    }

    /// 503: the pages were not built.
    pub fn pages_not_built() -> Self {
        let text = "The pages are missing. `cargo xtask build` builds them into the folder web beside the \
            binary; restart the service afterwards";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::PagesNotBuilt, text)
    }

    /// 503: the manual was not built.
    pub fn manual_not_built() -> Self {
        let text = "The manual is not in this build. `cargo xtask docs` builds it into the folder web beside the \
            binary, and releases have it; restart the service afterwards";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::PagesNotBuilt, text)
    }

    /// 503: the driver of a destination type does not respond or has failed; or the account is in quarantine there: the reason and the
    /// end of the quarantine.
    pub fn driver_unavailable(set_aside: Option<&str>) -> Self {
        let fails = "The driver of this destination type does not respond or has failed; try again, then tell the operator";
        let text = set_aside.map_or(fails.to_owned(), |why| {
            format!(
                "The driver of this destination type has put this account in quarantine: {why}. Ask the operator"
            )
        });
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Code::DriverUnavailable, text)
    }

    /// Seconds of the `Retry-After` header.
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after_secs
    }

    /// The HTTP status.
    pub fn http_status(&self) -> StatusCode {
        self.status
    }

    /// The body for a request with this id.
    pub fn body(&self, request_id: &str) -> serde_json::Value {
        let mut body = json!({"error": self.message, "code": self.code.as_str(), "requestId": request_id});
        if let (Some(secs), Some(fields)) = (self.retry_after_secs, body.as_object_mut()) {
            fields.insert("retryAfter".to_owned(), secs.into());
        }
        if !self.not_ready.is_empty() {
            let reasons = self.not_ready.iter();
            let reasons: Vec<_> =
                reasons.map(|(part, reason)| json!({"part": part, "reason": reason})).collect();
            body["reasons"] = reasons.into();
        }
        body
    }

    /// The response for any error that ended a request; errors of the framework get texts of this service.
    pub fn from_poem(error: &poem::Error) -> Self {
        if let Some(own) = error.downcast_ref::<ApiError>() {
            return own.clone();
        }
        if error.is::<NotFoundError>() {
            return Self::new(StatusCode::NOT_FOUND, Code::NotFound, "No such path; see /docs");
        }
        if error.is::<MethodNotAllowedError>() {
            return Self::method_not_allowed();
        }
        if error.is::<ContentTypeError>() {
            return Self::not_json();
        }
        if let Some(parameter) = error.downcast_ref::<ParseParamError>() {
            let text = format!(
                "Query parameter `{}` has a value of the wrong form or outside its range; /docs has both",
                parameter.name
            );
            return Self::malformed(Code::MalformedParameter, text);
        }
        if error.is::<ParsePathError>() {
            return Self::malformed(Code::MalformedPath, "An id in the path must be a whole number");
        }
        match error.status() {
            status if status.is_client_error() => {
                Self::new(status, Code::Malformed, "The request cannot be read; see /docs for its form")
            }
            _ => Self::internal(),
        }
    }
}

impl ResponseError for ApiError {
    fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound("link") => Self::link_ended(),
            StoreError::NotFound(what) => Self::not_found(what),
            StoreError::PasswordChanged => Self::invalid_login(),
            StoreError::AccountDisabled => Self::account_disabled(),
            StoreError::NoPlayback(_) => Self::refused(Code::NoPlayback, sentence(&error.to_string())),
            StoreError::WebhookDisabled => {
                Self::conflict(Code::WebhookDisabled, sentence(&error.to_string()))
            }
            StoreError::CapReached { .. } => Self::conflict(Code::CapReached, sentence(&error.to_string())),
            other => {
                tracing::error!(error = %other, "the store failed");
                Self::store_failed()
            }
        }
    }
}

/// The text with its first letter in upper case.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_in_the_body_only_when_a_limit_was_hit() {
        let body = ApiError::rate_limited(&RateRule::per_minute("x", 60), 7).body("req_1");
        assert_eq!(
            body,
            json!({"error": "Rate limit exceeded. Maximum 60 requests per minute.", "code": "rate_limited",
                   "requestId": "req_1", "retryAfter": 7})
        );
        assert!(ApiError::internal().body("req_1").get("retryAfter").is_none());
    }

    #[test]
    fn an_error_of_another_node_stays_the_same() {
        for error in [ApiError::offline(), ApiError::starting(), ApiError::not_in_time()] {
            let text = error.body("req_1").to_string();
            let relayed = ApiError::relayed(error.http_status(), text.as_bytes()).unwrap();
            assert_eq!(relayed.body("req_1"), error.body("req_1"));
        }
        for other in ["", "{}", r#"{"code":"not a code","error":"x"}"#, "<html>"] {
            assert!(ApiError::relayed(StatusCode::BAD_GATEWAY, other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn texts_of_frameworks_and_engines_are_replaced() {
        let foreign = poem::Error::from_string("secret hunter2", StatusCode::BAD_REQUEST);
        assert!(!ApiError::from_poem(&foreign).to_string().contains("hunter2"));
        let foreign = poem::Error::from_string("secret hunter2", StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(ApiError::from_poem(&foreign).code, Code::Internal);
        let store = StoreError::Database { action: "read", source: sqlx::Error::Protocol("hunter2".into()) };
        let error = ApiError::from(store);
        assert_eq!((error.status, error.to_string().contains("hunter2")), (StatusCode::BAD_GATEWAY, false));
    }

    #[test]
    fn error_texts() {
        assert_eq!(INVALID_PUBLIC_KEY_TEXT, "Invalid API key or destination disabled");
        assert_eq!(INVALID_SESSION_TEXT, "The session has ended; log in again");
        let waits = "Another login to this account is in progress. Try again in 30 s.";
        assert_eq!(ApiError::login_waits(30).to_string(), waits);
        assert_eq!(
            ApiError::too_many_streams().to_string(),
            "This account has 32 open event streams, which is the maximum; close one first"
        );
        assert_eq!(
            ApiError::pages_not_built().to_string(),
            "The pages are missing. `cargo xtask build` builds them into the folder web beside the \
             binary; restart the service afterwards"
        );
    }
}
