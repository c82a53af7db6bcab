//! Discontinuity sequence numbers that never fall in a session.
//!
//! An opening that follows another of its session, after a fault or a change of configuration, is listed at the same address: the
//! players that are there take its playlist for a later version. So it goes on counting, and its first segment is a discontinuity.
//!
//! Numbers are counted and not taken from the clock, as media sequence numbers are: they must be small (see
//! `MediaPlaylist::with_discontinuity_sequence`), and sessions do not outlive the process.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Sessions that are remembered. One that is forgotten while it goes on counts from 0 at its next opening.
const SESSIONS_MAX: usize = 8192;

/// What the openings of each session have used.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Those that opened or counted last are at the back.
    known: Mutex<VecDeque<Session>>,
}

#[derive(Debug)]
struct Session {
    source: u64,
    last: u64,
}

impl Sessions {
    /// Starts an opening of the session `source`: the highest number that earlier ones used, `None` when it is the first. A second
    /// destination of this type in the session counts as one that follows; a discontinuity more does no harm.
    pub(crate) fn open(&self, source: u64) -> Option<u64> {
        self.touch(source, |last| last)
    }

    /// An opening of the session has used this number.
    pub(crate) fn used(&self, source: u64, number: u64) {
        self.touch(source, |last| last.max(number));
    }

    /// Changes the highest number; returns the one before.
    fn touch(&self, source: u64, change: impl Fn(u64) -> u64) -> Option<u64> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let at = known.iter().rposition(|session| session.source == source);
        let before = at.and_then(|at| known.remove(at)).map(|session| session.last);
        known.push_back(Session { source, last: change(before.unwrap_or(0)) });
        if known.len() > SESSIONS_MAX {
            known.pop_front();
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_session_never_fall() {
        let sessions = Sessions::default();
        assert_eq!((sessions.open(1), sessions.open(2)), (None, None));
        sessions.used(1, 5);
        sessions.used(1, 3);
        assert_eq!((sessions.open(1), sessions.open(2), sessions.open(3)), (Some(5), Some(0), None));
    }

    #[test]
    fn sessions_are_forgotten_at_last_and_not_while_they_count() {
        let sessions = Sessions::default();
        for source in 0..=SESSIONS_MAX as u64 {
            sessions.open(source);
            sessions.used(1, source);
        }
        assert_eq!(sessions.open(0), None);
        assert_eq!(sessions.open(1), Some(SESSIONS_MAX as u64));
        assert_eq!(sessions.known.lock().unwrap().len(), SESSIONS_MAX);
    }
}
