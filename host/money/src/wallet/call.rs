//! One request to a wallet that speaks HTTP and JSON.

use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Request};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use url::form_urlencoded;

use super::address::HttpAddress;
use super::failure::Trouble;
use satcast_core::ids::JSON_INTEGER_MAX;
use satcast_net::outbound::http::Client;

/// Largest body of an answer in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 * 1_024;

/// A server with our authentication header.
#[derive(Clone, Debug)]
pub(super) struct Server {
    client: Client,
    address: HttpAddress,
    auth: (HeaderName, HeaderValue),
}

/// A complete answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// `Null` if the body is not JSON.
    pub(super) json: Value,
}

impl Reply {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A string of the answer, or "".
    pub(super) fn text(&self, field: &str) -> &str {
        self.json[field].as_str().unwrap_or_default()
    }
}

impl Server {
    /// `auth` holds a secret: it is marked as sensitive so that it is never printed.
    pub(super) fn new(client: Client, address: HttpAddress, auth: (HeaderName, HeaderValue)) -> Self {
        let (name, mut value) = auth;
        value.set_sensitive(true);
        Self { client, address, auth: (name, value) }
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
        let url = self.address.url(below).ok_or(Trouble::BrokeBefore)?;
        let mut request = Request::new(method, url);
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(self.auth.0.clone(), self.auth.1.clone());
        if let Some((kind, text)) = body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            *request.body_mut() = Some(text.into());
        }
        let asking = async {
            let mut answer = self.client.send(request).await?;
            let mut body = Vec::new();
            answer.read(&mut body, ANSWER_BYTES_MAX + 1).await?;
            if body.len() > ANSWER_BYTES_MAX {
                return Err(Trouble::TooMuch);
            }
            let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
            Ok(Reply { status: answer.head().status().as_u16(), json })
        };
        timeout_at(until, asking).await.unwrap_or(Err(Trouble::Late))
    }
}

/// A whole number from a wallet: of either sign, and exact in every JSON reader.
pub(super) fn whole(value: &Value) -> Option<i64> {
    value.as_i64().filter(|number| number.unsigned_abs() <= JSON_INTEGER_MAX.unsigned_abs())
}

/// The same, not below zero.
pub(super) fn amount(value: &Value) -> Option<i64> {
    whole(value).filter(|number| *number >= 0)
}
