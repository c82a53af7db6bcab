//! What is known of the disk: whether to write, and what to tell the owner.

use std::time::Duration;

use serde_json::json;

use crate::disk::WriteFailed;
use crate::limits::Limits;
use crate::shelf::Shelf;

/// Event when the rewind cannot be kept as configured.
pub(crate) const EVENT_DEGRADED: &str = "dvr_degraded";
/// Reason of it: segments leave the window before they are written.
pub(super) const DISK_TOO_SLOW: &str = "the disk does not keep up";
/// Reason of it: the window is as large as it may be.
pub(super) const QUOTA_TAKEN: &str = "it takes as much of the disk as one destination may (windowQuotaBytes)";
/// Event when it can be again.
pub(crate) const EVENT_RECOVERED: &str = "dvr_recovered";
/// Counter of segments that left the window early: the disk did not take them in time, or needed their room.
pub(crate) const COUNTER_LOST: &str = "dvr_segments_lost";
/// Counter of failed writes.
pub(crate) const COUNTER_FAILED: &str = "dvr_writes_failed";

/// The disk, as this opening sees it.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Pause before the next try; zero while writing works.
    pause: Duration,
    retry_at: Duration,
    /// The last write failed for lack of space.
    full: bool,
    /// When one did so last.
    full_at: Option<Duration>,
    degraded: bool,
    /// The window is shorter than configured because of its quota.
    bounded: bool,
}

impl Health {
    /// The last write failed.
    pub(super) fn is_failing(&self) -> bool {
        !self.pause.is_zero()
    }

    /// When a write may be tried; zero = at once.
    pub(super) fn retry_at(&self) -> Duration {
        if self.is_failing() { self.retry_at } else { Duration::ZERO }
    }

    /// The last write failed for lack of space.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn failed(
        &mut self,
        failed: &WriteFailed,
        now: Duration,
        limits: &Limits,
        shelf: &impl Shelf,
    ) {
        self.full = failed.short_bytes.is_some();
        let most = if self.full { limits.retry_full_max } else { limits.retry_max };
        self.pause = (self.pause * 2).clamp(limits.retry_first, most);
        self.retry_at = now + self.pause;
        if self.full {
            self.full_at = Some(now);
        }
        shelf.count(COUNTER_FAILED, 1);
        self.degrade(&failed.reason, shelf);
    }

    /// A write worked; `caught_up` when no segment behind the live edge waits for its own.
    pub(super) fn worked(&mut self, caught_up: bool, now: Duration, limits: &Limits, shelf: &impl Shelf) {
        self.pause = Duration::ZERO;
        self.full = false;
        let has_room = self.full_at.is_none_or(|full_at| now >= full_at + limits.full_quiet);
        if self.degraded && caught_up && has_room {
            self.degraded = false;
            tracing::info!("rewind is written to disk again");
            shelf.event(EVENT_RECOVERED, &json!({}));
        }
    }

    /// Segments without a file left the window.
    pub(super) fn lost(&mut self, segments: usize, shelf: &impl Shelf) {
        if segments > 0 {
            shelf.count(COUNTER_LOST, segments as u64);
            self.degrade(DISK_TOO_SLOW, shelf);
        }
    }

    /// The window takes all that it may; told once.
    pub(super) fn bounded(&mut self, shelf: &impl Shelf) {
        if !self.bounded {
            self.bounded = true;
            tracing::warn!(reason = QUOTA_TAKEN, "rewind is shorter than configured");
            shelf.event(EVENT_DEGRADED, &json!({ "reason": QUOTA_TAKEN }));
        }
    }

    /// Told once until it is well again.
    fn degrade(&mut self, reason: &str, shelf: &impl Shelf) {
        if !self.degraded {
            self.degraded = true;
            tracing::warn!(reason, "rewind is shorter than configured; playback goes on from memory");
            shelf.event(EVENT_DEGRADED, &json!({ "reason": reason }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_texts() {
        assert_eq!(DISK_TOO_SLOW, "the disk does not keep up");
        assert_eq!(QUOTA_TAKEN, "it takes as much of the disk as one destination may (windowQuotaBytes)");
    }
}
