//! How much a driver may log.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::LOG_LINES_PER_SEC_MAX;

/// Admits [`LOG_LINES_PER_SEC_MAX`] lines in each second.
#[derive(Default)]
pub(in crate::drivers) struct LogGate {
    state: Mutex<LogWindow>,
}

#[derive(Default)]
struct LogWindow {
    second: u64,
    lines: u32,
    left_out: u64,
}

impl LogGate {
    /// `None`: leave it out. `Some(n)`: write it, and say that `n` lines were left out before.
    pub(super) fn admit(&self, now: Duration) -> Option<u64> {
        self.admit_of(LOG_LINES_PER_SEC_MAX, now)
    }

    /// The same with another number in each second.
    pub(super) fn admit_of(&self, per_sec_max: u32, now: Duration) -> Option<u64> {
        let mut window = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if window.second != now.as_secs() {
            window.second = now.as_secs();
            window.lines = 0;
        }
        if window.lines >= per_sec_max {
            window.left_out += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.left_out))
    }
}
