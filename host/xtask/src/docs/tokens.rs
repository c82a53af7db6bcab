//! Rust source as words, texts and marks: enough to find the texts of errors, and no grammar.

use std::collections::BTreeSet;

use crate::check::shipped_lines;

/// What stands for a value without a name in a text.
const UNNAMED: &str = "{…}";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    /// A string literal with its escapes resolved.
    Text(String),
    Mark(char),
}

/// The tokens of a file's shipped code.
#[derive(Debug)]
pub(super) struct Tokens(Vec<Token>);

impl Tokens {
    /// Reads a file without its comments and unit tests.
    pub(super) fn of(source: &str) -> Self {
        let shipped: BTreeSet<usize> = shipped_lines(source).into_iter().map(|(number, _)| number).collect();
        let lines = (1..).zip(source.lines()).filter(|(number, _)| shipped.contains(number));
        let code: Vec<&str> = lines.map(|(_, line)| line).collect();
        let code = code.join("\n");
        let mut rest = code.as_str();
        let mut tokens = Vec::new();
        while let Some(first) = rest.chars().next() {
            let (token, length) = next(first, rest);
            tokens.extend(token);
            rest = &rest[length..];
        }
        Self(tokens)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The token at `at` moved by `by`; `None` outside of the file.
    fn at(&self, at: usize, by: isize) -> Option<&Token> {
        self.0.get(at.checked_add_signed(by)?)
    }

    pub(super) fn word(&self, at: usize, by: isize) -> Option<&str> {
        match self.at(at, by) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    pub(super) fn is_word(&self, at: usize, by: isize, word: &str) -> bool {
        self.word(at, by) == Some(word)
    }

    pub(super) fn is_mark(&self, at: usize, by: isize, mark: char) -> bool {
        self.at(at, by) == Some(&Token::Mark(mark))
    }

    /// The name after `first::`, if this stands at `at`.
    pub(super) fn path(&self, at: usize, first: &str) -> Option<&str> {
        let is_path = self.is_word(at, 0, first) && self.is_mark(at, 1, ':') && self.is_mark(at, 2, ':');
        self.word(at, 3).filter(|_| is_path)
    }

    /// Whether `=>` stands at `at`.
    pub(super) fn is_arrow(&self, at: usize) -> bool {
        self.is_mark(at, 0, '=') && self.is_mark(at, 1, '>')
    }

    /// The text at `at` as people read it; values in it stand in braces.
    pub(super) fn text(&self, at: usize) -> Option<String> {
        let Some(Token::Text(text)) = self.at(at, 0) else { return None };
        let is_format = match self.is_mark(at, -1, '(') {
            true => self.is_mark(at, -2, '!') || (self.is_word(at, -2, "error") && self.is_mark(at, -3, '[')),
            // `write!(f, "...")`.
            false => self.is_mark(at, -1, ',') && self.is_mark(at, -3, '(') && self.is_mark(at, -4, '!'),
        };
        Some(if is_format { named_values(text) } else { text.clone() })
    }

    /// The bracket around `at`: where it opens.
    pub(super) fn opening(&self, at: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for index in (0..at).rev() {
            match self.at(index, 0) {
                Some(Token::Mark(')' | ']' | '}')) => depth += 1,
                Some(Token::Mark('(' | '[' | '{')) if depth == 0 => return Some(index),
                Some(Token::Mark('(' | '[' | '{')) => depth -= 1,
                _ => {}
            }
        }
        None
    }

    /// The end of what begins at `from`: its closing bracket, or at its own level a mark of `ends`.
    pub(super) fn end(&self, from: usize, ends: &[char]) -> usize {
        let mut depth = 0_usize;
        for index in from..self.len() {
            match self.at(index, 0) {
                Some(Token::Mark(mark)) if depth == 0 && ends.contains(mark) => return index,
                Some(Token::Mark('(' | '[' | '{')) => depth += 1,
                Some(Token::Mark(')' | ']' | '}')) if depth == 0 => return index,
                Some(Token::Mark(')' | ']' | '}')) => depth -= 1,
                _ => {}
            }
        }
        self.len()
    }

    /// Where the function around `at` has its keyword `fn`.
    pub(super) fn function(&self, at: usize) -> Option<usize> {
        (0..at).rev().find(|index| self.is_word(*index, 0, "fn"))
    }
}

/// The token at the beginning of `rest`, if it is one, and its length in bytes.
fn next(first: char, rest: &str) -> (Option<Token>, usize) {
    if rest.starts_with("//") {
        return (None, rest.find('\n').unwrap_or(rest.len()));
    }
    if let Some(hashes) = raw_start(rest) {
        let (begin, close) = (hashes + 2, format!("\"{}", "#".repeat(hashes)));
        let end = rest[begin..].find(&close).map_or(rest.len(), |end| begin + end);
        return (Some(Token::Text(rest[begin..end].to_owned())), (end + close.len()).min(rest.len()));
    }
    match first {
        '"' => text(rest),
        '\'' => (None, character(rest)),
        _ if is_in_word(first) => {
            let end = rest.find(|c| !is_in_word(c)).unwrap_or(rest.len());
            (Some(Token::Word(rest[..end].to_owned())), end)
        }
        _ if first.is_whitespace() => (None, first.len_utf8()),
        _ => (Some(Token::Mark(first)), first.len_utf8()),
    }
}

fn is_in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The number of `#` of a raw string literal that begins here.
fn raw_start(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    after[hashes..].starts_with('"').then_some(hashes)
}

/// A string literal, which a `\` at the end of a line continues.
fn text(rest: &str) -> (Option<Token>, usize) {
    let mut read = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (Some(Token::Text(read)), at + 1),
            '\\' => match chars.next() {
                Some((_, '\n')) => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                Some((_, 'n' | 'r' | 't')) => read.push(' '),
                Some((_, escaped)) => read.push(escaped),
                None => {}
            },
            c => read.push(c),
        }
    }
    (Some(Token::Text(read)), rest.len())
}

/// The length of a character literal, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let from = at + escaped.len_utf8();
            rest[from..].find('\'').map_or(rest.len(), |end| from + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// A format text with the names of its values and without their formats.
fn named_values(format: &str) -> String {
    let mut text = String::new();
    let mut rest = format;
    while let Some(at) = rest.find(['{', '}']) {
        text.push_str(&rest[..at]);
        let (mark, after) = rest[at..].split_at(1);
        if let Some(after) = after.strip_prefix(mark) {
            text.push_str(mark);
            rest = after;
            continue;
        }
        let (value, after) = after.split_once('}').unwrap_or((after, ""));
        let name = value.split(':').next().unwrap_or_default();
        if name.chars().next().is_some_and(char::is_alphabetic) {
            text.push('{');
            text.push_str(name);
            text.push('}');
        } else {
            text.push_str(UNNAMED);
        }
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<String> {
        let tokens = Tokens::of(source);
        (0..tokens.len()).filter_map(|at| tokens.text(at)).collect()
    }

    #[test]
    fn literals_are_continued_and_unescaped() {
        assert_eq!(texts("let a = \"one \\\n    two \\\"three\\\"\"; // \"four\"\n"), ["one two \"three\""]);
        assert_eq!(
            texts("let a = r#\"raw \"text\"\"#; let b = '\"'; let c: &'static str = \"b\";\n"),
            ["raw \"text\"", "b"]
        );
    }

    #[test]
    fn values_of_formats_have_names_without_formats() {
        assert_eq!(texts("format!(\"{a:?} of {b} {} {0:>3} {{x}}\")\n"), ["{a} of {b} {…} {…} {x}"]);
        assert_eq!(texts("call(\"send no body or {}\")\n"), ["send no body or {}"]);
    }

    #[test]
    fn tests_of_a_file_are_left_out() {
        assert_eq!(texts("f(\"a\");\n#[cfg(test)]\nmod tests {\n    fn g() { f(\"b\") }\n}\n"), ["a"]);
    }
}
