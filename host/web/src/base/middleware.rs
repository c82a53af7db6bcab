//! The middleware around every request: request id, client address, error bodies, headers, CORS, access log.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use ipnet::IpNet;
use parking_lot::Mutex;
use poem::endpoint::{BoxEndpoint, EndpointExt as _};
use poem::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName,
    HeaderValue, RETRY_AFTER,
};
use poem::http::{HeaderMap, Method, StatusCode};
use poem::{Endpoint, Request, Response, Result};
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::error::ApiError;
use super::requests::{Requests, matches_template};
use satcast_core::clock::Clock;
use satcast_core::config::WHIP_PATH;
use satcast_core::rate::RateVerdict;
use satcast_core::secret::{BACKUP_KEY_PREFIX, STREAM_KEY_PREFIX, mask_key, new_request_id};
use satcast_core::trace::{self, TraceContext};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const REFERRER_POLICY: HeaderName = HeaderName::from_static("referrer-policy");
const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
/// Headers that the middleware and the listener add: room for them is made once.
const HEADERS_MORE: usize = 10;
const FORWARDED_FOR: &str = "x-forwarded-for";
/// Longest path in the access log.
const LOGGED_PATH_CHARS_MAX: usize = 200;
/// Most addresses of an `X-Forwarded-For` header that are read.
const FORWARDED_HOPS_MAX: usize = 16;

/// Context of a request, carried in its extensions.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// Request id.
    pub id: Arc<str>,
    /// The client's address; behind trusted proxies, the address that they report.
    pub client: IpAddr,
    /// Whether this is a HEAD request; handlers see it as a GET.
    pub is_head: bool,
    rate: Arc<Mutex<Option<RateVerdict>>>,
}

impl RequestContext {
    fn new(client: IpAddr, is_head: bool) -> Self {
        Self { id: new_request_id().into(), client, is_head, rate: Arc::default() }
    }

    /// The context of a new request: with a new id and the client's address.
    pub(crate) fn begin(request: &Request, trusted_proxies: &[IpNet]) -> Self {
        let peer = request.remote_addr().as_socket_addr();
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
        let client = client_address(peer, request.headers(), trusted_proxies);
        Self::new(client, *request.method() == Method::HEAD)
    }

    /// The context of a request; a new one if no middleware has set it.
    pub fn of(request: &Request) -> Self {
        let unknown = || Self::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), *request.method() == Method::HEAD);
        request.extensions().get::<Self>().cloned().unwrap_or_else(unknown)
    }

    /// The span of a request, in the trace of its caller: every line inside has the request id. Its target is not that of the access
    /// log, which operators turn off.
    pub(crate) fn span(&self, request: &Request) -> Span {
        let span = tracing::error_span!(
            target: "satcast::request", parent: None, "request",
            request_id = %self.id, method = request.method().as_str(), route = Empty, status = Empty
        );
        if let Some(caller) = request.header(trace::HEADER).and_then(TraceContext::parse) {
            caller.adopt(&span);
        }
        span
    }

    /// Keeps the verdict of a limiter for the headers of the response.
    ///
    /// # Errors
    /// 429 when the limiter refused.
    pub fn count(&self, verdict: RateVerdict) -> std::result::Result<(), ApiError> {
        *self.rate.lock() = Some(verdict);
        if verdict.allowed {
            Ok(())
        } else {
            Err(ApiError::rate_limited(&verdict.rule, verdict.reset_secs()))
        }
    }

    /// Sets the headers for the request id and, if a limiter was used, the rate limit.
    pub(crate) fn show(&self, headers: &mut HeaderMap) {
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            headers.insert(REQUEST_ID, id);
        }
        let Some(verdict) = *self.rate.lock() else { return };
        let rule = verdict.rule;
        let limit = format!("\"{}\";r={};t={}", rule.name, verdict.remaining, verdict.reset_secs());
        let policy = format!("\"{}\";q={};w={}", rule.name, rule.max, rule.window.as_secs());
        for (name, text) in [(RATE_LIMIT, limit), (RATE_LIMIT_POLICY, policy)] {
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(name, value);
            }
        }
    }

    /// The error response.
    pub(crate) fn error_response(&self, error: &ApiError) -> Response {
        let mut response = Response::from(error.body(&self.id).to_string());
        response.set_status(error.http_status());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(secs) = error.retry_after_secs() {
            headers.insert(RETRY_AFTER, HeaderValue::from(secs));
        }
        response
    }
}

/// The outermost endpoint. It never fails: every error and panic inside becomes a response.
pub struct Middleware {
    inner: BoxEndpoint<'static, Response>,
    /// An operation that pages poll, with its path. A GET goes to it at once: the way through the routes costs several times as much
    /// as its answer.
    polled: Option<(&'static str, BoxEndpoint<'static, Response>)>,
    clock: Clock,
    trusted_proxies: Vec<IpNet>,
    methods: BTreeMap<String, String>,
    requests: Arc<Requests>,
}

impl std::fmt::Debug for Middleware {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Middleware").finish_non_exhaustive()
    }
}

impl Middleware {
    /// `methods` has the methods of each path of the document, for the `Allow` header.
    pub(crate) fn new<E>(
        inner: E,
        clock: Clock,
        trusted_proxies: &[IpNet],
        methods: BTreeMap<String, String>,
    ) -> Self
    where
        E: Endpoint + 'static,
        E::Output: poem::IntoResponse,
    {
        Self {
            inner: inner.map_to_response().boxed(),
            polled: None,
            clock,
            trusted_proxies: trusted_proxies.to_vec(),
            methods,
            requests: Arc::new(Requests::new([])),
        }
    }

    /// Counts the answers in `requests`.
    pub(crate) fn counting(self, requests: Arc<Requests>) -> Self {
        Self { requests, ..self }
    }

    /// The counts of all requests, for those that go around the middleware.
    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Sends every GET of exactly `path` to `endpoint`.
    pub(crate) fn with_polled<E>(mut self, path: &'static str, endpoint: E) -> Self
    where
        E: Endpoint + 'static,
        E::Output: poem::IntoResponse,
    {
        self.polled = Some((path, endpoint.map_to_response().boxed()));
        self
    }

    fn endpoint(&self, method: &Method, path: &str) -> &BoxEndpoint<'static, Response> {
        match &self.polled {
            Some((polled, endpoint)) if *polled == path && *method == Method::GET => endpoint,
            _ => &self.inner,
        }
    }

    pub async fn answer(&self, request: Request) -> Response {
        let context = RequestContext::begin(&request, &self.trusted_proxies);
        let span = context.span(&request);
        self.answer_in_span(request, context).instrument(span).await
    }

    async fn answer_in_span(&self, mut request: Request, context: RequestContext) -> Response {
        let started = self.clock.monotonic();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        request.extensions_mut().insert(context.clone());
        let mut response = match preflight(&method, &path) {
            Some(response) => response,
            None => self.answer_inside(request, &context, &path).await,
        };
        if method == Method::HEAD {
            response.set_body(());
        }
        finish_headers(response.headers_mut(), &context);
        let_read(&path, response.headers_mut());
        let took = self.clock.monotonic().saturating_sub(started);
        let route = self.requests.count(&path, response.status());
        log(&method, &path, response.status(), &context, took.as_millis());
        describe(route, response.status());
        response
    }

    async fn answer_inside(&self, request: Request, context: &RequestContext, path: &str) -> Response {
        let endpoint = self.endpoint(request.method(), path);
        match AssertUnwindSafe(endpoint.call(request)).catch_unwind().await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => self.error_response(&ApiError::from_poem(&error), context, path),
            Err(_) => {
                tracing::error!("a handler panicked");
                self.error_response(&ApiError::internal(), context, path)
            }
        }
    }

    fn error_response(&self, error: &ApiError, context: &RequestContext, path: &str) -> Response {
        let mut response = context.error_response(error);
        if error.http_status() == StatusCode::METHOD_NOT_ALLOWED {
            let allowed = self.methods.iter().find(|(template, _)| matches_template(template, path));
            let allowed = allowed.map_or("GET, HEAD", |(_, methods)| methods);
            if let Ok(value) = HeaderValue::from_str(allowed) {
                response.headers_mut().insert(ALLOW, value);
            }
        }
        response
    }
}

impl Endpoint for Middleware {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        Ok(self.answer(request).await)
    }
}

// CORS for public operations, which scripts of any website may call with the key in a header: browsers send a preflight request,
// and need the headers on every response, including errors. Cookies are not used here, so any origin may read.

/// Path prefix of all public operations.
const PUBLIC_PREFIX: &str = "/api/public/";

/// What scripts of any website may do.
struct Cors {
    methods: &'static str,
    /// Request headers that a website may send.
    request_headers: &'static str,
    /// Response headers that its scripts may read.
    response_headers: &'static str,
}

static PUBLIC: Cors = Cors {
    methods: "GET, HEAD",
    request_headers: "X-API-Key, Authorization",
    response_headers: "Retry-After, RateLimit, RateLimit-Policy, X-Request-Id",
};

/// Pages that publish from a browser (RFC 9725, 4.2).
static OFFERS: Cors = whip("POST");
/// The address of one publish.
static PUBLISH: Cors = whip("DELETE");

const fn whip(methods: &'static str) -> Cors {
    Cors {
        methods,
        request_headers: "Authorization, Content-Type",
        response_headers: "Location, ETag, Link, Retry-After, X-Request-Id",
    }
}

/// How long a browser may cache the preflight response; browsers may use a shorter time.
const PREFLIGHT_KEPT_SECS: &str = "86400";

/// The rules of a path that scripts of any website may call.
fn cors(path: &str) -> Option<&'static Cors> {
    if path.starts_with(PUBLIC_PREFIX) {
        return Some(&PUBLIC);
    }
    match path.strip_prefix(WHIP_PATH)? {
        "" => Some(&OFFERS),
        publish if publish.starts_with('/') => Some(&PUBLISH),
        _ => None,
    }
}

/// Whether scripts of any website may call the path.
pub(crate) fn has_cors(path: &str) -> bool {
    cors(path).is_some()
}

/// The response to a preflight request.
fn preflight(method: &Method, path: &str) -> Option<Response> {
    let rules = cors(path).filter(|_| method == Method::OPTIONS)?;
    let mut response = Response::from(());
    response.set_status(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    if let Ok(allow) = HeaderValue::from_str(&format!("{}, OPTIONS", rules.methods)) {
        headers.insert(ALLOW, allow);
    }
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(rules.methods));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(rules.request_headers));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_KEPT_SECS));
    if path == WHIP_PATH {
        // Clients learn from it that this is a WHIP endpoint (RFC 9725).
        headers.insert(ACCEPT_POST, HeaderValue::from_static("application/sdp"));
    }
    Some(response)
}

/// Lets scripts of any website read the response, if they may call the path.
fn let_read(path: &str, headers: &mut HeaderMap) {
    if let Some(rules) = cors(path) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(rules.response_headers));
    }
}

/// Headers of every response: request id, rate limit, and protections against content sniffing, caching and referrer leaks.
fn finish_headers(headers: &mut HeaderMap, context: &RequestContext) {
    headers.reserve(HEADERS_MORE);
    headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    context.show(headers);
}

/// Route and status for the trace of a request.
pub(crate) fn describe(route: &str, status: StatusCode) {
    if trace::is_exported() {
        Span::current().record("route", route).record("status", status.as_u16());
    }
}

/// One line per request, without the query string, which may hold a key.
fn log(method: &Method, path: &str, status: StatusCode, context: &RequestContext, took_ms: u128) {
    let (client, status) = (&context.client, status.as_u16());
    // Polling pages and probes would flood the log.
    let is_quiet = status < 400 && matches!(*method, Method::GET | Method::HEAD);
    if is_quiet && !tracing::enabled!(target: "satcast::access", tracing::Level::DEBUG) {
        return;
    }
    let path = logged_path(path);
    if is_quiet {
        tracing::debug!(target: "satcast::access", %client, path, status, took_ms, "request");
    } else {
        tracing::info!(target: "satcast::access", %client, path, status, took_ms, "request");
    }
}

/// A path for the log, with keys masked: a user may paste a key into a path.
pub(crate) fn logged_path(path: &str) -> String {
    let path: String = path.chars().take(LOGGED_PATH_CHARS_MAX).collect();
    path.split('/').map(without_key).collect::<Vec<_>>().join("/")
}

fn without_key(part: &str) -> String {
    let prefixes = ["sk_", "pk_", "st_", "inv_", STREAM_KEY_PREFIX, BACKUP_KEY_PREFIX];
    let is_key = prefixes.iter().any(|prefix| part.starts_with(prefix));
    if is_key { mask_key(part) } else { part.to_owned() }
}

/// The client's address: the peer, or behind a trusted proxy the last address in `X-Forwarded-For` that is not a trusted proxy.
/// Addresses before that one are written by the client and are not trusted.
fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    if !is_trusted(&client) {
        return client;
    }
    let lines: Vec<&str> =
        headers.get_all(FORWARDED_FOR).iter().filter_map(|line| line.to_str().ok()).collect();
    let hops = lines.iter().rev().flat_map(|line| line.rsplit(','));
    for hop in hops.take(FORWARDED_HOPS_MAX) {
        let Ok(address) = hop.trim().parse::<IpAddr>() else { break };
        client = address.to_canonical();
        if !is_trusted(&client) {
            break;
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use poem::endpoint::make_sync;
    use satcast_core::ids::UnixMillis;

    use super::*;

    #[test]
    fn forwarded_addresses_are_believed_only_from_trusted_proxies() {
        let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
        let client = |peer: &str, lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_FOR, HeaderValue::from_static(line));
            }
            client_address(peer.parse().unwrap(), &headers, &trusted).to_string()
        };
        assert_eq!(client("192.0.2.1", &["198.51.100.1"]), "192.0.2.1");
        assert_eq!(client("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["6.6.6.6, 198.51.100.1, 10.0.0.2"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["6.6.6.6", "198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("10.0.0.1", &["198.51.100.1, nonsense"]), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(client("::ffff:10.0.0.1", &["::ffff:198.51.100.1"]), "198.51.100.1");
        let long: &'static str =
            Box::leak(format!("198.51.100.1{}", ", 10.0.0.9".repeat(16)).into_boxed_str());
        assert_eq!(client("10.0.0.1", &[long]), "10.0.0.9", "only a limited number of hops is read");
    }

    #[tokio::test]
    async fn only_a_get_of_the_polled_path_skips_the_routes() {
        let (routes, polled) = (make_sync(|_| "routes"), make_sync(|_| "polled"));
        let clock = Clock::manual(UnixMillis(0));
        let middleware = Middleware::new(routes, clock, &[], BTreeMap::new()).with_polled("/a", polled);
        for (method, uri, expected) in [
            (Method::GET, "/a", "polled"),
            (Method::GET, "/a?key=x", "polled"),
            (Method::GET, "/a/", "routes"),
            (Method::GET, "/ab", "routes"),
            (Method::POST, "/a", "routes"),
            (Method::HEAD, "/a", ""),
        ] {
            let request = Request::builder().method(method.clone()).uri_str(uri).finish();
            let mut response = middleware.answer(request).await;
            assert!(response.headers().contains_key(REQUEST_ID));
            assert_eq!(response.take_body().into_string().await.unwrap(), expected, "{method} {uri}");
        }
    }

    #[test]
    fn templates_match_whole_paths_only() {
        for (path, expected) in [
            ("/api/streams/7", true),
            ("/api/streams/", false),
            ("/api/streams", false),
            ("/api/streams/7/stop", false),
        ] {
            assert_eq!(matches_template("/api/streams/{id}", path), expected, "{path}");
        }
    }
}
