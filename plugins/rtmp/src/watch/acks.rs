//! Whether missing RTMP acknowledgements mean that a server has stopped reading. No clock in here.
//!
//! Servers acknowledge at the requested number of bytes, at an interval of their own, or never. Only a server that
//! has kept to the requested interval is judged by it. Its silence is counted first in bytes that its system has
//! taken, then in seconds.

use tokio::time::Instant;

use super::Seen;

/// Consecutive checks with an acknowledgement in time after which a server is judged by its acknowledgements.
const KEPT_MIN: u32 = 8;
/// An acknowledgement is in time within this multiple of the requested interval: servers check after whole messages,
/// and we see it only at our checks.
const LATE_FACTOR: u64 = 3;

/// The acknowledgements of one connection.
#[derive(Debug, Default)]
pub(super) struct Acks {
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
    pub(super) fn observe(&mut self, now: Instant, seen: &Seen) {
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
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Since when an acknowledgement is overdue from a server that kept the interval before.
    pub(super) fn overdue_since(&self) -> Option<Instant> {
        self.overdue_since
    }
}
