//! Drivers' counters for their destinations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) const COUNTERS_MAX: usize = 64;
pub(super) const COUNTER_NAME_BYTES_MAX: usize = 64;
/// The counter that every destination has.
const BYTES_SENT: &str = "bytes_sent";
/// Most bytes that one destination can send in a second: 100 Gbit/s, with a burst of one second. Higher counts of a
/// driver are ignored.
pub const SENT_BYTES_PER_SEC_MAX: u64 = 12_500_000_000;

/// Counters of a destination by name; they outlive its openings.
#[derive(Default)]
pub struct Counters {
    by_name: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    sent: Mutex<Sent>,
}

/// The bytes sent, as far as plausible. The driver may write any number into its counter.
struct Sent {
    /// Monotonic time of the last check.
    at: Option<Duration>,
    /// The driver's count at that time.
    said: u64,
    /// The accepted part of it.
    accepted: u64,
    /// Bytes that would be accepted at once.
    credit: u64,
    /// Bytes beyond a plausible count, and whether they have been reported.
    excess: Option<Excess>,
}

enum Excess {
    New(u64),
    Told,
}

impl Default for Sent {
    fn default() -> Self {
        Self { at: None, said: 0, accepted: 0, credit: SENT_BYTES_PER_SEC_MAX, excess: None }
    }
}

impl Sent {
    fn look(&mut self, said: u64, now: Duration) -> u64 {
        let before = self.at.unwrap_or(now);
        let passed = now.saturating_sub(before);
        self.at = Some(now.max(before));
        let earned = passed.as_millis() * u128::from(SENT_BYTES_PER_SEC_MAX) / 1_000;
        let kept = self.credit.min(SENT_BYTES_PER_SEC_MAX);
        self.credit = kept.saturating_add(u64::try_from(earned).unwrap_or(u64::MAX));
        // The value was overwritten if it falls: counting continues from there.
        let more = said.saturating_sub(self.said);
        self.said = said;
        if more > self.credit && self.excess.is_none() {
            self.excess = Some(Excess::New(more));
        }
        let more = more.min(self.credit);
        self.credit -= more;
        self.accepted = self.accepted.saturating_add(more);
        self.accepted
    }
}

impl Counters {
    /// The counter `name`, created if necessary; `None` when there are [`COUNTERS_MAX`] others.
    pub fn get(&self, name: &str) -> Option<Arc<AtomicU64>> {
        let mut by_name = self.by_name.lock();
        if !by_name.contains_key(name) && by_name.len() >= COUNTERS_MAX {
            return None;
        }
        Some(by_name.entry(name.to_string()).or_default().clone())
    }

    /// Its value; 0 when the counter does not exist.
    pub fn value(&self, name: &str) -> u64 {
        self.by_name.lock().get(name).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Bytes sent until the monotonic time `now`, as far as plausible: at most [`SENT_BYTES_PER_SEC_MAX`] per second,
    /// and never less than before.
    pub fn bytes_sent(&self, now: Duration) -> u64 {
        // Under the lock, so that no older count follows a newer one.
        let mut sent = self.sent.lock();
        let said = self.value(BYTES_SENT);
        sent.look(said, now)
    }

    /// Bytes beyond the plausible count; returned once.
    pub fn take_excess(&self) -> Option<u64> {
        let mut sent = self.sent.lock();
        let Some(Excess::New(more)) = sent.excess else { return None };
        sent.excess = Some(Excess::Told);
        Some(more)
    }

    /// All counters but the bytes sent, by name.
    pub fn own(&self) -> Vec<(String, u64)> {
        let by_name = self.by_name.lock();
        let own = by_name.iter().filter(|(name, _)| *name != BYTES_SENT);
        own.map(|(name, counter)| (name.clone(), counter.load(Ordering::Relaxed))).collect()
    }
}

/// Whether a counter may have this name: lower-case letters, digits, `_`, `-` and `.`.
pub(crate) fn is_counter_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.".contains(&byte);
    (1..=COUNTER_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Names of counters of one driver: they become metric labels, so their number is limited.
#[derive(Default)]
pub(super) struct Names(Mutex<BTreeSet<String>>);

impl Names {
    /// Whether a counter may have this name: a valid one ([`is_counter_name`]), and one of [`COUNTERS_MAX`] of the
    /// driver.
    pub(super) fn admit(&self, name: &str) -> bool {
        if !is_counter_name(name) {
            return false;
        }
        let mut names = self.0.lock();
        if name == BYTES_SENT || names.contains(name) {
            return true;
        }
        // One slot is for the bytes sent.
        names.len() < COUNTERS_MAX - 1 && names.insert(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn implausible_byte_counts_are_capped_and_reported_once() {
        let counters = Counters::default();
        let said = counters.get(BYTES_SENT).unwrap();
        let look = |value: u64, at: Duration| {
            said.store(value, Ordering::Relaxed);
            counters.bytes_sent(at)
        };
        assert_eq!(look(0, secs(99)), 0);
        assert_eq!(look(7_000, secs(99)), 7_000);
        assert_eq!(counters.take_excess(), None);
        assert_eq!(look(u64::MAX, secs(100)), 2 * SENT_BYTES_PER_SEC_MAX, "a second and a burst");
        assert_eq!(counters.take_excess(), Some(u64::MAX - 7_000));
        // Counting continues from the written value, also across the overflow.
        let before = look(u64::MAX, secs(110));
        assert_eq!(look(5, secs(110)), before);
        assert_eq!(look(1_005, secs(110)), before + 1_000);
        assert_eq!(look(0, secs(110)), before + 1_000, "never less");
        let fast = before + 1_000 + 11 * SENT_BYTES_PER_SEC_MAX;
        assert!((0..1_000).all(|n| look(u64::MAX - (n % 2) * u64::MAX, secs(111)) < fast), "however often");
        assert_eq!(counters.take_excess(), None, "said once");
        let sent = Sent { accepted: u64::MAX, at: Some(secs(1)), ..Sent::default() };
        assert_eq!({ sent }.look(5, secs(2)), u64::MAX, "no overflow");
    }

    #[test]
    fn counts_of_a_fast_network_are_accepted() {
        let mut sent = Sent::default();
        let rate = SENT_BYTES_PER_SEC_MAX;
        let all: Vec<u64> = (1..=60).map(|n| sent.look(n * rate, secs(n))).collect();
        assert_eq!(all, (1..=60).map(|n| n * rate).collect::<Vec<_>>());
        assert_eq!(sent.look(90 * rate, secs(90)), 90 * rate, "rarely checked");
        assert!(sent.excess.is_none());
    }
}
