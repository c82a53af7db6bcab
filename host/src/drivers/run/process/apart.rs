//! Whom the crash of a process counts for. Pure: the time is an argument.
//!
//! The accounts with open destinations or calls are inside. One account inside is the one; several are suspected, and the next process
//! takes them in apart, half of them at a time, for [`TURN`] after the last of these came: whoever is inside at the next crash stays suspected,
//! the others are cleared, until one is found.

use std::collections::BTreeSet;
use std::time::Duration;

/// How long those who are taken in apart have to show that they crash nothing.
pub(super) const TURN: Duration = Duration::from_secs(5);

/// Accounts that are suspected.
#[derive(Debug, Default)]
pub(super) struct Apart {
    suspects: BTreeSet<i64>,
    /// Those whose turn it is.
    taken_in: BTreeSet<i64>,
    /// End of the turn, in monotonic time.
    until: Duration,
}

impl Apart {
    /// A process crashed at the monotonic time `now` with these accounts inside; the one that it counts for, if it is known. After the
    /// turn it may be any of them, unless one account was inside alone.
    pub(super) fn crashed(&mut self, inside: &BTreeSet<i64>, now: Duration) -> Option<i64> {
        let turn = std::mem::take(&mut self.taken_in);
        let turn = if now < self.until { turn } else { BTreeSet::new() };
        if !inside.is_empty() {
            let of_turn: BTreeSet<i64> = turn.intersection(inside).copied().collect();
            self.suspects = if of_turn.is_empty() { inside.clone() } else { of_turn };
        }
        let mut found = self.suspects.intersection(inside).copied();
        found.next().filter(|_| self.suspects.len() == 1)
    }

    /// Takes an account in at the monotonic time `now`.
    ///
    /// # Errors
    /// It is not its turn; how long it has to wait.
    pub(super) fn take_in(&mut self, account: i64, now: Duration) -> Result<(), Duration> {
        if !self.taken_in.is_empty() && now >= self.until {
            let cleared = std::mem::take(&mut self.taken_in);
            self.suspects.retain(|account| !cleared.contains(account));
        }
        if !self.suspects.contains(&account) || self.taken_in.contains(&account) {
            return Ok(());
        }
        if self.taken_in.len() >= self.suspects.len().div_ceil(2) {
            return Err(self.until.saturating_sub(now));
        }
        self.taken_in.insert(account);
        self.until = now + TURN;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn all(accounts: std::ops::Range<i64>) -> BTreeSet<i64> {
        accounts.collect()
    }

    #[test]
    fn the_only_one_inside_is_found_at_once_and_nobody_where_nobody_is() {
        let mut apart = Apart::default();
        assert_eq!(apart.crashed(&all(0..0), NOW), None);
        for _ in 0..3 {
            assert_eq!(apart.crashed(&all(7..8), NOW), Some(7));
            assert!(
                apart.take_in(7, NOW).is_ok() && apart.take_in(8, NOW).is_ok(),
                "others are not suspected"
            );
        }
        assert_eq!(apart.crashed(&all(0..0), NOW), None, "whoever was inside before");
    }

    #[test]
    fn a_crash_after_the_turn_counts_for_nobody_else() {
        let mut apart = Apart::default();
        assert_eq!(apart.crashed(&all(1..3), NOW), None);
        assert_eq!(apart.take_in(1, NOW), Ok(()));
        assert_eq!(apart.take_in(2, NOW + TURN), Ok(()));
        assert_eq!(apart.crashed(&all(1..3), NOW + TURN * 2), None, "the turn of 2 is over");
        assert_eq!(apart.take_in(1, NOW), Ok(()));
        assert!(apart.take_in(2, NOW).is_err(), "both are suspected again");
        assert_eq!(apart.crashed(&all(2..3), NOW + TURN * 2), Some(2), "it was inside alone");
    }

    #[test]
    fn one_of_a_hundred_is_found_in_a_few_crashes_and_found_again_at_once() {
        let (mut apart, guilty, mut now) = (Apart::default(), 63, NOW);
        let (mut crashes, mut found) = (1, apart.crashed(&all(0..100), NOW));
        while found.is_none() && crashes < 100 {
            // Each tries until it is taken in, all at about the same time.
            let inside: BTreeSet<i64> =
                (0..100).filter(|account| apart.take_in(*account, now).is_ok()).collect();
            if inside.contains(&guilty) {
                (crashes, found) = (crashes + 1, apart.crashed(&inside, now));
            } else {
                now += TURN;
            }
        }
        assert_eq!(found, Some(guilty));
        assert!(crashes <= 9, "{crashes}");
        let inside: BTreeSet<i64> = (0..100).filter(|account| apart.take_in(*account, now).is_ok()).collect();
        assert_eq!(inside.len(), 100, "nobody else waits");
        assert_eq!(apart.crashed(&inside, now), Some(guilty), "it is in its turn alone");
    }

    #[test]
    fn who_waits_is_told_how_long_and_who_crashed_nothing_is_cleared() {
        let mut apart = Apart::default();
        assert_eq!(apart.crashed(&all(1..3), NOW), None);
        assert_eq!(apart.take_in(1, NOW), Ok(()));
        assert_eq!(apart.take_in(2, NOW + TURN / 5), Err(TURN / 5 * 4));
        assert_eq!(apart.take_in(2, NOW + TURN), Ok(()));
        assert_eq!(apart.take_in(1, NOW + TURN), Ok(()), "cleared");
        assert_eq!(apart.crashed(&all(1..3), NOW), Some(2));
        assert_eq!(apart.take_in(2, NOW), Ok(()));
        assert_eq!(apart.take_in(3, NOW + TURN), Ok(()));
        assert_eq!(apart.crashed(&all(1..4), NOW), None, "all are cleared, and suspected again");
    }
}
