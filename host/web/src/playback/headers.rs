//! Headers of playback: CORS, caching, encoding, and byte ranges (RFC 9110, section 14).

use poem::http::HeaderMap;
use poem::http::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, CACHE_CONTROL, HeaderName, HeaderValue, IF_RANGE,
    ORIGIN, RANGE, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};

const TIMING_ALLOW_ORIGIN: HeaderName = HeaderName::from_static("timing-allow-origin");
const ANY: HeaderValue = HeaderValue::from_static("*");
/// Seconds that a browser may cache a preflight response.
const PREFLIGHT_MAX_AGE_SECS: u32 = 86_400;
/// Methods of playback.
pub(super) const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");
/// Request headers that a page may send; the last one distinguishes players for the viewer count.
const REQUEST_HEADERS: HeaderValue =
    HeaderValue::from_static("Range, X-API-Key, Authorization, X-Playback-Session-Id");
/// Response headers that a page may read.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("Content-Length, Content-Range, Date, Age, Retry-After, X-Request-Id");

/// Origins that may read the responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readers {
    /// All origins.
    All,
    /// One origin, which is on the destination's list.
    One(HeaderValue),
    /// None: the destination has a list, and the request has no origin.
    Program,
}

impl Readers {
    /// The origins that may read the response, or `None` if the request's origin is not on the list. Requests without `Origin` pass:
    /// they come from programs, which could send any origin, or from pages that cannot read the response.
    pub(super) fn of(headers: &HeaderMap, allowed: &[String]) -> Option<Self> {
        if allowed.is_empty() {
            return Some(Readers::All);
        }
        let Some(origin) = headers.get(ORIGIN) else {
            return Some(match allowed {
                // A response cached for a program must also work for pages of the only origin.
                [only] => {
                    HeaderValue::try_from(only.trim_end_matches('/')).map_or(Readers::Program, Readers::One)
                }
                _ => Readers::Program,
            });
        };
        let text = origin.to_str().ok()?;
        let on_list = |allowed: &String| allowed.trim_end_matches('/').eq_ignore_ascii_case(text);
        allowed.iter().any(on_list).then(|| Readers::One(origin.clone()))
    }
}

/// Headers of every playback response, including errors: without them a player sees only "status 0".
pub(super) fn common(headers: &mut HeaderMap, readers: &Readers) {
    let origin = match readers {
        Readers::All => Some(ANY),
        Readers::One(origin) => Some(origin.clone()),
        // A cache that ignores `Vary` must not give access to every origin.
        Readers::Program => None,
    };
    if *readers != Readers::All {
        // One header line, because some caches read only one.
        let vary = if headers.contains_key(VARY) { "Accept-Encoding, Origin" } else { "Origin" };
        headers.insert(VARY, HeaderValue::from_static(vary));
    }
    if let Some(origin) = origin {
        headers.insert(TIMING_ALLOW_ORIGIN, origin.clone());
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Headers of a preflight response. The request that follows is checked separately.
pub(super) fn preflight(headers: &mut HeaderMap) {
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(PREFLIGHT_MAX_AGE_SECS));
}

/// Caching of an asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// A playlist: for the seconds that the driver set.
    Playlist(u32),
    /// Media: for a long time, because names are never reused.
    Media(u32),
    /// The preview: never, because its requests are counted.
    Preview,
}

/// The `Cache-Control` of an asset.
pub(super) fn cache_control(keep: Keep) -> HeaderValue {
    let text = match keep {
        Keep::Preview => return HeaderValue::from_static("private, no-store"),
        Keep::Playlist(0) | Keep::Media(0) => return HeaderValue::from_static("no-store"),
        Keep::Playlist(secs) => format!("max-age={secs}"),
        Keep::Media(secs) => format!("max-age={secs}, immutable"),
    };
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("no-store"))
}

/// Whether the response must not be cached.
pub(super) fn is_never_stored(headers: &HeaderMap) -> bool {
    headers.get(CACHE_CONTROL).is_some_and(|value| value.as_bytes().ends_with(b"no-store"))
}

/// Whether the client accepts gzip (RFC 9110, section 12.5.3): by name, or by `*` if gzip is not named, and without `q=0`.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let mut any = false;
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    for coding in lines.flat_map(|line| line.split(',')) {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let wanted = !parts.any(is_zero_weight);
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            return wanted;
        }
        any |= name == "*" && wanted;
    }
    any
}

/// `q=0`, `q=0.0`, `q=0.00` or `q=0.000`.
fn is_zero_weight(parameter: &str) -> bool {
    let Some((name, weight)) = parameter.split_once('=') else { return false };
    name.trim().eq_ignore_ascii_case("q") && weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0)
}

/// The bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// All of it, with 200.
    Whole,
    /// `len` bytes from `first`, with 206.
    Part { first: u64, len: u64 },
    /// None of it, with 416.
    OutOfBounds,
}

impl Span {
    /// The bytes for a GET with these headers of `size` bytes. Several ranges, other units and unreadable ranges get the whole, which
    /// the standard allows; so do conditional ranges of anything but `etag`. Assets have no such validator.
    pub(super) fn asked(headers: &HeaderMap, size: u64, etag: Option<&HeaderValue>) -> Self {
        let mut lines = headers.get_all(RANGE).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else { return Span::Whole };
        if headers.get(IF_RANGE).is_some_and(|asked| Some(asked) != etag) {
            return Span::Whole;
        }
        line.to_str().ok().and_then(|line| Self::parse(line, size)).unwrap_or(Span::Whole)
    }

    fn parse(line: &str, size: u64) -> Option<Self> {
        let (unit, range) = line.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = range.trim().split_once('-')?;
        let (first, last) = (first.trim(), last.trim());
        if first.is_empty() {
            let wanted = number(last)?.min(size);
            return Some(match wanted {
                0 => Span::OutOfBounds,
                len => Span::Part { first: size - len, len },
            });
        }
        let first = number(first)?;
        let last = if last.is_empty() { u64::MAX } else { number(last)? };
        if last < first {
            return None;
        }
        if first >= size {
            return Some(Span::OutOfBounds);
        }
        Some(Span::Part { first, len: (last - first).min(size - 1 - first) + 1 })
    }
}

/// Digits only; saturates at the largest number.
fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn gzip_is_used_only_if_accepted() {
        for (value, expected) in [
            ("gzip", true),
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("gzip, identity;q=1, *;q=0", true),
            ("x-gzip", true),
            ("*", true),
            ("*;q=0.1", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("gzip;q=0, *", false),
            ("*;q=0", false),
            ("identity", false),
            ("br", false),
            ("", false),
            ("gzipped", false),
        ] {
            assert_eq!(accepts_gzip(&with(ACCEPT_ENCODING, value)), expected, "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn only_listed_origins_may_read() {
        let list = ["https://a.example".to_owned(), "https://b.example:8443/".to_owned()];
        let of = |origin| Readers::of(&with(ORIGIN, origin), &list);
        assert_eq!(
            of("https://a.example"),
            Some(Readers::One(HeaderValue::from_static("https://a.example")))
        );
        assert!(of("https://B.example:8443").is_some());
        for other in ["https://c.example", "http://a.example", "https://a.example.c.example", "null", ""] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(Readers::of(&HeaderMap::new(), &list), Some(Readers::Program));
        assert_eq!(Readers::of(&with(ORIGIN, "https://c.example"), &[]), Some(Readers::All));
    }

    #[test]
    fn responses_that_depend_on_the_origin_have_vary() {
        let origin = HeaderValue::from_static("https://a.example");
        for (readers, allowed, vary) in [
            (Readers::All, Some("*"), None),
            (Readers::Program, None, Some("Origin")),
            (Readers::One(origin), Some("https://a.example"), Some("Origin")),
        ] {
            let mut headers = HeaderMap::new();
            common(&mut headers, &readers);
            let text = |name| headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!(text(ACCESS_CONTROL_ALLOW_ORIGIN), allowed);
            assert_eq!(text(TIMING_ALLOW_ORIGIN), allowed);
            assert_eq!(text(VARY), vary);
            assert_eq!(headers[CACHE_CONTROL], "no-store", "without another rule");
        }
    }

    #[test]
    fn cache_control_follows_the_table() {
        for (keep, expected) in [
            (Keep::Playlist(1), "max-age=1"),
            (Keep::Playlist(0), "no-store"),
            (Keep::Media(3600), "max-age=3600, immutable"),
            (Keep::Media(0), "no-store"),
            (Keep::Preview, "private, no-store"),
        ] {
            assert_eq!(cache_control(keep), expected);
        }
    }

    fn asked(range: &str, size: u64) -> Span {
        let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_str(range).unwrap())]);
        Span::asked(&headers, size, None)
    }

    fn part(first: u64, len: u64) -> Span {
        Span::Part { first, len }
    }

    #[test]
    fn one_range_is_served_and_bounded() {
        for (range, expected) in [
            ("bytes=0-", part(0, 100)),
            ("bytes=0-0", part(0, 1)),
            ("bytes=10-19", part(10, 10)),
            ("bytes=90-1000", part(90, 10)),
            ("Bytes = 99-99", part(99, 1)),
            ("bytes=-30", part(70, 30)),
            ("bytes=-1000", part(0, 100)),
            ("bytes=5-18446744073709551615", part(5, 95)),
            ("bytes=5-99999999999999999999999", part(5, 95)),
            ("bytes=100-", Span::OutOfBounds),
            ("bytes=99999999999999999999999-", Span::OutOfBounds),
            ("bytes=-0", Span::OutOfBounds),
        ] {
            assert_eq!(asked(range, 100), expected, "{range}");
        }
        assert_eq!(asked("bytes=0-", 0), Span::OutOfBounds);
        assert_eq!(asked("bytes=-1", 0), Span::OutOfBounds);
    }

    #[test]
    fn multiple_unknown_and_malformed_ranges_get_the_whole_asset() {
        for range in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=5-4",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=0-1,3-4",
            "items=0-1",
        ] {
            assert_eq!(asked(range, 100), Span::Whole, "{range}");
        }
        let mut headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-1"))]);
        headers.insert(IF_RANGE, HeaderValue::from_static("\"etag\""));
        assert_eq!(Span::asked(&headers, 100, None), Span::Whole);
        let etag = HeaderValue::from_static("\"etag\"");
        assert_eq!(Span::asked(&headers, 100, Some(&etag)), part(0, 2));
        let other = HeaderValue::from_static("\"other\"");
        assert_eq!(Span::asked(&headers, 100, Some(&other)), Span::Whole);
        headers.remove(IF_RANGE);
        headers.append(RANGE, HeaderValue::from_static("bytes=2-3"));
        assert_eq!(Span::asked(&headers, 100, None), Span::Whole);
        assert_eq!(Span::asked(&HeaderMap::new(), 100, None), Span::Whole);
    }
}
