//! When a destination is live, and when it stalls. No clock in here: every function takes the time as an argument.
//!
//! A system buffers some of a stream for a program that hangs, so accepted bytes do not prove that the server reads.
//! A destination is live when its server has acknowledged media in RTMP, or its system has taken more than systems
//! buffer ([`UNREAD_BYTES_MAX`]), or has taken all of a thin stream without a pause for [`Timing::stalled`]. It
//! stalls when, for that time, its system takes none of the bytes in flight, or a server that acknowledged at the
//! requested interval ([`Acks`]) acknowledges none of the bytes that its system took. It is live again after data has
//! flowed for that time without a pause, and longer after each stall.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::Instant;

use crate::timing::Timing;

/// Most bytes that a server's system buffers for a program that does not read, unless the program has asked for more:
/// twice the usual value.
pub(crate) const UNREAD_BYTES_MAX: u64 = 256 * 1024;

/// Checks within the time after which a server counts as stalled.
const CHECKS: u32 = 10;
/// The time after which a server counts as recovered grows with this many stalls at most.
const STALLS_COUNTED_MAX: u32 = 8;

/// Smallest and largest requested acknowledgement interval in bytes; the largest is the usual request of encoders.
pub(crate) const WINDOW_BYTES_MIN: u32 = 8 * 1024;
const WINDOW_BYTES_MAX: u32 = 2_500_000;
/// Least time between two changes of the interval, which is set for one acknowledgement each second.
const WINDOW_EVERY: Duration = Duration::from_secs(4);
/// The interval is changed when the new one would be larger or smaller by this factor.
const WINDOW_FACTOR: u32 = 2;

/// Observed state of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    /// Output position that the server's system has taken. The position that our own system took proves nothing: its
    /// buffer may hold minutes.
    pub(crate) taken: u64,
    /// No bytes are in flight.
    pub(crate) all: bool,
    /// Output position that the server has acknowledged in RTMP; `None` if the acknowledgement is impossible.
    pub(crate) read: Option<u64>,
    /// The requested acknowledgement interval in bytes.
    pub(crate) asked: u32,
    /// Output position after everything that was queued.
    pub(crate) end: u64,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// The destination is live from now on.
    Live,
    /// The server takes nothing or, if `is_silent`, takes bytes and no longer acknowledges them; reported once per
    /// stall.
    Stalled {
        is_silent: bool,
    },
    /// The server stalled, took bytes again, and paused again; reported once per stall.
    Slow,
    /// Like `Stalled`, for too long.
    DoesNotRead {
        is_silent: bool,
    },
    /// No media arrives; reported once per gap.
    NoMedia,
    /// The stop was requested and takes too long.
    StopOverdue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Live,
    Stalled,
    /// Stalled, and reported as slow.
    Slow,
    NoMedia,
}

#[derive(Debug)]
pub(crate) struct Watch {
    timing: Timing,
    /// An earlier attempt ended because the server did not read.
    is_doubted: bool,
    state: State,
    checked_at: Instant,
    media_at: Instant,
    stop_by: Option<Instant>,
    /// Output position where the first media ends, also the first media after a gap.
    media_from: Option<u64>,
    taken: u64,
    acks: Acks,
    /// Since when bytes are in flight and none of them is taken.
    waiting_since: Option<Instant>,
    /// How long bytes have been taken without a pause, as far as the checks saw.
    steady: Duration,
    stalls: u32,
    is_proven: bool,
    /// How long it was live.
    lived: Duration,
    /// Start of the count for [`Self::window`]: time and output position.
    counted_from: (Instant, u64),
}

impl Watch {
    /// `is_doubted`: an earlier attempt ended because the server did not read.
    pub(crate) fn new(timing: Timing, now: Instant, is_doubted: bool) -> Self {
        Watch {
            timing,
            is_doubted,
            state: State::Connecting,
            checked_at: now,
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

    /// Whether [`Self::check`] is due. A flowing stream is checked between its writes, without a wake-up for it.
    pub(crate) fn is_check_due(&self, now: Instant) -> bool {
        now >= self.checked_at + self.check_interval()
    }

    /// Time of the next check at the latest, also where nothing is written until then.
    pub(crate) fn next(&self) -> Instant {
        let next = self.checked_at + self.check_interval() * 2;
        self.stop_by.map_or(next, |by| next.min(by))
    }

    fn check_interval(&self) -> Duration {
        self.timing.stalled / CHECKS
    }

    /// The stop was requested; a second call changes nothing.
    pub(crate) fn stop(&mut self, now: Instant) -> Instant {
        *self.stop_by.get_or_insert(now + self.timing.flush)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// How long the destination was live in total, up to the last check.
    pub(crate) fn lived(&self) -> Duration {
        self.lived
    }

    /// Checks the connection.
    pub(crate) fn check(&mut self, now: Instant, seen: Seen) -> Due {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.checked_at, now));
        if self.is_live() {
            self.lived += passed;
        }
        let took = seen.taken > self.taken;
        self.taken = self.taken.max(seen.taken);
        self.acks.observe(now, &seen);
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
            // A late check saw nothing of the time before it.
            self.steady += passed.min(self.check_interval() * 2);
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
            return self.transition(State::NoMedia, Due::NoMedia);
        }
        let overdue_since = self.acks.overdue_since();
        let is_silent = !is_over(self.waiting_since, stalled, now);
        // After an earlier attempt ended like this, silence alone does not end the connection: the server may read
        // without acknowledging.
        if is_over(self.waiting_since, unread_max, now)
            || (is_over(overdue_since, unread_max, now) && !self.is_doubted)
        {
            return Due::DoesNotRead { is_silent };
        }
        if (!is_silent || is_over(overdue_since, stalled, now)) && !self.has_stalled() {
            self.steady = Duration::ZERO;
            self.stalls += 1;
            return self.transition(State::Stalled, Due::Stalled { is_silent });
        }
        if self.state == State::Stalled && pauses_again {
            return self.transition(State::Slow, Due::Slow);
        }
        if self.shows_reading() {
            self.is_proven = true;
            return self.transition(State::Live, Due::Live);
        }
        Due::Nothing
    }

    fn transition(&mut self, state: State, due: Due) -> Due {
        if std::mem::replace(&mut self.state, state) == state { Due::Nothing } else { due }
    }

    fn has_stalled(&self) -> bool {
        matches!(self.state, State::Stalled | State::Slow)
    }

    fn has_taken_media(&self) -> bool {
        self.media_from.is_some_and(|from| self.taken >= from)
    }

    /// Whether the observed state proves that the server reads, and after a stall that it has kept reading.
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

    /// The acknowledgement interval in bytes to request in place of `asked`, if it should change: short enough to see
    /// within seconds that the server has stopped, long enough to be no load.
    pub(crate) fn window(&mut self, now: Instant, asked: u32) -> Option<u32> {
        let (since, from) = self.counted_from;
        let passed = now.saturating_duration_since(since);
        // An acknowledgement that is due says more than the reply to a new request would.
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

/// Consecutive checks with an acknowledgement in time after which a server is judged by its acknowledgements.
const KEPT_MIN: u32 = 8;
/// An acknowledgement is in time within this multiple of the requested interval: servers check after whole messages,
/// and we see it only at our checks.
const LATE_FACTOR: u64 = 3;

/// The acknowledgements of one connection: whether missing ones mean that the server has stopped reading.
///
/// Servers acknowledge at the requested number of bytes, at an interval of their own, or never. Only a server that
/// has kept to the requested interval is judged by it. Its silence is counted first in bytes that its system has
/// taken, then in seconds.
#[derive(Debug, Default)]
struct Acks {
    /// Output position that was acknowledged last, and the position that the server's system had taken by then.
    read: u64,
    taken: u64,
    /// The requested interval, and an output position after the request: a slow server reads the request much later.
    asked: u32,
    asked_before: u64,
    /// Consecutive acknowledgements in time since the server has read the request.
    kept: u32,
    overdue_since: Option<Instant>,
}

impl Acks {
    fn observe(&mut self, now: Instant, seen: &Seen) {
        let late = u64::from(seen.asked) * LATE_FACTOR;
        let Some(read) = seen.read.filter(|_| seen.asked == self.asked) else {
            // The acknowledgement is impossible, or the requested interval has changed: earlier acknowledgements
            // prove nothing.
            let read = seen.read.unwrap_or_default();
            *self = Acks {
                read,
                taken: seen.taken,
                asked: seen.asked,
                asked_before: seen.end,
                ..Acks::default()
            };
            return;
        };
        if read > self.read {
            let is_kept = self.read >= self.asked_before && read - self.read <= late;
            self.kept = if is_kept { self.kept.saturating_add(1) } else { 0 };
            (self.read, self.taken) = (read, seen.taken);
        }
        let is_overdue = self.kept >= KEPT_MIN && seen.taken.saturating_sub(self.taken) > late;
        self.overdue_since = if is_overdue { self.overdue_since.or(Some(now)) } else { None };
    }

    /// Output position that the server has acknowledged.
    fn read(&self) -> u64 {
        self.read
    }

    /// Since when an acknowledgement is overdue from a server that kept the interval before.
    fn overdue_since(&self) -> Option<Instant> {
        self.overdue_since
    }
}
