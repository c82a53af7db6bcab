//! What strangers may use up of the log. Pure counters, time is an argument.

use std::time::Duration;

use parking_lot::Mutex;

/// Length of the window in which wrong keys and log lines are counted.
pub(super) const WINDOW_MS: u64 = 60_000;
/// See [`WINDOW_MS`].
pub(super) const WINDOW: Duration = Duration::from_millis(WINDOW_MS);

/// Keeps a flood of hostile connections from becoming a flood of log lines.
#[derive(Debug)]
pub(super) struct LogLimit {
    state: Mutex<LogWindow>,
    per_window_max: u32,
}

#[derive(Debug, Default)]
struct LogWindow {
    since: Duration,
    lines: u32,
    withheld: u64,
}

/// Whether a line may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Line {
    /// Yes; `withheld` lines of the window before were not, which is worth saying.
    Write { withheld: u64 },
    /// No, the window's lines are used up.
    Withhold,
}

impl LogLimit {
    pub(super) fn new(per_window_max: u32) -> Self {
        Self { state: Mutex::default(), per_window_max }
    }

    /// Counts one line at the monotonic time `now`.
    pub(super) fn next(&self, now: Duration) -> Line {
        let mut state = self.state.lock();
        let mut withheld = 0;
        if now >= state.since + WINDOW {
            withheld = state.withheld;
            *state = LogWindow { since: now, lines: 0, withheld: 0 };
        }
        if state.lines >= self.per_window_max {
            state.withheld += 1;
            return Line::Withhold;
        }
        state.lines += 1;
        Line::Write { withheld }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_withheld_and_counted() {
        let limit = LogLimit::new(2);
        let start = Duration::from_secs(1);
        assert_eq!(limit.next(start), Line::Write { withheld: 0 });
        assert_eq!(limit.next(start), Line::Write { withheld: 0 });
        for _ in 0..5 {
            assert_eq!(limit.next(start), Line::Withhold);
        }
        assert_eq!(limit.next(start + WINDOW), Line::Write { withheld: 5 });
        assert_eq!(limit.next(start + WINDOW), Line::Write { withheld: 0 });
        assert_eq!(limit.next(start + WINDOW), Line::Withhold);
    }
}
