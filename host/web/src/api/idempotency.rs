//! `Idempotency-Key`: a repeated POST or PATCH is not executed again and gets the first response.
//!
//! Only successes are kept. A refused request changed nothing, so it may be corrected and sent again under the same key. After a
//! fault of the service only the same request may be sent again.

use std::sync::Arc;

use poem::endpoint::{BoxEndpoint, EndpointExt as _};
use poem::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use poem::http::{Method, StatusCode};
use poem::{Endpoint, IntoResponse, Request, Response, Result};
use sha2::{Digest as _, Sha256};

use super::app::{App, Subject};
use super::body::read_bytes;
use super::caller::Caller;
use super::caller::{Area, Known};
use crate::base::{ApiError, Code};
use satcast_store::{Begun, IdempotentRequest, Store};

pub(super) const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// Longest key in bytes.
pub(super) const KEY_BYTES_MAX: usize = 255;
/// Largest response that is kept. The largest one holds the first 1024 bytes of a webhook receiver's answer, and each byte
/// may take six in JSON; all others are far smaller.
const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// Operations without an authenticated caller, whose responses are tokens: repeats are executed again.
const ENTRANCES: [&str; 2] = ["/api/auth/login", "/api/auth/setup"];
/// Marks the response of an earlier request.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Name of a request with an `Idempotency-Key`, the same for each try of it; an extension of the request.
#[derive(Clone, Debug)]
pub(super) struct RequestName(pub(super) String);

/// Wraps all operations.
pub(super) struct Idempotent {
    inner: Arc<BoxEndpoint<'static, Response>>,
    app: Arc<App>,
}

impl Idempotent {
    pub(super) fn new<E>(inner: E, app: Arc<App>) -> Self
    where
        E: Endpoint + 'static,
        E::Output: IntoResponse,
    {
        Self { inner: Arc::new(inner.map_to_response().boxed()), app }
    }

    async fn once(&self, mut request: Request, key: String) -> Result<Response> {
        let area = Area::of_path(request.uri().path());
        let caller = Caller::within(&self.app, &request, area).await?;
        let body = read_bytes(request.take_body()).await?;
        let asked = IdempotentRequest {
            account_id: caller.account,
            // A caller with fewer rights must not get the response of another caller that used the same key.
            request_hash: hash(
                &[request.method().as_str(), request.uri().path(), &rights(&caller), &key],
                &[],
            ),
            body_hash: hash(&[&key], &body),
            now: self.app.clock.now(),
        };
        // The caller is checked and counted once; the handler finds it in the request.
        request.extensions_mut().insert(Known { caller, area });
        request.set_body(body);
        let (store, inner) = (self.app.store.clone(), Arc::clone(&self.inner));
        // Runs to completion even if the client disconnects: its next attempt needs the response.
        App::to_the_end(async move {
            match store.begin_request(asked).await? {
                Begun::New(name) => {
                    request.extensions_mut().insert(RequestName(name.clone()));
                    Ok(settle(&store, &name, inner.call(request).await).await)
                }
                Begun::Done { status, answer } => Ok(Ok(replay(status, answer.into_inner()))),
                Begun::InProgress => Err(ApiError::conflict(
                    Code::IdempotencyInProgress,
                    "A request with this Idempotency-Key is still running; try again in a second",
                )),
                Begun::OtherBody => Err(ApiError::conflict(
                    Code::IdempotencyKeyReused,
                    "This Idempotency-Key was used with a different body; use a new key for a new request",
                )),
                Begun::Full => Err(ApiError::conflict(
                    Code::IdempotencyFull,
                    "This account has used too many Idempotency-Keys within 24 hours; send the request without one",
                )),
            }
        })
        .await?
    }
}

impl Endpoint for Idempotent {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        match presented(&request)? {
            Some(key) if !ENTRANCES.contains(&request.uri().path()) => self.once(request, key).await,
            _ => self.inner.call(request).await,
        }
    }
}

/// Rights of a caller as text.
fn rights(caller: &Caller) -> String {
    let kind = match caller.subject {
        Subject::Key(_) => "key",
        Subject::Login(_) => "session",
    };
    format!("{kind}:{}", caller.scopes.to_text())
}

/// The key of a POST or PATCH; `None` without one.
fn presented(request: &Request) -> std::result::Result<Option<String>, ApiError> {
    let mut values = request.headers().get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if !matches!(*request.method(), Method::POST | Method::PATCH) {
        return Ok(None);
    }
    let printable = value.as_bytes().iter().all(|byte| (b' '..=b'~').contains(byte));
    match value.to_str() {
        Ok(key) if printable && (1..=KEY_BYTES_MAX).contains(&key.len()) && values.next().is_none() => {
            Ok(Some(key.to_owned()))
        }
        _ => {
            let text = format!(
                "Header `{IDEMPOTENCY_KEY}` must be one of 1 to {KEY_BYTES_MAX} printable ASCII characters"
            );
            Err(ApiError::malformed(Code::MalformedIdempotencyKey, text))
        }
    }
}

/// SHA-256 over parts separated by zero bytes; only `last` may hold zero bytes.
fn hash(parts: &[&str], last: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.update(last);
    hasher.finalize().into()
}

/// Records the outcome of an executed request. The request succeeds even if recording fails.
async fn settle(store: &Store, name: &str, outcome: Result<Response>) -> Result<Response> {
    let recorded = match outcome {
        Ok(mut response) if response.status().is_success() => {
            let answer = response.take_body().into_bytes().await.map_err(|_| ApiError::internal())?;
            let recorded = if answer.len() <= ANSWER_BYTES_MAX {
                store.finish_request(name, response.status().as_u16(), &answer).await
            } else {
                tracing::warn!(
                    bytes = answer.len(),
                    "a response is too large to be kept for a repeated request"
                );
                store.release_request(name).await
            };
            response.set_body(answer);
            (recorded, Ok(response))
        }
        other => {
            // After a fault of the service, such as a lost database, it is not known what was done.
            let is_fault = match &other {
                Ok(response) => response.status().is_server_error(),
                Err(error) => error.status().is_server_error(),
            };
            let recorded = match is_fault {
                true => store.suspend_request(name).await,
                false => store.release_request(name).await,
            };
            (recorded, other)
        }
    };
    if let Err(error) = recorded.0 {
        tracing::error!(%error, "cannot record the outcome of a request; a repeat may execute it again");
    }
    recorded.1
}

fn replay(status: u16, answer: Vec<u8>) -> Response {
    let mut response = Response::from(answer);
    response.set_status(StatusCode::from_u16(status).unwrap_or(StatusCode::OK));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}
