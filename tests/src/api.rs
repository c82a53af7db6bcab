//! An API client as a user would write one: JSON over HTTP with a key.

use std::time::Duration;

use reqwest::blocking::{Client, RequestBuilder};
use serde_json::{Value, json};

use crate::wait;

const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The rate limit of a key starts again after this time.
const PATIENCE_MAX_SECS: u64 = 60;

/// An answer of the API.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, or null when it is not JSON.
    pub body: Value,
    /// The body as text.
    pub text: String,
}

impl Answer {
    /// Expects status 200 and gives the body.
    ///
    /// # Panics
    /// When the status is another.
    #[track_caller]
    #[must_use]
    pub fn ok(self) -> Value {
        assert_eq!(self.status, 200, "the answer was {}", self.text);
        self.body
    }

    /// Expects an error: its status and the whole error body, with `code`.
    ///
    /// # Panics
    /// When the answer is no such error.
    #[track_caller]
    pub fn assert_error(&self, status: u16, code: Option<&str>) {
        assert_eq!(self.status, status, "the answer was {}", self.text);
        let fields = self.body.as_object().unwrap_or_else(|| panic!("no error body: {}", self.text));
        for field in ["error", "code", "requestId"] {
            let text = fields.get(field).and_then(Value::as_str);
            assert!(text.is_some_and(|text| !text.is_empty()), "no {field} in {}", self.text);
        }
        if let Some(code) = code {
            assert_eq!(self.body["code"], code, "{}", self.text);
        }
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A stream as its owner knows it.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Identifier.
    pub id: i64,
    /// Stream key.
    pub key: String,
}

/// The API of one service with one key, or without.
#[derive(Clone, Debug)]
pub struct Api {
    base: String,
    key: Option<String>,
    client: Client,
}

impl Api {
    /// A client for the service at `base`, with `key` as bearer token.
    ///
    /// # Panics
    /// When no client can be made.
    #[must_use]
    pub fn new(base: &str, key: Option<&str>) -> Self {
        Self { base: base.to_owned(), key: key.map(str::to_owned), client: client(ANSWER_LIMIT) }
    }

    /// The same service with another key, or without.
    #[must_use]
    pub fn with_key(&self, key: Option<&str>) -> Self {
        Self { key: key.map(str::to_owned), ..self.clone() }
    }

    /// A request to be completed by the test, without a key.
    ///
    /// # Panics
    /// When `method` is none.
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = method.parse().expect("an HTTP method");
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// GET; `Err` when there was no answer. Like all methods below, it waits when the key has reached its limit of this minute.
    ///
    /// # Errors
    /// A sentence about the connection.
    pub fn try_get(&self, path: &str) -> Result<Answer, String> {
        try_send_patiently(&self.authorised(self.request("GET", path)))
    }

    /// GET.
    ///
    /// # Panics
    /// When there is no answer.
    #[track_caller]
    #[must_use]
    pub fn get(&self, path: &str) -> Answer {
        send_patiently(&self.authorised(self.request("GET", path)))
    }

    /// POST of a JSON body.
    ///
    /// # Panics
    /// When there is no answer.
    #[track_caller]
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        send_patiently(&self.authorised(self.request("POST", path)).json(body))
    }

    /// PATCH with a JSON body.
    ///
    /// # Panics
    /// When there is no answer.
    #[track_caller]
    #[must_use]
    pub fn patch(&self, path: &str, body: &Value) -> Answer {
        send_patiently(&self.authorised(self.request("PATCH", path)).json(body))
    }

    /// PUT of a file.
    ///
    /// # Panics
    /// When there is no answer.
    #[track_caller]
    #[must_use]
    pub fn put_file(&self, path: &str, content_type: &str, file: &[u8]) -> Answer {
        let request = self.authorised(self.request("PUT", path)).header("content-type", content_type);
        send_patiently(&request.body(file.to_vec()))
    }

    /// DELETE.
    ///
    /// # Panics
    /// When there is no answer.
    #[track_caller]
    #[must_use]
    pub fn delete(&self, path: &str) -> Answer {
        send_patiently(&self.authorised(self.request("DELETE", path)))
    }

    /// Makes a stream.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    #[must_use]
    pub fn create_stream(&self, label: &str) -> Stream {
        let body = self.post("/api/streams", &json!({ "label": label })).ok();
        stream_of(&body)
    }

    /// Adds an RTMP destination.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    pub fn add_destination(&self, stream: &Stream, url: &str, key: &str) -> i64 {
        let path = format!("/api/streams/{}/destinations", stream.id);
        let body = self.post(&path, &json!({ "type": "rtmp", "config": { "url": url, "key": key } })).ok();
        assert_eq!(body["success"], true, "{body}");
        body["id"].as_i64().expect("the id of the destination")
    }

    /// The detail of a stream.
    ///
    /// # Panics
    /// When it is refused.
    #[track_caller]
    #[must_use]
    pub fn stream(&self, stream: &Stream) -> Value {
        self.get(&format!("/api/streams/{}", stream.id)).ok()
    }

    /// One destination of a stream.
    ///
    /// # Panics
    /// When the list is refused or does not hold it.
    #[track_caller]
    #[must_use]
    pub fn destination(&self, stream: &Stream, id: i64) -> Value {
        let list = self.get(&format!("/api/streams/{}/destinations", stream.id)).ok();
        let found = list.as_array().and_then(|list| list.iter().find(|entry| entry["id"] == id));
        found.unwrap_or_else(|| panic!("destination {id} is not in {list}")).clone()
    }

    /// Waits until the stream's `state` is `state`; gives its detail.
    ///
    /// # Panics
    /// When it is not in time.
    #[track_caller]
    pub fn wait_for_stream(&self, stream: &Stream, state: &str) -> Value {
        wait::until_api(&format!("stream state {state}"), || {
            let detail = self.stream(stream);
            if detail["state"] == state { Ok(detail) } else { Err(detail.to_string()) }
        })
    }

    /// Waits until these encoders of the stream are connected, each with role and state.
    ///
    /// # Panics
    /// When it is not in time.
    #[track_caller]
    pub fn wait_for_encoders(&self, stream: &Stream, wanted: &[(&str, &str)]) {
        wait::until_api("the encoders", || {
            let encoders = self.stream(stream)["encoders"].clone();
            let shown = encoders.as_array().into_iter().flatten();
            let shown =
                shown.map(|one| (one["role"].as_str().unwrap_or(""), one["state"].as_str().unwrap_or("")));
            if shown.eq(wanted.iter().copied()) { Ok(()) } else { Err(encoders.to_string()) }
        });
    }

    /// Waits until the destination's `state` is `state`; gives it.
    ///
    /// # Panics
    /// When it is not in time.
    #[track_caller]
    pub fn wait_for_destination(&self, stream: &Stream, id: i64, state: &str) -> Value {
        wait::until_api(&format!("destination state {state}"), || {
            let destination = self.destination(stream, id);
            if destination["state"] == state { Ok(destination) } else { Err(destination.to_string()) }
        })
    }

    fn authorised(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }
}

/// An HTTP client whose answers may take so long.
///
/// # Panics
/// When none can be made.
#[must_use]
pub fn client(limit: Duration) -> Client {
    // The library is built with the service's features and has no TLS provider. An error means that one is already set.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    Client::builder().timeout(limit).no_proxy().build().expect("an HTTP client")
}

/// The stream in the answer that made it.
///
/// # Panics
/// When the answer holds none.
#[track_caller]
#[must_use]
pub fn stream_of(body: &Value) -> Stream {
    Stream {
        id: body["id"].as_i64().expect("the id of the stream"),
        key: body["streamKey"].as_str().expect("the stream key").to_owned(),
    }
}

/// Sends a request that the test completed itself.
///
/// # Panics
/// When there is no answer.
#[track_caller]
#[must_use]
pub fn send(request: RequestBuilder) -> Answer {
    try_send(request).unwrap_or_else(|error| panic!("no answer: {error}"))
}

/// The same, with a retry when the key has reached its limit: on a busy machine a test polls longer.
///
/// # Panics
/// When there is no answer.
#[track_caller]
#[must_use]
pub fn send_patiently(request: &RequestBuilder) -> Answer {
    try_send_patiently(request).unwrap_or_else(|error| panic!("no answer: {error}"))
}

fn try_send_patiently(request: &RequestBuilder) -> Result<Answer, String> {
    let copy = || request.try_clone().expect("a body that can be sent twice");
    let answer = try_send(copy())?;
    if answer.body["code"] != "rate_limited" {
        return Ok(answer);
    }
    let wait = answer.body["retryAfter"].as_u64().unwrap_or(PATIENCE_MAX_SECS);
    std::thread::sleep(Duration::from_secs(wait.min(PATIENCE_MAX_SECS)));
    try_send(copy())
}

fn try_send(request: RequestBuilder) -> Result<Answer, String> {
    let response = request.send().map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let headers = response.headers().iter();
    let headers = headers
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    let headers = headers.collect();
    let text = response.text().map_err(|error| error.to_string())?;
    Ok(Answer { status, headers, body: serde_json::from_str(&text).unwrap_or_default(), text })
}

/// A key of the documented form: prefix, 32 base62 characters, their CRC32 as six more; for benchmarks that need more keys
/// than an account can have.
#[must_use]
pub fn key_like(prefix: &str, number: usize) -> String {
    const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut key = format!("{prefix}{number:032}");
    let mut crc = flate2::Crc::new();
    crc.update(key.as_bytes());
    let mut rest = crc.sum();
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    key.extend(digits.map(char::from));
    key
}
