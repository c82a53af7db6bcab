//! Limits on repeated log lines, so that a flood of causes does not flood the log; omitted lines are counted.
//!
//! Time is an argument: the monotonic clock.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;

/// Most keys of [`LogLimits`]; beyond it, keys whose window is over are removed, or all.
pub const KEYS_MAX: usize = 4_096;

/// Admits a number of lines and bytes in each window; a window begins with its first line.
#[derive(Debug)]
pub struct LogLimit {
    lines_max: u32,
    bytes_max: usize,
    window: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    since: Option<Duration>,
    lines: u32,
    bytes: usize,
    left_out: u64,
}

impl LogLimit {
    /// `lines_max` lines in each `window`, of any length.
    pub fn new(lines_max: u32, window: Duration) -> Self {
        Self { lines_max, bytes_max: usize::MAX, window, state: Mutex::default() }
    }

    /// `lines_max` lines in each second.
    pub fn per_second(lines_max: u32) -> Self {
        Self::new(lines_max, Duration::from_secs(1))
    }

    /// The same, with no more than `bytes_max` bytes in a window.
    #[must_use]
    pub fn with_bytes(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// `None`: omit the line at `now`. `Some(n)`: write it, with the number `n` of lines omitted before.
    pub fn admit(&self, now: Duration) -> Option<u64> {
        self.admit_bytes(0, 0, now)
    }

    /// The same for a line of `bytes` bytes, when `left_out` others were omitted for other reasons.
    pub fn admit_bytes(&self, bytes: usize, left_out: u64, now: Duration) -> Option<u64> {
        let mut state = self.state.lock();
        if self.is_over(&state, now) {
            (state.since, state.lines, state.bytes) = (Some(now), 0, 0);
        }
        state.left_out += left_out;
        if state.lines >= self.lines_max || state.bytes.saturating_add(bytes) > self.bytes_max {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        state.bytes += bytes;
        Some(std::mem::take(&mut state.left_out))
    }

    fn is_over(&self, state: &State, now: Duration) -> bool {
        state.since.is_none_or(|since| now.saturating_sub(since) >= self.window)
    }
}

/// A [`LogLimit`] of one line for each key, such as an account: no account hides the lines of others.
#[derive(Debug)]
pub struct LogLimits<K> {
    window: Duration,
    by_key: Mutex<HashMap<K, LogLimit>>,
}

impl<K: Eq + Hash> LogLimits<K> {
    /// One line for each key in each `window`.
    pub fn new(window: Duration) -> Self {
        Self { window, by_key: Mutex::default() }
    }

    /// As [`LogLimit::admit`], for a line about `key`.
    pub fn admit(&self, key: K, now: Duration) -> Option<u64> {
        let mut by_key = self.by_key.lock();
        if by_key.len() >= KEYS_MAX && !by_key.contains_key(&key) {
            by_key.retain(|_, limit| !limit.is_over(&limit.state.lock(), now));
            if by_key.len() >= KEYS_MAX {
                by_key.clear();
            }
        }
        by_key.entry(key).or_insert_with(|| LogLimit::new(1, self.window)).admit(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn lines_of_a_window_are_limited_and_those_left_out_are_counted() {
        let limit = LogLimit::new(2, secs(60));
        assert_eq!([1, 1, 1, 30, 60].map(|at| limit.admit(secs(at))), [Some(0), Some(0), None, None, None]);
        assert_eq!(limit.admit(secs(61)), Some(3));
        assert_eq!(limit.admit(secs(120)), Some(0));
        assert_eq!(limit.admit(secs(120)), None, "the window began with its first line");
        assert_eq!(limit.admit(secs(121)), Some(1));
    }

    #[test]
    fn bytes_are_limited_and_lines_left_out_elsewhere_are_counted() {
        let limit = LogLimit::per_second(3).with_bytes(1_000);
        assert_eq!(limit.admit_bytes(900, 0, secs(5)), Some(0));
        assert_eq!(limit.admit_bytes(200, 7, secs(5)), None, "too many bytes");
        assert_eq!(limit.admit_bytes(100, 0, secs(5)), Some(8));
        assert_eq!(limit.admit_bytes(0, 0, secs(5)), Some(0));
        assert_eq!(limit.admit_bytes(0, 0, secs(5)), None, "too many lines");
        assert_eq!(limit.admit_bytes(1_000, 0, secs(6)), Some(1));
    }

    #[test]
    fn a_key_does_not_hide_lines_of_other_keys() {
        let limits = LogLimits::new(secs(10));
        assert_eq!(limits.admit("one", secs(5)), Some(0));
        assert!((0..1_000).all(|_| limits.admit("one", secs(14)).is_none()));
        assert_eq!(limits.admit("other", secs(14)), Some(0));
        assert_eq!(limits.admit("one", secs(15)), Some(1_000));
    }

    #[test]
    fn the_number_of_keys_is_limited() {
        let (limits, many) = (LogLimits::new(secs(10)), 2 * KEYS_MAX);
        assert!((0..many).all(|key| limits.admit(key, secs(1)) == Some(0)));
        assert!(limits.by_key.lock().len() <= KEYS_MAX);
        assert_eq!(limits.admit(many - 1, secs(1)), None, "the newest are");
    }
}
