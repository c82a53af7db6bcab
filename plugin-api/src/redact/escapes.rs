//! The escapes of URLs, HTML, JSON and programming languages, in lower case.

/// The value of an escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// A byte of a text in UTF-8 or Latin-1.
    Byte(u8),
    /// A character.
    Char(char),
}

/// Longest reference of HTML that is looked for, in bytes: `&#x0010ffff;`.
const REFERENCE_BYTES_MAX: usize = 12;
/// Most digits of a character's number in braces, as in `\u{10ffff}`.
const BRACED_DIGITS_MAX: usize = 6;
/// Digits of a character's number without braces.
const DIGITS: usize = 4;

/// The escape that `text` begins with, and its length in bytes.
pub(super) fn escape_at(text: &str) -> Option<(Sign, usize)> {
    let bytes = text.as_bytes();
    let escape = match (bytes.first()?, bytes.get(1)) {
        // A space in forms; a literal plus reads the same in the secret.
        (b'+', _) => (Sign::Char(' '), 1),
        (b'&', _) => reference(text)?,
        (b'%', Some(b'u')) => by_number(text, "%u")?,
        (b'%', _) => (Sign::Byte(byte(text.get(1..3)?)?), 3),
        (b'\\', Some(b'x')) => (Sign::Byte(byte(text.get(2..4)?)?), 4),
        (b'\\', Some(b'u')) => braced(text).or_else(|| by_number(text, "\\u"))?,
        (b'\\', Some(letter)) => (Sign::Char(after_backslash(*letter)?), 2),
        _ => return None,
    };
    Some(escape)
}

fn number(digits: &str) -> Option<u32> {
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_plain.then(|| u32::from_str_radix(digits, 16).ok())?
}

fn byte(digits: &str) -> Option<u8> {
    number(digits).and_then(|value| value.try_into().ok())
}

/// `\u00e9` or `%u00e9`, and two of them for a character that UTF-16 has two numbers for.
fn by_number(text: &str, mark: &str) -> Option<(Sign, usize)> {
    let unit = |text: &str| {
        let digits = text.strip_prefix(mark)?.get(..DIGITS)?;
        number(digits).and_then(|value| u16::try_from(value).ok())
    };
    let length = mark.len() + DIGITS;
    let first = unit(text)?;
    let second = text.get(length..).and_then(unit);
    let units = [Some(first), second].into_iter().flatten();
    let char = char::decode_utf16(units).next()?.ok()?;
    Some((Sign::Char(char), length * char.len_utf16()))
}

/// `\u{e9}`.
fn braced(text: &str) -> Option<(Sign, usize)> {
    let rest = text.strip_prefix("\\u{")?;
    let end = rest.bytes().take(BRACED_DIGITS_MAX + 1).position(|byte| byte == b'}')?;
    let char = char::from_u32(number(&rest[..end])?)?;
    Some((Sign::Char(char), text.len() - rest.len() + end + 1))
}

fn after_backslash(letter: u8) -> Option<char> {
    Some(match letter {
        b'"' | b'\'' | b'\\' | b'/' => char::from(letter),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        _ => return None,
    })
}

/// `&amp;`, `&#233;` or `&#xe9;`.
fn reference(text: &str) -> Option<(Sign, usize)> {
    let end = text.bytes().take(REFERENCE_BYTES_MAX).position(|byte| byte == b';')?;
    let char = match &text[1..end] {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        body => {
            let digits = body.strip_prefix('#')?;
            let number = match digits.strip_prefix('x') {
                Some(digits) => number(digits)?,
                None if digits.bytes().all(|digit| digit.is_ascii_digit()) => digits.parse().ok()?,
                None => return None,
            };
            char::from_u32(number)?
        }
    };
    Some((Sign::Char(char), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_and_other_text_stays() {
        for (text, char, length) in [
            ("+", ' ', 1),
            ("&quot;", '"', 6),
            ("&#39;x", '\'', 5),
            ("&#x0010ffff;", '\u{10ffff}', 12),
            ("%u00e9", 'é', 6),
            ("\\u00e9", 'é', 6),
            ("\\ud83d\\ude00x", '😀', 12),
            ("\\u00e9\\u00e9", 'é', 6),
            ("\\u{e9}", 'é', 6),
            ("\\u{10ffff}", '\u{10ffff}', 10),
            ("\\\\", '\\', 2),
            ("\\n", '\n', 2),
        ] {
            assert_eq!(escape_at(text), Some((Sign::Char(char), length)), "{text}");
        }
        for (text, byte, length) in [("%c3%a9", 0xc3, 3), ("\\xe9", 0xe9, 4)] {
            assert_eq!(escape_at(text), Some((Sign::Byte(byte), length)), "{text}");
        }
        for text in [
            "",
            "a",
            "é",
            "%",
            "%4",
            "%zz",
            "%+4",
            "%é",
            "%u00",
            "\\",
            "\\q",
            "\\é",
            "\\x4",
            "\\u00e",
            "\\ud83d",
            "\\ude00",
            "\\u{}",
            "\\u{0010ffff}",
            "&",
            "&amp",
            "&uuml;",
            "&#;",
            "&#x;",
            "&#+9;",
            "&#55296;",
            "&#x00010ffff;",
        ] {
            assert_eq!(escape_at(text), None, "{text}");
        }
    }
}
