//! The one error shape: `{"error", "code", "requestId"}`, and `retryAfter` when a limit was hit or a viewer should come again.
//!
//! Texts are ours: what a framework or an engine says may hold parts of a body, a header or a path, so it goes to
//! the log at most.

use poem::error::{MethodNotAllowedError, NotFoundError, ResponseError};
use poem::http::StatusCode;
use poem_openapi::error::{ContentTypeError, ParseParamError, ParsePathError};
use serde_json::json;

use satcast_core::feed::WATCHERS_PER_ACCOUNT_MAX;
use satcast_core::rate::RateRule;
use satcast_drivers::RecordingsError;
use satcast_store::StoreError;

/// What every unknown thing answers, whoever owns it.
const NOT_FOUND: &str = "not_found";
const INVALID_KEY: &str = "invalid_key";
const KEY_REQUIRED: &str = "key_required";
pub(crate) const INVALID_PUBLIC_KEY_TEXT: &str = "Invalid API key or destination disabled";
pub(crate) const INVALID_SESSION_TEXT: &str = "The session has ended; log in again";
const KEY_REQUIRED_TEXT: &str = "An API key is required: send it as X-API-Key header, as Authorization: Bearer \
    header, or as apiKey (or key) query parameter";

/// When a viewer may ask again for what is not there yet, in seconds: what was in the way is most often over by then.
const VIEWER_RETRY_SECS: u64 = 1;

/// An answer other than success.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    retry_after_secs: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after_secs: None }
    }

    /// 400: the request cannot be read; `message` names the field.
    pub fn malformed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// 401: no key was sent.
    pub fn key_required() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, KEY_REQUIRED, KEY_REQUIRED_TEXT)
    }

    /// 400: no key was sent to a public operation.
    pub fn public_key_required() -> Self {
        Self::new(StatusCode::BAD_REQUEST, KEY_REQUIRED, KEY_REQUIRED_TEXT)
    }

    /// 401: the key is not one of ours, or revoked.
    pub fn invalid_key() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, INVALID_KEY, "Invalid API key")
    }

    /// 401: the key is not a public one of ours, or revoked, or its destination is disabled or deleted.
    pub fn invalid_public_key() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, INVALID_KEY, INVALID_PUBLIC_KEY_TEXT)
    }

    /// 401: the login session is unknown or has ended.
    pub fn invalid_session() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid_session", INVALID_SESSION_TEXT)
    }

    /// 401: wrong name or password; which of them is not said.
    pub fn invalid_login() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid_login", "Wrong name or password")
    }

    /// 402: the account cannot pay; `message` says how much it lacks.
    pub fn insufficient_funds(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYMENT_REQUIRED, "insufficient_funds", message)
    }

    /// 403: the key is valid and may not do this.
    pub fn forbidden(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, message)
    }

    /// 404: unknown, or another owner's.
    pub fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, NOT_FOUND, format!("No such {what}"))
    }

    /// 404: there is nothing to play now.
    pub fn offline() -> Self {
        Self::new(StatusCode::NOT_FOUND, "offline", "The stream is offline")
    }

    /// 404 with `Retry-After`: the stream is live, and its first segment is not there yet.
    pub fn starting() -> Self {
        let error =
            Self::new(StatusCode::NOT_FOUND, "starting", "The stream is starting; try again in a second");
        Self { retry_after_secs: Some(VIEWER_RETRY_SECS), ..error }
    }

    /// 405: the `Allow` header has the methods.
    pub fn method_not_allowed() -> Self {
        let text = "This path does not take that method; see the Allow header";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text)
    }

    /// 409: the state does not allow it.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, message)
    }

    /// 413: the body is larger than `max` bytes.
    pub fn too_large(max: usize) -> Self {
        let text = format!("The request body is larger than {max} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", text)
    }

    /// 415: the body is not JSON.
    pub fn not_json() -> Self {
        let text = "Send the body as JSON with the header Content-Type: application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type_not_supported", text)
    }

    /// 416: the `Content-Range` header has the size.
    pub fn range_not_satisfiable() -> Self {
        let text = "The range begins after the end; the Content-Range header has the size";
        Self::new(StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable", text)
    }

    /// 422: the request was read and a value in it is refused; `message` names the field.
    pub fn refused(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    /// 429: over the limit of `rule`, which counts by the minute, until `secs` have passed.
    pub fn rate_limited(rule: &RateRule, secs: u64) -> Self {
        let text = format!("Rate limit exceeded. Maximum {} requests per minute.", rule.max);
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", text);
        error.retry_after_secs = Some(secs);
        error
    }

    /// 429: another login to the same account from the same network waits for its answer; `secs` until then.
    pub fn login_waits(secs: u64) -> Self {
        let text = format!("Another login to this account waits for its answer. Try again in {secs} s.");
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", text);
        error.retry_after_secs = Some(secs);
        error
    }

    /// 429: the account follows events too often at once.
    pub fn too_many_streams() -> Self {
        let text = format!(
            "This account has {WATCHERS_PER_ACCOUNT_MAX} open event streams, as many as it may; close one first"
        );
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", text)
    }

    /// 503: all accounts together follow events too often at once.
    pub fn no_streams_left() -> Self {
        let text = "The service has as many open event streams as it may; try again later";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", text)
    }

    /// 500: a fault of ours; the log has more under the request's id.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "Internal error; give the requestId to the operator",
        )
    }

    /// 502: the database failed.
    pub fn store_failed() -> Self {
        let text = "The database failed; try again, then give the requestId to the operator";
        Self::new(StatusCode::BAD_GATEWAY, "store_failed", text)
    }

    /// 502: the driver that made a recording cannot be asked, or its store does not answer. `so` says what has not happened.
    pub fn archive_unavailable(so: &str, reason: &RecordingsError) -> Self {
        let text = format!("The archive driver or its store failed, {so}: {reason}; try again later");
        Self::new(StatusCode::BAD_GATEWAY, "archive_unavailable", text)
    }

    /// 502: a wallet failed; `message` says what to do.
    pub fn wallet_failed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, code, message)
    }

    /// 503: the connected wallet does not say what it holds.
    pub fn wallet_silent() -> Self {
        let text = "The connected wallet does not answer, and what it said last is over a minute old; try again in a moment";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "wallet_silent", text)
    }

    /// 503: too many want the same at once.
    pub fn busy() -> Self {
        let text = "Too many log in at this moment; try again in a few seconds";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text)
    }

    /// 503: too many webhooks are tested at once.
    pub fn tests_busy() -> Self {
        let text = "Too many webhooks are tested at this moment; try again in a few seconds";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", text)
    }

    /// 503 to a viewer, who may ask again after [`VIEWER_RETRY_SECS`].
    fn come_again(code: &'static str, message: &'static str) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        Self { retry_after_secs: Some(VIEWER_RETRY_SECS), ..error }
    }

    /// 503: a published piece cannot be read.
    pub fn piece_unreadable() -> Self {
        let text = "The piece cannot be read at present; try again";
        Self::come_again("piece_unreadable", text)
    }

    /// 503: too many viewers wait for the next version of a playlist.
    pub fn too_many_waiting() -> Self {
        let text = "Too many viewers wait for the next part of this stream; ask without _HLS_msn";
        Self::come_again("too_many_waiting", text)
    }

    /// 503: what a viewer waited for did not come in time.
    pub fn not_in_time() -> Self {
        let text = "What was waited for did not come in time: the encoder sends nothing; try again";
        Self::come_again("not_in_time", text)
    }

    /// 500: the driver of a destination failed to answer a viewer.
    pub fn driver_failed() -> Self {
        let text = "The driver of this destination failed to answer; try again";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "driver_failed", text)
    }

    /// 503: too many viewers wait for answers of the driver of a destination.
    pub fn driver_busy() -> Self {
        let text = "Too many requests wait for the driver of this destination; try again in a second";
        Self::come_again("driver_busy", text)
    }

    /// 504: the driver of a destination did not answer a viewer in time.
    pub fn driver_silent() -> Self {
        let text = "The driver of this destination did not answer in time; try again";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "driver_silent", text)
    }

    /// 503: not ready to serve.
    pub fn not_ready() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", "The service is not ready")
    }

    /// 503: the pages were not built.
    pub fn pages_not_built() -> Self {
        let text = "The pages of this service are not there: `cargo xtask build` makes them, in the folder web beside the \
            binary, where it reads them when it starts";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "pages_not_built", text)
    }

    /// 503: the driver of a destination type does not answer, or fails; or it is set aside for the account: why, and until when.
    pub fn driver_unavailable(set_aside: Option<&str>) -> Self {
        let fails =
            "The driver of this destination type does not answer or fails; try again, then tell the operator";
        let text = set_aside.map_or(fails.to_owned(), |why| {
            format!(
                "This account is set aside by the driver of this destination type: {why}. Ask the operator"
            )
        });
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "driver_unavailable", text)
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
        let mut body = json!({"error": self.message, "code": self.code, "requestId": request_id});
        if let (Some(secs), Some(fields)) = (self.retry_after_secs, body.as_object_mut()) {
            fields.insert("retryAfter".to_owned(), secs.into());
        }
        body
    }

    /// Our own answer for whatever ended a request: an error of ours, or of the framework.
    pub fn from_poem(error: &poem::Error) -> Self {
        if let Some(own) = error.downcast_ref::<ApiError>() {
            return own.clone();
        }
        if error.is::<NotFoundError>() {
            return Self::new(StatusCode::NOT_FOUND, NOT_FOUND, "No such path; see /docs");
        }
        if error.is::<MethodNotAllowedError>() {
            return Self::method_not_allowed();
        }
        if error.is::<ContentTypeError>() {
            return Self::not_json();
        }
        if let Some(parameter) = error.downcast_ref::<ParseParamError>() {
            let text = format!("Query parameter `{}` has an unreadable value; see /docs", parameter.name);
            return Self::malformed("malformed_parameter", text);
        }
        if error.is::<ParsePathError>() {
            return Self::malformed("malformed_path", "An id in the path is not a whole number");
        }
        match error.status() {
            status if status.is_client_error() => {
                Self::new(status, "malformed", "The request cannot be read")
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
            StoreError::NotFound(what) => Self::not_found(what),
            StoreError::PasswordChanged => Self::invalid_login(),
            StoreError::NoPlayback(_) => Self::refused("no_playback", sentence(&error.to_string())),
            StoreError::WebhookDisabled => Self::conflict("webhook_disabled", sentence(&error.to_string())),
            StoreError::CapReached { .. } => Self::conflict("cap_reached", sentence(&error.to_string())),
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
    fn retry_after_stands_in_the_body_only_when_a_limit_was_hit() {
        let body = ApiError::rate_limited(&RateRule::per_minute("x", 60), 7).body("req_1");
        assert_eq!(
            body,
            json!({"error": "Rate limit exceeded. Maximum 60 requests per minute.", "code": "rate_limited",
                   "requestId": "req_1", "retryAfter": 7})
        );
        assert!(ApiError::internal().body("req_1").get("retryAfter").is_none());
    }

    #[test]
    fn texts_of_frameworks_and_engines_are_replaced() {
        let foreign = poem::Error::from_string("secret hunter2", StatusCode::BAD_REQUEST);
        assert!(!ApiError::from_poem(&foreign).to_string().contains("hunter2"));
        let foreign = poem::Error::from_string("secret hunter2", StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(ApiError::from_poem(&foreign).code, "internal");
        let store = StoreError::Database { action: "read", source: sqlx::Error::Protocol("hunter2".into()) };
        let error = ApiError::from(store);
        assert_eq!((error.status, error.to_string().contains("hunter2")), (StatusCode::BAD_GATEWAY, false));
    }

    #[test]
    fn answers_texts() {
        assert_eq!(INVALID_PUBLIC_KEY_TEXT, "Invalid API key or destination disabled");
        assert_eq!(INVALID_SESSION_TEXT, "The session has ended; log in again");
        let waits = "Another login to this account waits for its answer. Try again in 30 s.";
        assert_eq!(ApiError::login_waits(30).to_string(), waits);
        assert_eq!(
            ApiError::too_many_streams().to_string(),
            "This account has 32 open event streams, as many as it may; close one first"
        );
        assert_eq!(
            ApiError::pages_not_built().to_string(),
            "The pages of this service are not there: `cargo xtask build` makes them, in the folder web beside the \
             binary, where it reads them when it starts"
        );
    }
}
