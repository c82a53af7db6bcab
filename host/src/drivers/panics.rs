//! When a driver that panics is used for nothing new. Pure: the time is an argument.

use std::collections::VecDeque;
use std::time::Duration;

/// So many panics within [`PANIC_WINDOW`], in whichever destinations, and the driver is left alone until an operator enables it again.
pub const DRIVER_PANICS_MAX: usize = 3;
/// Panics before this are forgotten.
pub const PANIC_WINDOW: Duration = Duration::from_secs(600);
/// Pause between tries of a destination whose driver is left alone: it comes back when the operator does something.
pub(super) const QUARANTINE_RETRY: Duration = Duration::from_secs(60);
/// Longest text of a panic that is repeated in the reason, in bytes.
const REASON_BYTES_MAX: usize = 256;

/// The panics of one driver.
#[derive(Debug, Default)]
pub(super) struct Panics {
    at: VecDeque<Duration>,
    /// Why it is left alone.
    reason: Option<String>,
}

impl Panics {
    /// Notes a panic at the monotonic time `now`, whose text has no secrets; true when it was the one too many.
    pub(super) fn add(&mut self, now: Duration, text: &str) -> bool {
        while self.at.front().is_some_and(|at| now.saturating_sub(*at) > PANIC_WINDOW) {
            self.at.pop_front();
        }
        self.at.push_back(now);
        if self.at.len() < DRIVER_PANICS_MAX || self.reason.is_some() {
            // What still runs may panic on; no more than that many times are kept.
            self.at.truncate(DRIVER_PANICS_MAX);
            return false;
        }
        let end = (0..=text.len().min(REASON_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
        let minutes = PANIC_WINDOW.as_secs() / 60;
        self.reason = Some(format!(
            "panicked {DRIVER_PANICS_MAX} times within {minutes} minutes and is used for nothing new until an operator enables it \
             again; the last time: {}",
            &text[..end.unwrap_or(0)]
        ));
        true
    }

    /// Why it is left alone; `None` when it is not.
    pub(super) fn reason(&self) -> Option<String> {
        self.reason.clone()
    }

    /// An operator wants it to be used again.
    pub(super) fn forgive(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn so_many_panics_in_a_while_and_it_is_left_alone_until_it_is_forgiven() {
        let mut panics = Panics::default();
        for n in 1..DRIVER_PANICS_MAX as u64 {
            assert!(!panics.add(secs(n), "a"));
        }
        assert_eq!(panics.reason(), None);
        assert!(panics.add(PANIC_WINDOW, "the last"), "the first is as old as may be");
        assert!(panics.reason().unwrap().ends_with("the last time: the last"));
        assert!(!panics.add(PANIC_WINDOW, "another"), "said once");
        assert!(panics.reason().unwrap().ends_with("the last"));
        panics.forgive();
        assert_eq!(panics.reason(), None);
        assert!(!panics.add(PANIC_WINDOW, "a"), "and counted anew");
    }

    #[test]
    fn old_panics_are_forgotten_and_texts_are_cut() {
        let mut panics = Panics::default();
        for n in 0..20 {
            assert!(!panics.add((PANIC_WINDOW + secs(1)) * n, "a"), "panic {n}");
        }
        let mut panics = Panics::default();
        let long = "\u{e4}".repeat(REASON_BYTES_MAX);
        assert!((0..DRIVER_PANICS_MAX).fold(false, |_, _| panics.add(secs(1), &long)));
        assert!(panics.reason().unwrap().len() < 2 * REASON_BYTES_MAX);
    }
}
