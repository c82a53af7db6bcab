//! Viewer count: players that loaded a playlist in the last half minute.
//!
//! Players are distinguished by address, `User-Agent`, and the `X-Playback-Session-Id` that some send. The address is that of the
//! connection; `X-Forwarded-For` counts only from a trusted proxy. Clients can invent the two headers, so one network counts for at
//! most [`PLAYERS_PER_NETWORK_MAX`] players of a destination. Only a GET that was answered with a playlist counts: no HEAD, no refused
//! request, no preview.
//!
//! Only hashes are kept, keyed with a secret of this process. Two players with the same address and headers count as one; players
//! served by an HTTP cache are not seen. Each destination counts players by the second in which they were last seen, so reading the
//! count visits seconds instead of players. No `Quota`: there is no permit to hold, players leave by not requesting.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use poem::http::HeaderMap;
use poem::http::header::{HeaderName, HeaderValue, USER_AGENT};

use satcast_core::ids::DestinationId;
use satcast_core::networks::Network;

/// How long a player counts after a playlist request, in whole seconds.
pub const SEEN: Duration = Duration::from_secs(SEEN_SECS as u64);
const SEEN_SECS: usize = 30;
/// Most counted players of all destinations together (about 30 MB); further players are served but not counted.
pub const PLAYERS_MAX: usize = 262_144;
/// Most counted players of one destination from one network; further players are served but not counted.
pub const PLAYERS_PER_NETWORK_MAX: u32 = 256;
/// Shards of the table, each with a lock of its own: thousands of players send requests every second.
const SHARDS: usize = 16;
const PLAYERS_OF_SHARD_MAX: usize = PLAYERS_MAX / SHARDS;
const SESSION_ID: HeaderName = HeaderName::from_static("x-playback-session-id");

/// Interval in seconds at which a new player triggers the removal of expired players from its shard.
const SWEEP_SECS: u64 = SEEN_SECS as u64;
/// The same interval when the shard is full: a sweep costs as much as a thousand requests.
const FULL_SWEEP_SECS: u64 = 1;

/// Players of a destination by the second in which they were last seen.
#[derive(Debug, Default)]
struct Recent {
    /// Ring buffer: a second is stored at its remainder modulo [`SEEN_SECS`].
    by_second: [u32; SEEN_SECS],
    newest: u64,
}

impl Recent {
    /// Clears expired seconds. Time never goes back here, even if requests arrive slightly out of order.
    fn advance(&mut self, now: u64) {
        let passed = now.saturating_sub(self.newest).min(SEEN_SECS as u64);
        self.newest = self.newest.max(now);
        for ago in 0..passed {
            *self.at(self.newest - ago) = 0;
        }
    }

    fn at(&mut self, second: u64) -> &mut u32 {
        &mut self.by_second[(second % SEEN_SECS as u64) as usize]
    }

    /// Removes a player from the second in which it was seen before.
    fn leave(&mut self, second: u64) {
        if self.newest - second < SEEN_SECS as u64 {
            *self.at(second) -= 1;
        }
    }

    fn count(&self) -> u64 {
        self.by_second.iter().copied().map(u64::from).sum()
    }
}

/// A known player.
#[derive(Debug)]
struct Seen {
    second: u64,
    network: u64,
}

/// Players whose networks belong to one shard.
#[derive(Debug, Default)]
struct Shard {
    seen: HashMap<(DestinationId, u64), Seen>,
    by_network: HashMap<(DestinationId, u64), u32>,
    by_destination: HashMap<DestinationId, Recent>,
    swept: u64,
}

impl Shard {
    fn saw(&mut self, destination: DestinationId, network: u64, player: u64, now: u64) {
        let before = self.seen.get(&(destination, player)).map(|seen| seen.second);
        if before.is_none() {
            if !self.has_capacity(destination, network, now) {
                return;
            }
            *self.by_network.entry((destination, network)).or_default() += 1;
        }
        let recent = self.by_destination.entry(destination).or_default();
        recent.advance(now);
        if let Some(second) = before {
            recent.leave(second);
        }
        let second = recent.newest;
        *recent.at(second) += 1;
        self.seen.insert((destination, player), Seen { second, network });
    }

    /// Whether one more player of a network may be counted.
    fn has_capacity(&mut self, destination: DestinationId, network: u64, now: u64) -> bool {
        let has_capacity = |this: &Self| {
            let of_network = this.by_network.get(&(destination, network));
            this.seen.len() < PLAYERS_OF_SHARD_MAX
                && of_network.is_none_or(|players| *players < PLAYERS_PER_NETWORK_MAX)
        };
        let wait = if has_capacity(self) { SWEEP_SECS } else { FULL_SWEEP_SECS };
        if now.saturating_sub(self.swept) >= wait {
            self.sweep(now);
        }
        has_capacity(self)
    }

    /// Removes expired players.
    fn sweep(&mut self, now: u64) {
        self.swept = now;
        let by_network = &mut self.by_network;
        self.seen.retain(|(destination, _), seen| {
            let counts = now.saturating_sub(seen.second) < SEEN_SECS as u64;
            if !counts && let Some(players) = by_network.get_mut(&(*destination, seen.network)) {
                *players -= 1;
            }
            counts
        });
        by_network.retain(|_, players| *players > 0);
        self.by_destination.retain(|_, recent| {
            recent.advance(now);
            recent.count() > 0
        });
    }

    fn count(&mut self, destination: DestinationId, now: u64) -> u64 {
        let Some(recent) = self.by_destination.get_mut(&destination) else { return 0 };
        recent.advance(now);
        recent.count()
    }
}

/// The players of all destinations.
#[derive(Debug, Default)]
pub(super) struct Viewers {
    secret: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

impl Viewers {
    /// Records a player that loaded a playlist at `now`, on the monotonic clock.
    pub(super) fn saw(&self, destination: DestinationId, client: IpAddr, headers: &HeaderMap, now: Duration) {
        let said = |name| headers.get(name).map(HeaderValue::as_bytes);
        let player = self.secret.hash_one((client, said(USER_AGENT), said(SESSION_ID)));
        let network = self.secret.hash_one(Network::from(client));
        // By network, so that all players of a network are counted under one lock.
        let mut shard = self.shards[network as usize % SHARDS].lock();
        shard.saw(destination, network, player, now.as_secs());
    }

    /// Number of players of a destination at `now`, at a cost independent of the number.
    pub(super) fn count(&self, destination: DestinationId, now: Duration) -> u64 {
        self.shards.iter().map(|shard| shard.lock().count(destination, now.as_secs())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);
    const SECOND: Duration = Duration::from_secs(1);

    fn headers(agent: &str, session: &str) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        HeaderMap::from_iter([(USER_AGENT, value(agent)), (SESSION_ID, value(session))])
    }

    fn known(viewers: &Viewers) -> usize {
        viewers.shards.iter().map(|shard| shard.lock().seen.len()).sum()
    }

    #[test]
    fn players_are_distinguished_and_expire_after_half_a_minute() {
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
        viewers.saw(one, client(1), &headers("a", ""), later - SECOND);
        assert_eq!(viewers.count(one, later), 5, "a request that arrived out of order");
        assert_eq!(viewers.count(one, NOW + SEEN), 1, "the one that came again");
        assert_eq!(viewers.count(one, later + SEEN), 0);
        assert_eq!(viewers.count(two, later + SEEN), 0);
        viewers.saw(one, client(2), &headers("a", ""), later + SEEN * 3);
        assert_eq!(viewers.count(one, later + SEEN * 3), 1, "one that was away for long");
    }

    #[test]
    fn counts_match_a_scan_of_all_players() {
        let viewers = Viewers::default();
        let destination = DestinationId(1);
        let mut last_seen = HashMap::new();
        let (mut state, mut now) = (7_u64, NOW);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let player = (state >> 40) as u8;
            now += Duration::from_millis((state >> 20) % 400);
            viewers.saw(destination, IpAddr::from([192, 0, 2, player]), &HeaderMap::new(), now);
            last_seen.insert(player, now.as_secs());
            let counted =
                last_seen.values().filter(|second| now.as_secs() - **second < SEEN.as_secs()).count();
            assert_eq!(viewers.count(destination, now), counted as u64);
        }
    }

    #[test]
    fn players_of_one_network_are_bounded_and_do_not_displace_others() {
        let viewers = Viewers::default();
        let (one, two) = (DestinationId(1), DestinationId(2));
        let liar = |host: u64| {
            let address = (0x2001_0db8_u128 << 96) + u128::from(host);
            IpAddr::from(address.to_be_bytes())
        };
        let make_up = |destination, now| {
            for number in 0..2_000 {
                let said = headers("a", &number.to_string());
                viewers.saw(destination, liar(number), &said, now);
            }
        };
        make_up(one, NOW);
        let most = u64::from(PLAYERS_PER_NETWORK_MAX);
        assert_eq!(viewers.count(one, NOW), most);
        viewers.saw(one, IpAddr::from([192, 0, 2, 1]), &HeaderMap::new(), NOW);
        viewers.saw(two, liar(1), &headers("a", "1"), NOW);
        assert_eq!((viewers.count(one, NOW), viewers.count(two, NOW)), (most + 1, 1));
        make_up(one, NOW + SECOND);
        assert_eq!(viewers.count(one, NOW + SECOND), most + 1, "those that are known come again");
        let said = headers("b", "another");
        viewers.saw(one, liar(1), &said, NOW + SECOND + SEEN);
        assert_eq!(viewers.count(one, NOW + SECOND + SEEN), 1, "the others have gone and made room");
    }

    #[test]
    fn the_table_is_bounded_and_frees_expired_players() {
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
        // Reading the count visits no player: expired players are still in the table.
        assert_eq!((viewers.count(destination, NOW + SEEN), known(&viewers)), (0, PLAYERS_MAX));
        come(1 << 30, NOW + SEEN);
        assert_eq!(viewers.count(destination, NOW + SEEN), PLAYERS_MAX as u64, "others than before");
        let later = NOW + SEEN * 2;
        for number in 0..1_000_u32 {
            viewers.saw(DestinationId(2), IpAddr::from(number.to_be_bytes()), &none, later);
        }
        assert_eq!(known(&viewers), 1_000, "expired players are removed");
        assert!(viewers.shards.iter().all(|shard| shard.lock().by_destination.len() == 1));
    }
}
