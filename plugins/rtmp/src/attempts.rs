//! What earlier attempts of a destination showed, for its next attempt: an opening knows nothing of the one before.
//!
//! Kept in memory, for the attempts of one session. No clock in here: every function takes the time as an argument.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use satcast_plugin_api::recording::About;
use tokio::time::Instant;

/// Failed attempts in a row at one server after which the next attempt begins at the next server.
pub const TRIES_A_SERVER: u32 = 2;
/// Time after which an attempt begins at the first server again, counted from when that server was left.
pub const BACK_AFTER: Duration = Duration::from_secs(10 * 60);
/// An attempt that was live for this long in total did not fail, however it ended.
pub const HELD_AFTER: Duration = Duration::from_secs(20);
/// Destinations remembered at once; beyond it the one with the oldest attempt is forgotten.
pub const DESTINATIONS_MAX: usize = 4096;

/// The attempts of all destinations of one driver. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Attempts(Arc<Mutex<HashMap<DestinationKey, Attempt>>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct DestinationKey {
    destination: i64,
    session: String,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    /// Server at which attempts begin, as an index into the list of servers.
    server: usize,
    /// Failed attempts in a row at that server.
    failures: u32,
    /// The connection to that server was given up because the server did not read.
    was_unread: bool,
    /// When the first server was left.
    left_at: Option<Instant>,
    tried_at: Instant,
}

/// How the next attempt goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) first: usize,
    /// This server was given up because it did not read.
    pub(crate) was_unread: bool,
}

/// How an attempt ended that was not stopped from outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// The server that accepted the stream; `None` where none did.
    pub(crate) server: Option<usize>,
    pub(crate) lived: Duration,
    /// The connection was given up because the server did not read.
    pub(crate) was_unread: bool,
}

impl Attempts {
    /// The plan of an attempt that begins at `now`, with `servers` servers to choose from.
    pub(crate) fn plan(&self, about: &About, servers: usize, now: Instant) -> Plan {
        let Some(key) = DestinationKey::of(about) else { return Plan::default() };
        let mut attempts = self.0.lock();
        let Some(attempt) = attempts.get_mut(&key) else { return Plan::default() };
        attempt.go_back(now);
        let first = if attempt.server < servers { attempt.server } else { 0 };
        Plan { first, was_unread: first == attempt.server && attempt.was_unread }
    }

    /// An attempt has ended by itself.
    pub(crate) fn ended(&self, about: &About, servers: usize, ended: Ended, now: Instant) {
        let Some(key) = DestinationKey::of(about) else { return };
        let mut attempts = self.0.lock();
        if attempts.len() >= DESTINATIONS_MAX && !attempts.contains_key(&key) {
            let oldest =
                attempts.iter().min_by_key(|(_, attempt)| attempt.tried_at).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| attempts.remove(&oldest));
        }
        attempts.entry(key).or_insert_with(|| Attempt::new(now)).ended(servers, ended, now);
    }

    /// The destination was stopped: the next opening starts without history.
    pub(crate) fn forget(&self, about: &About) {
        if let Some(key) = DestinationKey::of(about) {
            self.0.lock().remove(&key);
        }
    }
}

impl DestinationKey {
    /// `None` with a host that does not say which session an opening belongs to.
    fn of(about: &About) -> Option<Self> {
        let session = about.session_id.clone();
        (!session.is_empty()).then_some(Self { destination: about.destination_id, session })
    }
}

impl Attempt {
    fn new(now: Instant) -> Self {
        Self { server: 0, failures: 0, was_unread: false, left_at: None, tried_at: now }
    }

    /// Returns to the first server after [`BACK_AFTER`]. A running connection is kept; this applies to the next
    /// attempt.
    fn go_back(&mut self, now: Instant) {
        if self.left_at.is_some_and(|left| now >= left + BACK_AFTER) {
            *self = Self::new(now);
        }
    }

    fn ended(&mut self, servers: usize, ended: Ended, now: Instant) {
        self.tried_at = now;
        let is_here = ended.server == Some(self.server);
        if is_here && ended.lived >= HELD_AFTER {
            (self.failures, self.was_unread) = (0, false);
            return;
        }
        self.was_unread |= is_here && ended.was_unread;
        self.failures += 1;
        if self.failures < TRIES_A_SERVER || servers < 2 {
            return;
        }
        let next = (self.server + 1) % servers;
        let left_at = if self.server == 0 { Some(now) } else { self.left_at };
        let left_at = left_at.filter(|_| next != 0);
        *self = Self { server: next, failures: 0, was_unread: false, left_at, tried_at: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(destination_id: i64) -> About {
        About { destination_id, session_id: "s".into(), ..About::default() }
    }

    fn at(server: usize) -> Ended {
        Ended { server: Some(server), lived: Duration::ZERO, was_unread: false }
    }

    #[test]
    fn two_failed_attempts_switch_to_the_next_server_and_later_back_to_the_first() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let mut begun = Vec::new();
        for _ in 0..7 {
            let plan = attempts.plan(&about(1), 2, now);
            begun.push(plan.first);
            attempts.ended(&about(1), 2, at(plan.first), now);
        }
        assert_eq!(begun, [0, 0, 1, 1, 0, 0, 1]);
        assert_eq!(attempts.plan(&about(2), 2, now).first, 0, "another destination");
        assert_eq!(attempts.plan(&about(1), 1, now).first, 0, "the server list got shorter");
        attempts.forget(&about(1));
        assert_eq!(attempts.plan(&about(1), 2, now), Plan::default());
        for _ in 0..3 {
            attempts.ended(&about(3), 1, at(0), now);
        }
        assert_eq!(attempts.plan(&about(3), 1, now).first, 0, "there is only one server");
    }

    #[test]
    fn a_stable_server_is_kept_and_a_backup_is_left_after_some_time() {
        let (attempts, start) = (Attempts::default(), Instant::now());
        let held = |server| Ended { lived: HELD_AFTER, ..at(server) };
        for ended in [at(0), held(0), at(0)] {
            attempts.ended(&about(1), 2, ended, start);
            assert_eq!(attempts.plan(&about(1), 2, start).first, 0, "never two failures in a row");
        }
        attempts.ended(&about(1), 2, held(1), start);
        assert_eq!(
            attempts.plan(&about(1), 2, start).first,
            1,
            "the first server could not be reached, which is no success of that server"
        );
        let later = start + BACK_AFTER;
        attempts.ended(&about(1), 2, held(1), later - Duration::from_millis(1));
        assert_eq!(attempts.plan(&about(1), 2, later - Duration::from_millis(1)).first, 1);
        assert_eq!(attempts.plan(&about(1), 2, later).first, 0);
    }

    #[test]
    fn a_server_that_did_not_read_is_remembered_until_it_is_stable_or_left() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let is_doubted = |servers| attempts.plan(&about(1), servers, now).was_unread;
        let unread = Ended { was_unread: true, ..at(0) };
        for ended in [unread, at(0), unread] {
            attempts.ended(&about(1), 1, ended, now);
            assert!(is_doubted(1));
        }
        attempts.ended(&about(1), 1, Ended { lived: HELD_AFTER, ..unread }, now);
        assert!(!is_doubted(1));
        attempts.ended(&about(1), 2, Ended { server: Some(1), ..unread }, now);
        assert!(!is_doubted(2), "a different server did not read");
        attempts.ended(&about(2), 2, unread, now);
        attempts.ended(&about(2), 2, unread, now);
        assert_eq!(attempts.plan(&about(2), 2, now), Plan { first: 1, was_unread: false });
    }

    #[test]
    fn a_bounded_number_is_remembered_and_none_without_a_session() {
        let (attempts, start) = (Attempts::default(), Instant::now());
        for id in 0..=DESTINATIONS_MAX as i64 {
            attempts.ended(&about(id), 2, at(0), start + Duration::from_millis(id as u64));
        }
        assert_eq!(attempts.0.lock().len(), DESTINATIONS_MAX);
        assert!(
            !attempts.0.lock().keys().any(|key| key.destination == 0),
            "the oldest destination is forgotten"
        );
        attempts.ended(&About::default(), 2, at(0), start);
        attempts.ended(&About::default(), 2, at(0), start);
        assert_eq!(attempts.plan(&About::default(), 2, start), Plan::default());
    }
}
