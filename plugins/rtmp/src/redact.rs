//! Keeps secrets out of texts that a server sends back.

/// Stands for what was taken out.
const HIDDEN: &str = "***";
/// A piece of a secret of at least this many bytes is hidden, so that a server that cuts the key gives nothing away.
const PIECE_BYTES_MIN: usize = 8;

/// `text` with every secret, and every piece of one of [`PIECE_BYTES_MIN`] bytes or more, replaced. Letter case and
/// percent escapes make no difference. A shorter secret is hidden where it stands whole.
pub(crate) fn redact<'a>(text: &str, secrets: impl Iterator<Item = &'a str>) -> String {
    let mut forms: Vec<String> = Vec::new();
    for secret in secrets {
        forms.push(secret.to_ascii_lowercase());
        forms.push(unescape(secret).to_ascii_lowercase());
    }
    forms.retain(|form| !form.is_empty());
    // Same length and same character borders as `text`: only ASCII letters change.
    let lower = text.to_ascii_lowercase();
    let mut shown = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        match forms.iter().map(|form| piece_at(&lower[at..], form)).max().unwrap_or(0) {
            0 => {
                shown.push(next);
                at += next.len_utf8();
            }
            hidden => {
                shown.push_str(HIDDEN);
                at += hidden;
            }
        }
    }
    shown
}

/// Bytes at the start of `text` that are a piece of `secret` long enough to be hidden; ends at a character.
fn piece_at(text: &str, secret: &str) -> usize {
    let needed = secret.len().min(PIECE_BYTES_MIN);
    let starts = secret.char_indices().map(|(start, _)| start);
    starts
        .map(|start| {
            let pairs = text.chars().zip(secret[start..].chars());
            pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
        })
        .filter(|bytes| *bytes >= needed)
        .max()
        .unwrap_or(0)
}

/// Percent escapes decoded; what is no escape or no UTF-8 stays readable.
pub(crate) fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let value = escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        plain.push(value.unwrap_or(bytes[at]));
        at += if value.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_whole_cut_and_respelt() {
        let secrets = ["live_4711_Geheim?a=b%20c", "abc"];
        for (text, shown) in [
            ("no such stream", "no such stream"),
            ("stream live_4711_Geheim?a=b%20c is taken", "stream *** is taken"),
            ("stream LIVE_4711_GEHEIM", "stream ***"),
            ("cut: live_471", "cut: ***"),
            ("cut: live_47", "cut: live_47"),
            ("decoded live_4711_Geheim?a=b c!", "decoded ***!"),
            ("short abc and ab", "short *** and ab"),
            ("ünicode häbcä", "ünicode häbcä"),
        ] {
            assert_eq!(redact(text, secrets.into_iter()), shown, "{text}");
        }
        assert_eq!(redact("xabcx abcabc", ["abc"].into_iter()), "x***x ******");
        assert_eq!(redact("für größe", ["größe"].into_iter()), "für ***");
        assert_eq!(redact("anything", std::iter::empty()), "anything");
    }

    #[test]
    fn broken_escapes_stay() {
        assert_eq!(unescape("a%20b%2Fc%zz%4"), "a b/c%zz%4");
        assert_eq!(unescape("%ff"), "\u{fffd}");
    }
}
