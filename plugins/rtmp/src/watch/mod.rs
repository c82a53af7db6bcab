//! When a destination is live, and when it stalls. No clock in here: every function is told the time.
//!
//! A system keeps some of a stream for a program that hangs: that it takes bytes does not show that the server reads. A destination is live
//! when its server has acknowledged media in RTMP, or its system has taken more than systems keep ([`UNREAD_BYTES_MAX`]), or has taken all
//! of a thin stream without a pause for [`Timing::stalled`]. It stalls when for so long its system takes nothing of what is on its way, or
//! a server that acknowledged as often as it was asked to ([`acks`]) acknowledges nothing of what its system took; and is live again when
//! it has gone on for so long without a pause, for longer after each stall.

mod acks;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;

use self::acks::Acks;
use crate::timing::Timing;

/// Most that the system of a server keeps for a program that does not read, in bytes, unless the program has asked for more: twice what
/// usual ones do.
pub(crate) const UNREAD_BYTES_MAX: u64 = 256 * 1024;

/// Looks in the time after which a server counts as stalled.
const LOOKS: u32 = 10;
/// So often the time after which a server counts as back grows with its stalls.
const STALLS_COUNTED_MAX: u32 = 8;

/// Least and largest distance of acknowledgements that is asked for, in bytes; the largest is what encoders usually ask for.
pub(crate) const WINDOW_BYTES_MIN: u32 = 8 * 1024;
const WINDOW_BYTES_MAX: u32 = 2_500_000;
/// Least time between two changes of what is asked for, which is one acknowledgement each second.
const WINDOW_EVERY: Duration = Duration::from_secs(4);
/// What is asked for is changed when another would be that much larger or smaller.
const WINDOW_FACTOR: u32 = 2;

/// What is seen of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Output position up to which the server's system has taken bytes. What our own system took says nothing: it has room for minutes.
    pub(crate) taken: u64,
    /// Nothing is on its way.
    pub(crate) all: bool,
    /// Output position up to which the server has acknowledged in RTMP; `None` if it has acknowledged what cannot be.
    pub(crate) read: Option<u64>,
    /// How many bytes apart the server is asked to acknowledge.
    pub(crate) asked: u32,
    /// Output position behind all that was queued.
    pub(crate) end: u64,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// The destination is live from now on.
    Live,
    /// The server takes nothing, or, if `is_silent`, takes bytes and acknowledges nothing any more; told once per stall.
    Stalled { is_silent: bool },
    /// It has stalled, took bytes again, and paused again; told once per stall.
    Slow,
    /// The same as `Stalled` for too long.
    DoesNotRead { is_silent: bool },
    /// No media comes; told once per silence.
    NoMedia,
    /// The end was asked for and takes too long.
    StopOverdue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Live,
    Stalled,
    /// Stalled, and told to be slow.
    Slow,
    NoMedia,
}

/// Watches one connection.
#[derive(Debug)]
pub(crate) struct Watch {
    timing: Timing,
    /// An earlier try ended because the server did not read.
    is_doubted: bool,
    state: State,
    looked_at: Instant,
    media_at: Instant,
    stop_by: Option<Instant>,
    /// Output position where the first media ends, also the first one after a time without.
    media_from: Option<u64>,
    taken: u64,
    acks: Acks,
    /// Since when bytes are on their way and none of them is taken.
    waiting_since: Option<Instant>,
    /// How long bytes have been taken without a pause, as far as was looked.
    steady: Duration,
    stalls: u32,
    /// It was live.
    is_proven: bool,
    /// How long it was live.
    lived: Duration,
    /// Since when bytes are counted for [`Self::window`], and the position then.
    counted_from: (Instant, u64),
}

impl Watch {
    /// `is_doubted`: an earlier try ended because the server did not read.
    pub(crate) fn new(timing: Timing, now: Instant, is_doubted: bool) -> Self {
        Watch {
            timing,
            is_doubted,
            state: State::Connecting,
            looked_at: now,
            media_at: now,
            stop_by: None,
            media_from: None,
            taken: 0,
            acks: Acks::default(),
            waiting_since: None,
            steady: Duration::ZERO,
            stalls: 0,
            is_proven: false,
            lived: Duration::ZERO,
            counted_from: (now, 0),
        }
    }

    /// A media packet was queued that ends at output position `end`.
    pub(crate) fn queued_media(&mut self, now: Instant, end: u64) {
        self.media_at = now;
        self.media_from.get_or_insert(end);
    }

    /// It is time for [`Self::look`]. A stream that flows is looked at between its writes, without a wake-up of its own.
    pub(crate) fn is_look_due(&self, now: Instant) -> bool {
        now >= self.looked_at + self.between_looks()
    }

    /// When to look at the latest, also where nothing is written meanwhile.
    pub(crate) fn next(&self) -> Instant {
        let next = self.looked_at + self.between_looks() * 2;
        self.stop_by.map_or(next, |by| next.min(by))
    }

    fn between_looks(&self) -> Duration {
        self.timing.stalled / LOOKS
    }

    /// The end was asked for; a second call changes nothing.
    pub(crate) fn stop(&mut self, now: Instant) -> Instant {
        *self.stop_by.get_or_insert(now + self.timing.flush)
    }

    /// The destination is live.
    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// How long the destination was live, in all, up to the last look.
    pub(crate) fn lived(&self) -> Duration {
        self.lived
    }

    /// Looks at the connection, and says what is due.
    pub(crate) fn look(&mut self, now: Instant, seen: Seen) -> Due {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.looked_at, now));
        if self.is_live() {
            self.lived += passed;
        }
        let took = seen.taken > self.taken;
        self.taken = self.taken.max(seen.taken);
        self.acks.looked(now, &seen);
        self.waiting_since = match self.waiting_since {
            _ if seen.all => None,
            Some(since) if !took => Some(since),
            _ => Some(now),
        };
        let has_paused = is_over(self.waiting_since, self.timing.stalled / 2, now);
        let pauses_again = has_paused && !self.steady.is_zero();
        if has_paused || self.acks.overdue_since().is_some() {
            self.steady = Duration::ZERO;
        } else if self.has_taken_media() {
            // A look that came late saw nothing of the time before it.
            self.steady += passed.min(self.between_looks() * 2);
        }
        self.due(now, pauses_again)
    }

    fn due(&mut self, now: Instant, pauses_again: bool) -> Due {
        let Timing { stalled, unread_max, media_silent, .. } = self.timing;
        if is_over(self.stop_by, Duration::ZERO, now) {
            return Due::StopOverdue;
        }
        if self.waiting_since.is_none() && is_over(Some(self.media_at), media_silent, now) {
            (self.media_from, self.steady) = (None, Duration::ZERO);
            return self.becomes(State::NoMedia, Due::NoMedia);
        }
        let overdue_since = self.acks.overdue_since();
        let is_silent = !is_over(self.waiting_since, stalled, now);
        // Twice in a row it is not broken off for silence alone: it may read and say nothing of it.
        if is_over(self.waiting_since, unread_max, now)
            || (is_over(overdue_since, unread_max, now) && !self.is_doubted)
        {
            return Due::DoesNotRead { is_silent };
        }
        if (!is_silent || is_over(overdue_since, stalled, now)) && !self.has_stalled() {
            self.steady = Duration::ZERO;
            self.stalls += 1;
            return self.becomes(State::Stalled, Due::Stalled { is_silent });
        }
        if self.state == State::Stalled && pauses_again {
            return self.becomes(State::Slow, Due::Slow);
        }
        if self.shows_reading() {
            self.is_proven = true;
            return self.becomes(State::Live, Due::Live);
        }
        Due::Nothing
    }

    fn becomes(&mut self, state: State, due: Due) -> Due {
        if std::mem::replace(&mut self.state, state) == state { Due::Nothing } else { due }
    }

    fn has_stalled(&self) -> bool {
        matches!(self.state, State::Stalled | State::Slow)
    }

    fn has_taken_media(&self) -> bool {
        self.media_from.is_some_and(|from| self.taken >= from)
    }

    /// What came back shows that the server reads, and after a stall that it goes on doing so.
    fn shows_reading(&self) -> bool {
        let Some(from) = self.media_from.filter(|_| self.has_taken_media()) else { return false };
        let is_steady = |times| self.steady >= self.timing.stalled * times;
        let reads = self.is_proven
            || self.acks.read() >= from
            || self.taken >= from + UNREAD_BYTES_MAX
            || (!self.is_doubted && is_steady(1));
        let is_back = !self.has_stalled() || is_steady(self.stalls.min(STALLS_COUNTED_MAX));
        reads && is_back
    }

    /// How many bytes apart the server is to be asked to acknowledge in place of `asked`, where it is to be asked anew: often enough to
    /// see within seconds that it has stopped, seldom enough to be no load.
    pub(crate) fn window(&mut self, now: Instant, asked: u32) -> Option<u32> {
        let (since, from) = self.counted_from;
        let passed = now.saturating_duration_since(since);
        // What it did before an answer that is due says more than what it would do after another question.
        if !self.is_live() || self.acks.overdue_since().is_some() || passed < WINDOW_EVERY {
            return None;
        }
        self.counted_from = (now, self.taken);
        let each_second = u128::from(self.taken - from) * 1000 / passed.as_millis();
        let bytes = u32::try_from(each_second).unwrap_or(u32::MAX).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        let is_other = bytes / WINDOW_FACTOR > asked || bytes * WINDOW_FACTOR < asked;
        is_other.then_some(bytes)
    }
}

fn is_over(since: Option<Instant>, time: Duration, now: Instant) -> bool {
    since.is_some_and(|since| now >= since + time)
}
