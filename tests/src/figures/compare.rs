//! Two runs, for instance before and after a change.

use super::columns;
use super::goals::figure;
use super::ratios::{Entry, entries};
use super::results::Line;
use super::spread::Spread;

const HEADING: [&str; 5] = ["row", "figure", "before", "after", "change"];
/// Least change, as a share, that is called one: of runs with several repeats, and of runs with a single one, whose spread is not
/// known.
const CHANGE_MIN: f64 = 0.05;
const CHANGE_MIN_SINGLE: f64 = 0.2;

/// A comparison of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Within the spread.
    Same,
    Better,
    Worse,
}

impl Verdict {
    fn of(before: Spread, after: Spread, more_is_better: bool) -> Self {
        let least = if before.count.min(after.count) > 1 { CHANGE_MIN } else { CHANGE_MIN_SINGLE };
        let overlap = after.least <= before.most && before.least <= after.most;
        if overlap || (after.median - before.median).abs() < least * before.median.abs() {
            Self::Same
        } else if (after.median > before.median) == more_is_better {
            Self::Better
        } else {
            Self::Worse
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Same => "within the spread",
            Self::Better => "better",
            Self::Worse => "WORSE",
        }
    }
}

/// The figures that both runs have, as text: ratios to a peer where there is one, our own values elsewhere.
#[must_use]
pub fn text(before: &[Line], after: &[Line]) -> String {
    let (before, after) = (entries(before), entries(after));
    let rows: Vec<[String; 5]> = before
        .iter()
        .filter_map(|old| {
            let new = after.iter().find(|new| key(new) == key(old))?;
            row(old, value(old)?, value(new)?)
        })
        .collect();
    columns::text(HEADING, &rows)
}

fn row(entry: &Entry, before: Spread, after: Spread) -> Option<[String; 5]> {
    let figure = figure(&entry.figure)?;
    let peer = entry.peer.as_ref().map(|peer| format!(", ratio to {}", peer.name)).unwrap_or_default();
    let share = (after.median / before.median - 1.0) * 100.0;
    let change = if share.is_finite() { format!("{share:+.0} % ") } else { String::new() };
    let verdict = Verdict::of(before, after, figure.more_is_better).text();
    let title = format!("{}{peer}", figure.title);
    Some([entry.row.clone(), title, before.to_string(), after.to_string(), format!("{change}{verdict}")])
}

fn key(entry: &Entry) -> (&str, &str, Option<&str>) {
    (entry.row.as_str(), entry.figure.as_str(), entry.peer.as_ref().map(|peer| peer.name.as_str()))
}

fn value(entry: &Entry) -> Option<Spread> {
    entry.peer.as_ref().map_or(entry.ours, |peer| peer.ratio)
}

#[cfg(test)]
mod tests {
    use super::super::results::OURS;
    use super::*;

    fn spread(values: &[f64]) -> Spread {
        Spread::of(values.iter().copied()).unwrap()
    }

    #[test]
    fn a_change_is_one_outside_of_the_spread() {
        let before = spread(&[1.0, 1.1, 1.2]);
        let of = |after: &[f64], more| Verdict::of(before, spread(after), more);
        assert_eq!(of(&[1.2, 1.3, 1.4], false), Verdict::Same);
        assert_eq!(of(&[1.3, 1.4, 1.5], false), Verdict::Worse);
        assert_eq!(of(&[1.3, 1.4, 1.5], true), Verdict::Better);
        assert_eq!(of(&[0.5, 0.6], false), Verdict::Better);
        let single = |after: f64| Verdict::of(spread(&[1.0]), spread(&[after]), false);
        assert_eq!([single(1.1), single(1.3)], [Verdict::Same, Verdict::Worse]);
    }

    #[test]
    fn figures_of_both_runs_are_compared_texts() {
        let line = |row: &str, side: &str, value| Line {
            row: row.into(),
            figure: "cpu".into(),
            side: side.into(),
            repeat: 0,
            step: None,
            value,
        };
        let before = [line("relay", OURS, 1.0), line("relay", "nginx-rtmp", 2.0), line("gone", OURS, 1.0)];
        let after = [line("relay", OURS, 1.0), line("relay", "nginx-rtmp", 1.0), line("new", OURS, 1.0)];
        let made = text(&before, &after);
        let lines: Vec<&str> = made.lines().collect();
        assert_eq!(lines.len(), 2, "{made}");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "relay CPU s per stream-minute, ratio to nginx-rtmp 0.500 1.00 +100 % WORSE"
        );
    }
}
