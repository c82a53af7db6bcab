//! What viewers can fetch: one shelf for each opening of a destination that has playback, kept some time after its end.
//!
//! Read by every request of a viewer; changed when a destination begins or ends.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;

use crate::drivers::Assets;
use crate::ids::{DestinationId, SessionId, UnixMillis};

/// How long players may fetch what they know of after the end.
pub const SHELF_KEPT: Duration = Duration::from_secs(60);
/// Most shelves of one destination; the oldest goes when a driver begins anew again and again.
pub(super) const SHELVES_PER_DESTINATION_MAX: usize = 4;

/// The pieces of one opening of a destination.
#[derive(Debug)]
pub struct Shelf {
    /// The destination.
    pub destination: DestinationId,
    /// The session it belongs to.
    pub session: SessionId,
    /// Time of the session's first media.
    pub started_at: UnixMillis,
    assets: Arc<Assets>,
    /// Monotonic time of the end.
    ended_at: OnceLock<Duration>,
}

impl Shelf {
    /// An empty shelf of an opening that begins.
    pub(super) fn new(destination: DestinationId, session: SessionId, started_at: UnixMillis) -> Self {
        Self { destination, session, started_at, assets: Arc::default(), ended_at: OnceLock::new() }
    }

    /// The pieces.
    pub fn assets(&self) -> &Arc<Assets> {
        &self.assets
    }

    /// The opening has ended; what is here will go soon.
    pub fn ended(&self) -> bool {
        self.ended_at.get().is_some()
    }

    fn is_over(&self, now: Duration) -> bool {
        self.ended_at.get().is_some_and(|at| now.saturating_sub(*at) >= SHELF_KEPT)
    }
}

/// All shelves of the service.
#[derive(Default)]
pub(super) struct Shelves {
    by_destination: RwLock<HashMap<DestinationId, Vec<Arc<Shelf>>>>,
}

impl Shelves {
    /// Adds the shelf of an opening that begins. What has to go is given to the caller, as foreign code runs when it does.
    #[must_use = "drop it where foreign code may run"]
    pub(super) fn begin(&self, shelf: Arc<Shelf>) -> Option<Arc<Shelf>> {
        let mut all = self.by_destination.write();
        let shelves = all.entry(shelf.destination).or_default();
        shelves.push(shelf);
        if shelves.len() <= SHELVES_PER_DESTINATION_MAX {
            return None;
        }
        // Openings that fail at once must not push out what players still fetch.
        let empty = shelves[..shelves.len() - 1].iter().position(|shelf| shelf.assets.playback().is_none());
        Some(shelves.remove(empty.unwrap_or(0)))
    }

    /// The opening of the shelf has ended.
    pub(super) fn end(&self, shelf: &Shelf, now: Duration) {
        // A second end changes nothing.
        let _ = shelf.ended_at.set(now);
        // Nobody waits for what will not come.
        shelf.assets.wake();
    }

    /// Takes away what ended long enough ago.
    #[must_use = "drop it where foreign code may run"]
    pub(super) fn sweep(&self, now: Duration) -> Vec<Arc<Shelf>> {
        let mut gone = Vec::new();
        let mut all = self.by_destination.write();
        all.retain(|_, shelves| {
            gone.extend(shelves.extract_if(.., |shelf| shelf.is_over(now)));
            !shelves.is_empty()
        });
        gone
    }

    /// The newest shelf of a destination that is open.
    pub(super) fn open(&self, destination: DestinationId) -> Option<Arc<Shelf>> {
        let all = self.by_destination.read();
        all.get(&destination)?.iter().rev().find(|shelf| !shelf.ended()).cloned()
    }

    /// The open shelf of a session whose rewind window is the longest, if one has a window.
    pub(super) fn longest_window(&self, session: &SessionId) -> Option<Arc<Shelf>> {
        let all = self.by_destination.read();
        let open = all.values().flatten().filter(|shelf| shelf.session == *session && !shelf.ended());
        let windows = open.filter_map(|shelf| {
            let playback = shelf.assets.playback()?;
            (playback.window_max_ms > 0 && playback.window_ms > 0).then_some((playback.window_ms, shelf))
        });
        windows.max_by_key(|(window_ms, _)| *window_ms).map(|(_, shelf)| shelf.clone())
    }

    /// The newest shelf of a destination's session that has the piece `name`, ended or not: while a new opening has nothing
    /// to show yet, players go on with what the one before left. The newest of all when none has it.
    pub(super) fn of(
        &self,
        destination: DestinationId,
        session: &str,
        name: &str,
        now: Duration,
    ) -> Option<Arc<Shelf>> {
        let all = self.by_destination.read();
        let newest_first = all.get(&destination)?.iter().rev();
        let mut of_session =
            newest_first.filter(|shelf| shelf.session.as_str() == session && !shelf.is_over(now));
        let has_it = of_session.clone().find(|shelf| shelf.assets.get(name).is_some());
        has_it.or_else(|| of_session.next()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use satcast_plugin_api::Audience;
    use satcast_plugin_api::host::{Asset, AssetBody, Playback};

    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn shelf(destination: i64, session: &str) -> Arc<Shelf> {
        Arc::new(Shelf::new(DestinationId(destination), SessionId(session.into()), UnixMillis(5)))
    }

    #[test]
    fn a_shelf_is_open_then_known_by_its_session_and_then_gone() {
        let shelves = Shelves::default();
        let first = shelf(1, "a");
        assert!(shelves.begin(first.clone()).is_none());
        assert!(Arc::ptr_eq(&shelves.open(DestinationId(1)).unwrap(), &first));
        assert!(shelves.open(DestinationId(2)).is_none());
        shelves.end(&first, NOW);
        shelves.end(&first, NOW * 2);
        assert!(shelves.open(DestinationId(1)).is_none());
        let almost = NOW + SHELF_KEPT - Duration::from_millis(1);
        assert!(shelves.of(DestinationId(1), "a", "x", almost).is_some());
        assert!(shelves.of(DestinationId(1), "b", "x", almost).is_none());
        assert!(shelves.sweep(almost).is_empty());
        assert!(
            shelves.of(DestinationId(1), "a", "x", NOW + SHELF_KEPT).is_none(),
            "not swept yet, but over"
        );
        assert_eq!(shelves.sweep(NOW + SHELF_KEPT).len(), 1);
        assert!(shelves.by_destination.read().is_empty());
    }

    fn put(shelf: &Shelf, name: &str) {
        let asset = Asset {
            name: name.into(),
            content_type: "video/mp4".into(),
            max_age_secs: 1,
            audience: Audience::Both,
            body: AssetBody::Memory(bytes::Bytes::from_static(b"x").into()),
            followed: Default::default(),
        };
        shelf.assets().publish(asset, std::path::Path::new("/")).unwrap();
        let entry = name.to_owned();
        let told = Playback {
            entry,
            preview: None,
            first_ms: 0,
            window_ms: 0,
            window_max_ms: 0,
            fresh_ms: 0,
            ended: false,
        };
        shelf.assets().set_playback(told, NOW);
    }

    #[test]
    fn the_longest_window_of_the_session_is_found() {
        let shelves = Shelves::default();
        let session = SessionId("a".into());
        assert!(shelves.longest_window(&session).is_none());
        let told = |window_ms, window_max_ms| Playback {
            entry: "index.m3u8".into(),
            preview: None,
            first_ms: 0,
            window_ms,
            window_max_ms,
            fresh_ms: 0,
            ended: false,
        };
        // Of the session, in order: no rewind, a short window, a long one; and a longer one of another session.
        let all =
            [(1, "a", 9_000, 0), (2, "a", 4_000, 60_000), (3, "a", 8_000, 60_000), (4, "b", 9_000, 60_000)];
        let shelves_of = all.map(|(destination, session, window_ms, max_ms)| {
            let shelf = shelf(destination, session);
            assert!(shelves.begin(shelf.clone()).is_none());
            shelf.assets().set_playback(told(window_ms, max_ms), NOW);
            shelf
        });
        assert!(Arc::ptr_eq(&shelves.longest_window(&session).unwrap(), &shelves_of[2]));
        shelves.end(&shelves_of[2], NOW);
        assert!(Arc::ptr_eq(&shelves.longest_window(&session).unwrap(), &shelves_of[1]));
        shelves.end(&shelves_of[1], NOW);
        assert!(shelves.longest_window(&session).is_none());
    }

    #[test]
    fn what_an_opening_left_is_there_until_the_next_has_it() {
        let shelves = Shelves::default();
        let (first, second) = (shelf(1, "a"), shelf(1, "a"));
        put(&first, "media.m3u8");
        assert!(shelves.begin(first.clone()).is_none());
        shelves.end(&first, NOW);
        assert!(shelves.begin(second.clone()).is_none());
        let of = || shelves.of(DestinationId(1), "a", "media.m3u8", NOW).unwrap();
        assert!(Arc::ptr_eq(&of(), &first));
        put(&second, "media.m3u8");
        assert!(Arc::ptr_eq(&of(), &second));
        for _ in 0..SHELVES_PER_DESTINATION_MAX {
            // Openings that come to nothing.
            let gone = shelves.begin(shelf(1, "a"));
            assert!(gone.is_none_or(|gone| gone.assets().playback().is_none()));
        }
        assert!(Arc::ptr_eq(&of(), &second));
    }

    #[test]
    fn a_newer_opening_of_the_session_stands_before_the_older() {
        let shelves = Shelves::default();
        let (first, second) = (shelf(1, "a"), shelf(1, "a"));
        assert!(shelves.begin(first.clone()).is_none());
        shelves.end(&first, NOW);
        assert!(shelves.begin(second.clone()).is_none());
        assert!(Arc::ptr_eq(&shelves.of(DestinationId(1), "a", "x", NOW).unwrap(), &second));
        for _ in 2..SHELVES_PER_DESTINATION_MAX {
            assert!(shelves.begin(shelf(1, "a")).is_none());
        }
        assert!(Arc::ptr_eq(&shelves.begin(shelf(1, "a")).unwrap(), &first), "the oldest makes room");
    }
}
