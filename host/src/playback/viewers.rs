//! How many players watch: those that asked for a playlist in the last half minute.
//!
//! A player is told from others by what it cannot help saying: its address, its `User-Agent`, and the `X-Playback-Session-Id`
//! that some send. Only a hash of them is kept, under a secret of this process, for as long as it counts. Two players behind
//! one address that say the same count as one; behind an HTTP cache those that it serves are not seen.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use poem::http::HeaderMap;
use poem::http::header::{HeaderName, USER_AGENT};

use crate::ids::DestinationId;

/// How long a player counts after a playlist.
pub const SEEN: Duration = Duration::from_secs(30);
/// Most players known, all destinations together; those beyond are served and not counted.
pub const PLAYERS_MAX: usize = 262_144;
/// Parts of the table, each with a lock of its own: thousands of players ask every second.
const SHARDS: usize = 16;
const SESSION_ID: HeaderName = HeaderName::from_static("x-playback-session-id");

/// A full part is looked through for players that have gone at most this often: a look costs as much as a thousand players.
const SWEEP: Duration = Duration::from_secs(1);

/// Players by when they were seen last.
#[derive(Debug, Default)]
struct Shard {
    seen: HashMap<(DestinationId, u64), Duration>,
    swept: Duration,
}

impl Shard {
    fn sweep(&mut self, now: Duration) {
        self.swept = now;
        self.seen.retain(|_, seen| now.saturating_sub(*seen) < SEEN);
    }

    /// Whether there is room for one more.
    fn has_room(&mut self, now: Duration) -> bool {
        const PLAYERS_OF_SHARD_MAX: usize = PLAYERS_MAX / SHARDS;
        if self.seen.len() >= PLAYERS_OF_SHARD_MAX && now.saturating_sub(self.swept) >= SWEEP {
            self.sweep(now);
        }
        self.seen.len() < PLAYERS_OF_SHARD_MAX
    }
}

/// The players of all destinations.
#[derive(Debug, Default)]
pub(super) struct Viewers {
    secret: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

impl Viewers {
    /// A player asked for a playlist at `now`, on the monotonic clock.
    pub(super) fn saw(&self, destination: DestinationId, client: IpAddr, headers: &HeaderMap, now: Duration) {
        let said = |name| headers.get(name).map(|value: &poem::http::HeaderValue| value.as_bytes());
        let player = self.secret.hash_one((client, said(USER_AGENT), said(SESSION_ID)));
        let mut shard = lock(&self.shards[player as usize % SHARDS]);
        if shard.seen.contains_key(&(destination, player)) || shard.has_room(now) {
            shard.seen.insert((destination, player), now);
        }
    }

    /// Players of a destination that count at `now`.
    pub(super) fn count(&self, destination: DestinationId, now: Duration) -> u64 {
        let of_shard = |shard: &Mutex<Shard>| {
            let mut shard = lock(shard);
            shard.sweep(now);
            shard.seen.keys().filter(|(of, _)| *of == destination).count() as u64
        };
        self.shards.iter().map(of_shard).sum()
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use poem::http::header::HeaderValue;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn headers(agent: &str, session: &str) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        HeaderMap::from_iter([(USER_AGENT, value(agent)), (SESSION_ID, value(session))])
    }

    #[test]
    fn players_are_told_apart_and_forgotten_after_half_a_minute() {
        let viewers = Viewers::default();
        let (one, two) = (DestinationId(1), DestinationId(2));
        let client = |last| IpAddr::from([192, 0, 2, last]);
        for _ in 0..3 {
            viewers.saw(one, client(1), &headers("a", ""), NOW);
        }
        assert_eq!(viewers.count(one, NOW), 1, "the same one again");
        viewers.saw(one, client(2), &headers("a", ""), NOW);
        viewers.saw(one, client(1), &headers("b", ""), NOW);
        viewers.saw(one, client(1), &headers("b", "s1"), NOW);
        viewers.saw(one, client(1), &HeaderMap::new(), NOW);
        viewers.saw(two, client(1), &headers("a", ""), NOW);
        assert_eq!((viewers.count(one, NOW), viewers.count(two, NOW)), (5, 1));
        let later = NOW + SEEN - Duration::from_millis(1);
        viewers.saw(one, client(1), &headers("a", ""), later);
        assert_eq!(viewers.count(one, later), 5);
        assert_eq!(viewers.count(one, NOW + SEEN), 1, "the one that came again");
        assert_eq!(viewers.count(one, later + SEEN), 0);
    }

    #[test]
    fn the_table_is_bounded_and_makes_room_when_its_players_have_gone() {
        let viewers = Viewers::default();
        let destination = DestinationId(1);
        let none = HeaderMap::new();
        let come = |from: u32, now| {
            for number in 0..(PLAYERS_MAX as u32 + PLAYERS_MAX as u32 / 4) {
                viewers.saw(destination, IpAddr::from((from + number).to_be_bytes()), &none, now);
            }
        };
        come(0, NOW);
        assert_eq!(viewers.count(destination, NOW), PLAYERS_MAX as u64, "and no more");
        come(1 << 30, NOW + SEEN);
        assert_eq!(viewers.count(destination, NOW + SEEN), PLAYERS_MAX as u64, "others than before");
    }
}
