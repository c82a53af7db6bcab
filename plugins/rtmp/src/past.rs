//! What earlier tries of a destination taught, for the next one: an opening knows nothing of the one before.
//!
//! Kept in memory, for the tries of one session. No clock in here: every function is told the time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use satcast_plugin_api::recording::About;
use tokio::time::Instant;

/// Failed tries in a row at one server after which the next try begins at the next one.
pub const TRIES_A_SERVER: u32 = 2;
/// Time after which a try begins at the first server again, counted from when it was left.
pub const BACK_AFTER: Duration = Duration::from_secs(10 * 60);
/// A try that was live for so long, in all, did not fail, however it ended.
pub const HELD_AFTER: Duration = Duration::from_secs(20);
/// Destinations remembered at once; beyond it the one that was tried longest ago is forgotten.
pub const PASTS_MAX: usize = 4096;

/// The tries of all destinations of one driver. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Pasts(Arc<Mutex<HashMap<Who, Past>>>);

/// Whose tries they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Who {
    destination: i64,
    session: String,
}

#[derive(Debug, Clone, Copy)]
struct Past {
    /// Where tries begin, as a place in the list of servers.
    server: usize,
    /// Tries in a row that failed there.
    failures: u32,
    /// It was given up there for not reading.
    was_unread: bool,
    /// When the first server was left.
    left_at: Option<Instant>,
    tried_at: Instant,
}

/// How the next try goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The server to begin at.
    pub(crate) first: usize,
    /// This server was given up for not reading.
    pub(crate) was_unread: bool,
}

/// How a try ended that nobody stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    /// The server that accepted the stream; `None` where none did.
    pub(crate) server: Option<usize>,
    /// How long it was live.
    pub(crate) lived: Duration,
    /// It was given up for not reading.
    pub(crate) was_unread: bool,
}

impl Pasts {
    /// The plan of a try that begins at `now`, with so many `servers` to choose from.
    pub(crate) fn plan(&self, about: &About, servers: usize, now: Instant) -> Plan {
        let Some(who) = Who::of(about) else { return Plan::default() };
        let mut pasts = self.0.lock();
        let Some(past) = pasts.get_mut(&who) else { return Plan::default() };
        past.go_back(now);
        let first = if past.server < servers { past.server } else { 0 };
        Plan { first, was_unread: first == past.server && past.was_unread }
    }

    /// A try has ended by itself.
    pub(crate) fn ended(&self, about: &About, servers: usize, ended: Ended, now: Instant) {
        let Some(who) = Who::of(about) else { return };
        let mut pasts = self.0.lock();
        if pasts.len() >= PASTS_MAX && !pasts.contains_key(&who) {
            let oldest = pasts.iter().min_by_key(|(_, past)| past.tried_at).map(|(who, _)| who.clone());
            oldest.and_then(|oldest| pasts.remove(&oldest));
        }
        pasts.entry(who).or_insert_with(|| Past::new(now)).ended(servers, ended, now);
    }

    /// The destination was told to end: what comes next begins anew.
    pub(crate) fn forget(&self, about: &About) {
        if let Some(who) = Who::of(about) {
            self.0.lock().remove(&who);
        }
    }
}

impl Who {
    /// `None` with a host that does not say whom an opening is for.
    fn of(about: &About) -> Option<Self> {
        let session = about.session_id.clone();
        (!session.is_empty()).then_some(Self { destination: about.destination_id, session })
    }
}

impl Past {
    fn new(now: Instant) -> Self {
        Self { server: 0, failures: 0, was_unread: false, left_at: None, tried_at: now }
    }

    /// A backup is not used for ever. What runs there is not broken off for it: this is for the next try.
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
    fn after_two_failed_tries_the_next_server_has_its_turn_and_then_the_first_again() {
        let (pasts, now) = (Pasts::default(), Instant::now());
        let mut begun = Vec::new();
        for _ in 0..7 {
            let plan = pasts.plan(&about(1), 2, now);
            begun.push(plan.first);
            pasts.ended(&about(1), 2, at(plan.first), now);
        }
        assert_eq!(begun, [0, 0, 1, 1, 0, 0, 1]);
        assert_eq!(pasts.plan(&about(2), 2, now).first, 0, "another destination");
        assert_eq!(pasts.plan(&about(1), 1, now).first, 0, "the list is shorter now");
        pasts.forget(&about(1));
        assert_eq!(pasts.plan(&about(1), 2, now), Plan::default());
        for _ in 0..3 {
            pasts.ended(&about(3), 1, at(0), now);
        }
        assert_eq!(pasts.plan(&about(3), 1, now).first, 0, "there is no other");
    }

    #[test]
    fn a_server_that_held_is_kept_and_one_that_stands_in_is_left_after_some_time() {
        let (pasts, start) = (Pasts::default(), Instant::now());
        let held = |server| Ended { lived: HELD_AFTER, ..at(server) };
        for ended in [at(0), held(0), at(0)] {
            pasts.ended(&about(1), 2, ended, start);
            assert_eq!(pasts.plan(&about(1), 2, start).first, 0, "never two in a row");
        }
        pasts.ended(&about(1), 2, held(1), start);
        assert_eq!(
            pasts.plan(&about(1), 2, start).first,
            1,
            "the first could not be reached: that is no success of it"
        );
        let later = start + BACK_AFTER;
        pasts.ended(&about(1), 2, held(1), later - Duration::from_millis(1));
        assert_eq!(pasts.plan(&about(1), 2, later - Duration::from_millis(1)).first, 1);
        assert_eq!(pasts.plan(&about(1), 2, later).first, 0);
    }

    #[test]
    fn a_server_that_did_not_read_is_remembered_until_it_holds_or_is_left() {
        let (pasts, now) = (Pasts::default(), Instant::now());
        let is_doubted = |servers| pasts.plan(&about(1), servers, now).was_unread;
        let unread = Ended { was_unread: true, ..at(0) };
        for ended in [unread, at(0), unread] {
            pasts.ended(&about(1), 1, ended, now);
            assert!(is_doubted(1));
        }
        pasts.ended(&about(1), 1, Ended { lived: HELD_AFTER, ..unread }, now);
        assert!(!is_doubted(1));
        pasts.ended(&about(1), 2, Ended { server: Some(1), ..unread }, now);
        assert!(!is_doubted(2), "it was another server that did not read");
        pasts.ended(&about(2), 2, unread, now);
        pasts.ended(&about(2), 2, unread, now);
        assert_eq!(pasts.plan(&about(2), 2, now), Plan { first: 1, was_unread: false });
    }

    #[test]
    fn a_bounded_number_is_remembered_and_nobody_without_a_session() {
        let (pasts, start) = (Pasts::default(), Instant::now());
        for id in 0..=PASTS_MAX as i64 {
            pasts.ended(&about(id), 2, at(0), start + Duration::from_millis(id as u64));
        }
        assert_eq!(pasts.0.lock().len(), PASTS_MAX);
        assert!(!pasts.0.lock().keys().any(|who| who.destination == 0), "the oldest is forgotten");
        pasts.ended(&About::default(), 2, at(0), start);
        pasts.ended(&About::default(), 2, at(0), start);
        assert_eq!(pasts.plan(&About::default(), 2, start), Plan::default());
    }
}
