//! One attempt: one POST through the outbound guard, and the beginning of the answer.

use std::time::Duration;

use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Request};
use tokio::time::{Instant, timeout_at};
#[cfg(test)]
use tokio_rustls::rustls::RootCertStore;

use super::target::{Target, TargetError, Targets};
use super::{schedule, sign};
use satcast_core::ids::UnixMillis;
use satcast_core::trace::{self, TraceContext};
use satcast_net::outbound::Asker;
pub use satcast_net::outbound::http::TlsError;
use satcast_net::outbound::http::{Client, HttpError};
use satcast_store::DeliveryJob;

/// Longest time of one attempt, from the name lookup to the head of the answer.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest time of it until the connection is open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer's body that are kept.
pub(super) const ANSWER_BYTES_MAX: usize = 1_024;
/// Longest text of a failure.
const ERROR_CHARS_MAX: usize = 300;
/// The epoch of the clock in the format of HTTP dates.
const EPOCH: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

/// Reason why there was no answer, as a text for the owner of the webhook.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("the url {0}")]
    Target(#[from] TargetError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the request cannot be built from the url and the headers")]
    Request(#[from] hyper::http::Error),
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
}

impl SendError {
    /// The text, cut to its largest length.
    pub(super) fn words(&self) -> String {
        self.to_string().chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect()
    }
}

/// The answer of a receiver.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
    /// The beginning of the body; bytes that are not UTF-8 are replaced.
    pub(super) body: String,
}

/// Sends deliveries; cheap to clone.
#[derive(Clone, Debug)]
pub struct Sender {
    targets: Targets,
    client: Client,
    limit: Duration,
}

impl Sender {
    /// A sender that trusts the system's certificate authorities.
    ///
    /// # Errors
    /// TLS has no usable protocol version.
    pub fn new(targets: Targets) -> Result<Self, TlsError> {
        let client = Client::new(targets.guard().clone(), CONNECT_TIMEOUT)?;
        Ok(Self { targets, client, limit: ATTEMPT_TIMEOUT })
    }

    /// A sender that trusts these certificate authorities.
    ///
    /// # Errors
    #[cfg(test)]
    pub(super) fn with_roots(targets: Targets, roots: RootCertStore) -> Result<Self, TlsError> {
        let client = Client::with_roots(targets.guard().clone(), CONNECT_TIMEOUT, roots)?;
        Ok(Self { targets, client, limit: ATTEMPT_TIMEOUT })
    }

    /// The same with another time limit.
    #[cfg(test)]
    pub(super) fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Makes one attempt, signed at the time `now`.
    pub(super) async fn send(&self, job: &DeliveryJob, now: UnixMillis) -> Result<Answer, SendError> {
        let target = self.targets.check(job.url.expose())?;
        let request = request(job, target, now)?;
        let deadline = Instant::now() + self.limit;
        let sending = async {
            let mut answer = self.client.asked_by(Asker::Account(job.account.0)).send(request).await?;
            let retry_after = retry_after(answer.head().headers(), now);
            let status = answer.head().status().as_u16();
            // Only the status counts: a missing or broken body changes nothing.
            let mut body = Vec::with_capacity(ANSWER_BYTES_MAX);
            let _ = timeout_at(deadline, answer.read(&mut body, ANSWER_BYTES_MAX)).await;
            let body = String::from_utf8_lossy(&body).replace('\0', "\u{fffd}");
            Ok(Answer { status, retry_after, body })
        };
        timeout_at(deadline, sending).await.unwrap_or(Err(SendError::Timeout(self.limit)))
    }
}

fn request(job: &DeliveryJob, target: Target, now: UnixMillis) -> Result<Request, hyper::http::Error> {
    let timestamp = now.to_secs_floor();
    let mut request = Request::new(Method::POST, target.into_url());
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(HeaderName::from_static("webhook-id"), HeaderValue::from_str(&job.event_id)?);
    headers.insert(HeaderName::from_static("webhook-timestamp"), timestamp.into());
    if let Some(signatures) = sign::signatures(&job.secrets, &job.event_id, timestamp, &job.body) {
        headers.insert(HeaderName::from_static("webhook-signature"), HeaderValue::from_str(&signatures)?);
    }
    if let Some(context) = TraceContext::current() {
        headers.insert(HeaderName::from_static(trace::HEADER), HeaderValue::from_str(&context.to_string())?);
    }
    *request.body_mut() = Some(job.body.to_vec().into());
    Ok(request)
}

/// The receiver's `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: UnixMillis) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is a very long wait.
        let secs = text.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(secs).min(schedule::RETRY_AFTER_MAX));
    }
    let (until, epoch) = (httpdate::parse_http_date(text).ok()?, httpdate::parse_http_date(EPOCH).ok()?);
    let until = until.duration_since(epoch).ok()?.as_secs();
    let wait = until.saturating_sub(u64::try_from(now.to_secs_floor()).ok()?);
    Some(Duration::from_secs(wait).min(schedule::RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_at_most_a_day() {
        let now = UnixMillis(1_800_000_000_500);
        let parsed = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(parsed(" 90 "), Some(Duration::from_secs(90)));
        for text in ["99999999999", "3600000000000000000000"] {
            assert_eq!(parsed(text), Some(Duration::from_secs(86_400)));
        }
        assert_eq!(parsed("Fri, 15 Jan 2027 08:01:30 GMT"), Some(Duration::from_secs(90)));
        assert_eq!(parsed("Fri, 15 Jan 2027 07:59:00 GMT"), Some(Duration::ZERO), "in the past");
        assert_eq!(parsed("Sat, 16 Jan 2027 18:00:00 GMT"), Some(Duration::from_secs(86_400)));
        for text in ["", "-1", "soon", "1.5"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
