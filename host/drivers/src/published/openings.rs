//! Openings of destinations with playback. Viewers can fetch assets of each until some time after its end.
//!
//! Read by every request of a viewer; changed when a destination begins or ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;

use super::assets::Assets;
use satcast_core::ids::{DestinationId, SessionId, UnixMillis};

/// How long players may fetch known assets after the end.
pub const KEPT_AFTER_END: Duration = Duration::from_secs(60);
/// Most openings of one destination; the oldest is removed when a driver starts repeatedly.
const OPENINGS_PER_DESTINATION_MAX: usize = 4;

#[derive(Debug)]
pub struct Opening {
    pub destination: DestinationId,
    pub session: SessionId,
    /// Time of the session's first media.
    pub started_at: UnixMillis,
    assets: Arc<Assets>,
    /// Whether enough was published for every player to start.
    begun: AtomicBool,
    /// Monotonic time of the end.
    ended_at: OnceLock<Duration>,
}

impl Opening {
    /// A new opening without assets.
    pub fn new(destination: DestinationId, session: SessionId, started_at: UnixMillis) -> Self {
        Self {
            destination,
            session,
            started_at,
            assets: Arc::default(),
            begun: AtomicBool::new(false),
            ended_at: OnceLock::new(),
        }
    }

    pub fn assets(&self) -> &Arc<Assets> {
        &self.assets
    }

    /// Whether [`Opening::set_begun`] was called.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Notes that enough was published for every player to start, so that no later request has to look.
    pub fn set_begun(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// The opening has ended; its assets will be removed soon.
    pub fn ended(&self) -> bool {
        self.ended_at.get().is_some()
    }

    fn is_over(&self, now: Duration) -> bool {
        self.ended_at.get().is_some_and(|at| now.saturating_sub(*at) >= KEPT_AFTER_END)
    }
}

#[derive(Default)]
pub struct Openings {
    by_destination: RwLock<HashMap<DestinationId, Vec<Arc<Opening>>>>,
}

impl Openings {
    /// Adds a new opening. Returns the removed one, because dropping it runs foreign code.
    #[must_use = "drop it where foreign code may run"]
    pub fn begin(&self, opening: Arc<Opening>) -> Option<Arc<Opening>> {
        let mut all = self.by_destination.write();
        let openings = all.entry(opening.destination).or_default();
        openings.push(opening);
        if openings.len() <= OPENINGS_PER_DESTINATION_MAX {
            return None;
        }
        // Openings that fail at once must not push out assets that players still fetch.
        let empty =
            openings[..openings.len() - 1].iter().position(|opening| opening.assets.playback().is_none());
        Some(openings.remove(empty.unwrap_or(0)))
    }

    pub fn end(&self, opening: &Opening, now: Duration) {
        // A second end changes nothing.
        let _ = opening.ended_at.set(now);
        // Waiting viewers must not wait for assets that will not come.
        opening.assets.wake();
    }

    /// Removes openings that ended more than [`KEPT_AFTER_END`] ago.
    #[must_use = "drop it where foreign code may run"]
    pub fn sweep(&self, now: Duration) -> Vec<Arc<Opening>> {
        let mut gone = Vec::new();
        let mut all = self.by_destination.write();
        all.retain(|_, openings| {
            gone.extend(openings.extract_if(.., |opening| opening.is_over(now)));
            !openings.is_empty()
        });
        gone
    }

    /// The newest opening of a destination that has not ended.
    pub fn open(&self, destination: DestinationId) -> Option<Arc<Opening>> {
        let all = self.by_destination.read();
        all.get(&destination)?.iter().rev().find(|opening| !opening.ended()).cloned()
    }

    /// The open opening of a session with the longest rewind window, if one has a window.
    pub fn longest_window(&self, session: &SessionId) -> Option<Arc<Opening>> {
        let all = self.by_destination.read();
        let open = all.values().flatten().filter(|opening| opening.session == *session && !opening.ended());
        let windows = open.filter_map(|opening| {
            let playback = opening.assets.playback()?;
            (playback.window_max_ms > 0 && playback.window_ms > 0).then_some((playback.window_ms, opening))
        });
        windows.max_by_key(|(window_ms, _)| *window_ms).map(|(_, opening)| opening.clone())
    }

    /// The newest opening of a destination's session that has the asset `name`, ended or not: while a new opening has
    /// no assets yet, players continue with the assets of the one before. The newest of all when none has it.
    pub fn of(
        &self,
        destination: DestinationId,
        session: &str,
        name: &str,
        now: Duration,
    ) -> Option<Arc<Opening>> {
        let all = self.by_destination.read();
        let newest_first = all.get(&destination)?.iter().rev();
        let mut of_session =
            newest_first.filter(|opening| opening.session.as_str() == session && !opening.is_over(now));
        let newest = of_session.next()?;
        let mut older = of_session.peekable();
        // Nearly always: nothing to choose from.
        if older.peek().is_none() {
            return Some(newest.clone());
        }
        let has_it = |opening: &&Arc<Opening>| opening.assets.get(name).is_some();
        std::iter::once(newest).chain(older).find(has_it).or(Some(newest)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use satcast_plugin_api::{Asset, AssetBody, Audience, Playback};

    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn opening(destination: i64, session: &str) -> Arc<Opening> {
        Arc::new(Opening::new(DestinationId(destination), SessionId(session.into()), UnixMillis(5)))
    }

    #[test]
    fn an_opening_is_open_then_known_by_its_session_and_then_gone() {
        let openings = Openings::default();
        let first = opening(1, "a");
        assert!(openings.begin(first.clone()).is_none());
        assert!(Arc::ptr_eq(&openings.open(DestinationId(1)).unwrap(), &first));
        assert!(openings.open(DestinationId(2)).is_none());
        openings.end(&first, NOW);
        openings.end(&first, NOW * 2);
        assert!(openings.open(DestinationId(1)).is_none());
        let almost = NOW + KEPT_AFTER_END - Duration::from_millis(1);
        assert!(openings.of(DestinationId(1), "a", "x", almost).is_some());
        assert!(openings.of(DestinationId(1), "b", "x", almost).is_none());
        assert!(openings.sweep(almost).is_empty());
        assert!(
            openings.of(DestinationId(1), "a", "x", NOW + KEPT_AFTER_END).is_none(),
            "ended, but not swept yet"
        );
        assert_eq!(openings.sweep(NOW + KEPT_AFTER_END).len(), 1);
        assert!(openings.by_destination.read().is_empty());
    }

    fn put(opening: &Opening, name: &str) {
        let asset = Asset {
            name: name.into(),
            content_type: "video/mp4".into(),
            max_age_secs: 1,
            audience: Audience::Both,
            body: AssetBody::Memory(bytes::Bytes::from_static(b"x")),
            followed: Default::default(),
        };
        opening.assets().publish(asset, std::path::Path::new("/")).unwrap();
        let entry = name.to_owned();
        let playback = Playback {
            entry,
            preview: None,
            first_ms: 0,
            window_ms: 0,
            window_max_ms: 0,
            fresh_ms: 0,
            ended: false,
        };
        opening.assets().set_playback(playback, NOW);
    }

    #[test]
    fn the_longest_window_of_the_session_is_found() {
        let openings = Openings::default();
        let session = SessionId("a".into());
        assert!(openings.longest_window(&session).is_none());
        let playback = |window_ms, window_max_ms| Playback {
            entry: "index.m3u8".into(),
            preview: None,
            first_ms: 0,
            window_ms,
            window_max_ms,
            fresh_ms: 0,
            ended: false,
        };
        // Of the session, in order: no rewind, a short window, a long one; then a longer one of another session.
        let all =
            [(1, "a", 9_000, 0), (2, "a", 4_000, 60_000), (3, "a", 8_000, 60_000), (4, "b", 9_000, 60_000)];
        let openings_of = all.map(|(destination, session, window_ms, max_ms)| {
            let opening = opening(destination, session);
            assert!(openings.begin(opening.clone()).is_none());
            opening.assets().set_playback(playback(window_ms, max_ms), NOW);
            opening
        });
        assert!(Arc::ptr_eq(&openings.longest_window(&session).unwrap(), &openings_of[2]));
        openings.end(&openings_of[2], NOW);
        assert!(Arc::ptr_eq(&openings.longest_window(&session).unwrap(), &openings_of[1]));
        openings.end(&openings_of[1], NOW);
        assert!(openings.longest_window(&session).is_none());
    }

    #[test]
    fn assets_of_an_ended_opening_stay_until_the_next_opening_has_them() {
        let openings = Openings::default();
        let (first, second) = (opening(1, "a"), opening(1, "a"));
        put(&first, "media.m3u8");
        assert!(openings.begin(first.clone()).is_none());
        openings.end(&first, NOW);
        assert!(openings.begin(second.clone()).is_none());
        let of = || openings.of(DestinationId(1), "a", "media.m3u8", NOW).unwrap();
        assert!(Arc::ptr_eq(&of(), &first));
        put(&second, "media.m3u8");
        assert!(Arc::ptr_eq(&of(), &second));
        for _ in 0..OPENINGS_PER_DESTINATION_MAX {
            // Openings that fail without assets.
            let gone = openings.begin(opening(1, "a"));
            assert!(gone.is_none_or(|gone| gone.assets().playback().is_none()));
        }
        assert!(Arc::ptr_eq(&of(), &second));
    }

    #[test]
    fn a_newer_opening_of_the_session_precedes_the_older() {
        let openings = Openings::default();
        let (first, second) = (opening(1, "a"), opening(1, "a"));
        assert!(openings.begin(first.clone()).is_none());
        openings.end(&first, NOW);
        assert!(openings.begin(second.clone()).is_none());
        assert!(Arc::ptr_eq(&openings.of(DestinationId(1), "a", "x", NOW).unwrap(), &second));
        for _ in 2..OPENINGS_PER_DESTINATION_MAX {
            assert!(openings.begin(opening(1, "a")).is_none());
        }
        assert!(Arc::ptr_eq(&openings.begin(opening(1, "a")).unwrap(), &first), "the oldest is removed");
    }
}
