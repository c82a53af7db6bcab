//! Words that the glossary (`docs/glossary.md`) replaces, wherever one is part of an identifier, a comment, a text or a document.

use crate::workspace;

/// The word, and what is written for it.
const REPLACED: [(&str, &str); 20] = [
    ("anew", "again"),
    ("courier", "notifier"),
    ("couriers", "notifiers"),
    ("desk", "top-ups"),
    ("forgive", "clear"),
    ("joint", "backfill"),
    ("picture", "video or frame"),
    ("pictures", "video or frames"),
    ("piece", "segment, part, asset or chunk"),
    ("pieces", "segments, parts, assets or chunks"),
    ("seat", "slot"),
    ("seats", "slots"),
    ("shelf", "published assets"),
    ("sound", "audio"),
    ("sounds", "audio"),
    ("teller", "notifier"),
    ("tenure", "permit"),
    ("whoever", "the client, account or viewer"),
    ("whom", "the client, account or viewer"),
    ("wishes", "requirements"),
];

/// Where a word has another meaning: the beginning of a path, and the word.
const EXCEPTIONS: [(&str, &str); 13] = [
    // The right column of the glossary.
    ("docs/glossary.md", ""),
    ("host/xtask/src/check/words.rs", ""),
    // Terms of H.264, H.265 and AV1.
    ("plugin-api/media/src/codec/", "picture"),
    ("plugin-api/media/src/codec/", "pictures"),
    ("plugin-api/media/src/fmp4/track.rs", "picture"),
    // Picture-in-picture of browsers.
    ("host/dashboard/watch", "picture"),
    ("tests/player/", "picture"),
    ("CHANGELOG.md", "picture"),
    ("docs/playback.md", "picture"),
    // A code of the API.
    ("host/web/src/base/codes.rs", "piece"),
    ("docs/errors.md", "piece"),
    ("host/web/src/playback/tests/segments.rs", "piece"),
    // The labels of the player page.
    ("host/dashboard/watch", "sound"),
];

/// Kinds of files that people write.
const ENDINGS: [&str; 10] = ["c", "h", "html", "js", "md", "py", "rs", "sh", "toml", "ts"];

/// Fails with every replaced word.
pub(crate) fn check() -> Result<(), String> {
    let mut report = Vec::new();
    for ending in ENDINGS {
        for path in workspace::files("", ending)? {
            let text = workspace::read(&path)?;
            report.extend(replaced(&path, &text).map(|(number, word, instead)| {
                format!("   {path}:{number}: \"{word}\": write {instead} (docs/glossary.md)")
            }));
        }
    }
    if report.is_empty() { Ok(()) } else { Err(report.join("\n")) }
}

/// Line numbers (from 1), words found and what is written for them.
fn replaced<'a>(
    path: &'a str,
    text: &'a str,
) -> impl Iterator<Item = (usize, &'static str, &'static str)> + 'a {
    let is_exception = |word: &str| {
        EXCEPTIONS
            .iter()
            .any(|(place, except)| path.starts_with(place) && (except.is_empty() || *except == word))
    };
    let words = REPLACED.iter().filter(move |(word, _)| !is_exception(word));
    (1..).zip(text.lines()).flat_map(move |(number, line)| {
        words
            .clone()
            .filter(move |(word, _)| has(line, word))
            .map(move |(word, instead)| (number, *word, *instead))
    })
}

/// Whether a line has a word, alone or as a part of an identifier in any case.
fn has(line: &str, word: &str) -> bool {
    let bytes = line.as_bytes();
    let lower = line.to_ascii_lowercase();
    lower.match_indices(word).any(|(start, _)| {
        let end = start + word.len();
        let begins = start == 0
            || !bytes[start - 1].is_ascii_alphabetic()
            || (bytes[start].is_ascii_uppercase() && bytes[start - 1].is_ascii_lowercase());
        let ends = bytes.get(end).is_none_or(|next| {
            !next.is_ascii_alphabetic() || (next.is_ascii_uppercase() && bytes[end - 1].is_ascii_lowercase())
        });
        begins && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_alone_and_within_identifiers() {
        for line in [
            "a shelf.",
            "Shelf",
            "let my_shelf = 1;",
            "FakeShelf::new()",
            "SHELF_MAX",
            "shelfName",
            "`shelf`",
        ] {
            assert!(has(line, "shelf"), "{line}");
        }
        for line in ["bookshelf", "Shelfish"] {
            assert!(!has(line, "shelf"), "{line}");
        }
        assert!(!has("unsound", "sound"));
    }

    #[test]
    fn each_replaced_word_fails_and_exceptions_pass() {
        for (word, _) in REPLACED {
            assert_eq!(
                replaced("host/x.rs", &format!("one\n// {word}\n")).map(|found| found.0).collect::<Vec<_>>(),
                [2]
            );
        }
        assert_eq!(replaced("docs/glossary.md", "shelf").count(), 0);
        let codec = "plugin-api/media/src/codec/avc.rs";
        assert_eq!(replaced(codec, "picture parameter set").count(), 0);
        assert_eq!(replaced(codec, "shelf").count(), 1);
    }
}
