//! The last error of each subject, for owners who look after it is over.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

use crate::ids::UnixMillis;

/// Entries of one table; the oldest is removed for a new one.
pub const TROUBLES_MAX: usize = 10_000;

/// An error and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble<T> {
    /// The shown error, without secrets.
    pub what: T,
    /// When.
    pub at: UnixMillis,
}

/// The last error of each `K` since the service started, over all sessions.
#[derive(Debug)]
pub struct Troubles<K, T> {
    last: Mutex<HashMap<K, Trouble<T>>>,
}

impl<K, T> Default for Troubles<K, T> {
    fn default() -> Self {
        Self { last: Mutex::default() }
    }
}

impl<K: Copy + Eq + Hash, T: Clone> Troubles<K, T> {
    pub fn note(&self, key: K, what: T, at: UnixMillis) {
        let mut last = self.last.lock();
        if last.len() >= TROUBLES_MAX && !last.contains_key(&key) {
            let oldest = last.iter().min_by_key(|(_, trouble)| trouble.at).map(|(key, _)| *key);
            oldest.and_then(|key| last.remove(&key));
        }
        last.insert(key, Trouble { what, at });
    }

    /// Removes the error of `key`.
    pub fn forget(&self, key: K) {
        self.last.lock().remove(&key);
    }

    pub fn of(&self, key: K) -> Option<Trouble<T>> {
        self.last.lock().get(&key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_kept_and_the_oldest_is_removed() {
        let troubles = Troubles::default();
        let note = |key: i64, at: i64| troubles.note(key, at, UnixMillis(at));
        for key in 0..TROUBLES_MAX as i64 {
            note(key, key + 10);
        }
        note(5, 1_000_000);
        assert_eq!(troubles.of(5).unwrap().what, 1_000_000);
        assert!(troubles.of(0).is_some());
        note(-1, 2_000_000);
        assert_eq!(troubles.of(0), None, "the oldest");
        assert!(troubles.of(1).is_some() && troubles.of(-1).is_some());
        troubles.forget(1);
        assert_eq!(troubles.of(1), None);
    }
}
