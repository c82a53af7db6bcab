//! Keeps the secrets of destinations out of everything their driver says.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use satcast_plugin_api::redact::{Readings, Secrets};
use serde_json::Value;

/// Shorter secrets are not replaced: they would blank ordinary words.
const SECRET_BYTES_MIN: usize = 4;
/// Words that our own drivers and the host say of servers. A key that is one of them (`refused`, `live`) stays where it stands as a word in a
/// sentence: there it would only spoil what is said, and nobody reads a key out of it. What a driver quotes from outside it has cleaned.
const WORDS: &str = "accept accepted accepts address again backup before bytes cannot check closed closes connect connection could data \
    destination does encoder encrypt ended error failed fails give goes host instead last left live login long look media \
    mostly name need needs network port publish publishing reached read reason refused refuses reset route send server \
    servers still stream take taken test time within";
/// Redactors of closed destinations that are still used for lines without a destination.
pub(crate) const RETIRED_MAX: usize = 256;

/// The secret values of one destination. They are hidden where they stand whole: of parts of them a driver's own sentences are made.
#[derive(Default)]
pub(crate) struct Redactor {
    secrets: Vec<String>,
    readings: Secrets,
}

impl Redactor {
    /// Hides `secrets`.
    pub(crate) fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let secrets: Vec<String> = secrets.into_iter().collect();
        let readings = Secrets::new(secrets.iter().map(String::as_str)).of_at_least(SECRET_BYTES_MIN);
        Self { secrets, readings }
    }

    /// Hides these as well.
    pub(crate) fn with(&self, more: impl IntoIterator<Item = String>) -> Self {
        Self::new(self.secrets.iter().cloned().chain(more))
    }

    /// Where the secrets stand in a text, however they are escaped there; one that is a word of a sentence is none.
    pub(crate) fn places(&self, text: &Readings<'_>) -> Vec<Range<usize>> {
        let mut places = text.whole(&self.readings);
        places.retain(|place| !is_word(text.text(), place));
        places
    }

    /// `text` without the secrets.
    pub(crate) fn clean(&self, text: &str) -> String {
        let text = Readings::of(text);
        text.hide(self.places(&text))
    }

    /// `value` with every text in it cleaned, names included. Its nesting is bounded by the parser it came from.
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

/// Whether one of [`WORDS`] stands there as in a sentence.
fn is_word(text: &str, place: &Range<usize>) -> bool {
    let found = text[place.clone()].to_ascii_lowercase();
    let (before, after) = (&text[..place.start], &text[place.end..]);
    WORDS.split(' ').any(|word| word == found)
        && (before.is_empty() || before.ends_with(' '))
        && ends_like_a_word(after)
}

/// Whether a text goes on as it does behind a word: with a space or the end, and at most one mark before it.
fn ends_like_a_word(rest: &str) -> bool {
    let after = rest.strip_prefix(['.', ',', ';', ':', '!', '?']).unwrap_or(rest);
    after.is_empty() || after.starts_with(' ')
}

/// Redactors of destinations that are closed, for what a driver says late or without naming a destination.
#[derive(Default)]
pub(crate) struct Retired {
    redactors: Mutex<VecDeque<Arc<Redactor>>>,
}

impl Retired {
    /// Keeps a redactor; the oldest beyond [`RETIRED_MAX`] goes.
    pub(crate) fn keep(&self, redactor: Arc<Redactor>) {
        let mut redactors = self.redactors.lock();
        if redactors.len() >= RETIRED_MAX {
            redactors.pop_front();
        }
        redactors.push_back(redactor);
    }

    /// Where the secrets of any of them stand in a text.
    pub(crate) fn places(&self, text: &Readings<'_>) -> Vec<Range<usize>> {
        let redactors = self.redactors.lock();
        redactors.iter().flat_map(|redactor| redactor.places(text)).collect()
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
    fn a_word_stays_where_it_is_one_and_nowhere_else() {
        let redactor = Redactor::new(["refused".into(), "sesame".into(), "key7".into()]);
        for (text, shown) in [
            (
                "refused: the server refused the stream, refused",
                "refused: the server refused the stream, refused",
            ),
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
        assert_eq!(text.hide(retired.places(&text)), "secret0000 ***");
    }
}
