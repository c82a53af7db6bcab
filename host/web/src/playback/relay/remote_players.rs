//! Players that other nodes count: each node says its own with its requests and answers.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::super::viewers::SEEN;
use satcast_core::ids::DestinationId;

/// Most destinations with players at other nodes; those of further ones are not counted here.
const DESTINATIONS_MAX: usize = 16_384;

#[derive(Debug)]
struct Count {
    node: String,
    players: u64,
    said_at: Duration,
}

/// The last counts of other nodes, which hold for [`SEEN`] like a player.
#[derive(Debug, Default)]
pub(in crate::playback) struct RemotePlayers(Mutex<HashMap<DestinationId, Vec<Count>>>);

impl RemotePlayers {
    /// A node counts these players at `now`, on the monotonic clock.
    pub(in crate::playback) fn note(
        &self,
        destination: DestinationId,
        node: &str,
        players: u64,
        now: Duration,
    ) {
        let mut all = self.0.lock();
        if all.len() >= DESTINATIONS_MAX && !all.contains_key(&destination) {
            all.retain(|_, counts| counts.iter().any(|count| holds(count, now)));
            if all.len() >= DESTINATIONS_MAX {
                return;
            }
        }
        let counts = all.entry(destination).or_default();
        counts.retain(|count| count.node != node && holds(count, now));
        counts.push(Count { node: node.to_owned(), players, said_at: now });
    }

    /// Players of a destination at all other nodes but `except`.
    pub(in crate::playback) fn players(
        &self,
        destination: DestinationId,
        except: Option<&str>,
        now: Duration,
    ) -> u64 {
        let all = self.0.lock();
        let counts = all.get(&destination).into_iter().flatten();
        let other = |count: &&Count| holds(count, now) && except != Some(&count.node);
        counts.filter(other).map(|count| count.players).sum()
    }
}

fn holds(count: &Count, now: Duration) -> bool {
    now.saturating_sub(count.said_at) < SEEN
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    #[test]
    fn players_of_all_nodes_add_up_and_expire() {
        let remote_players = RemotePlayers::default();
        let (one, two) = (DestinationId(1), DestinationId(2));
        remote_players.note(one, "a", 5, NOW);
        remote_players.note(one, "b", 7, NOW);
        remote_players.note(one, "b", 8, NOW + Duration::from_secs(1));
        remote_players.note(two, "a", 1, NOW);
        let of = |destination, except, now| remote_players.players(destination, except, now);
        assert_eq!((of(one, None, NOW), of(one, Some("b"), NOW), of(two, None, NOW)), (13, 5, 1));
        assert_eq!(of(one, None, NOW + SEEN), 8);
        assert_eq!(of(one, None, NOW + SEEN * 2), 0);
    }

    #[test]
    fn the_table_is_bounded() {
        let remote_players = RemotePlayers::default();
        for number in 0..DESTINATIONS_MAX as i64 {
            remote_players.note(DestinationId(number), "a", 1, NOW);
        }
        let more = DestinationId(-1);
        remote_players.note(more, "a", 1, NOW);
        assert_eq!(remote_players.players(more, None, NOW), 0);
        remote_players.note(more, "a", 1, NOW + SEEN);
        assert_eq!(remote_players.players(more, None, NOW + SEEN), 1, "the others have expired");
        assert_eq!(remote_players.0.lock().len(), 1);
    }
}
