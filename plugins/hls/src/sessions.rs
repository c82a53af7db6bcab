//! Discontinuity sequence numbers that never fall in a session.
//!
//! An opening that follows another one of the same destination and session, after a fault or a change of configuration,
//! is listed at the same address, and its players take the new playlist for a later version. So the count continues,
//! and the first segment is a discontinuity.
//!
//! The numbers are counted and not taken from the clock, unlike media sequence numbers: they must be small (see
//! `MediaPlaylist::with_discontinuity_sequence`), and sessions do not outlive the process.

use std::collections::VecDeque;

use parking_lot::Mutex;
use satcast_plugin_api::driver::Ctx;

/// Sessions of destinations that are remembered. A running one that is forgotten counts from 0 at its next opening.
const KNOWN_MAX: usize = 8192;

/// Session and destination, which share one playlist address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address {
    source: u64,
    destination: i64,
}

impl Address {
    /// The address of an opening.
    pub(crate) fn of(ctx: &Ctx) -> Self {
        Self { source: ctx.source(), destination: ctx.about().destination_id }
    }
}

/// The numbers that the openings of each address have used.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Most recently used last.
    known: Mutex<VecDeque<(Address, u64)>>,
}

impl Sessions {
    /// Starts an opening; returns the highest number of earlier openings at the address, `None` for the first.
    pub(crate) fn open(&self, address: Address) -> Option<u64> {
        self.touch(address, |last| last)
    }

    /// Marks a number as used by an opening at the address.
    pub(crate) fn used(&self, address: Address, number: u64) {
        self.touch(address, |last| last.max(number));
    }

    /// Changes the highest number; returns the previous one.
    fn touch(&self, address: Address, change: impl Fn(u64) -> u64) -> Option<u64> {
        let mut known = self.known.lock();
        let at = known.iter().rposition(|(known, _)| *known == address);
        let before = at.and_then(|at| known.remove(at)).map(|(_, last)| last);
        known.push_back((address, change(before.unwrap_or(0))));
        if known.len() > KNOWN_MAX {
            known.pop_front();
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(source: u64, destination: i64) -> Address {
        Address { source, destination }
    }

    #[test]
    fn numbers_of_an_address_never_fall() {
        let sessions = Sessions::default();
        assert_eq!((sessions.open(at(1, 1)), sessions.open(at(2, 1))), (None, None));
        sessions.used(at(1, 1), 5);
        sessions.used(at(1, 1), 3);
        assert_eq!(sessions.open(at(1, 2)), None, "another destination of the session");
        let again = [at(1, 1), at(2, 1), at(3, 1)].map(|address| sessions.open(address));
        assert_eq!(again, [Some(5), Some(0), None]);
    }

    #[test]
    fn the_least_recently_used_address_is_forgotten() {
        let sessions = Sessions::default();
        for source in 0..=KNOWN_MAX as u64 {
            sessions.open(at(source, 1));
            sessions.used(at(1, 1), source);
        }
        assert_eq!(sessions.open(at(0, 1)), None);
        assert_eq!(sessions.open(at(1, 1)), Some(KNOWN_MAX as u64));
        assert_eq!(sessions.known.lock().len(), KNOWN_MAX);
    }
}
