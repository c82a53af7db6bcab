//! Removes the secrets of destinations from all texts of their driver.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use satcast_plugin_api::redact::{Readings, Secrets};
use serde_json::Value;

/// Shorter secrets are not replaced: that would hide ordinary words.
const SECRET_BYTES_MIN: usize = 4;
/// Words that our own drivers and the host use about servers. A key that is one of them (`refused`, `live`) stays
/// visible where it is a word of a sentence: hiding it would only damage the text, and a reader cannot recognise it
/// as a key. The driver itself has cleaned texts that it quotes from outside.
const WORDS: &str = "accept accepted accepts address again answer backup before bytes cannot certificate \
    check closed closes codec connect connection connects could data destination does encoder encrypt ended \
    error failed fails give goes handshake hang host instead last left less live login long longer look \
    lower many media more mostly name need needs network nothing offers often only other overloaded path \
    port publish publishing rate reached read reads reason reconnects refused refuses repeats reset resolve \
    right route seconds send sends server servers still stream support take taken takes test than that time \
    trusted used version violates when which with within without wrong";
/// Redactors of closed destinations that still apply to lines without a destination.
pub(crate) const RETIRED_MAX: usize = 256;

/// The secret values of one destination. Only whole values are hidden: a driver's own sentences may contain parts of
/// them.
#[derive(Default)]
pub(crate) struct Redactor {
    secrets: Vec<String>,
    readings: Secrets,
}

impl Redactor {
    pub(crate) fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let secrets: Vec<String> = secrets.into_iter().collect();
        let readings = Secrets::new(secrets.iter().map(String::as_str)).of_at_least(SECRET_BYTES_MIN);
        Self { secrets, readings }
    }

    /// A redactor that also hides these values.
    pub(crate) fn with(&self, more: impl IntoIterator<Item = String>) -> Self {
        Self::new(self.secrets.iter().cloned().chain(more))
    }

    /// Where a text contains the secrets, in any escaped form; a word of a sentence is no secret.
    pub(crate) fn ranges(&self, text: &Readings<'_>) -> Vec<Range<usize>> {
        let mut ranges = text.whole(&self.readings);
        ranges.retain(|range| !is_word(text.text(), range));
        ranges
    }

    pub(crate) fn clean(&self, text: &str) -> String {
        let text = Readings::of(text);
        text.hide(self.ranges(&text))
    }

    /// `value` with every text in it cleaned, names included. The parser of the value has bounded the nesting.
    pub(crate) fn clean_json(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.clean(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.clean_json(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (self.clean(&name), self.clean_json(value))).collect()
            }
            plain => plain,
        }
    }
}

/// Whether one of [`WORDS`] is at this place as a word of a sentence.
fn is_word(text: &str, range: &Range<usize>) -> bool {
    let found = text[range.clone()].to_ascii_lowercase();
    let (before, after) = (&text[..range.start], &text[range.end..]);
    WORDS.split(' ').any(|word| word == found)
        && (before.is_empty() || before.ends_with(' '))
        && ends_like_a_word(after)
}

/// Whether a word ends here: a space or the end follows, with at most one punctuation mark before it.
fn ends_like_a_word(rest: &str) -> bool {
    let after = rest.strip_prefix(['.', ',', ';', ':', '!', '?']).unwrap_or(rest);
    after.is_empty() || after.starts_with(' ')
}

/// Redactors of closed destinations, for late texts of a driver and texts without a destination.
#[derive(Default)]
pub(crate) struct Retired {
    redactors: Mutex<VecDeque<Arc<Redactor>>>,
}

impl Retired {
    /// Keeps a redactor; beyond [`RETIRED_MAX`] the oldest is removed.
    pub(crate) fn keep(&self, redactor: Arc<Redactor>) {
        let mut redactors = self.redactors.lock();
        if redactors.len() >= RETIRED_MAX {
            redactors.pop_front();
        }
        redactors.push_back(redactor);
    }

    /// Where a text contains the secrets of any of them.
    pub(crate) fn ranges(&self, text: &Readings<'_>) -> Vec<Range<usize>> {
        let redactors = self.redactors.lock();
        redactors.iter().flat_map(|redactor| redactor.ranges(text)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn replaces_every_secret_longest_first_and_leaves_short_ones() {
        let redactor = Redactor::new(["key1".into(), "key1-long".into(), "abc".into()]);
        assert_eq!(redactor.clean("a key1-long b key1 c abc"), "a *** b *** c abc");
        assert_eq!(redactor.with(["key2".into()]).clean("key1 key2"), "*** ***");
    }

    #[test]
    fn a_key_that_is_a_common_word_stays_only_as_a_word() {
        let redactor = Redactor::new(["refused".into(), "takes".into(), "sesame".into(), "key7".into()]);
        for (text, shown) in [
            (
                "refused: the server refused the stream, refused",
                "refused: the server refused the stream, refused",
            ),
            ("the server takes less than the stream sends", "the server takes less than the stream sends"),
            ("no stream \"refused\" at rtmp://h/app/refused", "no stream \"***\" at rtmp://h/app/***"),
            ("refused/1 xrefused refusedx app=refused refused?a=b", "***/1 x*** ***x app=*** ***?a=b"),
            ("the key7 and the sesame are no such words", "the *** and the *** are no such words"),
        ] {
            assert_eq!(redactor.clean(text), shown);
        }
    }

    #[test]
    fn escaped_secrets_are_hidden_as_well_and_short_forms_of_them_are_not() {
        let secret = "key 1 \"\u{e9}\u{1f600}\\";
        let redactor = Redactor::new([secret.into(), "%61%62".into()]);
        for echo in [
            secret,
            "KEY 1 \"\u{e9}\u{1f600}\\",
            "key%201%20%22%C3%A9%F0%9F%98%80%5c",
            "key+1+%22%E9%uD83D%uDE00%5C",
            "key&#32;1 &quot;&#233;&#x1F600;\\",
            r#"key 1 \"\u00e9\ud83d\ude00\\"#,
            "key%25201 \"\u{e9}\u{1f600}\\",
        ] {
            assert_eq!(redactor.clean(&format!("no {echo} %20 ab")), "no *** %20 ab", "{echo}");
        }
    }

    #[test]
    fn values_are_cleaned_after_parsing_so_that_escapes_hide_nothing() {
        let redactor = Redactor::new(["se\"cret".into()]);
        let value = serde_json::from_str(r#"{"a":["x se\"cret"],"se\"cret":1,"n":null}"#).unwrap();
        assert_eq!(redactor.clean_json(value), json!({ "a": ["x ***"], "***": 1, "n": null }));
    }

    #[test]
    fn retired_redactors_are_limited() {
        let retired = Retired::default();
        for n in 0..=RETIRED_MAX {
            retired.keep(Arc::new(Redactor::new([format!("secret{n:04}")])));
        }
        let text = Readings::of("secret0000 secret0001");
        assert_eq!(text.hide(retired.ranges(&text)), "secret0000 ***");
    }
}
