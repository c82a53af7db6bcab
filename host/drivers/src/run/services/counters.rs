//! Counters that drivers keep of their destinations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Counters one destination may have.
pub(crate) const COUNTERS_MAX: usize = 64;
/// Longest name of a counter in bytes.
pub(super) const COUNTER_NAME_BYTES_MAX: usize = 64;
/// The counter that every destination has.
const BYTES_SENT: &str = "bytes_sent";
/// Most bytes that one destination can have sent in a second: 100 Gbit/s, and once as much at once. What a driver counts beyond that is
/// not believed.
pub const SENT_BYTES_PER_SEC_MAX: u64 = 12_500_000_000;

/// Counters of a destination by name; they outlive its openings.
#[derive(Default)]
pub struct Counters {
    by_name: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    sent: Mutex<Sent>,
}

/// The bytes sent, as far as they can be. The driver may write any number where it counts.
struct Sent {
    /// When it was looked at last, on the monotonic clock.
    at: Option<Duration>,
    /// What the driver said then.
    said: u64,
    /// What is believed of it.
    believed: u64,
    /// What would be believed at once.
    credit: u64,
    /// It counted more, which nobody was told of yet, or somebody was.
    excess: Option<Excess>,
}

enum Excess {
    New(u64),
    Told,
}

impl Default for Sent {
    fn default() -> Self {
        Self { at: None, said: 0, believed: 0, credit: SENT_BYTES_PER_SEC_MAX, excess: None }
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
        // One that falls was not only added to: from there it counts on.
        let more = said.saturating_sub(self.said);
        self.said = said;
        if more > self.credit && self.excess.is_none() {
            self.excess = Some(Excess::New(more));
        }
        let more = more.min(self.credit);
        self.credit -= more;
        self.believed = self.believed.saturating_add(more);
        self.believed
    }
}

impl Counters {
    /// The counter `name`, made if need be; `None` when there are [`COUNTERS_MAX`] others.
    pub fn get(&self, name: &str) -> Option<Arc<AtomicU64>> {
        let mut by_name = self.by_name.lock();
        if !by_name.contains_key(name) && by_name.len() >= COUNTERS_MAX {
            return None;
        }
        Some(by_name.entry(name.to_string()).or_default().clone())
    }

    /// Its value; 0 when it was never asked for.
    pub fn value(&self, name: &str) -> u64 {
        self.by_name.lock().get(name).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Bytes sent until the monotonic time `now`, as far as they can be: no more than [`SENT_BYTES_PER_SEC_MAX`], and never less than before.
    pub fn bytes_sent(&self, now: Duration) -> u64 {
        // Under the lock, so that no older count comes after a newer one.
        let mut sent = self.sent.lock();
        let said = self.value(BYTES_SENT);
        sent.look(said, now)
    }

    /// Bytes that the driver counted at once and cannot have sent; given once.
    pub fn take_excess(&self) -> Option<u64> {
        let mut sent = self.sent.lock();
        let Some(Excess::New(more)) = sent.excess else { return None };
        sent.excess = Some(Excess::Told);
        Some(more)
    }

    /// All but the bytes sent, by name.
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

/// Names of counters of one driver: they become labels, of which there must not be many.
#[derive(Default)]
pub(super) struct Names(Mutex<BTreeSet<String>>);

impl Names {
    /// Whether a counter may have this name: a plain one ([`is_counter_name`]), and one of [`COUNTERS_MAX`] of the driver.
    pub(super) fn admit(&self, name: &str) -> bool {
        if !is_counter_name(name) {
            return false;
        }
        let mut names = self.0.lock();
        if name == BYTES_SENT || names.contains(name) {
            return true;
        }
        // One place is for the bytes sent.
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
    fn no_more_bytes_are_believed_than_can_be_sent_and_that_is_said_once() {
        let counters = Counters::default();
        let said = counters.get(BYTES_SENT).unwrap();
        let look = |value: u64, at: Duration| {
            said.store(value, Ordering::Relaxed);
            counters.bytes_sent(at)
        };
        assert_eq!(look(0, secs(99)), 0);
        assert_eq!(look(7_000, secs(99)), 7_000);
        assert_eq!(counters.take_excess(), None);
        assert_eq!(look(u64::MAX, secs(100)), 2 * SENT_BYTES_PER_SEC_MAX, "a second, and as much at once");
        assert_eq!(counters.take_excess(), Some(u64::MAX - 7_000));
        // It goes on from what it wrote, around the end of the numbers too.
        let before = look(u64::MAX, secs(110));
        assert_eq!(look(5, secs(110)), before);
        assert_eq!(look(1_005, secs(110)), before + 1_000);
        assert_eq!(look(0, secs(110)), before + 1_000, "never less");
        let fast = before + 1_000 + 11 * SENT_BYTES_PER_SEC_MAX;
        assert!((0..1_000).all(|n| look(u64::MAX - (n % 2) * u64::MAX, secs(111)) < fast), "however often");
        assert_eq!(counters.take_excess(), None, "said once");
        let sent = Sent { believed: u64::MAX, at: Some(secs(1)), ..Sent::default() };
        assert_eq!({ sent }.look(5, secs(2)), u64::MAX, "no overflow");
    }

    #[test]
    fn what_a_fast_network_carries_is_believed() {
        let mut sent = Sent::default();
        let rate = SENT_BYTES_PER_SEC_MAX;
        let all: Vec<u64> = (1..=60).map(|n| sent.look(n * rate, secs(n))).collect();
        assert_eq!(all, (1..=60).map(|n| n * rate).collect::<Vec<_>>());
        assert_eq!(sent.look(90 * rate, secs(90)), 90 * rate, "looked at seldom");
        assert!(sent.excess.is_none());
    }
}
