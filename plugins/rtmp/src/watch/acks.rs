//! Whether a server's silence in RTMP tells anything. No clock in here.
//!
//! Servers acknowledge after so many bytes: as many as they were asked for, as many as they like, or never. Only one that has kept to what
//! it was asked for is judged by it, and its silence is counted in bytes that its system has taken, and only then in seconds.

use tokio::time::Instant;

use super::Seen;

/// Looks with an acknowledgement in time, one after the other, after which a server is judged by them.
const KEPT_MIN: u32 = 8;
/// An acknowledgement is in time within so many times the bytes it was asked for: servers look at whole messages, and are seen at looks.
const LATE_FACTOR: u64 = 3;

/// The acknowledgements of one connection.
#[derive(Debug, Default)]
pub(super) struct Acks {
    /// Output position that was acknowledged last, and what the server's system had taken then.
    read: u64,
    taken: u64,
    /// What it is asked for, and an output position behind that: a slow server reads it much later.
    asked: u32,
    asked_before: u64,
    /// Acknowledgements in time, one after the other, since it has read that.
    kept: u32,
    overdue_since: Option<Instant>,
}

impl Acks {
    pub(super) fn looked(&mut self, now: Instant, seen: &Seen) {
        let late = u64::from(seen.asked) * LATE_FACTOR;
        let Some(read) = seen.read.filter(|_| seen.asked == self.asked) else {
            // It says what cannot be, or is asked for something else: what it did tells nothing.
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

    /// Output position up to which the server has acknowledged.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Since when an acknowledgement should have come of a server that kept to it.
    pub(super) fn overdue_since(&self) -> Option<Instant> {
        self.overdue_since
    }
}
