//! Viewer requests that a driver answers itself, and the answers, as both sides use them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{AssetBody, Audience, Error};

/// Most routes of one destination type.
pub const ROUTES_MAX: usize = 16;
/// Longest path and longest query of a request, in bytes each.
pub const REQUEST_TEXT_BYTES_MAX: usize = 1024;
/// Most requests of one destination that may wait for their answers.
pub const IN_FLIGHT_MAX: usize = 64;
/// Longest time for an answer of a driver, in seconds.
pub const ANSWER_SECS: u64 = 10;
/// Longest time for an answer on a long route, in seconds.
pub const LONG_ANSWER_SECS: u64 = 30;
/// Most headers of an answer.
pub const HEADERS_MAX: usize = 32;
/// Most bytes of all headers of an answer.
pub const HEADER_BYTES_MAX: usize = 8 * 1024;
/// Longest media type in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 128;
/// Largest body in memory, in bytes.
pub const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Method of a viewer request. The numbers are those of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// For head and body.
    Get = 1,
    /// For the head only. The answer may have a body: the host leaves it out.
    Head = 2,
}

impl Method {
    /// The method of a number of the C table; unknown numbers of a newer host count as `GET`.
    pub fn from_number(number: u32) -> Self {
        if number == Method::Head as u32 { Method::Head } else { Method::Get }
    }
}

/// A viewer request below a route of the destination's type. The host has checked key and origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpRequest {
    /// Method.
    pub method: Method,
    /// The viewer's audience: [`Audience::Preview`] only where the route allows it.
    pub audience: Audience,
    /// Path below the destination's address, beginning with the route's name; as it was sent, percent signs included.
    pub path: String,
    /// Query after the question mark, as it was sent, without the viewer's key.
    pub query: String,
}

/// An answer to a viewer. The host adds length, ranges, origins and caching. Between processes its bytes and its file are sent separately.
#[derive(Debug, Serialize, Deserialize)]
pub struct HttpResponse {
    /// 200, 204, or 400 to 599.
    pub status: u16,
    /// Media type; may be empty without a body.
    pub content_type: String,
    /// Seconds that caches may keep it; 0 = not at all.
    pub max_age_secs: u32,
    /// Further headers; see [`check_head`] for those that are refused.
    pub headers: Vec<(String, String)>,
    /// The bytes: in memory at most [`BODY_BYTES_MAX`].
    pub body: AssetBody,
}

impl HttpResponse {
    /// Status 200 with a body and without caching.
    pub fn of(content_type: &str, body: AssetBody) -> Self {
        let (content_type, headers) = (content_type.to_owned(), Vec::new());
        Self { status: 200, content_type, max_age_secs: 0, headers, body }
    }

    /// An answer without a body.
    pub fn empty(status: u16) -> Self {
        Self { status, ..Self::bytes("", Bytes::new()) }
    }

    /// Status 200 with bytes in memory and without caching.
    pub fn bytes(content_type: &str, bytes: impl Into<Bytes>) -> Self {
        Self::of(content_type, AssetBody::Memory(bytes.into()))
    }

    /// Status 404.
    pub fn not_found() -> Self {
        Self::empty(404)
    }

    /// Lets caches keep it for `secs` seconds.
    pub fn max_age(mut self, secs: u32) -> Self {
        self.max_age_secs = secs;
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Checks the rules for answers.
    ///
    /// # Errors
    /// `Internal`, naming the rule.
    pub fn check(&self) -> Result<(), Error> {
        let has_body = match &self.body {
            AssetBody::Memory(bytes) if bytes.len() as u64 > BODY_BYTES_MAX => {
                return Err(Error::internal(format!(
                    "an answer has over {BODY_BYTES_MAX} bytes in memory; answer from a file"
                )));
            }
            AssetBody::Open { offset, len, .. } if offset.checked_add(*len).is_none() => {
                return Err(Error::internal(
                    "the offset and length of an answer are beyond the end of any file",
                ));
            }
            AssetBody::Memory(bytes) => !bytes.is_empty(),
            AssetBody::File { .. } | AssetBody::Open { .. } | AssetBody::Parts(_) => true,
        };
        check_head(self.status, &self.content_type, &self.headers, has_body)
    }
}

/// Headers that a driver may set, besides its own. All others are refused: browsers, caches and proxies may act on headers
/// that are unknown today, for the whole address of the service.
pub const HEADERS_TAKEN: [&str; 6] =
    ["content-disposition", "content-encoding", "content-language", "etag", "last-modified", "retry-after"];
/// Prefix of the names of a driver's own headers.
pub const OWN_HEADER_PREFIX: &str = "x-driver-";

/// Checks the rules for head and length of an answer.
///
/// # Errors
/// `Internal`, naming the rule.
pub fn check_head(
    status: u16,
    content_type: &str,
    headers: &[(String, String)],
    has_body: bool,
) -> Result<(), Error> {
    if !matches!(status, 200 | 204 | 400..=599) {
        return Err(Error::internal(format!(
            "an answer has status {status}; only 200, 204 and 400 to 599 are allowed"
        )));
    }
    if status == 204 && has_body {
        return Err(Error::internal("an answer with status 204 has a body"));
    }
    let printable = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let needed = usize::from(has_body);
    if !printable(content_type) || !(needed..=CONTENT_TYPE_BYTES_MAX).contains(&content_type.len()) {
        return Err(Error::internal("an answer has a malformed media type"));
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
        return Err(Error::internal(format!(
            "an answer has over {HEADERS_MAX} headers or over {HEADER_BYTES_MAX} bytes of them"
        )));
    }
    for (name, value) in headers {
        check_header(name, value, printable(value))?;
    }
    Ok(())
}

fn check_header(name: &str, value: &str, is_printable: bool) -> Result<(), Error> {
    let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        return Err(Error::internal("an answer has a header whose name is malformed"));
    }
    if !is_printable || value.trim() != value {
        return Err(Error::internal(format!("header {name} of an answer has a malformed value")));
    }
    let name = name.to_ascii_lowercase();
    if !HEADERS_TAKEN.contains(&name.as_str()) && !name.starts_with(OWN_HEADER_PREFIX) {
        return Err(Error::internal(format!(
            "a driver may not set header {name} of an answer; the names of its own headers begin with {OWN_HEADER_PREFIX}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(headers: &[(&str, &str)]) -> Result<(), Error> {
        let headers: Vec<_> = headers.iter().map(|(n, v)| ((*n).to_string(), (*v).to_string())).collect();
        check_head(200, "text/plain", &headers, true)
    }

    #[test]
    fn only_allowed_statuses_and_types_pass() {
        for status in [200, 400, 404, 500, 599] {
            assert!(check_head(status, "text/plain", &[], true).is_ok(), "{status}");
        }
        assert!(check_head(204, "", &[], false).is_ok() && check_head(404, "", &[], false).is_ok());
        for status in [0, 100, 101, 206, 301, 304, 399, 600] {
            assert!(check_head(status, "text/plain", &[], true).is_err(), "{status}");
        }
        assert!(check_head(204, "text/plain", &[], true).is_err());
        for bad in ["", "a\r\nb", "\u{e4}", &"t".repeat(CONTENT_TYPE_BYTES_MAX + 1)] {
            assert!(check_head(200, bad, &[], true).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn headers_cannot_end_the_head_or_replace_the_hosts() {
        assert!(with(&[("ETag", "\"a\""), ("X-Driver-Frames", "7"), ("content-encoding", "br")]).is_ok());
        for (name, value) in [
            ("", "x"),
            ("A B", "x"),
            ("a:b", "x"),
            ("x\r\ny", "x"),
            ("x-driver-x", "a\r\nSet-Cookie: b"),
            ("x-driver-x", "a\nb"),
            ("x-driver-x", "a\0b"),
            ("x-driver-x", " a"),
            ("x-driver-x", "\u{e4}"),
            ("x", "y"),
            ("NEL", "{}"),
            ("X-Accel-Redirect", "/secret"),
            ("CDN-Cache-Control", "max-age=9"),
            ("Content-Security-Policy-Report-Only", "default-src *; report-uri https://example.org"),
            ("WWW-Authenticate", "Basic"),
            ("Connection", "close"),
            ("transfer-encoding", "chunked"),
            ("Content-Length", "5"),
            ("Set-Cookie", "session=1"),
            ("Location", "https://example.org"),
            ("Access-Control-Allow-Origin", "*"),
            ("Cross-Origin-Opener-Policy", "unsafe-none"),
            ("X-Request-Id", "a"),
        ] {
            assert!(with(&[(name, value)]).is_err(), "{name:?}: {value:?}");
        }
        let most = vec![("x-driver-x", "y"); HEADERS_MAX];
        assert!(with(&most).is_ok() && with(&[&most[..], &[("x-driver-x", "y")]].concat()).is_err());
        let longest = "v".repeat(HEADER_BYTES_MAX - "x-driver-x".len());
        assert!(with(&[("x-driver-x", &longest)]).is_ok() && with(&[("x-driver-xy", &longest)]).is_err());
    }
}
