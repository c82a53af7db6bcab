//! When a driver that panics is used for nothing new, by whom. Pure: the time is an argument.
//!
//! A configuration can make a driver panic, and its owner must not take it from others: panics of one account count against that account,
//! and the driver is left alone as a whole only when several accounts made it panic.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many panics within [`PANIC_WINDOW`], in whichever destinations, and the driver is left alone until an operator enables it again: as a
/// whole when [`PANIC_ACCOUNTS_MIN`] accounts had them, else for the account.
pub const DRIVER_PANICS_MAX: usize = 3;
/// Panics before this are forgotten.
pub const PANIC_WINDOW: Duration = Duration::from_secs(600);
/// Fewest accounts whose panics make a driver one that nobody is to use.
pub const PANIC_ACCOUNTS_MIN: usize = 2;
/// Pause between tries of a destination whose driver is left alone: it comes back when the operator does something.
pub(super) const QUARANTINE_RETRY: Duration = Duration::from_secs(60);
/// Longest text of a panic that is repeated in the reason, in bytes.
const REASON_BYTES_MAX: usize = 256;
/// Accounts that are held at most; one more, and the driver is left alone as a whole.
const ACCOUNTS_HELD_MAX: usize = 64;

/// The panics of one driver.
#[derive(Debug, Default)]
pub(super) struct Panics {
    /// Newest last, of no more than [`DRIVER_PANICS_MAX`] for each account.
    at: VecDeque<(Duration, i64)>,
    /// Why it is left alone.
    reason: Option<String>,
    /// Why it is left alone for an account.
    held: BTreeMap<i64, String>,
}

/// What follows a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing yet.
    Goes,
    /// From now on nothing new of this account.
    Account,
    /// From now on nothing new.
    Driver,
}

impl Panics {
    /// Notes a panic of a destination of `account` at the monotonic time `now`, whose text has no secrets.
    pub(super) fn add(&mut self, now: Duration, account: i64, text: &str) -> Turn {
        self.at.retain(|(at, _)| now.saturating_sub(*at) <= PANIC_WINDOW);
        if self.reason.is_some() || self.held.contains_key(&account) {
            // What still runs may panic on.
            return Turn::Goes;
        }
        self.at.push_back((now, account));
        // Those of accounts that are held are no news.
        let counts = |(_, of): &&(Duration, i64)| !self.held.contains_key(of);
        let (all, own) =
            (self.at.iter().filter(counts).count(), self.at.iter().filter(|(_, of)| *of == account).count());
        let of_several = all >= DRIVER_PANICS_MAX && own < all;
        if of_several || self.held.len() >= ACCOUNTS_HELD_MAX {
            self.reason = Some(reason("", text));
            return Turn::Driver;
        }
        if own >= DRIVER_PANICS_MAX {
            self.held.insert(account, reason(" for one account", text));
            return Turn::Account;
        }
        Turn::Goes
    }

    /// Why it is left alone; `None` when it is not.
    pub(super) fn reason(&self) -> Option<String> {
        self.reason.clone()
    }

    /// Why it is left alone for `account`; `None` when it is not.
    pub(super) fn reason_for(&self, account: i64) -> Option<String> {
        self.reason.as_ref().or_else(|| self.held.get(&account)).cloned()
    }

    /// An operator wants it to be used again.
    pub(super) fn forgive(&mut self) {
        *self = Self::default();
    }
}

fn reason(whom: &str, text: &str) -> String {
    let end = (0..=text.len().min(REASON_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    let minutes = PANIC_WINDOW.as_secs() / 60;
    format!(
        "panicked {DRIVER_PANICS_MAX} times within {minutes} minutes{whom} and is used for nothing new{} until an operator enables it \
         again; the last time: {}",
        if whom.is_empty() { "" } else { " of it" },
        &text[..end.unwrap_or(0)]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn so_many_panics_of_several_and_it_is_left_alone_until_it_is_forgiven() {
        let mut panics = Panics::default();
        for n in 1..DRIVER_PANICS_MAX as u64 {
            assert_eq!(panics.add(secs(n), 1, "a"), Turn::Goes);
        }
        assert_eq!(panics.reason_for(1), None);
        assert_eq!(panics.add(PANIC_WINDOW, 2, "the last"), Turn::Driver, "the first is as old as may be");
        assert!(panics.reason().unwrap().ends_with("the last time: the last"));
        assert_eq!(panics.reason_for(3), panics.reason(), "whose ever");
        assert_eq!(panics.add(PANIC_WINDOW, 1, "another"), Turn::Goes, "said once");
        assert!(panics.reason().unwrap().ends_with("the last"));
        panics.forgive();
        assert_eq!(panics.reason_for(1), None);
        assert_eq!(panics.add(PANIC_WINDOW, 1, "a"), Turn::Goes, "and counted anew");
    }

    #[test]
    fn an_account_takes_a_driver_from_itself_alone() {
        let mut panics = Panics::default();
        let turns: Vec<_> = (0..20).map(|n| panics.add(secs(n), 1, "its own")).collect();
        assert_eq!(turns[..4], [Turn::Goes, Turn::Goes, Turn::Account, Turn::Goes]);
        assert_eq!((panics.reason(), panics.reason_for(2)), (None, None));
        assert!(panics.reason_for(1).unwrap().contains("for one account and is used for nothing new of it"));
        // What it did before counts no more against all.
        assert_eq!([panics.add(secs(30), 2, "a"), panics.add(secs(31), 2, "a")], [Turn::Goes; 2]);
        assert_eq!(panics.add(secs(32), 3, "a"), Turn::Driver);
        let mut panics = Panics::default();
        let mut turns =
            (0..).map(|account| (0..3).map(|_| panics.add(secs(1), account, "a")).collect::<Vec<_>>());
        let is_driver = |turns: Vec<Turn>| turns.contains(&Turn::Driver);
        assert_eq!(turns.position(is_driver), Some(ACCOUNTS_HELD_MAX), "not without end");
    }

    #[test]
    fn old_panics_are_forgotten_and_texts_are_cut() {
        let mut panics = Panics::default();
        for n in 0..20 {
            assert_eq!(panics.add((PANIC_WINDOW + secs(1)) * n, 1, "a"), Turn::Goes, "panic {n}");
        }
        let mut panics = Panics::default();
        let long = "\u{e4}".repeat(REASON_BYTES_MAX);
        assert_eq!((0..DRIVER_PANICS_MAX).map(|_| panics.add(secs(1), 1, &long)).last(), Some(Turn::Account));
        assert!(panics.reason_for(1).unwrap().len() < 2 * REASON_BYTES_MAX);
    }
}
