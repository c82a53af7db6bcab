//! A viewer that plays in real time and counts how long its video stands still.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use satcast_tests::hls::Viewer;
use satcast_tests::playlist;

/// Pause between two looks at the playlist.
const LOOK: Duration = Duration::from_millis(250);
/// A player begins so many segments before the newest.
const BEHIND: usize = 3;

/// What a viewer saw.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    pub(super) played: Duration,
    /// Time without media, after the first segment.
    pub(super) stalled: Duration,
    pub(super) stalls: usize,
    pub(super) longest: Duration,
    /// Answers that were not 200, by file and answer.
    pub(super) errors: BTreeMap<String, usize>,
}

impl fmt::Display for Watched {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { played, stalled, stalls, longest, errors } = self;
        let [played, stalled, longest] = [played, stalled, longest].map(Duration::as_secs_f64);
        write!(
            formatter,
            "played {played:.1} s, stood still {stalls} times for {stalled:.1} s in all and {longest:.1} s at most, errors {errors:?}"
        )
    }
}

/// A viewer of one stream until it is stopped.
pub(super) struct Player {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Watched>>,
}

impl Player {
    /// A player at `address` of the index playlist `index`, which is there already.
    pub(super) fn start(address: SocketAddr, index: &str) -> Self {
        let mut viewer = Viewer::of(&format!("http://{address}{index}"));
        let over = Arc::new(AtomicBool::new(false));
        let its_over = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut screen = Screen::new(viewer.playlist());
            while !its_over.load(Ordering::SeqCst) {
                screen.load(&mut viewer);
                screen.play();
                std::thread::sleep(LOOK);
            }
            screen.seen
        });
        Self { over, thread: Some(thread) }
    }

    pub(super) fn stop(mut self) -> Watched {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().expect("a running player").join().expect("a player that did not panic")
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

struct Screen {
    playlist: String,
    /// Sequence number of the newest loaded segment.
    newest: Option<u64>,
    /// Loaded media that was not played yet.
    buffer: Duration,
    played_at: Instant,
    /// How long the current stall lasts.
    still: Duration,
    seen: Watched,
}

impl Screen {
    fn new(playlist: String) -> Self {
        let (buffer, still) = (Duration::ZERO, Duration::ZERO);
        Self { playlist, newest: None, buffer, played_at: Instant::now(), still, seen: Watched::default() }
    }

    /// Loads the segments that are new in the playlist.
    fn load(&mut self, viewer: &mut Viewer) {
        let Some(text) = self.get(viewer, &self.playlist.clone()) else { return };
        let media = playlist::media(&String::from_utf8_lossy(&text)).expect("a playlist without a fault");
        // A player that reads an end stops for good.
        assert!(!media.ended, "the playlist has an end");
        let first = media.segments.len().saturating_sub(BEHIND);
        for segment in &media.segments[if self.newest.is_none() { first } else { 0 }..] {
            if self.newest.is_some_and(|newest| segment.sequence <= newest) {
                continue;
            }
            let path = viewer.path(&segment.name);
            if self.get(viewer, &path).is_none() {
                return;
            }
            if self.newest.is_none() {
                self.played_at = Instant::now();
            }
            self.newest = Some(segment.sequence);
            self.buffer += Duration::from_secs_f64(segment.duration);
        }
    }

    fn get(&mut self, viewer: &mut Viewer, path: &str) -> Option<Vec<u8>> {
        let reply = viewer.http.get(path, &[]);
        if reply.status == 200 {
            return Some(reply.body);
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let error = format!("{name}: {} {}", reply.status, String::from_utf8_lossy(&reply.body));
        *self.seen.errors.entry(error).or_default() += 1;
        None
    }

    /// Plays the time since the last call.
    fn play(&mut self) {
        if self.newest.is_none() {
            return;
        }
        let passed = self.played_at.elapsed();
        self.played_at += passed;
        let played = passed.min(self.buffer);
        self.buffer -= played;
        self.seen.played += played;
        let still = passed - played;
        if still.is_zero() {
            self.still = Duration::ZERO;
            return;
        }
        self.seen.stalls += usize::from(self.still.is_zero());
        self.still += still;
        self.seen.stalled += still;
        self.seen.longest = self.seen.longest.max(self.still);
    }
}
