//! What last went wrong, for owners who look when it is over.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

use crate::ids::UnixMillis;

/// Entries of one table; the one that is longest ago makes room.
pub const TROUBLES_MAX: usize = 10_000;

/// What went wrong, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble<T> {
    /// What was shown, without secrets.
    pub what: T,
    /// When.
    pub at: UnixMillis,
}

/// The last trouble of each `K` since the service began, in whichever session.
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
    /// Notes one.
    pub fn note(&self, key: K, what: T, at: UnixMillis) {
        let mut last = self.last.lock();
        if last.len() >= TROUBLES_MAX && !last.contains_key(&key) {
            let oldest = last.iter().min_by_key(|(_, trouble)| trouble.at).map(|(key, _)| *key);
            oldest.and_then(|key| last.remove(&key));
        }
        last.insert(key, Trouble { what, at });
    }

    /// It is over.
    pub fn forget(&self, key: K) {
        self.last.lock().remove(&key);
    }

    /// The last one.
    pub fn of(&self, key: K) -> Option<Trouble<T>> {
        self.last.lock().get(&key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_stays_and_the_oldest_makes_room() {
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
