//! Common code of the benchmarks: their options, and figures of several repeats.

use std::time::Duration;

/// How often and how long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Repeats; a ratio is made inside one only, since the machine's speed drifts between them.
    pub repeats: usize,
    /// Length of one measurement.
    pub window: Duration,
}

impl Options {
    /// `--repeats N` and `--seconds S` of the command line, or these; cargo's own `--bench` is passed over.
    ///
    /// # Panics
    /// When the command line says something else.
    #[must_use]
    pub fn from_arguments(repeats: usize, window_seconds: u64) -> Self {
        Self::with_names(repeats, window_seconds, &[]).0
    }

    /// The same, and the names among `known` that the command line gives; all of them when it gives none.
    ///
    /// # Panics
    /// When the command line says something else.
    #[must_use]
    pub fn with_names<'a>(repeats: usize, window_seconds: u64, known: &[&'a str]) -> (Self, Vec<&'a str>) {
        let mut options = Self { repeats, window: Duration::from_secs(window_seconds) };
        let mut names = Vec::new();
        let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
        while let Some(argument) = arguments.next() {
            if let Some(name) = known.iter().find(|name| **name == argument) {
                names.push(*name);
                continue;
            }
            let value = arguments.next().and_then(|value| value.parse().ok()).filter(|value| *value > 0);
            match (argument.as_str(), value) {
                ("--repeats", Some(value)) => options.repeats = usize::try_from(value).unwrap_or(repeats),
                ("--seconds", Some(value)) => options.window = Duration::from_secs(value),
                _ => panic!(
                    "cannot read {argument}; there are --repeats N, --seconds S and the names {}",
                    known.join(", ")
                ),
            }
        }
        (options, if names.is_empty() { known.to_vec() } else { names })
    }
}

/// Ours and theirs over the repeats of one case.
#[derive(Debug, Default)]
pub struct Pairs {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

impl Pairs {
    /// Measures both once, in an order that changes with each repeat, so that a warm machine favours neither.
    pub fn measure(&mut self, repeat: usize, ours: impl FnOnce() -> f64, theirs: impl FnOnce() -> f64) {
        if repeat.is_multiple_of(2) {
            self.ours.push(ours());
            self.theirs.push(theirs());
        } else {
            self.theirs.push(theirs());
            self.ours.push(ours());
        }
    }

    /// The middle of the ratios of ours to theirs, each made inside one repeat.
    ///
    /// # Panics
    /// When nothing was measured.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        median(&self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
    }

    /// Ours, theirs and their ratio, each as median and range.
    #[must_use]
    pub fn summaries(&self) -> [String; 3] {
        let ratios: Vec<f64> =
            self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect();
        [&self.ours, &self.theirs, &ratios].map(|values| summary(values))
    }
}

/// Median, least and greatest.
///
/// # Panics
/// When there are no values.
#[must_use]
pub fn summary(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    format!("{:.3} ({:.3}-{:.3})", median(values), sorted[0], sorted[sorted.len() - 1])
}

/// The value in the middle; of an even number, half way between the two.
///
/// # Panics
/// When there are no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(summary(&[3.0, 1.0, 2.0]), "2.000 (1.000-3.000)");
        assert_eq!(summary(&[4.0, 1.0]), "2.500 (1.000-4.000)");
    }

    #[test]
    fn ratios_are_of_one_repeat() {
        let mut pairs = Pairs::default();
        pairs.measure(0, || 1.0, || 2.0);
        pairs.measure(1, || 3.0, || 4.0);
        assert_eq!(pairs.summaries()[2], "0.625 (0.500-0.750)");
    }
}
