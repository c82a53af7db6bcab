//! When a child that crashed is started again, and for whom. Pure: the time is an argument.
//!
//! A crash ends the destinations of all who use the driver, so who causes crashes is left alone, and the others go on:
//! - crashes that are laid to an account count against it, and after [`ACCOUNT_CRASHES_MAX`] nothing new of it is opened;
//! - crashes that nobody is known for take the driver from nobody: the waits before it is started again grow;
//! - crashes without anybody inside are the driver's own, and so is it when [`ACCOUNTS_LEFT_MAX`] accounts crash it: it is left alone.
//!
//! What the service cannot give a child is no crash: that is tried for ever.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::blame::Blame;

/// Wait after the first crash.
pub(super) const RESTART_WAIT_MIN: Duration = Duration::from_millis(500);
/// No wait is longer.
pub(super) const RESTART_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait between tries while the service cannot give a child what it needs; the first is [`RESTART_WAIT_MIN`].
pub(super) const SHORTAGE_WAIT_MAX: Duration = Duration::from_secs(10);
/// So many crashes of its own within [`CRASH_WINDOW`] and the driver is left alone.
pub(super) const CRASHES_MAX: usize = 5;
/// So many crashes by one account within [`CRASH_WINDOW`] and the account gets nothing new from it.
pub(super) const ACCOUNT_CRASHES_MAX: usize = 3;
/// So many accounts that get nothing new, and the driver is left alone.
pub(super) const ACCOUNTS_LEFT_MAX: usize = 3;
/// Crashes before this are forgotten.
pub(super) const CRASH_WINDOW: Duration = Duration::from_secs(600);
/// Crashes that are remembered; more within the window change nothing.
const REMEMBERED_MAX: usize = 64;

/// What follows a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Started again after this time.
    Restart(Duration),
    /// The same, and from now on nothing new of this account.
    Without(i64, Duration),
    /// It did not crash: tried again after this time, as often as it takes.
    Wait(Duration),
    /// Not again until the operator does something.
    Quarantine,
}

/// The crashes of one driver.
#[derive(Default)]
pub(super) struct Crashes {
    /// Newest last.
    at: VecDeque<(Duration, Blame)>,
    /// Accounts that get nothing new.
    left: BTreeSet<i64>,
    /// Tries since the last child that came up for which the service lacked something.
    short: u32,
}

impl Crashes {
    /// Notes a crash at the monotonic time `now`.
    pub(super) fn add(&mut self, now: Duration, blame: Blame) -> Verdict {
        if blame == Blame::Service {
            let wait = grown(self.short, SHORTAGE_WAIT_MAX);
            self.short = self.short.saturating_add(1);
            return Verdict::Wait(wait);
        }
        let is_old = |at: Duration| now.saturating_sub(at) > CRASH_WINDOW;
        while self.at.front().is_some_and(|(at, _)| is_old(*at)) || self.at.len() >= REMEMBERED_MAX {
            self.at.pop_front();
        }
        self.at.push_back((now, blame));
        let same = self.at.iter().filter(|(_, one)| *one == blame).count();
        let wait = grown(u32::try_from(self.at.len() - 1).unwrap_or(u32::MAX), RESTART_WAIT_MAX);
        match blame {
            Blame::Nobody if same >= CRASHES_MAX => Verdict::Quarantine,
            Blame::Account(account) if same >= ACCOUNT_CRASHES_MAX && self.left.insert(account) => {
                if self.left.len() >= ACCOUNTS_LEFT_MAX {
                    return Verdict::Quarantine;
                }
                // Who is left alone crashes it no more, and the others need not wait for that.
                self.at.retain(|(_, one)| *one != blame);
                Verdict::Without(account, wait)
            }
            _ => Verdict::Restart(wait),
        }
    }

    /// A child is up: the service lacks nothing now.
    pub(super) fn started(&mut self) {
        self.short = 0;
    }

    /// Nothing new of this account is opened.
    pub(super) fn is_left(&self, account: i64) -> bool {
        self.left.contains(&account)
    }

    /// An operator wants it to be used again by all.
    pub(super) fn forgive(&mut self) {
        *self = Self::default();
    }
}

/// The wait after so many others.
fn grown(before: u32, most: Duration) -> Duration {
    RESTART_WAIT_MIN.saturating_mul(1 << before.min(16)).min(most)
}

/// What is said of an account that gets nothing new.
pub(super) fn left_alone(id: &str) -> String {
    let minutes = CRASH_WINDOW.as_secs() / 60;
    format!(
        "driver {id} crashed {ACCOUNT_CRASHES_MAX} times within {minutes} minutes with what it did for one account, which is left alone \
         until the operator enables the driver again"
    )
}

/// What is said of a driver that is left alone.
pub(super) fn quarantined(id: &str, why: &str) -> String {
    let minutes = CRASH_WINDOW.as_secs() / 60;
    format!(
        "driver {id} crashed too often within {minutes} minutes and is left alone until the operator enables it again: its \
         process {why}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn waits_grow_and_then_it_is_left_alone() {
        let mut crashes = Crashes::default();
        let waits: Vec<_> = (1..CRASHES_MAX as u64).map(|n| crashes.add(secs(n), Blame::Nobody)).collect();
        let expected = [500, 1000, 2000, 4000].map(|ms| Verdict::Restart(Duration::from_millis(ms)));
        assert_eq!(waits, expected);
        assert_eq!(crashes.add(secs(9), Blame::Nobody), Verdict::Quarantine);
    }

    #[test]
    fn what_the_service_lacks_is_waited_for_for_ever_and_counts_for_nothing() {
        let mut crashes = Crashes::default();
        let waits: Vec<_> = (0..100).map(|n| crashes.add(secs(n), Blame::Service)).collect();
        let first = [500, 1000, 2000, 4000, 8000].map(|ms| Verdict::Wait(Duration::from_millis(ms)));
        assert_eq!(waits[..5], first);
        assert!(waits[5..].iter().all(|verdict| *verdict == Verdict::Wait(SHORTAGE_WAIT_MAX)));
        assert_eq!(crashes.add(secs(100), Blame::Nobody), Verdict::Restart(RESTART_WAIT_MIN));
        crashes.started();
        assert_eq!(crashes.add(secs(101), Blame::Service), Verdict::Wait(RESTART_WAIT_MIN));
    }

    #[test]
    fn old_crashes_are_forgotten() {
        for blame in [Blame::Nobody, Blame::Account(1), Blame::Somebody] {
            let mut crashes = Crashes::default();
            for n in 0..20 {
                let now = (CRASH_WINDOW + secs(1)) * n;
                assert_eq!(crashes.add(now, blame), Verdict::Restart(RESTART_WAIT_MIN), "crash {n}");
            }
        }
    }

    #[test]
    fn who_crashes_it_is_left_alone_and_the_others_go_on() {
        let mut crashes = Crashes::default();
        let verdicts = [1, 2, 3].map(|n| crashes.add(secs(n), Blame::Account(7)));
        assert_eq!(verdicts[2], Verdict::Without(7, secs(2)));
        assert!(crashes.is_left(7) && !crashes.is_left(8));
        // What it did makes the next wait of the others no longer.
        assert_eq!(crashes.add(secs(4), Blame::Account(8)), Verdict::Restart(RESTART_WAIT_MIN));
        // What of it still runs is no news, and no quarantine.
        for n in 5..5 + 2 * CRASHES_MAX as u64 {
            assert!(matches!(crashes.add(secs(n), Blame::Account(7)), Verdict::Restart(_)), "crash {n}");
        }
        crashes.forgive();
        assert!(!crashes.is_left(7));
        assert_eq!(crashes.add(secs(20), Blame::Account(7)), Verdict::Restart(RESTART_WAIT_MIN));
    }

    #[test]
    fn crashes_that_nobody_is_known_for_take_it_from_nobody() {
        let mut crashes = Crashes::default();
        let all = 3 * REMEMBERED_MAX as u64;
        let last = (0..all).map(|n| crashes.add(secs(n), Blame::Somebody)).last();
        assert_eq!(last, Some(Verdict::Restart(RESTART_WAIT_MAX)));
        assert_eq!(crashes.at.len(), REMEMBERED_MAX);
        assert!(crashes.left.is_empty());
    }

    #[test]
    fn a_driver_that_several_accounts_crash_is_left_alone() {
        let mut crashes = Crashes::default();
        let mut verdicts = Vec::new();
        for account in 0..ACCOUNTS_LEFT_MAX as i64 {
            verdicts.extend((0..ACCOUNT_CRASHES_MAX).map(|_| crashes.add(secs(1), Blame::Account(account))));
        }
        let quarantined = verdicts.iter().position(|verdict| *verdict == Verdict::Quarantine);
        assert_eq!(quarantined, Some(ACCOUNTS_LEFT_MAX * ACCOUNT_CRASHES_MAX - 1));
    }
}
