//! Rust source for the rules: without comments and without unit tests.

/// Numbered lines (from 1) of shipped code: comments cut off, `#[cfg(test)]` modules left out.
///
/// It relies on rustfmt's layout, not on the grammar: a test module ends at the `}` in the column of its beginning, and
/// `//` begins a comment unless an open string literal precedes it on the line.
pub(crate) fn shipped_lines(text: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut attribute = false;
    let mut skipping: Option<usize> = None;
    for (index, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if let Some(column) = skipping {
            if indent == column && line.trim_start().starts_with('}') {
                skipping = None;
            }
            continue;
        }
        let code = without_comment(line);
        let trimmed = code.trim();
        if trimmed == "#[cfg(test)]" {
            attribute = true;
            continue;
        }
        if attribute && !trimmed.is_empty() && !trimmed.starts_with("#[") {
            attribute = false;
            if trimmed.ends_with('{') {
                skipping = Some(indent);
            }
            continue;
        }
        if !trimmed.is_empty() {
            lines.push((index + 1, code));
        }
    }
    lines
}

/// Whether `line` contains `word` with no identifier character on either side.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let identifier = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let inside = word.chars().next().is_some_and(identifier) && before.is_some_and(identifier);
        let goes_on = word.chars().next_back().is_some_and(identifier) && after.is_some_and(identifier);
        !inside && !goes_on
    })
}

fn without_comment(line: &str) -> &str {
    let comment = line.match_indices("//").find(|(at, _)| line[..*at].matches('"').count().is_multiple_of(2));
    comment.map_or(line, |(at, _)| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_test_modules_are_left_out() {
        let text = "use a::b; // why\nlet url = \"http://x\";\n#[cfg(test)]\nmod tests {\n    fn f() {\n    }\n}\nfn g() {}\n";
        let lines: Vec<_> =
            shipped_lines(text).into_iter().map(|(number, line)| (number, line.trim())).collect();
        assert_eq!(lines, [(1, "use a::b;"), (2, "let url = \"http://x\";"), (8, "fn g() {}")]);
    }

    #[test]
    fn a_test_module_in_its_own_file_hides_one_line_only() {
        let lines = shipped_lines("#[cfg(test)]\nmod tests;\nfn g() {}\n");
        assert_eq!(lines, [(3, "fn g() {}")]);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("use satcast::api;", "satcast::"));
        assert!(!has_word("use my_satcast::api;", "satcast::"));
        assert!(!has_word("#![deny(unsafe_code)]", "unsafe"));
        assert!(has_word("unsafe { call() }", "unsafe"));
    }
}
