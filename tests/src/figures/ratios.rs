//! The table of one run: our figures, those of the peers, the ratios, and the goals.

use std::collections::BTreeMap;

use super::columns;
use super::goals::{GOALS, Goal, figure};
use super::results::{Line, OURS};
use super::spread::Spread;

const HEADING: [&str; 7] = ["row", "figure", "Satcast", "peer", "ratio", "goal", "outcome"];

/// A figure of a row beside one peer, or alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The row.
    pub row: String,
    /// Name of the figure.
    pub figure: String,
    /// Our values; `None` when there are none.
    pub ours: Option<Spread>,
    /// The peer.
    pub peer: Option<Peer>,
    goal: Option<&'static Goal>,
}

/// A peer beside us.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Spread,
    /// The ratios of ours to its values, each made inside one repeat.
    pub ratio: Option<Spread>,
}

/// What became of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There is no goal.
    None,
    /// The median reaches it.
    Reached,
    /// The median does not.
    Missed,
    /// Nothing was measured for it.
    Open,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Reached => "reached",
            Self::Missed => "MISSED",
            Self::Open => "not measured",
        }
    }
}

impl Entry {
    /// What became of the goal.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let Some(goal) = self.goal else { return Outcome::None };
        let ratio = self.peer.as_ref().and_then(|peer| peer.ratio);
        let judged = if goal.peer.is_some() { ratio } else { self.ours };
        match judged {
            None => Outcome::Open,
            Some(values) if goal.bound.holds(values.median) => Outcome::Reached,
            Some(_) => Outcome::Missed,
        }
    }

    fn cells(&self) -> [String; 7] {
        let shown = |values: Option<Spread>| values.map(|values| values.to_string()).unwrap_or_default();
        let title = figure(&self.figure).map_or(self.figure.as_str(), |figure| figure.title);
        let peer = self.peer.as_ref();
        [
            self.row.clone(),
            title.to_owned(),
            shown(self.ours),
            peer.map(|peer| format!("{} {}", peer.name, peer.values)).unwrap_or_default(),
            shown(peer.and_then(|peer| peer.ratio)),
            self.goal.map(Goal::to_string).unwrap_or_default(),
            self.outcome().text().to_owned(),
        ]
    }
}

/// The values of each repeat.
type Repeats = BTreeMap<usize, f64>;

/// An entry for each figure of a row and each peer that has it, in the order of the lines. Lines of growth are left out.
#[must_use]
pub fn entries(lines: &[Line]) -> Vec<Entry> {
    let mut keys: Vec<(&str, &str)> = Vec::new();
    let mut values: BTreeMap<(&str, &str), Vec<(&str, Repeats)>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.step.is_none()) {
        let key = (line.row.as_str(), line.figure.as_str());
        if !values.contains_key(&key) {
            keys.push(key);
        }
        let sides = values.entry(key).or_default();
        let at = sides.iter().position(|(side, _)| *side == line.side).unwrap_or_else(|| {
            sides.push((line.side.as_str(), Repeats::new()));
            sides.len() - 1
        });
        sides[at].1.insert(line.repeat, line.value);
    }
    keys.into_iter().flat_map(|key| of_figure(key, &values[&key])).collect()
}

fn of_figure((row, figure): (&str, &str), sides: &[(&str, Repeats)]) -> Vec<Entry> {
    let ours = sides.iter().find(|(side, _)| *side == OURS).map(|(_, values)| values);
    let entry = |peer: Option<Peer>, is_first: bool| {
        let of_peer = |goal: &&Goal| match goal.peer {
            None => is_first,
            Some(name) => peer.as_ref().is_some_and(|peer| peer.name == name),
        };
        let goal = GOALS.iter().filter(|goal| goal.row == row && goal.figure == figure).find(of_peer);
        let ours = ours.and_then(|values| Spread::of(values.values().copied()));
        Entry { row: row.to_owned(), figure: figure.to_owned(), ours, peer, goal }
    };
    let peers = sides.iter().filter(|(side, _)| *side != OURS);
    let peers: Vec<Peer> = peers.filter_map(|(name, values)| peer(name, ours, values)).collect();
    if peers.is_empty() {
        return vec![entry(None, true)];
    }
    peers.into_iter().enumerate().map(|(index, peer)| entry(Some(peer), index == 0)).collect()
}

fn peer(name: &str, ours: Option<&Repeats>, theirs: &Repeats) -> Option<Peer> {
    let ratio = |(repeat, theirs): (&usize, &f64)| Some(ours?.get(repeat)? / theirs);
    let ratios = theirs.iter().filter_map(ratio).filter(|ratio| ratio.is_finite());
    let values = Spread::of(theirs.values().copied())?;
    Some(Peer { name: name.to_owned(), values, ratio: Spread::of(ratios) })
}

/// The goals for which the entries have nothing, as entries.
#[must_use]
pub fn unmeasured(entries: &[Entry]) -> Vec<Entry> {
    let is_there = |goal: &Goal| entries.iter().any(|entry| entry.goal == Some(goal));
    let missing = GOALS.iter().filter(|goal| !is_there(goal));
    let entry = |goal: &'static Goal| Entry {
        row: goal.row.to_owned(),
        figure: goal.figure.to_owned(),
        ours: None,
        peer: None,
        goal: Some(goal),
    };
    missing.map(entry).collect()
}

/// The entries as text; nothing when there are none.
#[must_use]
pub fn text(entries: &[Entry]) -> String {
    if entries.is_empty() { String::new() } else { columns::text(HEADING, &cells(entries)) }
}

/// The entries as a table of a document; nothing when there are none.
#[must_use]
pub fn markdown(entries: &[Entry]) -> String {
    if entries.is_empty() { String::new() } else { columns::markdown(HEADING, &cells(entries)) }
}

/// The same without the columns of goals.
#[must_use]
pub fn markdown_without_goals(entries: &[Entry]) -> String {
    let rows: Vec<[String; 5]> = entries
        .iter()
        .map(Entry::cells)
        .map(|[row, figure, ours, peer, ratio, ..]| [row, figure, ours, peer, ratio])
        .collect();
    let [row, figure, ours, peer, ratio, ..] = HEADING;
    columns::markdown([row, figure, ours, peer, ratio], &rows)
}

fn cells(entries: &[Entry]) -> Vec<[String; 7]> {
    entries.iter().map(Entry::cells).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(row: &str, figure: &str, side: &str, repeat: usize, value: f64) -> Line {
        Line { row: row.into(), figure: figure.into(), side: side.into(), repeat, step: None, value }
    }

    fn relay() -> Vec<Line> {
        vec![
            line("relay 1x1", "cpu", OURS, 0, 1.0),
            line("relay 1x1", "cpu", "nginx-rtmp", 0, 2.0),
            line("relay 1x1", "cpu", "nginx-rtmp", 1, 4.0),
            line("relay 1x1", "cpu", OURS, 1, 3.0),
            line("relay 1x1", "cpu", "node-media-server", 0, 10.0),
            line("relay 1x1", "first_ms", OURS, 0, 19.0),
            line("relay 1x1", "first_ms", "nginx-rtmp", 0, 0.0),
        ]
    }

    #[test]
    fn ratios_are_of_one_repeat() {
        let entries = entries(&relay());
        let ratio = |at: usize| entries[at].peer.as_ref().unwrap().ratio;
        assert_eq!(ratio(0), Some(Spread { median: 0.625, least: 0.5, most: 0.75, count: 2 }));
        assert_eq!(ratio(1), Some(Spread { median: 0.1, least: 0.1, most: 0.1, count: 1 }));
        // A peer that has none of something is no measure.
        assert_eq!(ratio(2), None);
    }

    #[test]
    fn a_goal_belongs_to_its_peer_or_to_the_first() {
        let outcomes: Vec<Outcome> = entries(&relay()).iter().map(Entry::outcome).collect();
        assert_eq!(outcomes, [Outcome::Missed, Outcome::None, Outcome::Reached]);
        let alone = entries(&[line("relay 1x1", "cpu", OURS, 0, 1.0)]);
        assert_eq!(alone[0].outcome(), Outcome::None, "without the peer there is no ratio");
    }

    #[test]
    fn goals_without_a_measurement_are_listed() {
        let entries = entries(&relay());
        let open = unmeasured(&entries);
        assert_eq!(open.len(), GOALS.len() - 2);
        assert!(open.iter().all(|entry| entry.outcome() == Outcome::Open));
    }

    #[test]
    fn lines_of_growth_are_no_entries() {
        let steps = Line { step: Some(1), ..line("growth streams", "mib", OURS, 0, 1.0) };
        assert_eq!(entries(&[steps]), []);
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn the_table_has_a_line_for_each_peer_texts() {
        let made = text(&entries(&relay()));
        let lines: Vec<&str> = made.lines().collect();
        assert_eq!(lines.len(), 4, "{made}");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        let wanted = "relay 1x1 CPU s per stream-minute 2.00 (1.00-3.00) nginx-rtmp 3.00 (2.00-4.00) 0.625 \
            (0.500-0.750) at most 0.600 of nginx-rtmp MISSED";
        assert_eq!(words.join(" "), wanted);
        assert!(markdown(&entries(&relay())).starts_with("| row | figure | Satcast |"));
    }
}
