//! When a failing driver gets nothing new, and for which accounts; the same for threads and processes. Pure: the time
//! is an argument.
//!
//! After three faults of one account within ten minutes the driver does nothing new for that account. After three
//! such accounts within ten minutes it does nothing new for any account. Running work continues, and an operator who
//! enables the driver ends both.

use std::collections::BTreeMap;
use std::time::Duration;

/// Faults of one account within [`FAULT_WINDOW`], in any of its destinations, after which the account gets nothing
/// new.
pub(crate) const FAULTS_MAX: usize = 3;
/// Accounts that reach that within [`FAULT_WINDOW`], after which no account gets anything new.
pub(crate) const ACCOUNTS_MAX: usize = 3;
/// Older faults are forgotten.
pub(crate) const FAULT_WINDOW: Duration = Duration::from_secs(600);
/// Pause between attempts of a destination whose driver is in quarantine: the driver comes back when the operator
/// acts.
pub(crate) const QUARANTINE_RETRY: Duration = Duration::from_secs(60);
/// Longest repeated text of a fault in the reason, in bytes.
const REASON_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A destination panicked; its owner may change it.
    Panicked,
    /// Its process ended, by itself or because it hung.
    Crashed,
    /// It did not return from a call, and an operator had it loaded again.
    Hung,
}

/// The accounts for which a driver does nothing new.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    accounts: BTreeMap<i64, Account>,
    /// Why it does nothing new for any account.
    driver: Option<String>,
}

#[derive(Debug, Default)]
struct Account {
    /// Times of its faults; oldest first.
    faults: Vec<Duration>,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    at: Duration,
    why: String,
    fault: Fault,
}

impl Quarantine {
    /// Records a fault of `account` at the monotonic time `now`; its text has no secrets. If this fault starts a
    /// quarantine of the account or of the driver, returns the reason.
    pub(crate) fn add(&mut self, now: Duration, account: i64, fault: Fault, text: &str) -> Option<String> {
        let is_late = |at: &Duration| now.saturating_sub(*at) <= FAULT_WINDOW;
        for account in self.accounts.values_mut() {
            account.faults.retain(is_late);
        }
        self.accounts.retain(|_, account| account.held.is_some() || !account.faults.is_empty());
        let lately = self.accounts.values().filter_map(|account| account.held.as_ref());
        let held_lately = lately.filter(|held| is_late(&held.at)).count();
        let entry = self.accounts.entry(account).or_default();
        if self.driver.is_some() || entry.held.is_some() {
            // Running work may still fail, and an account that may ask about configurations may crash the driver with
            // that.
            let held = entry.held.as_mut().filter(|_| fault == Fault::Crashed);
            held.into_iter().for_each(|held| held.fault = fault);
            return None;
        }
        entry.faults.push(now);
        if fault != Fault::Hung && entry.faults.len() < FAULTS_MAX {
            return None;
        }
        let is_for_all = fault != Fault::Hung && held_lately + 1 >= ACCOUNTS_MAX;
        let why = reason(fault, is_for_all, text);
        if is_for_all {
            self.driver = Some(why.clone());
        } else {
            entry.held = Some(Held { at: now, why: why.clone(), fault });
        }
        Some(why)
    }

    /// Why the driver does nothing new for any account.
    pub(crate) fn reason(&self) -> Option<String> {
        self.driver.clone()
    }

    /// Accounts for which it does nothing new, and why.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (i64, &str)> {
        self.accounts.iter().filter_map(|(id, account)| Some((*id, account.held.as_ref()?.why.as_str())))
    }

    /// Why it opens nothing for `account`.
    pub(crate) fn reason_for(&self, account: i64) -> Option<String> {
        self.driver.clone().or_else(|| Some(self.held(account)?.why.clone()))
    }

    /// Why it is not called about configurations of `account`. An account whose destinations panic may still change
    /// them.
    pub(crate) fn reason_to_ask(&self, account: i64) -> Option<String> {
        let held = || self.held(account).filter(|held| held.fault != Fault::Panicked);
        self.driver.clone().or_else(|| Some(held()?.why.clone()))
    }

    fn held(&self, account: i64) -> Option<&Held> {
        self.accounts.get(&account)?.held.as_ref()
    }
}

fn reason(fault: Fault, is_for_all: bool, text: &str) -> String {
    let did = match fault {
        Fault::Panicked => "panicked",
        Fault::Crashed => "crashed",
        Fault::Hung => {
            return "did not return from a call for this account and after its reload is in quarantine for this account until an \
                    operator enables the driver once more"
                .to_owned();
        }
    };
    let end = (0..=text.len().min(REASON_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    let minutes = FAULT_WINDOW.as_secs() / 60;
    let (scope, affected) = match is_for_all {
        true => (format!("for each of {ACCOUNTS_MAX} accounts"), "all accounts"),
        false => ("for this account".to_owned(), "this account"),
    };
    format!(
        "{did} {FAULTS_MAX} times within {minutes} minutes {scope} and is in quarantine for {affected} until an operator enables the driver again; \
         the last time: {}",
        &text[..end.unwrap_or(0)]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANICKED: Fault = Fault::Panicked;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// An account fails until it is held.
    fn held(quarantine: &mut Quarantine, now: Duration, account: i64, text: &str) -> Option<String> {
        (0..FAULTS_MAX).map(|_| quarantine.add(now, account, PANICKED, text)).last().unwrap()
    }

    #[test]
    fn several_failing_accounts_quarantine_the_driver() {
        let mut quarantine = Quarantine::default();
        let last = ACCOUNTS_MAX as i64;
        for account in 1..last {
            let why = held(&mut quarantine, secs(account as u64), account, "a");
            assert_eq!(why, Some(reason(PANICKED, false, "a")));
        }
        assert_eq!((quarantine.reason(), quarantine.reason_for(last)), (None, None));
        let now = FAULT_WINDOW + secs(1);
        let why = held(&mut quarantine, now, last, "the last");
        assert_eq!(
            why,
            Some(reason(PANICKED, true, "the last")),
            "the first fault is just within the window"
        );
        assert_eq!((quarantine.reason(), quarantine.reason_for(99)), (why.clone(), why), "for every account");
        assert_eq!(held(&mut quarantine, now, 99, "another"), None, "said once");
    }

    #[test]
    fn a_failing_account_quarantines_only_itself() {
        let mut quarantine = Quarantine::default();
        let said: Vec<bool> =
            (0..20).map(|n| quarantine.add(secs(n), 1, PANICKED, "its own").is_some()).collect();
        assert_eq!(said[..4], [false, false, true, false]);
        assert_eq!((quarantine.reason(), quarantine.reason_for(2)), (None, None));
        let why = reason(PANICKED, false, "its own");
        assert_eq!(quarantine.accounts().collect::<Vec<_>>(), [(1, why.as_str())]);
        assert_eq!(quarantine.reason_for(1), Some(why));
        // Two faults of one account and one each of many change nothing.
        let mut add = |account| quarantine.add(secs(30), account, PANICKED, "a");
        assert!(add(2).is_none() && add(2).is_none() && (3..100).all(|account| add(account).is_none()));
        assert_eq!((quarantine.reason(), quarantine.reason_for(2)), (None, None));
    }

    #[test]
    fn accounts_held_at_different_times_do_not_quarantine_the_driver() {
        let mut quarantine = Quarantine::default();
        for account in 0..20 {
            assert!(held(&mut quarantine, FAULT_WINDOW * account, account.into(), "a").is_some());
            assert_eq!(quarantine.reason(), None);
        }
        for n in 0..20 {
            assert_eq!(quarantine.add((FAULT_WINDOW + secs(1)) * n, 99, PANICKED, "a"), None, "fault {n}");
        }
        assert!(
            quarantine.accounts[&99].faults.len() == 1 && quarantine.accounts.len() == 21,
            "old faults are removed"
        );
    }

    #[test]
    fn an_account_may_validate_after_panics_but_not_after_crashes_or_hangs() {
        let mut quarantine = Quarantine::default();
        let hung = quarantine.add(secs(1), 1, Fault::Hung, "");
        assert!(hung.is_some() && quarantine.reason_for(1) == hung && quarantine.reason_to_ask(1) == hung);
        held(&mut quarantine, secs(1), 2, "a");
        assert!(quarantine.reason_for(2).is_some() && quarantine.reason_to_ask(2).is_none());
        assert_eq!(quarantine.add(secs(1), 2, Fault::Crashed, "asked"), None);
        assert!(quarantine.reason_to_ask(2).is_some(), "it crashed when it was asked");
        let mut quarantine = Quarantine::default();
        (0..FAULTS_MAX).for_each(|_| drop(quarantine.add(secs(1), 3, Fault::Crashed, "a")));
        assert!(quarantine.reason_for(3).is_some() && quarantine.reason_to_ask(3).is_some());
    }

    #[test]
    fn texts_of_faults_are_cut() {
        let long = "\u{e4}".repeat(REASON_BYTES_MAX);
        assert!(reason(PANICKED, false, &long).len() < 2 * REASON_BYTES_MAX);
    }

    #[test]
    fn reasons_texts() {
        assert_eq!(
            reason(PANICKED, true, "oh"),
            "panicked 3 times within 10 minutes for each of 3 accounts and is in quarantine for all accounts until an operator \
             enables the driver again; the last time: oh"
        );
        assert_eq!(
            reason(Fault::Crashed, false, "oh"),
            "crashed 3 times within 10 minutes for this account and is in quarantine for this account until an operator \
             enables the driver again; the last time: oh"
        );
        assert_eq!(
            reason(Fault::Hung, false, "oh"),
            "did not return from a call for this account and after its reload is in quarantine for this account until an \
             operator enables the driver once more"
        );
    }
}
