//! Figures of several repeats.

use std::fmt::{Display, Formatter, Result};

/// Median, least and greatest of the repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The value in the middle; of an even number, half way between the two.
    pub median: f64,
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub most: f64,
    /// How many values there are.
    pub count: usize,
}

impl Spread {
    /// The spread of the values; `None` without any.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most, count) = (*values.first()?, *values.last()?, values.len());
        let middle = count / 2;
        let median = if count.is_multiple_of(2) {
            (values[middle - 1] + values[middle]) / 2.0
        } else {
            values[middle]
        };
        Some(Self { median, least, most, count })
    }
}

impl Display for Spread {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        formatter.write_str(&number(self.median))?;
        if self.count > 1 {
            write!(formatter, " ({}-{})", number(self.least), number(self.most))?;
        }
        Ok(())
    }
}

/// A value with as many digits as a measurement has.
#[must_use]
pub(super) fn number(value: f64) -> String {
    let decimals: usize = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// The value in the middle; of an even number, half way between the two.
///
/// # Panics
/// When there are no values.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    Spread::of(values.iter().copied()).expect("at least one value").median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([2.0, 1.0]), Some(Spread { median: 1.5, least: 1.0, most: 2.0, count: 2 }));
    }

    #[test]
    fn values_have_three_digits_and_one_value_no_range() {
        let shown = |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| spread.to_string());
        assert_eq!(shown(&[0.0864, 0.0912, 0.08]).as_deref(), Some("0.086 (0.080-0.091)"));
        assert_eq!(shown(&[123.4]).as_deref(), Some("123"));
        assert_eq!([12.34, 1.234, 0.0, -0.5].map(number), ["12.3", "1.23", "0.000", "-0.500"]);
    }
}
