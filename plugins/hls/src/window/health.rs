//! State of the disk: whether to write, and which events the owner gets.

use std::time::Duration;

use serde_json::json;

use crate::disk::WriteFailed;
use crate::host::Host;
use crate::limits::Limits;

/// Event: the rewind cannot be kept as configured.
pub(crate) const EVENT_DEGRADED: &str = "dvr_degraded";
/// Reason: segments leave the window before they are written.
pub(super) const DISK_TOO_SLOW: &str = "the disk does not keep up";
/// Reason: the window has reached its quota.
pub(super) const QUOTA_TAKEN: &str =
    "the window has reached the disk quota of one destination (windowQuotaBytes)";
/// Event: the rewind is kept as configured again.
pub(crate) const EVENT_RECOVERED: &str = "dvr_recovered";
/// Counter of segments that left the window early: the disk did not take them in time, or needed their space.
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
    /// Time of the last failure for lack of space.
    full_at: Option<Duration>,
    degraded: bool,
    /// The window is shorter than configured because of its quota.
    bounded: bool,
}

impl Health {
    pub(super) fn is_failing(&self) -> bool {
        !self.pause.is_zero()
    }

    /// When a write may be tried; zero = at once.
    pub(super) fn retry_at(&self) -> Duration {
        if self.is_failing() { self.retry_at } else { Duration::ZERO }
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn failed(&mut self, failed: &WriteFailed, now: Duration, limits: &Limits, host: &impl Host) {
        self.full = failed.short_bytes.is_some();
        let most = if self.full { limits.retry_full_max } else { limits.retry_max };
        self.pause = (self.pause * 2).clamp(limits.retry_first, most);
        self.retry_at = now + self.pause;
        if self.full {
            self.full_at = Some(now);
        }
        host.count(COUNTER_FAILED, 1);
        self.degrade(&failed.reason, host);
    }

    /// A write worked. `caught_up`: no segment behind the live edge waits for its write.
    pub(super) fn worked(&mut self, caught_up: bool, now: Duration, limits: &Limits, host: &impl Host) {
        self.pause = Duration::ZERO;
        self.full = false;
        let has_space = self.full_at.is_none_or(|full_at| now >= full_at + limits.full_cooldown);
        if self.degraded && caught_up && has_space {
            self.degraded = false;
            tracing::info!("rewind is written to disk again");
            host.event(EVENT_RECOVERED, &json!({}));
        }
    }

    /// Segments without a file left the window.
    pub(super) fn lost(&mut self, segments: usize, host: &impl Host) {
        if segments > 0 {
            host.count(COUNTER_LOST, segments as u64);
            self.degrade(DISK_TOO_SLOW, host);
        }
    }

    /// The window has reached its quota; reported once.
    pub(super) fn bounded(&mut self, host: &impl Host) {
        if !self.bounded {
            self.bounded = true;
            tracing::warn!(reason = QUOTA_TAKEN, "rewind is shorter than configured");
            host.event(EVENT_DEGRADED, &json!({ "reason": QUOTA_TAKEN }));
        }
    }

    /// Reported once until recovery.
    fn degrade(&mut self, reason: &str, host: &impl Host) {
        if !self.degraded {
            self.degraded = true;
            tracing::warn!(reason, "rewind is shorter than configured; playback goes on from memory");
            host.event(EVENT_DEGRADED, &json!({ "reason": reason }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_texts() {
        assert_eq!(DISK_TOO_SLOW, "the disk does not keep up");
        assert_eq!(
            QUOTA_TAKEN,
            "the window has reached the disk quota of one destination (windowQuotaBytes)"
        );
    }
}
