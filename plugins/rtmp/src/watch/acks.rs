//! What a server says in RTMP of its reading, and when its silence is one: its system goes on taking bytes for a program that has stopped
//! to read, which for a thin stream is minutes. No clock in here.
//!
//! A server acknowledges after so many bytes, not after so much time. Silence is therefore measured in the bytes that its system has taken
//! since, against the distances at which it acknowledged before, and only then in seconds.

use std::time::Duration;

use tokio::time::Instant;

use crate::timing::Timing;

/// Acknowledgements of media after which a server is known to acknowledge while it reads.
const KNOWN_AFTER: u32 = 2;
/// Acknowledgements of media after which its silence is enough to break a connection off whose system still takes bytes.
const KNOWN_WELL_AFTER: u32 = 8;
/// Distances between its last acknowledgements of which the largest counts.
const RECENT: usize = 4;
/// Least distance that is reckoned with, in bytes: a few messages that are read at once are no delay.
const SPACING_BYTES_MIN: u64 = 8 * 1024;
/// Largest distance that tells something of the reading, in bytes. Beyond it a server is judged as one that never acknowledges.
pub(super) const SPACING_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Distances that its system may take without an acknowledgement.
const SPACINGS: u64 = 2;

/// The acknowledgements of one connection.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// Output position that the server has said it has read.
    read: u64,
    /// How often it said so of media.
    count: u32,
    /// It has acknowledged what cannot be: nothing of it tells of its silence.
    is_wrong: bool,
    /// The last distances, the newest first.
    distances: [u64; RECENT],
    /// Distance that it was asked for, the largest that may be in force.
    asked: u64,
    /// The newest that it was asked for, and the output position behind it.
    newest: (u64, u64),
    last: Option<Last>,
    /// It has acknowledged since the last look.
    is_news: bool,
    /// A silence of it has ended with all that was taken.
    has_read_up: bool,
}

/// The newest acknowledgement, and what came after it.
#[derive(Debug)]
struct Last {
    at: Instant,
    /// Output position that its system had taken then, as far as was looked.
    taken: Option<u64>,
    /// Since when an acknowledgement is due.
    due_since: Option<Instant>,
    /// Since when its silence counts.
    silent_since: Option<Instant>,
}

impl Acks {
    /// The server has said that it has read up to output position `position`, of what its system had taken up to `taken`; media begins
    /// at `media_from`. Its distance counts where it `is_usual`: the end of a silence tells none, unless silences end again and again
    /// with all that was taken, as those of a server that acknowledges by the clock.
    pub(super) fn heard(
        &mut self,
        now: Instant,
        position: u64,
        taken: u64,
        media_from: Option<u64>,
        is_usual: bool,
    ) {
        if position <= self.read {
            return;
        }
        let reads_up = !is_usual && position.saturating_add(self.spacing()) >= taken;
        let is_usual = is_usual || (reads_up && self.has_read_up);
        self.has_read_up |= reads_up;
        if media_from.is_some_and(|from| position >= from) {
            // Between two of media: what is sent before it goes at another pace.
            if self.count > 0 && is_usual {
                self.distances.rotate_right(1);
                self.distances[0] = position - self.read;
            }
            self.count = self.count.saturating_add(1);
        }
        self.read = position;
        self.asked = if position >= self.newest.1 { self.newest.0 } else { self.asked };
        self.last = Some(Last { at: now, taken: None, due_since: None, silent_since: None });
        self.is_news = true;
    }

    /// Some of what it said cannot be.
    pub(super) fn distrust(&mut self) {
        self.is_wrong = true;
    }

    /// The server was asked last, before output position `end`, to acknowledge every `bytes` bytes. A slow one reads that much later.
    pub(super) fn asked(&mut self, bytes: u32, end: u64) {
        let bytes = u64::from(bytes);
        if bytes != self.newest.0 {
            self.newest = (bytes, end);
        }
        self.asked = self.asked.max(bytes);
    }

    /// Output position that it has said it has read.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Whether it has acknowledged since the last call.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// Its system has taken the output up to position `taken`.
    pub(super) fn looked(&mut self, now: Instant, taken: u64, timing: &Timing) {
        let (is_judged, spacing) = (self.is_judged(), self.spacing());
        let Some(last) = &mut self.last else { return };
        let passed = taken.saturating_sub(*last.taken.get_or_insert(taken));
        let is_due = is_judged && passed >= spacing;
        last.due_since = if is_due { last.due_since.or(Some(now)) } else { None };
        let silent_since = last.due_since.filter(|_| passed >= spacing * SPACINGS).map(|due| {
            // Where media came late or comes slowly, the time before it was due is no silence.
            let earliest = due.checked_sub(timing.stalled / 2).max(now.checked_sub(timing.stalled));
            earliest.map_or(last.at, |earliest| earliest.max(last.at))
        });
        last.silent_since = silent_since.map(|since| last.silent_since.unwrap_or(since));
    }

    /// Since when it has been silent, where it should not be.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        self.last.as_ref().and_then(|last| last.silent_since).filter(|_| self.is_judged())
    }

    /// It has acknowledged so often that it does not just leave off doing so.
    pub(super) fn is_known_well(&self) -> bool {
        self.count >= KNOWN_WELL_AFTER
    }

    /// It does not lag behind what its system has taken up to output position `taken`.
    pub(super) fn keeps_up(&self, taken: u64) -> bool {
        taken.saturating_sub(self.read) <= self.spacing() * SPACINGS
    }

    fn is_judged(&self) -> bool {
        !self.is_wrong && self.count >= KNOWN_AFTER && self.spacing() <= SPACING_BYTES_MAX
    }

    /// Bytes after which the next acknowledgement is due. A server may do as it is asked, or as it did.
    fn spacing(&self) -> u64 {
        self.distances.iter().fold(self.asked.max(SPACING_BYTES_MIN), |most, distance| most.max(*distance))
    }
}

/// Least and largest distance of acknowledgements that is asked for while live, in bytes; the largest is what encoders usually ask for.
const WINDOW_BYTES_MIN: u32 = 8 * 1024;
const WINDOW_BYTES_MAX: u32 = 2_500_000;
/// The same before the rate is known: what a system takes at once for a slow server would seem a high one.
const FIRST_WINDOW_BYTES_MAX: u32 = 64 * 1024;
/// Media between two acknowledgements that are asked for.
const WINDOW: Duration = Duration::from_secs(1);
/// Least time between two changes of what is asked for.
const WINDOW_EVERY: Duration = Duration::from_secs(4);
/// What is asked for is changed when another would be that much larger or smaller.
const WINDOW_FACTOR: u32 = 2;

/// How often a server is asked to acknowledge: often enough to see within seconds that it has stopped, seldom enough to be no load.
#[derive(Debug)]
pub(super) struct Window {
    /// Since when bytes are counted, and the output position then.
    from: (Instant, u64),
    next_at: Instant,
    bytes_max: u32,
}

impl Window {
    /// Counts from output position `position` at `since` on, and asks at once.
    pub(super) fn new(since: Instant, position: u64) -> Self {
        Self { from: (since, position), next_at: since, bytes_max: FIRST_WINDOW_BYTES_MAX }
    }

    /// The server was away: counts from output position `position` on.
    pub(super) fn begin_again(&mut self, now: Instant, position: u64) {
        (self.from, self.next_at) = ((now, position), now + WINDOW_EVERY);
    }

    /// What is to be asked for in place of `asked`, where it is to be another.
    pub(super) fn due(&mut self, now: Instant, position: u64, asked: u32) -> Option<u32> {
        if now < self.next_at {
            return None;
        }
        let (since, from) = self.from;
        let passed = now.saturating_duration_since(since).max(WINDOW);
        self.begin_again(now, position);
        let most = std::mem::replace(&mut self.bytes_max, WINDOW_BYTES_MAX);
        let bytes = u128::from(position.saturating_sub(from)) * WINDOW.as_millis() / passed.as_millis();
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(WINDOW_BYTES_MIN, most);
        let is_other = bytes / WINDOW_FACTOR > asked || bytes.saturating_mul(WINDOW_FACTOR) < asked;
        is_other.then_some(bytes)
    }
}
