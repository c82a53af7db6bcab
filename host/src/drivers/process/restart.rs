//! When a child that crashed is started again. Pure: the time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

/// Wait after the first crash.
pub(super) const RESTART_WAIT_MIN: Duration = Duration::from_millis(500);
/// No wait is longer.
pub(super) const RESTART_WAIT_MAX: Duration = Duration::from_secs(30);
/// So many crashes within [`CRASH_WINDOW`] and the driver is left alone.
pub(super) const CRASHES_MAX: usize = 5;
/// Crashes before this are forgotten.
pub(super) const CRASH_WINDOW: Duration = Duration::from_secs(600);

/// What follows a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Started again after this time.
    Restart(Duration),
    /// Not again until the operator does something.
    Quarantine,
}

/// The crashes of one driver.
#[derive(Default)]
pub(super) struct Crashes {
    at: VecDeque<Duration>,
}

impl Crashes {
    /// Notes a crash at the monotonic time `now`.
    pub(super) fn add(&mut self, now: Duration) -> Verdict {
        while self.at.front().is_some_and(|at| now.saturating_sub(*at) > CRASH_WINDOW) {
            self.at.pop_front();
        }
        self.at.push_back(now);
        if self.at.len() >= CRASHES_MAX {
            return Verdict::Quarantine;
        }
        let doublings = u32::try_from(self.at.len() - 1).unwrap_or(u32::MAX).min(16);
        Verdict::Restart(RESTART_WAIT_MIN.saturating_mul(1 << doublings).min(RESTART_WAIT_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_and_then_it_is_left_alone() {
        let mut crashes = Crashes::default();
        let waits: Vec<_> = (1..CRASHES_MAX as u64).map(|n| crashes.add(Duration::from_secs(n))).collect();
        let expected = [500, 1000, 2000, 4000].map(|ms| Verdict::Restart(Duration::from_millis(ms)));
        assert_eq!(waits, expected);
        assert_eq!(crashes.add(Duration::from_secs(9)), Verdict::Quarantine);
    }

    #[test]
    fn old_crashes_are_forgotten() {
        let mut crashes = Crashes::default();
        for n in 0..20 {
            let now = (CRASH_WINDOW + Duration::from_secs(1)) * n;
            assert_eq!(crashes.add(now), Verdict::Restart(RESTART_WAIT_MIN), "crash {n}");
        }
    }
}
