//! The maximum duration of a session: its end, and the warning before it.

use std::time::Duration;

/// Percentage of the maximum duration at which the owner is warned.
pub(crate) const WARNED_AT_PERCENT: u32 = 80;

/// Timer of one session. Pure: the caller gives the elapsed time.
#[derive(Debug, Default)]
pub(super) struct Timer {
    /// The limit that was warned about. A different limit is warned about again.
    warned: Option<i64>,
}

/// Result of [`Timer::due`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Time until the maximum duration; `None` without a limit.
    pub(super) left: Option<Duration>,
    /// Send the warning now.
    pub(super) warns: bool,
    /// Time until the warning.
    pub(super) warns_in: Option<Duration>,
}

impl Timer {
    /// `minutes`: the limit; `lasted`: the elapsed time of the session.
    pub(super) fn due(&mut self, minutes: Option<i64>, lasted: Duration) -> Due {
        let Some(limit) = minutes else { return Due::default() };
        let longest = Duration::from_secs(u64::try_from(limit).unwrap_or(0).saturating_mul(60));
        let left = Some(longest.saturating_sub(lasted));
        // No warning when the session ends now.
        if self.warned == minutes || lasted >= longest {
            return Due { left, ..Due::default() };
        }
        let warns_in = (longest / 100 * WARNED_AT_PERCENT).saturating_sub(lasted);
        let warns = warns_in.is_zero();
        if warns {
            self.warned = minutes;
        }
        Due { left, warns, warns_in: (!warns).then_some(warns_in) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_warned_once_for_each_limit_when_four_fifths_are_used() {
        let mut timer = Timer::default();
        let secs = Duration::from_secs;
        let mut due = |minutes, lasted| timer.due(minutes, secs(lasted));
        assert_eq!(due(None, 10), Due::default());
        let early = due(Some(10), 0);
        assert_eq!((early.left, early.warns, early.warns_in), (Some(secs(600)), false, Some(secs(480))));
        assert!(!due(Some(10), 479).warns);
        let late = due(Some(10), 480);
        assert_eq!((late.left, late.warns, late.warns_in), (Some(secs(120)), true, None));
        assert_eq!(due(Some(10), 481), Due { left: Some(secs(119)), ..Due::default() }, "once");
        assert!(!due(Some(20), 482).warns);
        assert!(due(Some(20), 960).warns, "another limit");
        assert_eq!(due(Some(5), 961), Due { left: Some(Duration::ZERO), ..Due::default() }, "it ends");
    }
}
