//! What strangers may use up besides connections: attempts with wrong keys, lines in the log. Pure counters, time is
//! an argument.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::places::Network;

/// Networks remembered for wrong keys; beyond it the one whose window began first is forgotten.
pub(super) const FAILED_NETWORKS_MAX: usize = 10_000;
/// Length of the window in which wrong keys and log lines are counted.
pub(super) const WINDOW_MS: u64 = 60_000;

const WINDOW: Duration = Duration::from_millis(WINDOW_MS);

/// Wrong keys per network and minute: a network over the limit is not talked to until its window is over, so that a
/// guesser costs no handshake and no database read.
#[derive(Debug)]
pub(super) struct FailedKeys {
    windows: Mutex<HashMap<Network, Window>>,
    per_window_max: u32,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    since: Duration,
    failures: u32,
}

impl FailedKeys {
    pub(super) fn new(per_window_max: u32) -> Self {
        Self { windows: Mutex::default(), per_window_max }
    }

    /// Whether `network` has used up its attempts. `now` is the monotonic time.
    pub(super) fn is_blocked(&self, network: Network, now: Duration) -> bool {
        lock(&self.windows)
            .get(&network)
            .is_some_and(|window| now < window.since + WINDOW && window.failures >= self.per_window_max)
    }

    /// Counts a wrong key from `network`.
    pub(super) fn count(&self, network: Network, now: Duration) {
        let mut windows = lock(&self.windows);
        if !windows.contains_key(&network) && windows.len() >= FAILED_NETWORKS_MAX {
            make_room(&mut windows, now);
        }
        let window = windows.entry(network).or_insert(Window { since: now, failures: 0 });
        if now >= window.since + WINDOW {
            *window = Window { since: now, failures: 0 };
        }
        window.failures = window.failures.saturating_add(1);
    }
}

fn make_room(windows: &mut HashMap<Network, Window>, now: Duration) {
    windows.retain(|_, window| now < window.since + WINDOW);
    if windows.len() < FAILED_NETWORKS_MAX {
        return;
    }
    let oldest = windows.iter().min_by_key(|(_, window)| window.since).map(|(network, _)| *network);
    if let Some(oldest) = oldest {
        windows.remove(&oldest);
    }
}

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
        let mut state = lock(&self.state);
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

/// The counters stay consistent between statements, so a panic elsewhere is no reason to stop counting.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn network(text: &str) -> Network {
        Network::from(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn failed_keys_block_until_the_window_is_over() {
        let failed = FailedKeys::new(2);
        let (guesser, other) = (network("1.1.1.1"), network("2.2.2.2"));
        let start = Duration::from_secs(5);
        failed.count(guesser, start);
        assert!(!failed.is_blocked(guesser, start));
        failed.count(guesser, start + WINDOW / 2);
        assert!(failed.is_blocked(guesser, start + WINDOW / 2));
        assert!(!failed.is_blocked(other, start));
        assert!(failed.is_blocked(guesser, start + WINDOW - Duration::from_millis(1)));
        assert!(!failed.is_blocked(guesser, start + WINDOW));
        failed.count(guesser, start + WINDOW);
        assert!(!failed.is_blocked(guesser, start + WINDOW), "a new window starts from nothing");
    }

    #[test]
    fn failed_keys_remember_a_bounded_number_of_networks() {
        let failed = FailedKeys::new(1);
        let nth = |n: usize| {
            let [_, a, b, c] = u32::try_from(n).unwrap().to_be_bytes();
            network(&format!("9.{a}.{b}.{c}"))
        };
        for n in 0..FAILED_NETWORKS_MAX + 10 {
            failed.count(nth(n), Duration::from_millis(n as u64));
        }
        let now = Duration::from_millis(FAILED_NETWORKS_MAX as u64 + 10);
        assert_eq!(lock(&failed.windows).len(), FAILED_NETWORKS_MAX);
        assert!(!failed.is_blocked(nth(9), now), "the oldest is forgotten");
        assert!(failed.is_blocked(nth(10), now));
        failed.count(nth(usize::from(u16::MAX)), now + WINDOW);
        assert_eq!(lock(&failed.windows).len(), 1, "windows that are over make room");
    }

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
