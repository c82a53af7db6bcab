//! Keeps secrets out of texts from other systems.
//!
//! A server that repeats a secret may have escaped it for a URL, for HTML or for JSON, in part and more than once. A text is therefore
//! read as it is and with its escapes undone ([`Readings`]), and so are the secrets; a match in any reading is hidden at its origin in
//! the text. Letter case makes no difference.
//!
//! The time grows linearly with the length of the text, also for hostile texts. The host reads at most 16 KiB of an error, a log text or
//! an event.

mod escapes;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::Range;

use escapes::{Sign, escape_at};

/// Replaces each secret.
pub const MASK: &str = "***";
/// [`redact`] hides fragments of a secret from this many bytes on, so that a server that cuts a key reveals nothing.
pub const FRAGMENT_BYTES_MIN: usize = 8;
/// Most layers of escapes under which secrets are found.
pub const UNESCAPE_ROUNDS_MAX: usize = 4;

/// `text` with every secret and every fragment of one of [`FRAGMENT_BYTES_MIN`] bytes or more replaced by [`MASK`],
/// also escaped. A shorter secret is hidden where it occurs whole.
pub fn redact<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    let readings = Readings::of(text);
    readings.hide(readings.fragments(&Secrets::new(secrets)))
}

/// Secrets, in all their readings.
#[derive(Default)]
pub struct Secrets {
    forms: Vec<String>,
}

impl Secrets {
    /// The texts to hide.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let readings = secrets.into_iter().flat_map(|secret| Readings::of(secret).all);
        let mut forms: Vec<_> = readings.map(|reading| reading.plain).collect();
        // Only spaces would match between any two words.
        forms.retain(|form| !form.trim().is_empty());
        forms.sort();
        forms.dedup();
        Self { forms }
    }

    /// Keeps the readings of at least `bytes` bytes.
    pub fn of_at_least(mut self, bytes: usize) -> Self {
        self.forms.retain(|form| form.len() >= bytes);
        self
    }
}

/// A text in all its readings: as it is, with its escapes undone, with the escapes in that undone, and so on.
pub struct Readings<'a> {
    text: &'a str,
    all: Vec<Reading>,
}

impl<'a> Readings<'a> {
    /// All readings of `text`.
    pub fn of(text: &'a str) -> Self {
        let mut all = vec![Reading { plain: text.to_ascii_lowercase(), origins: None }];
        for round in 0..=UNESCAPE_ROUNDS_MAX {
            match all[round].unescaped(Stray::Stays) {
                Some(next) if round < UNESCAPE_ROUNDS_MAX => all.push(next),
                Some(_) => break,
                None => {
                    let latin = all[round].unescaped(Stray::IsLatin);
                    all.extend(latin);
                    break;
                }
            }
        }
        Self { text, all }
    }

    /// The unchanged text.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The ranges of the text with a whole secret.
    pub fn whole(&self, secrets: &Secrets) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for reading in &self.all {
            for form in secrets.forms.iter().filter(|form| reading.plain.contains(form.as_str())) {
                let ends = ends_of(reading.plain.as_bytes(), form.as_bytes());
                let runs = joined(ends.map(|end| end - form.len()..end));
                found.extend(runs.into_iter().map(|run| reading.origin(run)));
            }
        }
        found
    }

    /// The ranges of the text with a fragment of a secret that is long enough to be hidden.
    pub fn fragments(&self, secrets: &Secrets) -> Vec<Range<usize>> {
        // The fragments to look for, by their length in bytes.
        let mut known: [HashSet<&[u8]>; FRAGMENT_BYTES_MIN + 1] = Default::default();
        for form in &secrets.forms {
            let needed = form.len().min(FRAGMENT_BYTES_MIN);
            known[needed].extend(form.as_bytes().windows(needed));
        }
        let mut found = Vec::new();
        for (needed, known) in known.iter().enumerate().filter(|(_, known)| !known.is_empty()) {
            for reading in &self.all {
                let runs = runs(&reading.plain, needed, known);
                found.extend(runs.into_iter().map(|run| reading.origin(run)));
            }
        }
        found
    }

    /// The text with [`MASK`] in these ranges, which may be in any order.
    pub fn hide(&self, mut ranges: Vec<Range<usize>>) -> String {
        ranges.sort_by_key(|range| (range.start, range.end));
        let mut shown = String::with_capacity(self.text.len());
        let mut rest = 0;
        for range in ranges {
            if range.start >= rest {
                shown.push_str(&self.text[rest..range.start]);
                shown.push_str(MASK);
            }
            rest = rest.max(range.end);
        }
        shown.push_str(&self.text[rest..]);
        shown
    }
}

/// One reading of a text, in lower case.
struct Reading {
    plain: String,
    /// The range of the text that each byte comes from; `None`: the same range.
    origins: Option<Vec<(usize, usize)>>,
}

impl Reading {
    /// The range of the text that a part comes from. The part is not empty and ends at characters.
    fn origin(&self, part: Range<usize>) -> Range<usize> {
        match &self.origins {
            Some(origins) => origins[part.start].0..origins[part.end - 1].1,
            None => part,
        }
    }

    /// The reading with its escapes undone; `None` without escapes.
    fn unescaped(&self, stray: Stray) -> Option<Self> {
        let mut next =
            Unescaped { from: self, stray, plain: String::new(), origins: Vec::new(), bytes: Vec::new() };
        let mut at = 0;
        while let Some(own) = self.plain[at..].chars().next() {
            let (sign, length) = escape_at(&self.plain[at..]).unwrap_or((Sign::Char(own), own.len_utf8()));
            match sign {
                Sign::Byte(byte) => next.bytes.push((byte, at..at + length)),
                Sign::Char(char) => {
                    next.end_bytes();
                    next.push(char, at..at + length);
                }
            }
            at += length;
        }
        next.end_bytes();
        (next.plain != self.plain).then_some(Self { plain: next.plain, origins: Some(next.origins) })
    }
}

/// Handling of escaped bytes that are not UTF-8.
#[derive(Clone, Copy)]
enum Stray {
    /// They stay escaped: the rest of the character may be escaped once more.
    Stays,
    /// Each is a character of Latin-1.
    IsLatin,
}

/// A reading that is being built from another one.
struct Unescaped<'a> {
    from: &'a Reading,
    stray: Stray,
    plain: String,
    origins: Vec<(usize, usize)>,
    /// Escaped bytes that together may be one character.
    bytes: Vec<(u8, Range<usize>)>,
}

impl Unescaped<'_> {
    fn push(&mut self, char: char, part: Range<usize>) {
        let origin = self.from.origin(part);
        self.plain.push(char.to_ascii_lowercase());
        self.origins.extend(std::iter::repeat_n((origin.start, origin.end), char.len_utf8()));
    }

    fn end_bytes(&mut self) {
        let escaped = std::mem::take(&mut self.bytes);
        let bytes: Vec<u8> = escaped.iter().map(|(byte, _)| *byte).collect();
        let mut at = 0;
        for chunk in bytes.utf8_chunks() {
            for char in chunk.valid().chars() {
                let last = at + char.len_utf8() - 1;
                self.push(char, escaped[at].1.start..escaped[last].1.end);
                at = last + 1;
            }
            for (byte, part) in &escaped[at..at + chunk.invalid().len()] {
                match self.stray {
                    Stray::IsLatin => self.push(char::from(*byte), part.clone()),
                    Stray::Stays => {
                        for own in part.clone() {
                            self.push(char::from(self.from.plain.as_bytes()[own]), own..own + 1);
                        }
                    }
                }
            }
            at += chunk.invalid().len();
        }
    }
}

/// The ends of all `needle`s in `text`, also overlapping ones, by Knuth, Morris and Pratt.
fn ends_of(text: &[u8], needle: &[u8]) -> impl Iterator<Item = usize> {
    let mut borders = vec![0; needle.len() + 1];
    let step = |borders: &[usize], mut matched: usize, byte: u8| {
        while matched > 0 && needle.get(matched) != Some(&byte) {
            matched = borders[matched];
        }
        if needle.get(matched) == Some(&byte) { matched + 1 } else { 0 }
    };
    for end in 1..needle.len() {
        borders[end + 1] = step(&borders, borders[end], needle[end]);
    }
    let mut matched = 0;
    text.iter().enumerate().filter_map(move |(at, byte)| {
        matched = step(&borders, matched, *byte);
        (matched == needle.len()).then_some(at + 1)
    })
}

/// Merges overlapping parts. The parts come in the order of their starts.
fn joined(parts: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    for part in parts {
        match joined.last_mut().filter(|last| part.start < last.end) {
            Some(last) => last.end = part.end,
            None => joined.push(part),
        }
    }
    joined
}

/// Ranges of `text` that consist of overlapping `known` fragments of `needed` bytes; they end at characters.
fn runs(text: &str, needed: usize, known: &HashSet<&[u8]>) -> Vec<Range<usize>> {
    let fragments =
        text.as_bytes().windows(needed).enumerate().filter(|(_, fragment)| known.contains(fragment));
    let runs = joined(fragments.map(|(start, _)| start..start + needed));
    // Many characters share the same bytes in part.
    let whole = |run: Range<usize>| {
        let start = run.clone().find(|at| text.is_char_boundary(*at))?;
        let end = (start..=run.end).rev().find(|at| text.is_char_boundary(*at))?;
        (end - start >= needed).then_some(start..end)
    };
    runs.into_iter().filter_map(whole).collect()
}
