//! The last trouble of each destination, for owners who look when it is over.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::ids::{DestinationId, UnixMillis};

/// Destinations whose last trouble is known; the one that is longest ago makes room.
pub const TROUBLES_MAX: usize = 10_000;

/// Why a destination was not live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What was shown, without secrets.
    pub error: String,
    /// When.
    pub at: UnixMillis,
}

/// The last trouble of each destination since the service began, in whichever session.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    last: Mutex<HashMap<DestinationId, Trouble>>,
}

impl Troubles {
    pub(super) fn note(&self, destination: DestinationId, error: &str, at: UnixMillis) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= TROUBLES_MAX && !last.contains_key(&destination) {
            let oldest = last.iter().min_by_key(|(_, trouble)| trouble.at).map(|(id, _)| *id);
            oldest.and_then(|id| last.remove(&id));
        }
        last.insert(destination, Trouble { error: error.to_owned(), at });
    }

    pub(super) fn of(&self, destination: DestinationId) -> Option<Trouble> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).get(&destination).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_stays_and_the_oldest_makes_room() {
        let troubles = Troubles::default();
        let note =
            |id: i64, at: i64| troubles.note(DestinationId(id), &format!("error {at}"), UnixMillis(at));
        for id in 0..TROUBLES_MAX as i64 {
            note(id, id + 10);
        }
        note(5, 1_000_000);
        assert_eq!(troubles.of(DestinationId(5)).unwrap().error, "error 1000000");
        assert!(troubles.of(DestinationId(0)).is_some());
        note(-1, 2_000_000);
        assert_eq!(troubles.of(DestinationId(0)), None, "the oldest");
        assert!(troubles.of(DestinationId(1)).is_some() && troubles.of(DestinationId(-1)).is_some());
    }
}
