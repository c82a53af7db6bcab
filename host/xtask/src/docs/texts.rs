//! The texts that an expression gives: its literals, and those of the constants, variables and parameters in it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::tokens::Tokens;
use crate::workspace;

/// How many names in a row are followed.
const STEPS_MAX: usize = 3;
/// Methods whose literal is a separator, a name or a question.
const NO_TEXTS: [&str; 7] =
    ["contains", "ends_with", "header", "join", "split", "starts_with", "strip_prefix"];
/// Parts of paths that hold no shipped code.
const NOT_SHIPPED: [&str; 7] =
    ["/benches/", "/examples/", "/fuzz/", "/testing", "/testkit", "/tests/", "/tests.rs"];

/// Sources that are read together.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) files: Vec<Tokens>,
    constants: BTreeMap<String, String>,
}

impl Sources {
    /// Reads the shipped files of folders, in the order of their paths.
    pub(super) fn read(folders: &[&str]) -> Result<Self, String> {
        let mut files = Vec::new();
        for folder in folders {
            let paths = workspace::files(folder, "rs")?;
            for path in paths.iter().filter(|path| !NOT_SHIPPED.iter().any(|part| path.contains(part))) {
                files.push(Tokens::of(&workspace::read(path)?));
            }
        }
        Ok(Self::of(files))
    }

    pub(super) fn of(files: Vec<Tokens>) -> Self {
        let mut constants = BTreeMap::new();
        for tokens in &files {
            for at in (0..tokens.len()).filter(|at| tokens.is_word(*at, 0, "const")) {
                let end = tokens.end(at, &[';']);
                let text = (at..end).find_map(|at| tokens.text(at));
                if let (Some(name), Some(text)) = (tokens.word(at, 1), text) {
                    constants.insert(name.to_owned(), text);
                }
            }
        }
        Self { files, constants }
    }

    /// The texts of an expression, each once.
    pub(super) fn texts(&self, tokens: &Tokens, expression: Range<usize>) -> Vec<String> {
        let mut texts = Vec::new();
        for text in self.follow(tokens, expression, STEPS_MAX) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    }

    fn follow(&self, tokens: &Tokens, expression: Range<usize>, steps: usize) -> Vec<String> {
        let mut texts = Vec::new();
        for at in expression {
            match (tokens.text(at), tokens.word(at, 0)) {
                (Some(text), _) => {
                    let is_of_method = NO_TEXTS.iter().any(|name| tokens.is_word(at, -2, name));
                    if !is_of_method && !tokens.is_arrow(at + 1) {
                        texts.push(text);
                    }
                }
                (None, Some(word)) if steps > 0 => texts.extend(self.named(tokens, at, word, steps - 1)),
                _ => {}
            }
        }
        texts
    }

    /// The texts of the constant, variable or parameter `word` at `at`.
    fn named(&self, tokens: &Tokens, at: usize, word: &str, steps: usize) -> Vec<String> {
        if word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') {
            return self.constants.get(word).cloned().into_iter().collect();
        }
        let is_field = tokens.is_mark(at, -1, '.');
        let is_asked = tokens.is_mark(at, 1, '.') && !tokens.is_word(at, 2, "to_owned");
        let is_call = ['(', '!', ':'].iter().any(|mark| tokens.is_mark(at, 1, *mark));
        if is_field || is_asked || is_call { Vec::new() } else { self.variable(tokens, at, word, steps) }
    }

    fn variable(&self, tokens: &Tokens, at: usize, word: &str, steps: usize) -> Vec<String> {
        let Some(function) = tokens.function(at) else { return Vec::new() };
        for place in (function..at).rev().filter(|place| tokens.is_word(*place, 0, word)) {
            if tokens.is_word(place, -1, "let") {
                let end = tokens.end(place, &[';']);
                return if end < at { self.follow(tokens, place + 1..end, steps) } else { Vec::new() };
            }
            let ends = tokens.is_mark(place, 1, ':') || tokens.is_mark(place, 1, '|');
            if tokens.is_mark(place, -1, '|') && ends {
                // `let name = |word| ...`: the texts stand where the closure is called.
                let name = tokens.word(place, -3).filter(|_| tokens.is_word(place, -4, "let"));
                return name.map_or_else(Vec::new, |name| self.of_calls(tokens, name, steps));
            }
        }
        let Some(open) = (function..at).find(|place| tokens.is_mark(*place, 0, '(')) else {
            return Vec::new();
        };
        let is_parameter = |place: &usize| tokens.is_word(*place, 0, word) && tokens.is_mark(*place, 1, ':');
        match tokens.word(function, 1) {
            Some(name) if (open..tokens.end(open + 1, &[])).any(|place| is_parameter(&place)) => {
                self.of_calls(tokens, name, steps)
            }
            _ => Vec::new(),
        }
    }

    /// The texts of the arguments at all calls of a function of this file; without any, at those of a constructor of `ApiError`.
    fn of_calls(&self, tokens: &Tokens, name: &str, steps: usize) -> Vec<String> {
        let is_other = |at: usize| {
            let is_path = tokens.is_mark(at, -1, ':') && !tokens.is_word(at, -3, "Self");
            is_path || tokens.is_mark(at, -1, '.')
        };
        let calls = calls(tokens, name).filter(|at| !is_other(*at));
        let texts: Vec<String> =
            calls.flat_map(|at| self.follow(tokens, at + 2..tokens.end(at + 2, &[]), steps)).collect();
        if !texts.is_empty() {
            return texts;
        }
        let made = |tokens: &Tokens| -> Vec<String> {
            (0..tokens.len())
                .filter(|at| tokens.path(*at, "ApiError") == Some(name) && tokens.is_mark(*at, 4, '('))
                .flat_map(|at| self.follow(tokens, at + 5..tokens.end(at + 5, &[]), steps))
                .collect()
        };
        self.files.iter().flat_map(made).collect()
    }
}

/// Where a function is called: the places of its name.
pub(super) fn calls<'a>(tokens: &'a Tokens, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    (0..tokens.len()).filter(move |at| {
        tokens.is_word(*at, 0, name) && tokens.is_mark(*at, 1, '(') && !tokens.is_word(*at, -1, "fn")
    })
}
