//! CORS for public operations, which scripts of any website may call with the key in a header: browsers send a preflight request,
//! and need the headers on every response, including errors. Cookies are not used here, so any origin may read.

use poem::Response;
use poem::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, HeaderValue,
};
use poem::http::{HeaderMap, Method, StatusCode};

/// Path prefix of all public operations.
const PUBLIC_PREFIX: &str = "/api/public/";
/// Request headers that a website may send.
const METHODS: &str = "GET, HEAD";
const REQUEST_HEADERS: &str = "X-API-Key, Authorization";
/// Response headers that its scripts may read.
const RESPONSE_HEADERS: &str = "Retry-After, RateLimit, RateLimit-Policy, X-Request-Id";
/// How long a browser may cache the preflight response; browsers may use a shorter time.
const PREFLIGHT_KEPT_SECS: &str = "86400";

/// Whether the path belongs to a public operation.
pub(crate) fn is_public(path: &str) -> bool {
    path.starts_with(PUBLIC_PREFIX)
}

/// The response to a preflight request.
pub(crate) fn preflight(method: &Method, path: &str) -> Option<Response> {
    if method != Method::OPTIONS || !is_public(path) {
        return None;
    }
    let mut response = Response::from(());
    response.set_status(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(REQUEST_HEADERS));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_KEPT_SECS));
    Some(response)
}

/// Lets scripts of any website read the response of a public operation.
pub(crate) fn let_read(path: &str, headers: &mut HeaderMap) {
    if is_public(path) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(RESPONSE_HEADERS));
    }
}
