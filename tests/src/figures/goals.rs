//! All figures with their units, and the goals of the rows.

use std::fmt::{Display, Formatter, Result};

use super::spread::number;

/// What a benchmark measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name in the results.
    pub name: &'static str,
    /// What it is, with its unit.
    pub title: &'static str,
    /// Whether more of it is better.
    pub more_is_better: bool,
}

const fn less(name: &'static str, title: &'static str) -> Figure {
    Figure { name, title, more_is_better: false }
}

const fn more(name: &'static str, title: &'static str) -> Figure {
    Figure { name, title, more_is_better: true }
}

/// Every figure. `cpu` is user and system time of the server's process.
pub const FIGURES: &[Figure] = &[
    less("cpu", "CPU s per stream-minute"),
    less("load_cpu", "CPU s per stream-minute of the load"),
    less("cpu_minute", "CPU s per minute"),
    less("cpu_s", "CPU s in all"),
    less("cpu_ms", "CPU ms each"),
    less("cpu_us", "CPU us each"),
    less("cpu_s_per_gb", "CPU s per GB"),
    less("cores", "cores"),
    less("child_cores", "cores of the driver's process"),
    less("p50_ms", "p50 ms"),
    less("p99_ms", "p99 ms"),
    less("first_ms", "ms to the first frame"),
    less("first_worst_ms", "ms to the first frame, slowest"),
    less("answer_ms", "ms until the answer"),
    less("playable_s", "s to playable"),
    less("ready_s", "s to hlsReady"),
    less("kib_per_stream", "KiB per stream"),
    less("kib_beyond_gop", "KiB per stream beyond the kept GOP"),
    less("mb_per_stream", "MB per stream"),
    less("kib_per_viewer", "KiB per viewer"),
    less("mib", "MiB resident"),
    less("wrong", "frames lost, repeated or misrouted"),
    less("lost", "packets lost"),
    less("starved", "viewers without an answer"),
    more("frames", "frames counted"),
    more("gbit_per_cpu_s", "Gbit per CPU s"),
    more("kanswers_per_cpu_s", "1000 answers per CPU s"),
    more("gbit_per_s", "Gbit/s"),
    more("per_s", "deliveries/s"),
];

/// The figure of that name.
#[must_use]
pub fn figure(name: &str) -> Option<Figure> {
    FIGURES.iter().copied().find(|figure| figure.name == name)
}

/// The limit of a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Reached by this value and less.
    Most(f64),
    /// Reached by this value and more.
    Least(f64),
}

impl Bound {
    /// Whether `value` reaches it.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::Most(most) => value <= most,
            Self::Least(least) => value >= least,
        }
    }
}

/// The goal of one figure of a row, for the median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The row.
    pub row: &'static str,
    /// The figure.
    pub figure: &'static str,
    /// The limit.
    pub bound: Bound,
    /// The peer, when the limit is one of the ratio to it.
    pub peer: Option<&'static str>,
}

impl Display for Goal {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        let (word, value) = match self.bound {
            Bound::Most(value) => ("at most", value),
            Bound::Least(value) => ("at least", value),
        };
        write!(formatter, "{word} {}", number(value))?;
        self.peer.map_or(Ok(()), |peer| write!(formatter, " of {peer}"))
    }
}

const fn most(row: &'static str, figure: &'static str, value: f64) -> Goal {
    Goal { row, figure, bound: Bound::Most(value), peer: None }
}

const fn most_of(row: &'static str, figure: &'static str, peer: &'static str, value: f64) -> Goal {
    Goal { row, figure, bound: Bound::Most(value), peer: Some(peer) }
}

const fn least_of(row: &'static str, figure: &'static str, peer: &'static str, value: f64) -> Goal {
    Goal { row, figure, bound: Bound::Least(value), peer: Some(peer) }
}

const NGINX_RTMP: &str = "nginx-rtmp";

/// Every goal, in the order of the rows.
pub const GOALS: &[Goal] = &[
    most_of("relay 1x1", "cpu", NGINX_RTMP, 0.6),
    most("relay 1x1", "first_ms", 20.0),
    most_of("relay 1x3", "cpu", NGINX_RTMP, 0.6),
    most("relay 1x3", "first_ms", 20.0),
    most_of("relay 10x1", "cpu", NGINX_RTMP, 0.8),
    most("relay 10x1", "p99_ms", 150.0),
    most_of("relay 100x1", "cpu", NGINX_RTMP, 0.8),
    most("relay 100x1", "p99_ms", 150.0),
    most_of("relay 100x3", "cpu", NGINX_RTMP, 0.45),
    most("relay 100x3", "p99_ms", 150.0),
    most("relay 100x3", "first_ms", 20.0),
    most("relay 100x3", "kib_beyond_gop", 150.0),
    most_of("relay 10x3-now", "cpu", NGINX_RTMP, 1.0),
    most("relay 10x3-now", "p99_ms", 5.0),
    most_of("relay 100x3-now", "cpu", NGINX_RTMP, 1.0),
    most("relay 100x3-now", "p50_ms", 1.0),
    most("relay 100x3-now", "p99_ms", 5.0),
    most_of("packaging 1", "cpu", NGINX_RTMP, 0.6),
    most_of("packaging 10", "cpu", NGINX_RTMP, 0.6),
    most_of("packaging 50", "cpu", NGINX_RTMP, 0.4),
    most("packaging 50", "mb_per_stream", 2.5),
    most("packaging 50 with parts", "mb_per_stream", 4.0),
    // A GOP of 2 s or 5 s and 0.3 s.
    most("start", "playable_s", 2.3),
    most("start", "ready_s", 2.3),
    most("start with parts", "playable_s", 0.7),
    most("start with a GOP of 5 s", "playable_s", 5.3),
    most("start with a GOP of 5 s", "ready_s", 5.3),
    least_of("viewers newest 200", "gbit_per_cpu_s", "hyper", 0.95),
    least_of("viewers newest 1000", "gbit_per_cpu_s", "hyper", 0.95),
    least_of("viewers old 200", "gbit_per_cpu_s", "nginx", 0.9),
    least_of("viewers old 1000", "gbit_per_cpu_s", "nginx", 0.9),
    least_of("viewers playlist 200", "gbit_per_cpu_s", "nginx", 0.95),
    least_of("status offline", "kanswers_per_cpu_s", "poem", 0.8),
    least_of("status live", "kanswers_per_cpu_s", "poem", 0.8),
    least_of("archive upload", "gbit_per_s", "object_store", 0.95),
    most("archive upload", "cpu_s_per_gb", 1.1),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_have_known_figures_and_each_stands_once() {
        for (index, goal) in GOALS.iter().enumerate() {
            let figure = figure(goal.figure).unwrap();
            assert_eq!(figure.more_is_better, matches!(goal.bound, Bound::Least(_)), "{goal:?}");
            let same =
                |other: &Goal| (other.row, other.figure, other.peer) == (goal.row, goal.figure, goal.peer);
            assert_eq!(GOALS.iter().position(same), Some(index), "{goal:?}");
        }
        for (index, figure) in FIGURES.iter().enumerate() {
            assert_eq!(FIGURES.iter().position(|other| other.name == figure.name), Some(index));
        }
    }

    #[test]
    fn a_bound_is_reached_by_its_own_value() {
        assert!(Bound::Most(0.6).holds(0.6) && !Bound::Most(0.6).holds(0.61));
        assert!(Bound::Least(0.9).holds(0.9) && !Bound::Least(0.9).holds(0.89));
    }

    #[test]
    fn goals_are_shown_with_their_peer_texts() {
        assert_eq!(GOALS[0].to_string(), "at most 0.600 of nginx-rtmp");
        assert_eq!(most("relay 1x1", "p99_ms", 5.0).to_string(), "at most 5.00");
    }
}
