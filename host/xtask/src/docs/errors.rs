//! `docs/errors.md`: every text of an error that a user can meet, so that they can be read in one sitting.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::codes::{self, Variants};
use super::texts::Sources;
use super::tokens::Tokens;
use crate::workspace;

const CODES: &str = "host/web/src/base/codes.rs";
const API: &str = "host/web/src";
const ISSUES: &str = "host/live/src/health/issues.rs";

/// Types whose functions make an error from its text.
const MAKERS: [&str; 3] = ["Error", "Fault", "Status"];

/// The type whose field has its text.
const WITH_MESSAGE: &str = "WalletError";
const MESSAGE: &str = "message";

/// Further errors by subject: title, where they appear, and their sources.
const SECTIONS: [(&str, &str, &[&str]); 9] = [
    (
        "Destinations",
        "The field `error` of a destination, and refused settings of one.",
        &[
            "plugins/rtmp/src",
            "plugins/platform/src",
            "plugins/hls/src",
            "plugins/archive/src",
            "plugin-api/media/src/rtmp",
            "plugin-api/media/src/codec",
            "plugin-api/media/src/flv",
            "plugin-api/media/src/fmp4",
        ],
    ),
    ("Ingest", "Sent to the encoder, and written to the log.", &["host/live/src/ingest"]),
    ("Drivers", "The field `error` of a driver, and the log.", &["host/drivers/src", "plugin-api/src"]),
    ("Wallets and billing", "The connected wallet, top-ups and refills.", &["host/money/src"]),
    ("Recordings", "Operations on recordings.", &["host/archive/src"]),
    ("Webhooks", "Settings of a webhook, and failed deliveries.", &["host/webhooks/src"]),
    ("Database", "Commands, start of the service, and the log.", &["host/store/src"]),
    ("Network", "Addresses that users give, and connections to them.", &["host/net/src"]),
    (
        "Configuration and commands",
        "Commands, and start of the service.",
        &["host/core/src", "host/src", "host/web/src/auth", "host/web/src/pages", "host/web/src/watch"],
    ),
];

/// An error by its name in the sources.
#[derive(Debug)]
struct Row {
    owner: String,
    name: String,
    text: String,
}

/// The document.
pub(super) fn document() -> Result<String, String> {
    let mut sections = Vec::new();
    let mut variants = Variants::new();
    for (title, about, folders) in SECTIONS {
        let rows = rows(&Sources::read(folders)?);
        for row in &rows {
            let texts = variants.entry((row.owner.clone(), row.name.clone())).or_default();
            texts.push(row.text.clone());
        }
        sections.push((title, about, folders, rows));
    }
    let mut document = String::from(
        "# Errors\n\n\
         <!-- Made by `cargo xtask docs` from the sources; change the texts there. -->\n\n\
         Every text of an error that you can meet. Values stand in braces. [Errors of the API](api.md#errors) describes the\n\
         form of its answers.\n\n## API\n",
    );
    api(&mut document, &variants)?;
    health(&mut document, &workspace::read(ISSUES)?);
    for (title, about, folders, rows) in sections {
        let folders = folders.iter().map(|folder| format!("`{folder}`")).collect::<Vec<_>>().join(", ");
        let table = rows.iter().map(|row| [format!("`{}::{}`", row.owner, row.name), row.text.clone()]);
        // Writing to a String cannot fail.
        let _ = write!(document, "\n## {title}\n\n{}\n\n", wrapped(&format!("{about} Sources: {folders}.")));
        document.push_str(&lines(["Error", "Text"], table));
    }
    Ok(document)
}

/// A table of the codes for each of their groups.
fn api(document: &mut String, variants: &Variants) -> Result<(), String> {
    let codes = codes::declared(&workspace::read(CODES)?);
    let uses = codes::uses(&codes, &Sources::read(&[API])?, variants)?;
    let mut group = "";
    for (code, uses) in codes.iter().zip(uses) {
        if group != code.group {
            group = &code.group;
            let head = lines(["Code", "Status", "Text", "Cause", "What to do"], std::iter::empty());
            let _ = write!(document, "\n### {group}\n\n{head}");
        }
        let statuses = uses.statuses.into_iter().collect::<Vec<_>>().join(", ");
        let texts = uses.texts.join("<br>");
        document.push_str(&line(&[
            format!("`{}`", code.name),
            statuses,
            texts,
            code.cause.clone(),
            code.fix.clone(),
        ]));
    }
    Ok(())
}

/// The health issues with the comments of their declaration.
fn health(document: &mut String, source: &str) {
    let tokens = Tokens::of(source);
    let names = (0..tokens.len()).filter_map(|at| {
        let variant = tokens.path(at, "IssueCode").filter(|_| tokens.is_arrow(at + 4))?;
        Some((variant, tokens.text(at + 6)?))
    });
    let comments: BTreeMap<&str, &str> = source
        .lines()
        .zip(source.lines().skip(1))
        .filter_map(|(comment, variant)| {
            Some((variant.trim().strip_suffix(',')?, comment.trim().strip_prefix("/// ")?))
        })
        .collect();
    let table = names.map(|(variant, name)| {
        [format!("`{name}`"), comments.get(variant).copied().unwrap_or_default().to_owned()]
    });
    let _ = write!(
        document,
        "\n## Health of streams\n\nThe list `issues` of a live stream. The text of an issue has the measurement, \
         and the requirement\nof each platform.\n\n"
    );
    document.push_str(&lines(["Code", "Meaning"], table));
}

/// Texts of `#[error("...")]`, of the functions that make errors, and of arms for a `Fault`.
fn rows(sources: &Sources) -> Vec<Row> {
    let mut rows = Vec::new();
    for tokens in &sources.files {
        for at in 0..tokens.len() {
            for row in declared(tokens, at).into_iter().chain(made(sources, tokens, at)) {
                // A text that another error gives stands there.
                let is_own = row.text.contains(' ') && !row.text.contains("{self}");
                if is_own && !rows.iter().any(|known: &Row| known.text == row.text) {
                    rows.push(row);
                }
            }
        }
    }
    rows
}

/// The variant or struct whose `#[error("...")]` begins at `at`.
fn declared(tokens: &Tokens, at: usize) -> Option<Row> {
    let is_attribute =
        tokens.is_mark(at, 0, '[') && tokens.is_word(at, 1, "error") && tokens.is_mark(at, 2, '(');
    let text = tokens.text(at + 3).filter(|_| is_attribute && tokens.is_mark(at, -1, '#'))?;
    let mut place = tokens.end(at + 1, &[]) + 1;
    while tokens.is_mark(place, 0, '#') {
        place = tokens.end(place + 2, &[]) + 1;
    }
    let is_type = |place: usize| tokens.is_word(place, 0, "struct") || tokens.is_word(place, 0, "enum");
    let end = tokens.end(place, &['{', ';', ',', '(']);
    let (owner, name) = match (place..end).find(|place| is_type(*place)) {
        Some(place) => (tokens.word(place, 1)?, tokens.word(place, 1)?),
        None => {
            let owner = (0..at).rev().find(|place| tokens.is_word(*place, 0, "enum"))?;
            (tokens.word(owner, 1)?, tokens.word(place, 0)?)
        }
    };
    Some(Row { owner: owner.to_owned(), name: name.to_owned(), text })
}

/// Errors that an expression at `at` makes: `Error::config("...")`, `Fault::Timeout => format!("...")`, `WalletError { message }`.
fn made(sources: &Sources, tokens: &Tokens, at: usize) -> Vec<Row> {
    // Not the body of a function that returns the type.
    let is_literal = |open| tokens.is_word(open, -1, WITH_MESSAGE) && !tokens.is_mark(open, -2, '>');
    let opens = || tokens.opening(at).is_some_and(is_literal);
    if tokens.is_word(at, 0, MESSAGE) && opens() {
        let texts = sources.texts(tokens, at..tokens.end(at, &[','])).into_iter();
        return texts.map(|text| Row { owner: WITH_MESSAGE.into(), name: MESSAGE.into(), text }).collect();
    }
    let found = MAKERS.iter().find_map(|maker| Some((maker, tokens.path(at, maker)?)));
    let Some((owner, name)) = found.filter(|_| !tokens.is_mark(at, -1, ':')) else { return Vec::new() };
    let expression = if tokens.is_mark(at, 4, '(') {
        at + 5..tokens.end(at + 5, &[])
    } else if *owner == "Fault" {
        let end = tokens.end(at, &[]);
        let arm = (at..end).find(|place| tokens.is_arrow(*place)).unwrap_or(end);
        let next = (arm..end).find(|place| tokens.path(*place, owner).is_some()).unwrap_or(end);
        arm..next
    } else {
        return Vec::new();
    };
    let texts = sources.texts(tokens, expression).into_iter();
    texts.map(|text| Row { owner: (*owner).to_owned(), name: name.to_owned(), text }).collect()
}

/// A table with a line for each row.
fn lines<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rule = format!("|{}\n", "---|".repeat(N));
    let rows: String = rows.map(|row| line(&row)).collect();
    line(&head.map(str::to_owned)) + &rule + &rows
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// The text with lines that fit a document.
fn wrapped(text: &str) -> String {
    const LINE_CHARS_MAX: usize = 120;
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let fits =
            lines.last().is_some_and(|line| line.chars().count() + word.chars().count() < LINE_CHARS_MAX);
        match lines.last_mut().filter(|_| fits) {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<String> {
        let rows = rows(&Sources::of(vec![Tokens::of(source)]));
        rows.iter().map(|row| format!("{}::{} {}", row.owner, row.name, row.text)).collect()
    }

    #[test]
    fn texts_of_variants_and_structs_are_found() {
        let source = "pub enum E {\n    #[error(\n        \"{path} is {mode:o}; \\\n         run it\"\n    )]\n    \
            #[doc(hidden)]\n    A { path: String },\n    #[error(\"{0} fails\")]\n    B(#[source] X),\n    \
            #[error(transparent)]\n    C(X),\n}\n#[error(\"one two\")]\npub struct S(u8);\n";
        assert_eq!(found(source), ["E::A {path} is {mode}; run it", "E::B {…} fails", "S::S one two"]);
    }

    #[test]
    fn texts_of_calls_and_arms_are_found() {
        let source = "fn f() { Error::config(\"one two\"); io::Error::other(\"no row\"); }\n\
            fn g() { match x { Fault::A => { format!(\"{y} is late\") } Fault::B => \"is short\".into(), } }\n";
        assert_eq!(found(source), ["Error::config one two", "Fault::A {y} is late", "Fault::B is short"]);
        let source = "fn f() { WalletError { message: \"one two\".into(), x } }\n\
            fn g() -> WalletError { let message = format!(\"{x} three\"); WalletError { fault, message } }\n";
        assert_eq!(found(source), ["WalletError::message one two", "WalletError::message {x} three"]);
    }

    #[test]
    fn cells_and_long_lines_fit_a_document() {
        assert_eq!(lines(["A"], [["a|b".to_owned()]].into_iter()), "| A |\n|---|\n| a\\|b |\n");
        assert!(wrapped(&"word ".repeat(60)).lines().all(|line| line.chars().count() <= 120));
    }

    #[test]
    fn health_issues_have_name_and_comment_text() {
        let mut document = String::new();
        health(
            &mut document,
            "enum IssueCode {\n    /// No video arrives.\n    VideoMissing,\n}\n\
            match x { IssueCode::VideoMissing => \"video_missing\" }\n",
        );
        assert!(document.ends_with("| `video_missing` | No video arrives. |\n"), "{document}");
    }
}
