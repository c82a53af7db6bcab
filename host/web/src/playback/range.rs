//! Byte ranges of requests (RFC 9110, section 14).

use poem::http::HeaderMap;
use poem::http::header::{IF_RANGE, RANGE};

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
    /// The bytes for a GET with these headers of an asset of `size` bytes. Several ranges, other units and unreadable ranges get the
    /// whole asset, which the standard allows; so do conditional ranges, because assets have no validators.
    pub(super) fn asked(headers: &HeaderMap, size: u64) -> Self {
        let mut lines = headers.get_all(RANGE).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else { return Span::Whole };
        if headers.contains_key(IF_RANGE) {
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
    use poem::http::HeaderValue;

    use super::*;

    fn asked(range: &str, size: u64) -> Span {
        let headers = HeaderMap::from_iter([(RANGE, HeaderValue::from_str(range).unwrap())]);
        Span::asked(&headers, size)
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
        assert_eq!(Span::asked(&headers, 100), Span::Whole);
        headers.remove(IF_RANGE);
        headers.append(RANGE, HeaderValue::from_static("bytes=2-3"));
        assert_eq!(Span::asked(&headers, 100), Span::Whole);
        assert_eq!(Span::asked(&HeaderMap::new(), 100), Span::Whole);
    }
}
