//! When a driver that panics is used for nothing new, by whom. Pure: the time is an argument.
//!
//! A configuration can make a driver panic, and its owner must not take it from others: an account whose panics are too many gets nothing new
//! from it, and the driver is left alone as a whole only when several accounts came to that. One that has a destination which panics
//! counts for nobody else: the destination itself is left alone after its second panic.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many panics of one account within [`PANIC_WINDOW`], in whichever of its destinations, and it gets nothing new from the driver until
/// an operator enables it again.
pub const DRIVER_PANICS_MAX: usize = 3;
/// Panics before this are forgotten.
pub const PANIC_WINDOW: Duration = Duration::from_secs(600);
/// So many accounts that came to that within [`PANIC_WINDOW`], and nobody gets anything new.
pub const PANIC_ACCOUNTS_MIN: usize = 3;
/// Pause between tries of a destination whose driver is left alone: it comes back when the operator does something.
pub(super) const QUARANTINE_RETRY: Duration = Duration::from_secs(60);
/// Longest text of a panic that is repeated in the reason, in bytes.
const REASON_BYTES_MAX: usize = 256;
/// Accounts that are held at most; one more, and the one that is held longest may try again.
const ACCOUNTS_HELD_MAX: usize = 64;
/// Panics that are remembered at most; of more within the window the oldest are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// The panics of one driver.
#[derive(Debug, Default)]
pub(super) struct Panics {
    /// Newest last, of accounts that are not held.
    at: VecDeque<(Duration, i64)>,
    /// Why it is left alone.
    reason: Option<String>,
    /// Since when and why it is left alone for an account.
    held: BTreeMap<i64, Held>,
}

#[derive(Debug)]
struct Held {
    at: Duration,
    why: String,
    /// It did not panic, but hung.
    hung: bool,
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
        if self.at.len() >= REMEMBERED_MAX {
            self.at.pop_front();
        }
        self.at.push_back((now, account));
        if self.at.iter().filter(|(_, of)| *of == account).count() < DRIVER_PANICS_MAX {
            return Turn::Goes;
        }
        self.at.retain(|(_, of)| *of != account);
        self.hold(now, account, text)
    }

    fn hold(&mut self, now: Duration, account: i64, text: &str) -> Turn {
        let lately = self.held.values().filter(|held| now.saturating_sub(held.at) <= PANIC_WINDOW);
        if lately.count() + 1 >= PANIC_ACCOUNTS_MIN {
            self.reason = Some(reason(true, text));
            return Turn::Driver;
        }
        self.insert(account, Held { at: now, why: reason(false, text), hung: false });
        Turn::Account
    }

    /// Leaves it alone for an account with whose work it hung before it was loaded anew.
    pub(super) fn hold_hung(&mut self, now: Duration, account: i64) {
        self.insert(account, Held { at: now, why: HUNG.to_owned(), hung: true });
    }

    fn insert(&mut self, account: i64, held: Held) {
        let longest = self.held.iter().min_by_key(|(_, held)| held.at).map(|(account, _)| *account);
        if let Some(longest) = longest.filter(|_| self.held.len() >= ACCOUNTS_HELD_MAX) {
            self.held.remove(&longest);
        }
        self.held.insert(account, held);
    }

    /// Why it is left alone; `None` when it is not.
    pub(super) fn reason(&self) -> Option<String> {
        self.reason.clone()
    }

    /// Why it is left alone for `account`; `None` when it is not.
    pub(super) fn reason_for(&self, account: i64) -> Option<String> {
        self.reason.as_ref().or_else(|| self.held.get(&account).map(|held| &held.why)).cloned()
    }

    /// Why it is asked nothing about configurations of `account`.
    pub(super) fn reason_to_ask(&self, account: i64) -> Option<String> {
        let hung = || self.held.get(&account).filter(|held| held.hung).map(|held| &held.why);
        self.reason.as_ref().or_else(hung).cloned()
    }

    /// An operator wants it to be used again.
    pub(super) fn forgive(&mut self) {
        *self = Self::default();
    }
}

/// Why it is left alone for an account with whose work it hung.
const HUNG: &str = "did not return from a call for one account and, loaded anew, is used for nothing new of it until an operator enables it \
    once more";

fn reason(is_for_all: bool, text: &str) -> String {
    let end = (0..=text.len().min(REASON_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    let minutes = PANIC_WINDOW.as_secs() / 60;
    let (whom, of) = match is_for_all {
        true => (format!("for each of {PANIC_ACCOUNTS_MIN} accounts"), ""),
        false => ("for one account".to_owned(), " of it"),
    };
    format!(
        "panicked {DRIVER_PANICS_MAX} times within {minutes} minutes {whom} and is used for nothing new{of} until an operator enables it \
         again; the last time: {}",
        &text[..end.unwrap_or(0)]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// An account panics until it is held.
    fn held(panics: &mut Panics, now: Duration, account: i64, text: &str) -> Turn {
        (0..DRIVER_PANICS_MAX).map(|_| panics.add(now, account, text)).last().unwrap()
    }

    #[test]
    fn several_accounts_that_panic_too_often_and_it_is_left_alone_until_it_is_forgiven() {
        let mut panics = Panics::default();
        let last = PANIC_ACCOUNTS_MIN as i64;
        for account in 1..last {
            assert_eq!(held(&mut panics, secs(account as u64), account, "a"), Turn::Account);
        }
        assert_eq!((panics.reason(), panics.reason_for(last)), (None, None));
        let now = PANIC_WINDOW + secs(1);
        assert_eq!(held(&mut panics, now, last, "the last"), Turn::Driver, "the first is as old as may be");
        let why = panics.reason().unwrap();
        assert_eq!(why, reason(true, "the last"));
        assert_eq!(panics.reason_for(99), panics.reason(), "whose ever");
        assert_eq!(held(&mut panics, now, 99, "another"), Turn::Goes, "said once");
        assert_eq!(panics.reason(), Some(why));
        panics.forgive();
        assert_eq!(panics.reason_for(1), None);
        assert_eq!(panics.add(now, 1, "a"), Turn::Goes, "and counted anew");
    }

    #[test]
    fn an_account_takes_a_driver_from_itself_alone() {
        let mut panics = Panics::default();
        let turns: Vec<_> = (0..20).map(|n| panics.add(secs(n), 1, "its own")).collect();
        assert_eq!(turns[..4], [Turn::Goes, Turn::Goes, Turn::Account, Turn::Goes]);
        assert_eq!((panics.reason(), panics.reason_for(2)), (None, None));
        assert_eq!(panics.reason_for(1), Some(reason(false, "its own")));
        // Two of one and one of another, and of many one each, are nobody's loss.
        assert_eq!([panics.add(secs(30), 2, "a"), panics.add(secs(31), 2, "a")], [Turn::Goes; 2]);
        assert!((3..100).all(|account| panics.add(secs(32), account, "a") == Turn::Goes));
        assert_eq!((panics.reason(), panics.reason_for(2)), (None, None));
    }

    #[test]
    fn accounts_that_are_held_at_other_times_take_it_from_nobody_and_not_without_end() {
        let mut panics = Panics::default();
        for account in 0..2 * ACCOUNTS_HELD_MAX as i64 {
            let now = PANIC_WINDOW * account as u32;
            assert_eq!(held(&mut panics, now, account, "a"), Turn::Account, "account {account}");
        }
        assert_eq!((panics.reason(), panics.held.len()), (None, ACCOUNTS_HELD_MAX));
        assert_eq!(panics.reason_for(0), None, "it may try again");
        assert!(panics.reason_for(ACCOUNTS_HELD_MAX as i64).is_some());
        for account in 0..2 * REMEMBERED_MAX as i64 {
            assert_eq!(panics.add(secs(1 << 40), 1_000 + account, "a"), Turn::Goes);
        }
        assert_eq!(panics.at.len(), REMEMBERED_MAX);
    }

    #[test]
    fn with_whose_work_it_hung_gets_nothing_new_and_no_answer() {
        let mut panics = Panics::default();
        panics.hold_hung(secs(1), 1);
        assert_eq!(panics.reason_for(1).as_deref(), Some(HUNG));
        assert_eq!(panics.reason_to_ask(1), panics.reason_for(1));
        held(&mut panics, secs(1), 2, "a");
        assert_eq!(
            (panics.reason_to_ask(2), panics.reason_for(3)),
            (None, None),
            "who panics may change that"
        );
        panics.forgive();
        assert_eq!(panics.reason_for(1), None);
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

    #[test]
    fn reasons_texts() {
        assert_eq!(
            reason(true, "oh"),
            "panicked 3 times within 10 minutes for each of 3 accounts and is used for nothing new until an operator \
             enables it again; the last time: oh"
        );
        assert_eq!(
            reason(false, "oh"),
            "panicked 3 times within 10 minutes for one account and is used for nothing new of it until an operator \
             enables it again; the last time: oh"
        );
        assert_eq!(
            HUNG,
            "did not return from a call for one account and, loaded anew, is used for nothing new of it until an \
             operator enables it once more"
        );
    }
}
