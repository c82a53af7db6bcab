//! The command line of a benchmark.

use std::time::Duration;

/// Option without a value: the short form.
const SHORT: &str = "--short";

/// How often and how long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Repeats; a ratio is made inside one only, since the machine's speed drifts between them.
    pub repeats: usize,
    /// Length of one measurement.
    pub window: Duration,
    /// Leave out what takes long and tells a developer little: the slowest peers, and most of the preparation.
    pub short: bool,
}

impl Options {
    /// `--repeats N`, `--seconds S` and `--short` of the command line, or these values; cargo's own `--bench` is passed over.
    ///
    /// # Panics
    /// When the command line has something else.
    #[must_use]
    pub fn from_arguments(repeats: usize, window_seconds: u64) -> Self {
        Self::with_names(repeats, window_seconds, &[]).0
    }

    /// The same, and the names among `known` that the command line gives; all of them when it gives none.
    ///
    /// # Panics
    /// When the command line has something else.
    #[must_use]
    pub fn with_names<'a>(repeats: usize, window_seconds: u64, known: &[&'a str]) -> (Self, Vec<&'a str>) {
        let options = Self { repeats, window: Duration::from_secs(window_seconds), short: false };
        let arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
        options.read(arguments, known).unwrap_or_else(|reason| panic!("{reason}"))
    }

    fn read<'a>(
        mut self,
        mut arguments: impl Iterator<Item = String>,
        known: &[&'a str],
    ) -> Result<(Self, Vec<&'a str>), String> {
        let mut names = Vec::new();
        while let Some(argument) = arguments.next() {
            if let Some(name) = known.iter().find(|name| **name == argument) {
                names.push(*name);
                continue;
            }
            if argument == SHORT {
                self.short = true;
                continue;
            }
            let value = arguments.next().and_then(|value| value.parse().ok()).filter(|value| *value > 0);
            match (argument.as_str(), value) {
                ("--repeats", Some(value)) => self.repeats = usize::try_from(value).unwrap_or(self.repeats),
                ("--seconds", Some(value)) => self.window = Duration::from_secs(value),
                _ => {
                    return Err(format!(
                        "cannot read {argument}; there are --repeats N, --seconds S, {SHORT} and the names {}",
                        known.join(", ")
                    ));
                }
            }
        }
        Ok((self, if names.is_empty() { known.to_vec() } else { names }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<(Options, Vec<&'static str>), String> {
        let options = Options { repeats: 5, window: Duration::from_secs(10), short: false };
        options.read(line.split_whitespace().map(str::to_owned), &["one", "two"])
    }

    #[test]
    fn names_and_options_come_in_any_order() {
        let options = Options { repeats: 3, window: Duration::from_secs(4), short: true };
        assert_eq!(read("--seconds 4 two --short --repeats 3"), Ok((options, vec!["two"])));
        assert_eq!(read("").map(|(_, names)| names), Ok(vec!["one", "two"]));
    }

    #[test]
    fn unknown_names_and_empty_counts_are_refused() {
        for line in ["three", "--repeats", "--repeats 0", "--seconds x", "--long 3"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
