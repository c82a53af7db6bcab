//! Counters that drivers keep of their destinations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{COUNTERS_MAX, lock};

/// Longest name of a counter in bytes.
pub(super) const COUNTER_NAME_BYTES_MAX: usize = 64;
/// The counter that every destination has.
const BYTES_SENT: &str = "bytes_sent";

/// Counters of a destination by name; they outlive its openings.
#[derive(Default)]
pub struct Counters {
    by_name: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
}

impl Counters {
    /// The counter `name`, made if need be; `None` when there are [`COUNTERS_MAX`] others.
    pub fn get(&self, name: &str) -> Option<Arc<AtomicU64>> {
        let mut by_name = lock(&self.by_name);
        if !by_name.contains_key(name) && by_name.len() >= COUNTERS_MAX {
            return None;
        }
        Some(by_name.entry(name.to_string()).or_default().clone())
    }

    /// Its value; 0 when it was never asked for.
    pub fn value(&self, name: &str) -> u64 {
        lock(&self.by_name).get(name).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// All but the bytes sent, by name.
    pub fn own(&self) -> Vec<(String, u64)> {
        let by_name = lock(&self.by_name);
        let own = by_name.iter().filter(|(name, _)| *name != BYTES_SENT);
        own.map(|(name, counter)| (name.clone(), counter.load(Ordering::Relaxed))).collect()
    }
}

/// Names of counters of one driver: they become labels, of which there must not be many.
#[derive(Default)]
pub(super) struct Names(Mutex<BTreeSet<String>>);

impl Names {
    /// Whether a counter may have this name: lower-case letters, digits, `_`, `-` and `.`, and one of [`COUNTERS_MAX`] of the driver.
    pub(super) fn admit(&self, name: &str) -> bool {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.".contains(&byte);
        if !(1..=COUNTER_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_plain) {
            return false;
        }
        let mut names = lock(&self.0);
        if name == BYTES_SENT || names.contains(name) {
            return true;
        }
        // One place is for the bytes sent.
        names.len() < COUNTERS_MAX - 1 && names.insert(name.to_owned())
    }
}
