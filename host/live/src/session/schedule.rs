//! Which destinations run now: those that are enabled, each with its delays.
//!
//! Pure: times are arguments. The end of a session waits for no delay, nor does what the money or a limit orders; a destination
//! that was deleted stops at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use satcast_core::ids::DestinationId;
use satcast_store::Delays;

/// What is wanted of one destination, and what it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) id: DestinationId,
    pub(super) enabled: bool,
    pub(super) delays: Delays,
    /// It was started.
    pub(super) runs: bool,
    /// It forwards.
    pub(super) forwards: bool,
}

/// What a destination waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// To start.
    ToStart,
    /// To stop.
    ToStop,
}

/// A destination that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) what: Waits,
    since: Duration,
    /// Until then, on the monotonic clock.
    pub(super) until: Duration,
}

/// The destinations of a session that wait.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    waits: BTreeMap<DestinationId, Wait>,
}

impl Schedule {
    /// The destinations that are to run at the monotonic time `now`, of all there are. Another delay counts from when the wait
    /// began.
    pub(super) fn plan(
        &mut self,
        all: impl Iterator<Item = Wanted>,
        now: Duration,
    ) -> BTreeSet<DestinationId> {
        let before = std::mem::take(&mut self.waits);
        let mut due = BTreeSet::new();
        for wanted in all {
            let known = before.get(&wanted.id);
            let goes_on = wanted.forwards || known.is_some_and(|wait| wait.what == Waits::ToStop);
            let (what, secs) = match (wanted.enabled, wanted.runs) {
                (false, false) => continue,
                (true, true) => {
                    due.insert(wanted.id);
                    continue;
                }
                (true, false) => (Waits::ToStart, wanted.delays.start_secs),
                // What did not forward has nothing to go on with.
                (false, true) => (Waits::ToStop, if goes_on { wanted.delays.stop_secs } else { 0 }),
            };
            let since = known.filter(|wait| wait.what == what).map_or(now, |wait| wait.since);
            let until = since.saturating_add(Duration::from_secs(u64::from(secs)));
            let is_over = until <= now;
            if !is_over {
                self.waits.insert(wanted.id, Wait { what, since, until });
            }
            if is_over == (what == Waits::ToStart) {
                due.insert(wanted.id);
            }
        }
        due
    }

    /// Some wait is over.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.waits.values().any(|wait| wait.until <= now)
    }

    /// The destinations that wait.
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

    /// Whether the destination runs, and how many seconds it waits for what.
    fn planned(schedule: &mut Schedule, wanted: Wanted, now: u64) -> (bool, Option<(Waits, u64)>) {
        let due = schedule.plan([wanted].into_iter(), secs(now));
        let wait = schedule.waits().next();
        (due.contains(&ID), wait.map(|(_, wait)| (wait.what, (wait.until - secs(now)).as_secs())))
    }

    #[test]
    fn it_starts_and_stops_after_its_delays() {
        let mut schedule = Schedule::default();
        assert_eq!(planned(&mut schedule, wanted(true, false), 100), (false, Some((Waits::ToStart, 10))));
        assert!(!schedule.is_due(secs(109)));
        assert_eq!(planned(&mut schedule, wanted(true, false), 109), (false, Some((Waits::ToStart, 1))));
        assert!(schedule.is_due(secs(110)));
        assert_eq!(planned(&mut schedule, wanted(true, false), 110), (true, None));
        assert_eq!(planned(&mut schedule, wanted(true, true), 111), (true, None));
        assert_eq!(planned(&mut schedule, wanted(false, true), 200), (true, Some((Waits::ToStop, 20))));
        assert_eq!(planned(&mut schedule, wanted(false, true), 219), (true, Some((Waits::ToStop, 1))));
        assert_eq!(planned(&mut schedule, wanted(false, true), 220), (false, None));
        assert_eq!(planned(&mut schedule, wanted(false, false), 221), (false, None));
    }

    #[test]
    fn a_change_of_mind_ends_the_wait_and_another_delay_counts_from_its_begin() {
        let mut schedule = Schedule::default();
        planned(&mut schedule, wanted(true, false), 100);
        assert_eq!(planned(&mut schedule, wanted(false, false), 105), (false, None));
        assert_eq!(planned(&mut schedule, wanted(true, false), 106), (false, Some((Waits::ToStart, 10))));
        let sooner = Wanted { delays: Delays::default(), ..wanted(true, false) };
        assert_eq!(planned(&mut schedule, sooner, 107), (true, None));
        planned(&mut schedule, wanted(false, true), 200);
        assert_eq!(planned(&mut schedule, wanted(true, true), 210), (true, None), "enabled again");
        planned(&mut schedule, wanted(false, true), 300);
        let later = Wanted { delays: Delays { stop_secs: 50, start_secs: 0 }, ..wanted(false, true) };
        assert_eq!(planned(&mut schedule, later, 310), (true, Some((Waits::ToStop, 40))));
    }

    #[test]
    fn what_does_not_forward_stops_at_once_and_so_does_what_is_gone() {
        let mut schedule = Schedule::default();
        let retrying = Wanted { forwards: false, ..wanted(false, true) };
        assert_eq!(planned(&mut schedule, retrying, 1), (false, None));
        planned(&mut schedule, wanted(false, true), 1);
        assert_eq!(
            planned(&mut schedule, retrying, 2),
            (true, Some((Waits::ToStop, 19))),
            "it may forward again"
        );
        planned(&mut schedule, wanted(false, true), 2);
        assert!(schedule.plan(std::iter::empty(), secs(3)).is_empty());
        assert_eq!(schedule.waits().count(), 0);
    }
}
