//! Keeps secrets out of texts that come from elsewhere.
//!
//! Who sends a secret back may have escaped it for a URL, for HTML or for JSON, in part and more than once. A text is therefore read as it
//! stands and with its escapes undone ([`Readings`]), and so are the secrets; what is found in any reading is hidden where it came from.
//! Letter case makes no difference.
//!
//! The time this takes grows with the length of the text, never with its square, whoever wrote it. The host reads at most 16 KiB of an error,
//! a log text or an event.

mod escapes;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::Range;

use escapes::{Sign, escape_at};

/// Stands for what was taken out.
pub const MASK: &str = "***";
/// A piece of a secret of at least this many bytes is hidden by [`redact`], so that a server that cuts a key gives nothing away.
pub const PIECE_BYTES_MIN: usize = 8;
/// How many times over a text may be escaped for its secrets to be found.
pub const UNESCAPE_ROUNDS_MAX: usize = 4;

/// `text`, which was written elsewhere, with every secret and every piece of one of [`PIECE_BYTES_MIN`] bytes or more replaced by [`MASK`],
/// however they are escaped. A shorter secret is hidden where it stands whole.
pub fn redact<'a>(text: &str, secrets: impl IntoIterator<Item = &'a str>) -> String {
    let readings = Readings::of(text);
    readings.hide(readings.pieces(&Secrets::new(secrets)))
}

/// Secrets, in all their readings.
#[derive(Default)]
pub struct Secrets {
    forms: Vec<String>,
}

impl Secrets {
    /// What is to be hidden.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let readings = secrets.into_iter().flat_map(|secret| Readings::of(secret).all);
        let mut forms: Vec<_> = readings.map(|reading| reading.plain).collect();
        // What is all space would be found between any two words.
        forms.retain(|form| !form.trim().is_empty());
        forms.sort();
        forms.dedup();
        Self { forms }
    }

    /// Those that have so many bytes, in each reading for itself.
    pub fn of_at_least(mut self, bytes: usize) -> Self {
        self.forms.retain(|form| form.len() >= bytes);
        self
    }
}

/// A text in each of the ways it reads: as it stands, with its escapes undone, with those undone that this left, and so on.
pub struct Readings<'a> {
    text: &'a str,
    all: Vec<Reading>,
}

impl<'a> Readings<'a> {
    /// Those of `text`.
    pub fn of(text: &'a str) -> Self {
        let mut all = vec![Reading { plain: text.to_ascii_lowercase(), places: None }];
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

    /// The text as it stands.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// Where in the text a secret stands whole.
    pub fn whole(&self, secrets: &Secrets) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for reading in &self.all {
            for form in secrets.forms.iter().filter(|form| reading.plain.contains(form.as_str())) {
                let ends = ends_of(reading.plain.as_bytes(), form.as_bytes());
                let runs = joined(ends.map(|end| end - form.len()..end));
                found.extend(runs.into_iter().map(|run| reading.place(run)));
            }
        }
        found
    }

    /// Where in the text a piece of a secret stands that is long enough to be hidden.
    pub fn pieces(&self, secrets: &Secrets) -> Vec<Range<usize>> {
        // What has as many bytes as is needed, by that number.
        let mut known: [HashSet<&[u8]>; PIECE_BYTES_MIN + 1] = Default::default();
        for form in &secrets.forms {
            let needed = form.len().min(PIECE_BYTES_MIN);
            known[needed].extend(form.as_bytes().windows(needed));
        }
        let mut found = Vec::new();
        for (needed, known) in known.iter().enumerate().filter(|(_, known)| !known.is_empty()) {
            for reading in &self.all {
                let runs = runs(&reading.plain, needed, known);
                found.extend(runs.into_iter().map(|run| reading.place(run)));
            }
        }
        found
    }

    /// The text with [`MASK`] in these places, in any order.
    pub fn hide(&self, mut places: Vec<Range<usize>>) -> String {
        places.sort_by_key(|place| (place.start, place.end));
        let mut shown = String::with_capacity(self.text.len());
        let mut rest = 0;
        for place in places {
            if place.start >= rest {
                shown.push_str(&self.text[rest..place.start]);
                shown.push_str(MASK);
            }
            rest = rest.max(place.end);
        }
        shown.push_str(&self.text[rest..]);
        shown
    }
}

/// One way to read a text, in small letters.
struct Reading {
    plain: String,
    /// Where in the text each byte comes from; `None`: from the same place.
    places: Option<Vec<(usize, usize)>>,
}

impl Reading {
    /// Where in the text a part of it comes from, which is not empty and ends at characters.
    fn place(&self, part: Range<usize>) -> Range<usize> {
        match &self.places {
            Some(places) => places[part.start].0..places[part.end - 1].1,
            None => part,
        }
    }

    /// The same with its escapes undone; `None`: it has none.
    fn unescaped(&self, stray: Stray) -> Option<Self> {
        let mut next =
            Unescaped { from: self, stray, plain: String::new(), places: Vec::new(), bytes: Vec::new() };
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
        (next.plain != self.plain).then_some(Self { plain: next.plain, places: Some(next.places) })
    }
}

/// What becomes of escaped bytes that are no UTF-8.
#[derive(Clone, Copy)]
enum Stray {
    /// They stay escaped: what belongs to them may be escaped once more.
    Stays,
    /// Each is a character of Latin-1.
    IsLatin,
}

/// A reading that is being made from another one.
struct Unescaped<'a> {
    from: &'a Reading,
    stray: Stray,
    plain: String,
    places: Vec<(usize, usize)>,
    /// Escaped bytes that may be one character together.
    bytes: Vec<(u8, Range<usize>)>,
}

impl Unescaped<'_> {
    fn push(&mut self, char: char, part: Range<usize>) {
        let place = self.from.place(part);
        self.plain.push(char.to_ascii_lowercase());
        self.places.extend(std::iter::repeat_n((place.start, place.end), char.len_utf8()));
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

/// Where `needle` ends in `text`, overlapping ones too, by Knuth, Morris and Pratt.
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

/// Parts in the order of their starts, those that overlap as one.
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

/// Stretches of `text` that are made of `known` pieces of `needed` bytes which overlap; they end at characters.
fn runs(text: &str, needed: usize, known: &HashSet<&[u8]>) -> Vec<Range<usize>> {
    let pieces = text.as_bytes().windows(needed).enumerate().filter(|(_, piece)| known.contains(piece));
    let runs = joined(pieces.map(|(start, _)| start..start + needed));
    // A part of a character is the same in many characters.
    let whole = |run: Range<usize>| {
        let start = run.clone().find(|at| text.is_char_boundary(*at))?;
        let end = (start..=run.end).rev().find(|at| text.is_char_boundary(*at))?;
        (end - start >= needed).then_some(start..end)
    };
    runs.into_iter().filter_map(whole).collect()
}
