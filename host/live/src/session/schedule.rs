//! Decides which destinations run now, from their enabled flags and delays.
//!
//! Pure: times are arguments. The end of a session and orders of billing or a limit ignore the delays. A deleted destination stops at
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use satcast_core::ids::DestinationId;
use satcast_store::Delays;

/// The configured and the current state of one destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) id: DestinationId,
    pub(super) enabled: bool,
    pub(super) delays: Delays,
    pub(super) runs: bool,
    /// Its state is live.
    pub(super) forwards: bool,
}

/// The transition that a destination waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    ToStart,
    ToStop,
}

/// A destination that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) kind: Pending,
    since: Duration,
    /// Monotonic time.
    pub(super) until: Duration,
}

/// The destinations of a session that wait.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    waits: BTreeMap<DestinationId, Wait>,
}

impl Schedule {
    /// Takes all destinations, and returns those that must run at the monotonic time `now`. A changed delay counts from the start of
    /// the wait.
    pub(super) fn plan(
        &mut self,
        all: impl Iterator<Item = Wanted>,
        now: Duration,
    ) -> BTreeSet<DestinationId> {
        let before = std::mem::take(&mut self.waits);
        let mut due = BTreeSet::new();
        for wanted in all {
            let known = before.get(&wanted.id);
            let goes_on = wanted.forwards || known.is_some_and(|wait| wait.kind == Pending::ToStop);
            let (kind, secs) = match (wanted.enabled, wanted.runs) {
                (false, false) => continue,
                (true, true) => {
                    due.insert(wanted.id);
                    continue;
                }
                (true, false) => (Pending::ToStart, wanted.delays.start_secs),
                // A destination that does not forward stops without delay.
                (false, true) => (Pending::ToStop, if goes_on { wanted.delays.stop_secs } else { 0 }),
            };
            let since = known.filter(|wait| wait.kind == kind).map_or(now, |wait| wait.since);
            let until = since.saturating_add(Duration::from_secs(u64::from(secs)));
            let is_over = until <= now;
            if !is_over {
                self.waits.insert(wanted.id, Wait { kind, since, until });
            }
            if is_over == (kind == Pending::ToStart) {
                due.insert(wanted.id);
            }
        }
        due
    }

    /// At least one wait is over.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.waits.values().any(|wait| wait.until <= now)
    }

    pub(super) fn waits(&self) -> impl Iterator<Item = (DestinationId, Wait)> {
        self.waits.iter().map(|(id, wait)| (*id, *wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: DestinationId = DestinationId(7);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn wanted(enabled: bool, runs: bool) -> Wanted {
        Wanted { id: ID, enabled, delays: Delays { start_secs: 10, stop_secs: 20 }, runs, forwards: runs }
    }

    /// Whether the destination runs; the transition that it waits for, and the seconds left.
    fn planned(schedule: &mut Schedule, wanted: Wanted, now: u64) -> (bool, Option<(Pending, u64)>) {
        let due = schedule.plan([wanted].into_iter(), secs(now));
        let wait = schedule.waits().next();
        (due.contains(&ID), wait.map(|(_, wait)| (wait.kind, (wait.until - secs(now)).as_secs())))
    }

    #[test]
    fn it_starts_and_stops_after_its_delays() {
        let mut schedule = Schedule::default();
        assert_eq!(planned(&mut schedule, wanted(true, false), 100), (false, Some((Pending::ToStart, 10))));
        assert!(!schedule.is_due(secs(109)));
        assert_eq!(planned(&mut schedule, wanted(true, false), 109), (false, Some((Pending::ToStart, 1))));
        assert!(schedule.is_due(secs(110)));
        assert_eq!(planned(&mut schedule, wanted(true, false), 110), (true, None));
        assert_eq!(planned(&mut schedule, wanted(true, true), 111), (true, None));
        assert_eq!(planned(&mut schedule, wanted(false, true), 200), (true, Some((Pending::ToStop, 20))));
        assert_eq!(planned(&mut schedule, wanted(false, true), 219), (true, Some((Pending::ToStop, 1))));
        assert_eq!(planned(&mut schedule, wanted(false, true), 220), (false, None));
        assert_eq!(planned(&mut schedule, wanted(false, false), 221), (false, None));
    }

    #[test]
    fn a_reverted_change_ends_the_wait_and_a_new_delay_counts_from_its_start() {
        let mut schedule = Schedule::default();
        planned(&mut schedule, wanted(true, false), 100);
        assert_eq!(planned(&mut schedule, wanted(false, false), 105), (false, None));
        assert_eq!(planned(&mut schedule, wanted(true, false), 106), (false, Some((Pending::ToStart, 10))));
        let sooner = Wanted { delays: Delays::default(), ..wanted(true, false) };
        assert_eq!(planned(&mut schedule, sooner, 107), (true, None));
        planned(&mut schedule, wanted(false, true), 200);
        assert_eq!(planned(&mut schedule, wanted(true, true), 210), (true, None), "enabled again");
        planned(&mut schedule, wanted(false, true), 300);
        let later = Wanted { delays: Delays { stop_secs: 50, start_secs: 0 }, ..wanted(false, true) };
        assert_eq!(planned(&mut schedule, later, 310), (true, Some((Pending::ToStop, 40))));
    }

    #[test]
    fn destinations_that_do_not_forward_or_were_deleted_stop_at_once() {
        let mut schedule = Schedule::default();
        let retrying = Wanted { forwards: false, ..wanted(false, true) };
        assert_eq!(planned(&mut schedule, retrying, 1), (false, None));
        planned(&mut schedule, wanted(false, true), 1);
        assert_eq!(
            planned(&mut schedule, retrying, 2),
            (true, Some((Pending::ToStop, 19))),
            "it may forward again"
        );
        planned(&mut schedule, wanted(false, true), 2);
        assert!(schedule.plan(std::iter::empty(), secs(3)).is_empty());
        assert_eq!(schedule.waits().count(), 0);
    }
}
