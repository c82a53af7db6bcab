//! Names of recordings: they sort by time, are safe in URLs, and are unique.

use time::OffsetDateTime;

/// Longest part of a name from the stream's label.
pub(crate) const SLUG_BYTES_MAX: usize = 48;
/// Longest part from the session's id; ids are shorter.
const SESSION_BYTES_MAX: usize = 64;
/// Longest prefix in a store in bytes. With the longest name the key stays far below 1024 bytes.
pub(crate) const PREFIX_BYTES_MAX: usize = 512;

/// `<label-slug>/<date>T<time>Z-<session>-<number>.mp4`, in UTC. Session and number make it unique. The time has no
/// colons, which some systems refuse in file names, and still sorts.
pub(crate) fn file_name(label: &str, started_ms: i64, session: &str, number: u32) -> String {
    format!("{}/{}-{}-{number}.mp4", slug(label), stamp(started_ms), plain(session))
}

/// Name of the local files: the last part of the name without its extension.
pub(crate) fn stem(file_name: &str) -> &str {
    let last = file_name.rsplit('/').next().unwrap_or(file_name);
    last.strip_suffix(".mp4").unwrap_or(last)
}

/// The label in `a-z`, `0-9` and single hyphens; `stream` when nothing is left.
fn slug(label: &str) -> String {
    let mut slug = String::new();
    for letter in label.chars() {
        if slug.len() >= SLUG_BYTES_MAX {
            break;
        }
        match letter.to_ascii_lowercase() {
            letter if letter.is_ascii_alphanumeric() => slug.push(letter),
            _ if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "stream".to_owned() } else { slug.to_owned() }
}

/// A session id reduced to characters for file names.
fn plain(session: &str) -> String {
    let keep = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    let plain: String = session.chars().filter(keep).take(SESSION_BYTES_MAX).collect();
    if plain.is_empty() { "0".to_owned() } else { plain }
}

/// `2026-11-22T081500Z`.
fn stamp(unix_ms: i64) -> String {
    let at = OffsetDateTime::from_unix_timestamp(unix_ms.div_euclid(1000));
    let at = at.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (date, time) = (at.date(), at.time());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02}T{:02}{:02}{:02}Z", time.hour(), time.minute(), time.second())
}

/// ISO 8601: `2026-11-22T08:15:00Z`.
pub(crate) fn iso(unix_ms: i64) -> String {
    let stamp = stamp(unix_ms);
    let (date, time) = stamp.split_at(stamp.len() - 7);
    format!("{date}{}:{}:{}", &time[..2], &time[2..4], &time[4..])
}

/// Why a prefix is invalid; `None` for a valid one: empty, or parts of `A-Z a-z 0-9 . _ - =` with `/` between them.
pub(crate) fn prefix_fault(prefix: &str) -> Option<&'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-=".contains(&byte);
    let part = |part: &str| !part.is_empty() && part != "." && part != ".." && part.bytes().all(plain);
    if prefix.len() > PREFIX_BYTES_MAX {
        return Some("is longer than 512 bytes");
    }
    let trimmed = prefix.strip_suffix('/').unwrap_or(prefix);
    (!prefix.is_empty() && !trimmed.split('/').all(part))
        .then_some("must be parts of letters, digits and . _ - = with / between them, and not begin with /")
}

/// The key of an object below a prefix.
pub(crate) fn key(prefix: &str, file_name: &str) -> String {
    match prefix.trim_end_matches('/') {
        "" => file_name.to_owned(),
        prefix => format!("{prefix}/{file_name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_bounded_and_sort_by_time() {
        let at = 1_795_335_300_000; // 2026-11-22 08:15:00
        assert_eq!(
            file_name("Ñandú  Live! #1", at, "ses_4f2a", 1),
            "and-live-1/2026-11-22T081500Z-ses_4f2a-1.mp4"
        );
        assert_eq!(file_name("¡!", at, "../x", 2), "stream/2026-11-22T081500Z-x-2.mp4");
        let long = file_name(&"Long label ".repeat(30), at, &"s".repeat(300), u32::MAX);
        assert!(long.is_ascii() && long.len() < 160, "{long}");
        let mut names: Vec<String> =
            [at + 86_400_000, at, at + 1000].iter().map(|at| file_name("a", *at, "s", 1)).collect();
        names.sort();
        assert!(names[0].contains("22T081500") && names[1].contains("22T081501"), "{names:?}");
        assert_eq!(iso(at), "2026-11-22T08:15:00Z");
        assert_eq!(stem(&names[0]), "2026-11-22T081500Z-s-1");
        assert_eq!(file_name("a", i64::MIN, "s", 1), "a/1970-01-01T000000Z-s-1.mp4");
    }

    #[test]
    fn prefixes_are_checked() {
        for good in ["", "a", "a/b", "live/2026/", "x=1/y.z_w-v"] {
            assert_eq!(prefix_fault(good), None, "{good}");
        }
        for bad in
            ["/a", "a//b", "..", "a/../b", "a b", "ä", "/", "a\u{0}", &"x".repeat(PREFIX_BYTES_MAX + 1)]
        {
            assert!(prefix_fault(bad).is_some(), "{bad}");
        }
        assert_eq!(
            (key("", "n"), key("p/", "n"), key("p/q", "n")),
            ("n".into(), "p/n".into(), "p/q/n".into())
        );
    }
}
