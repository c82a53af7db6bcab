//! Tests assert on codes and states, so that a better wording of a message does not break many of them.
//!
//! The name of the one test that asserts on a text ends in `_text` or `_texts`.

use std::collections::BTreeSet;

use super::source::shipped_lines;
use crate::workspace;

/// Calls that search for a part of a text.
const FRAGMENTS: [&str; 4] = ["contains(\"", "starts_with(\"", "ends_with(\"", "find(\""];

/// Fails with every assertion on a fragment of prose.
pub(crate) fn check() -> Result<(), String> {
    let mut report = Vec::new();
    for folder in ["host", "plugin-api", "plugins", "tests"] {
        for path in workspace::files(folder, "rs")? {
            let text = workspace::read(&path)?;
            report.extend(fragments(&path, &text).into_iter().map(|(number, literal)| {
                format!("   {path}:{number}: \"{literal}\": assert on a code or state, or move it to a test named ..._text")
            }));
        }
    }
    if report.is_empty() { Ok(()) } else { Err(report.join("\n")) }
}

/// Line numbers (from 1) and literals of the assertions on prose in a file.
fn fragments<'a>(path: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    let all_tests = path.contains("tests/") || path.ends_with("/tests.rs");
    let shipped: BTreeSet<usize> = shipped_lines(text).into_iter().map(|(number, _)| number).collect();
    let mut found = Vec::new();
    let mut holds_texts = false;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some((_, rest)) = line.split_once("fn ").filter(|(before, _)| !before.contains('"')) {
            let name = rest.split('(').next().unwrap_or_default();
            holds_texts = name.ends_with("_text") || name.ends_with("_texts");
        }
        if holds_texts || (!all_tests && shipped.contains(&number)) {
            continue;
        }
        for call in FRAGMENTS {
            let literals = line.split(call).skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(literals.filter(|literal| is_prose(literal)).map(|literal| (number, literal)));
        }
    }
    found
}

/// Two words of ordinary letters in a row: a part of a sentence, not a code, the name of a setting or a line of a protocol.
fn is_prose(literal: &str) -> bool {
    let words: Vec<&str> =
        literal.split(' ').map(|word| word.trim_end_matches([',', '.', ';', ':'])).collect();
    let plain = |word: &str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_lowercase());
    words.windows(2).any(|pair| plain(pair[0]) && plain(pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fragments_of_prose_in_tests_are_found() {
        let test = "fn a_test() {\n    assert!(why.contains(\"was too slow\") && why.contains(\"[http] listen\"));\n}\n";
        assert_eq!(fragments("host/live/src/tests/a.rs", test), [(2, "was too slow")]);
        assert_eq!(fragments("host/live/src/a.rs", test), []);
        let module = format!("#[cfg(test)]\nmod tests {{\n{test}}}\n");
        assert_eq!(fragments("host/live/src/a.rs", &module).len(), 1);
        assert_eq!(fragments("tests/src/a.rs", &test.replace("a_test", "faults_texts")), []);
        assert_eq!(fragments("tests/src/a.rs", "    assert!(text.contains(\"HTTP/1.1 200 OK\"));\n"), []);
    }
}
