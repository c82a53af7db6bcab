//! How figures grow with the size of a case, and the law that they follow.

use std::collections::BTreeMap;

use super::columns;
use super::goals::figure;
use super::results::Line;
use super::spread::{Spread, number};

const HEADING: [&str; 4] = ["row", "figure", "values by step", "law"];
/// A value below this share of the greatest counts as this share: less is noise, and zero has no logarithm.
const SHARE_MIN: f64 = 0.01;
/// Highest exponents of the first three laws. The spread of a measurement moves an exponent by about 0.15.
const CONSTANT_MAX: f64 = 0.15;
const LESS_MAX: f64 = 0.8;
const LINEAR_MAX: f64 = 1.2;

/// How a figure grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// It stays the same.
    Constant,
    /// Slower than the size, for instance a fixed cost and a linear one.
    LessThanLinear,
    /// As fast as the size.
    Linear,
    /// Faster than the size.
    Worse,
}

impl Law {
    fn text(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::LessThanLinear => "less than linear",
            Self::Linear => "linear",
            Self::Worse => "WORSE THAN LINEAR",
        }
    }
}

/// The exponent of a power of the size, and the law of it, from the two largest steps: with smaller ones the fixed cost hides it.
/// `None` with fewer than two steps.
///
/// A fixed cost never lifts the exponent of a linear figure above 1.
#[must_use]
pub fn law(points: &BTreeMap<u64, f64>) -> Option<(f64, Law)> {
    let greatest = points.values().copied().fold(0.0, f64::max);
    let mut largest = points.iter().rev().filter(|(step, _)| **step > 0);
    let ((to, after), (from, before)) = (largest.next()?, largest.next()?);
    let exponent = if greatest > 0.0 {
        let [after, before] = [after, before].map(|value| value.max(greatest * SHARE_MIN));
        (after / before).ln() / (*to as f64 / *from as f64).ln()
    } else {
        0.0
    };
    let law = match exponent {
        exponent if exponent <= CONSTANT_MAX => Law::Constant,
        exponent if exponent <= LESS_MAX => Law::LessThanLinear,
        exponent if exponent <= LINEAR_MAX => Law::Linear,
        _ => Law::Worse,
    };
    Some((exponent, law))
}

/// The steps of all figures as text; nothing when there are none.
#[must_use]
pub fn text(lines: &[Line]) -> String {
    let rows = rows(lines);
    if rows.is_empty() { String::new() } else { columns::text(HEADING, &rows) }
}

/// The same as a table of a document.
#[must_use]
pub fn markdown(lines: &[Line]) -> String {
    let rows = rows(lines);
    if rows.is_empty() { String::new() } else { columns::markdown(HEADING, &rows) }
}

fn rows(lines: &[Line]) -> Vec<[String; 4]> {
    let mut keys: Vec<(&str, &str)> = Vec::new();
    let mut values: BTreeMap<(&str, &str), BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
    for line in lines {
        let Some(step) = line.step else { continue };
        let key = (line.row.as_str(), line.figure.as_str());
        if !values.contains_key(&key) {
            keys.push(key);
        }
        values.entry(key).or_default().entry(step).or_default().push(line.value);
    }
    keys.into_iter().map(|key| cells(key, &values[&key])).collect()
}

/// The cells of a figure with the values of each step.
fn cells((row, name): (&str, &str), values: &BTreeMap<u64, Vec<f64>>) -> [String; 4] {
    let spreads = values.iter();
    let spreads = spreads.filter_map(|(step, values)| Some((*step, Spread::of(values.iter().copied())?)));
    let medians: BTreeMap<u64, f64> = spreads.map(|(step, spread)| (step, spread.median)).collect();
    let steps: Vec<String> =
        medians.iter().map(|(step, value)| format!("{step}: {}", number(*value))).collect();
    let law = law(&medians).map(|(exponent, law)| format!("{}, exponent {exponent:.2}", law.text()));
    let title = figure(name).map_or(name, |figure| figure.title);
    [row.to_owned(), title.to_owned(), steps.join(", "), law.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::super::results::OURS;
    use super::*;

    const STEPS: [u64; 4] = [1, 10, 100, 500];

    fn law_of(value: impl Fn(f64) -> f64) -> Law {
        let points: BTreeMap<u64, f64> = STEPS.iter().map(|step| (*step, value(*step as f64))).collect();
        law(&points).unwrap().1
    }

    #[test]
    fn laws_are_found_beside_a_fixed_cost() {
        assert_eq!(law_of(|_| 7.0), Law::Constant);
        assert_eq!(law_of(|_| 0.0), Law::Constant);
        assert_eq!(law_of(|size| 9.0 - size / 1000.0), Law::Constant);
        assert_eq!(law_of(|size| 3.0 * size), Law::Linear);
        assert_eq!(law_of(|size| 20.0 + size), Law::Linear);
        assert_eq!(law_of(|size| 300.0 + size), Law::LessThanLinear);
        assert_eq!(law_of(|size| size.sqrt()), Law::LessThanLinear);
        assert_eq!(law_of(|size| size.powi(2)), Law::Worse);
        assert_eq!(law_of(|size| 100.0 + size + size * size / 20.0), Law::Worse);
    }

    #[test]
    fn one_step_has_no_law() {
        assert_eq!(law(&BTreeMap::from([(1, 2.0)])), None);
        assert_eq!(law(&BTreeMap::new()), None);
        // A step of zero has no logarithm.
        assert_eq!(law(&BTreeMap::from([(0, 1.0), (1, 2.0)])), None);
    }

    #[test]
    fn steps_are_shown_in_order_with_their_medians_text() {
        let line = |step, repeat, value| Line {
            row: "growth streams".into(),
            figure: "mib".into(),
            side: OURS.into(),
            repeat,
            step: Some(step),
            value,
        };
        let lines = [line(10, 0, 20.0), line(1, 0, 2.0), line(1, 1, 4.0)];
        let wanted = ["growth streams", "MiB resident", "1: 3.00, 10: 20.0", "linear, exponent 0.82"];
        assert_eq!(rows(&lines), [wanted.map(str::to_owned)]);
        assert!(rows(&[Line { step: None, ..line(1, 0, 1.0) }]).is_empty());
    }
}
