//! How often the log says what becomes of what waits on disk. A disk that fails, or a destination that stalls and goes on, does so again
//! and again.
//!
//! Pure: the time is an argument.

use std::collections::HashMap;
use std::time::Duration;

use crate::ids::AccountId;

/// Least time between two lines of one kind about the destinations of one account.
pub(super) const LINES_PAUSE: Duration = Duration::from_secs(10);
/// Accounts and kinds that are followed at most; one more, and those that were not said for [`LINES_PAUSE`] are forgotten, or all.
const FOLLOWED_MAX: usize = 4_096;

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Line {
    /// It begins to wait on disk, and has gone from there.
    Waits,
    /// More waits than may.
    Overflow,
    /// The disk fails.
    Disk,
}

/// What was said last.
#[derive(Debug, Default)]
pub(super) struct Lines(HashMap<(AccountId, Line), Said>);

#[derive(Debug)]
struct Said {
    at: Duration,
    left_out: u64,
}

impl Lines {
    /// `None`: leave it out at the monotonic time `now`. `Some(n)`: write it, and say that `n` like it were left out before.
    pub(super) fn admit(&mut self, account: AccountId, line: Line, now: Duration) -> Option<u64> {
        let is_recent = |said: &Said| now.saturating_sub(said.at) < LINES_PAUSE;
        if let Some(said) = self.0.get_mut(&(account, line)).filter(|said| is_recent(said)) {
            said.left_out += 1;
            return None;
        }
        if self.0.len() >= FOLLOWED_MAX {
            self.0.retain(|_, said| is_recent(said));
        }
        if self.0.len() >= FOLLOWED_MAX {
            self.0.clear();
        }
        let before = self.0.insert((account, line), Said { at: now, left_out: 0 });
        Some(before.map_or(0, |before| before.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_and_again_is_counted() {
        let (mut lines, secs) = (Lines::default(), Duration::from_secs);
        let (one, other) = (AccountId(1), AccountId(2));
        assert_eq!(lines.admit(one, Line::Disk, secs(5)), Some(0));
        for _ in 0..1_000 {
            assert_eq!(lines.admit(one, Line::Disk, secs(14)), None);
        }
        assert_eq!(lines.admit(other, Line::Disk, secs(14)), Some(0), "nobody hides what befalls others");
        assert_eq!(lines.admit(one, Line::Overflow, secs(14)), Some(0));
        assert_eq!(lines.admit(one, Line::Disk, secs(5) + LINES_PAUSE), Some(1_000));
        assert_eq!(lines.admit(one, Line::Disk, secs(6) + LINES_PAUSE), None);
        assert_eq!(lines.admit(one, Line::Disk, secs(99)), Some(1));
    }

    #[test]
    fn so_many_are_followed_and_no_more() {
        let (mut lines, secs) = (Lines::default(), Duration::from_secs);
        let many = 2 * FOLLOWED_MAX as i64;
        assert!((0..many).all(|account| lines.admit(AccountId(account), Line::Waits, secs(1)) == Some(0)));
        assert!(lines.0.len() <= FOLLOWED_MAX);
        assert_eq!(lines.admit(AccountId(many - 1), Line::Waits, secs(1)), None, "the newest are");
    }
}
