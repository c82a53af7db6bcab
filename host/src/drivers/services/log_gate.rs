//! How much a driver may log.

use std::time::Duration;

use parking_lot::Mutex;

use super::LOG_LINES_PER_SEC_MAX;

/// Admits so many lines and bytes in each second.
#[derive(Default)]
pub(in crate::drivers) struct LogGate {
    state: Mutex<LogWindow>,
}

#[derive(Default)]
struct LogWindow {
    second: u64,
    lines: u32,
    bytes: usize,
    left_out: u64,
}

impl LogGate {
    /// `None`: leave it out. `Some(n)`: write it, and say that `n` lines were left out before.
    pub(super) fn admit(&self, now: Duration) -> Option<u64> {
        self.admit_of(LOG_LINES_PER_SEC_MAX, now)
    }

    /// The same with another number in each second.
    pub(super) fn admit_of(&self, per_sec_max: u32, now: Duration) -> Option<u64> {
        self.admit_bytes(0, (per_sec_max, usize::MAX), 0, now)
    }

    /// The same for a line of so many bytes, with the most lines and bytes in each second, when `left_out` others were left out for other
    /// reasons.
    pub(super) fn admit_bytes(
        &self,
        bytes: usize,
        (lines_max, bytes_max): (u32, usize),
        left_out: u64,
        now: Duration,
    ) -> Option<u64> {
        let mut window = self.state.lock();
        if window.second != now.as_secs() {
            (window.second, window.lines, window.bytes) = (now.as_secs(), 0, 0);
        }
        window.left_out += left_out;
        if window.lines >= lines_max || window.bytes.saturating_add(bytes) > bytes_max {
            window.left_out += 1;
            return None;
        }
        window.lines += 1;
        window.bytes += bytes;
        Some(std::mem::take(&mut window.left_out))
    }
}
