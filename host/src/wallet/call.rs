//! One request to a wallet that speaks HTTP and JSON.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use url::form_urlencoded;

use super::address::HttpAddress;
use super::failure::{CONNECT_TIMEOUT, Trouble};
use crate::ids::JSON_INTEGER_MAX;
use crate::outbound::https::{self, Opener};

/// Largest body of an answer in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 * 1_024;
const AGENT: &str = concat!("Satcast/", env!("CARGO_PKG_VERSION"));

/// A server with what it knows us by.
#[derive(Clone, Debug)]
pub(super) struct Server {
    opener: Opener,
    address: HttpAddress,
    auth: (HeaderName, HeaderValue),
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// `Null` when the body is no JSON.
    pub(super) json: Value,
}

impl Reply {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A text of the answer, or nothing.
    pub(super) fn text(&self, field: &str) -> &str {
        self.json[field].as_str().unwrap_or_default()
    }
}

impl Server {
    /// `auth` holds a secret: it is marked so that nothing prints it.
    pub(super) fn new(opener: Opener, address: HttpAddress, auth: (HeaderName, HeaderValue)) -> Self {
        let (name, mut value) = auth;
        value.set_sensitive(true);
        Self { opener, address, auth: (name, value) }
    }

    pub(super) fn host(&self) -> String {
        self.address.authority()
    }

    pub(super) async fn get(&self, below: &str, until: Instant) -> Result<Reply, Trouble> {
        self.call(Method::GET, below, None, until).await
    }

    pub(super) async fn post_json(
        &self,
        below: &str,
        body: &Value,
        until: Instant,
    ) -> Result<Reply, Trouble> {
        let body = ("application/json", body.to_string());
        self.call(Method::POST, below, Some(body), until).await
    }

    pub(super) async fn post_form(
        &self,
        below: &str,
        fields: &[(&str, &str)],
        until: Instant,
    ) -> Result<Reply, Trouble> {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let body = ("application/x-www-form-urlencoded", body);
        self.call(Method::POST, below, Some(body), until).await
    }

    async fn call(
        &self,
        method: Method,
        below: &str,
        body: Option<(&'static str, String)>,
        until: Instant,
    ) -> Result<Reply, Trouble> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.address.target(below))
            .header(HOST, self.address.authority())
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, "application/json")
            .header(self.auth.0.clone(), self.auth.1.clone());
        let mut bytes = Bytes::new();
        if let Some((kind, text)) = body {
            request = request.header(CONTENT_TYPE, kind);
            bytes = text.into();
        }
        let request = request.body(Full::new(bytes)).map_err(|_| Trouble::BrokeBefore)?;
        let limit = CONNECT_TIMEOUT.min(until.saturating_duration_since(Instant::now()));
        let opening = timeout_at(until, self.opener.open(self.address.place(), limit));
        let channel = opening.await.map_err(|_| Trouble::OpenLate)?.map_err(Trouble::Open)?;
        let asking = async {
            let mut answer = https::exchange(channel, request).await.map_err(|_| Trouble::Broke)?;
            let mut body = Vec::new();
            answer.read(&mut body, ANSWER_BYTES_MAX + 1).await.map_err(|_| Trouble::Broke)?;
            if body.len() > ANSWER_BYTES_MAX {
                return Err(Trouble::TooMuch);
            }
            let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
            Ok(Reply { status: answer.head().status().as_u16(), json })
        };
        timeout_at(until, asking).await.unwrap_or(Err(Trouble::Late))
    }
}

/// A whole number that wallets may give: of either sign, and exact in every JSON reader.
pub(super) fn whole(value: &Value) -> Option<i64> {
    value.as_i64().filter(|number| number.unsigned_abs() <= JSON_INTEGER_MAX.unsigned_abs())
}

/// The same, not below zero.
pub(super) fn amount(value: &Value) -> Option<i64> {
    whole(value).filter(|number| *number >= 0)
}
