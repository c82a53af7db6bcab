//! Whom the crash of a process counts for. Pure: the time is an argument.
//!
//! A crash counts for the account that was inside alone, with open destinations or calls. After a crash with several inside, the next process
//! takes in half of them first and everybody else after a turn, and so on with the half that it crashes with, until one is inside alone.

use std::collections::BTreeSet;
use std::time::Duration;

/// How long the first are inside without the others; doubled while it does not show who it is.
const TURN_MIN: Duration = Duration::from_secs(5);
/// Longest turn. A crash that comes later than this after the turn begins the search again.
const TURN_MAX: Duration = Duration::from_secs(60);

/// Who is taken in first after a crash.
#[derive(Debug, Default)]
pub(super) struct Apart {
    first: BTreeSet<i64>,
    /// The others that were inside at the crash.
    others: BTreeSet<i64>,
    turn: Duration,
    /// Whoever waits for the end of the turn: of those that were inside, and of those that came since.
    waiting: BTreeSet<i64>,
    /// End of the turn, in monotonic time; `None` until somebody comes.
    until: Option<Duration>,
    /// The last crash came after the turn.
    was_late: bool,
}

impl Apart {
    /// A process crashed at the monotonic time `now` with these accounts inside; the one that it counts for, if it is known.
    pub(super) fn crashed(&mut self, inside: &BTreeSet<i64>, now: Duration) -> Option<i64> {
        let until = self.until.take();
        if inside.is_empty() {
            return None;
        }
        let is_early = until.is_some_and(|until| now < until);
        let is_late = until.is_some_and(|until| now >= until && now < until + TURN_MAX);
        // Whoever waited for the turn is looked at next, and whoever had it at last.
        let rank = |account: &i64| match (self.first.contains(account), self.others.contains(account)) {
            (true, _) => 2,
            (_, true) => 0,
            _ => 1,
        };
        let mut order: Vec<i64> = inside.iter().copied().collect();
        let mut count = order.len().div_ceil(2);
        if is_early {
            self.was_late = false;
        } else if is_late && !self.first.is_disjoint(inside) {
            order.sort_by_key(rank);
            // Twice in a row: the turn is too short, or it was the wrong half.
            let factor = 1 + u32::from(self.was_late);
            count = count.min(self.first.len() * factor as usize);
            self.turn = (self.turn * factor).min(TURN_MAX);
            self.was_late = !self.was_late;
        } else {
            (self.turn, self.was_late) = (TURN_MIN, false);
        }
        self.others = order.split_off(count).into_iter().collect();
        self.waiting.clone_from(&self.others);
        self.first = order.into_iter().collect();
        self.first.first().copied().filter(|_| inside.len() == 1)
    }

    /// Accounts that wait for the end of the turn, and when that is.
    pub(super) fn waiting(&self, now: Duration) -> Option<(&BTreeSet<i64>, Duration)> {
        let until = self.until.filter(|until| now < *until)?;
        Some((&self.waiting, until))
    }

    /// Takes an account in at the monotonic time `now`.
    ///
    /// # Errors
    /// Others are taken in first; how long it has to wait.
    pub(super) fn take_in(&mut self, account: i64, now: Duration) -> Result<(), Duration> {
        if self.first.is_empty() {
            return Ok(());
        }
        let until = *self.until.get_or_insert(now + self.turn);
        if now >= until || self.first.contains(&account) {
            return Ok(());
        }
        self.waiting.insert(account);
        Err(until - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NOW: Duration = Duration::from_secs(100);

    fn all(accounts: std::ops::Range<i64>) -> BTreeSet<i64> {
        accounts.collect()
    }

    /// A hundred accounts that use a driver, of which some crash it so long after they were taken in.
    struct Users {
        guilty: Vec<i64>,
        delay: Duration,
        now: Duration,
        apart: Apart,
    }

    impl Users {
        fn new(guilty: &[i64], delay_secs: u64) -> Self {
            let (guilty, delay) = (guilty.to_vec(), Duration::from_secs(delay_secs));
            Self { guilty, delay, now: NOW, apart: Apart::default() }
        }

        /// One life of the process, in which each account comes within a second and again when it is told to; whom the crash counts for.
        fn crash(&mut self) -> Option<i64> {
            let (mut inside, mut end) = (BTreeSet::new(), Duration::MAX);
            let mut coming: BTreeSet<(Duration, i64)> =
                (0..100).map(|account| (self.now + SECOND / 10 * (account % 10), account.into())).collect();
            while let Some((at, account)) = coming.pop_first().filter(|(at, _)| *at <= end) {
                if let Err(wait) = self.apart.take_in(account, at) {
                    coming.insert((at + wait, account));
                    continue;
                }
                inside.insert(account);
                if self.guilty.contains(&account) {
                    end = end.min(at + self.delay);
                }
            }
            self.now = end + SECOND;
            self.apart.crashed(&inside, end)
        }
    }

    #[test]
    fn the_only_one_inside_is_found_at_once_and_nobody_where_nobody_is() {
        let mut apart = Apart::default();
        assert_eq!(apart.crashed(&all(0..0), NOW), None);
        assert_eq!(apart.take_in(8, NOW), Ok(()), "nobody is looked for");
        for _ in 0..3 {
            assert_eq!(apart.crashed(&all(7..8), NOW), Some(7));
            assert_eq!((apart.take_in(7, NOW), apart.take_in(8, NOW)), (Ok(()), Err(TURN_MIN)));
        }
        assert_eq!(apart.crashed(&all(0..0), NOW), None, "whoever was inside before");
    }

    #[test]
    fn one_of_a_hundred_is_found_in_a_few_crashes_and_found_again_at_once() {
        // The longer it takes to crash, the more turns are too short.
        for (delay, most) in [(0, 15), (8, 17), (25, 21)] {
            for guilty in [0, 37, 63, 99] {
                let mut users = Users::new(&[guilty], delay);
                let found: Vec<i64> = (0..most + 2).filter_map(|_| users.crash()).collect();
                assert!(
                    found.len() >= 3 && found.iter().all(|found| *found == guilty),
                    "{delay} s: {found:?}"
                );
            }
        }
    }

    #[test]
    fn no_account_is_found_that_crashes_nothing_whoever_else_does() {
        for delay in [0, 8, 25] {
            for guilty in [[3, 4, 5], [11, 48, 85], [0, 50, 99]] {
                let mut users = Users::new(&guilty, delay);
                let found: Vec<i64> = (0..100).filter_map(|_| users.crash()).collect();
                assert!(found.len() > 9 && found.iter().all(|found| guilty.contains(found)), "{found:?}");
            }
        }
    }

    #[test]
    fn who_waits_is_told_how_long() {
        let mut apart = Apart::default();
        assert_eq!(apart.crashed(&all(1..5), NOW), None);
        assert_eq!(apart.waiting(NOW), None, "nobody came yet");
        assert_eq!(apart.take_in(1, NOW), Ok(()));
        let later = NOW + TURN_MIN / 5;
        assert_eq!((apart.take_in(2, later), apart.take_in(3, later)), (Ok(()), Err(TURN_MIN / 5 * 4)));
        assert_eq!(apart.take_in(9, later), Err(TURN_MIN / 5 * 4), "whoever comes");
        assert_eq!(apart.waiting(later), Some((&BTreeSet::from([3, 4, 9]), NOW + TURN_MIN)));
        let end = NOW + TURN_MIN;
        assert_eq!(
            (apart.take_in(3, end), apart.take_in(9, end), apart.waiting(end)),
            (Ok(()), Ok(()), None)
        );
    }

    #[test]
    fn turns_grow_to_an_end_while_nobody_is_found_and_are_short_again_for_another_search() {
        let (mut apart, mut now) = (Apart::default(), NOW);
        let mut turn = |apart: &mut Apart, late: Duration| {
            assert_eq!(apart.crashed(&all(1..9), now), None);
            let first = apart.first.first().copied().unwrap();
            assert_eq!(apart.take_in(first, now), Ok(()));
            let wait = apart.take_in(99, now).unwrap_err();
            now += wait + late;
            wait.as_secs()
        };
        let turns: Vec<u64> = (0..12).map(|_| turn(&mut apart, SECOND)).collect();
        assert_eq!(turns, [5, 5, 10, 10, 20, 20, 40, 40, 60, 60, 60, 60]);
        assert_eq!(turn(&mut apart, TURN_MAX), 60);
        assert_eq!(turn(&mut apart, SECOND), 5, "it lived for long");
    }
}
