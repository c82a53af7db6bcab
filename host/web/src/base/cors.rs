//! Public operations are called by scripts of any website, with the key in a header: browsers ask first, and need to be
//! told with every answer, errors included. Nothing here knows cookies, so that any origin may read.

use poem::Response;
use poem::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, HeaderValue,
};
use poem::http::{HeaderMap, Method, StatusCode};

/// What the paths of all public operations begin with.
const PUBLIC_PREFIX: &str = "/api/public/";
/// What a website may send.
const METHODS: &str = "GET, HEAD";
const REQUEST_HEADERS: &str = "X-API-Key, Authorization";
/// What its scripts may read besides the body.
const RESPONSE_HEADERS: &str = "Retry-After, RateLimit, RateLimit-Policy, X-Request-Id";
/// How long a browser need not ask again; browsers take less if they want.
const PREFLIGHT_KEPT_SECS: &str = "86400";

/// True for the path of a public operation.
pub(crate) fn is_public(path: &str) -> bool {
    path.starts_with(PUBLIC_PREFIX)
}

/// The answer to a browser that asks whether a script may send its request.
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

/// Lets scripts of any website read the answer of a public operation.
pub(crate) fn let_read(path: &str, headers: &mut HeaderMap) {
    if is_public(path) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(RESPONSE_HEADERS));
    }
}
