//! Finds the account whose work crashes a process. Pure: the time is an argument.
//!
//! If only one account was inside, with open destinations or calls, the crash counts for that account. After a crash
//! with several inside, the next process admits half of them first and all others after a head start, and so on with
//! the half that crashes, until one account is inside alone.

use std::collections::BTreeSet;
use std::time::Duration;

/// Head start of the first accounts; doubled while the cause is not found.
const HEAD_START_MIN: Duration = Duration::from_secs(5);
/// Longest head start. A crash more than this time after the end of the head start begins a new search.
const HEAD_START_MAX: Duration = Duration::from_secs(60);

/// The accounts that are admitted first after a crash.
#[derive(Debug, Default)]
pub(super) struct Bisection {
    first: BTreeSet<i64>,
    /// The other accounts that were inside at the crash.
    others: BTreeSet<i64>,
    head_start: Duration,
    /// Accounts that wait for the end of the head start: those that were inside, and new ones.
    waiting: BTreeSet<i64>,
    /// End of the head start, in monotonic time; `None` until the first account arrives.
    until: Option<Duration>,
    /// The last crash came after the head start.
    was_late: bool,
}

impl Bisection {
    /// A process crashed at the monotonic time `now` with these accounts inside. Returns the account that the crash
    /// counts for, if it is known.
    pub(super) fn crashed(&mut self, inside: &BTreeSet<i64>, now: Duration) -> Option<i64> {
        let until = self.until.take();
        if inside.is_empty() {
            return None;
        }
        let is_early = until.is_some_and(|until| now < until);
        let is_late = until.is_some_and(|until| now >= until && now < until + HEAD_START_MAX);
        // Accounts that waited are checked next, then those that were first.
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
            // A second late crash in a row: the head start is too short, or it was the wrong half.
            let factor = 1 + u32::from(self.was_late);
            count = count.min(self.first.len() * factor as usize);
            self.head_start = (self.head_start * factor).min(HEAD_START_MAX);
            self.was_late = !self.was_late;
        } else {
            (self.head_start, self.was_late) = (HEAD_START_MIN, false);
        }
        self.others = order.split_off(count).into_iter().collect();
        self.waiting.clone_from(&self.others);
        self.first = order.into_iter().collect();
        self.first.first().copied().filter(|_| inside.len() == 1)
    }

    /// Accounts that wait for the end of the head start, and its time.
    pub(super) fn waiting(&self, now: Duration) -> Option<(&BTreeSet<i64>, Duration)> {
        let until = self.until.filter(|until| now < *until)?;
        Some((&self.waiting, until))
    }

    /// Admits an account at the monotonic time `now`.
    ///
    /// # Errors
    /// Others are admitted first; the time to wait.
    pub(super) fn admit(&mut self, account: i64, now: Duration) -> Result<(), Duration> {
        if self.first.is_empty() {
            return Ok(());
        }
        let until = *self.until.get_or_insert(now + self.head_start);
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

    /// A hundred accounts that use a driver. The guilty ones crash it this long after they are admitted.
    struct Users {
        guilty: Vec<i64>,
        delay: Duration,
        now: Duration,
        bisection: Bisection,
    }

    impl Users {
        fn new(guilty: &[i64], delay_secs: u64) -> Self {
            let (guilty, delay) = (guilty.to_vec(), Duration::from_secs(delay_secs));
            Self { guilty, delay, now: NOW, bisection: Bisection::default() }
        }

        /// One life of the process, in which each account arrives within a second and again after its wait. Returns
        /// the account that the crash counts for.
        fn crash(&mut self) -> Option<i64> {
            let (mut inside, mut end) = (BTreeSet::new(), Duration::MAX);
            let mut coming: BTreeSet<(Duration, i64)> =
                (0..100).map(|account| (self.now + SECOND / 10 * (account % 10), account.into())).collect();
            while let Some((at, account)) = coming.pop_first().filter(|(at, _)| *at <= end) {
                if let Err(wait) = self.bisection.admit(account, at) {
                    coming.insert((at + wait, account));
                    continue;
                }
                inside.insert(account);
                if self.guilty.contains(&account) {
                    end = end.min(at + self.delay);
                }
            }
            self.now = end + SECOND;
            self.bisection.crashed(&inside, end)
        }
    }

    #[test]
    fn a_single_account_inside_is_found_at_once_and_an_empty_process_finds_no_account() {
        let mut bisection = Bisection::default();
        assert_eq!(bisection.crashed(&all(0..0), NOW), None);
        assert_eq!(bisection.admit(8, NOW), Ok(()), "no search");
        for _ in 0..3 {
            assert_eq!(bisection.crashed(&all(7..8), NOW), Some(7));
            assert_eq!((bisection.admit(7, NOW), bisection.admit(8, NOW)), (Ok(()), Err(HEAD_START_MIN)));
        }
        assert_eq!(bisection.crashed(&all(0..0), NOW), None, "whatever happened before");
    }

    #[test]
    fn one_of_a_hundred_is_found_in_a_few_crashes_and_again_at_once() {
        // The longer it takes to crash, the more head starts are too short.
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
    fn innocent_accounts_are_never_found() {
        for delay in [0, 8, 25] {
            for guilty in [[3, 4, 5], [11, 48, 85], [0, 50, 99]] {
                let mut users = Users::new(&guilty, delay);
                let found: Vec<i64> = (0..100).filter_map(|_| users.crash()).collect();
                assert!(found.len() > 9 && found.iter().all(|found| guilty.contains(found)), "{found:?}");
            }
        }
    }

    #[test]
    fn waiting_accounts_get_their_wait() {
        let mut bisection = Bisection::default();
        assert_eq!(bisection.crashed(&all(1..5), NOW), None);
        assert_eq!(bisection.waiting(NOW), None, "no account has arrived");
        assert_eq!(bisection.admit(1, NOW), Ok(()));
        let later = NOW + HEAD_START_MIN / 5;
        assert_eq!(
            (bisection.admit(2, later), bisection.admit(3, later)),
            (Ok(()), Err(HEAD_START_MIN / 5 * 4))
        );
        assert_eq!(bisection.admit(9, later), Err(HEAD_START_MIN / 5 * 4), "for every other account");
        assert_eq!(bisection.waiting(later), Some((&BTreeSet::from([3, 4, 9]), NOW + HEAD_START_MIN)));
        let end = NOW + HEAD_START_MIN;
        assert_eq!(
            (bisection.admit(3, end), bisection.admit(9, end), bisection.waiting(end)),
            (Ok(()), Ok(()), None)
        );
    }

    #[test]
    fn head_starts_grow_to_a_limit_and_are_short_again_for_a_new_search() {
        let (mut bisection, mut now) = (Bisection::default(), NOW);
        let mut head_start = |bisection: &mut Bisection, late: Duration| {
            assert_eq!(bisection.crashed(&all(1..9), now), None);
            let first = bisection.first.first().copied().unwrap();
            assert_eq!(bisection.admit(first, now), Ok(()));
            let wait = bisection.admit(99, now).unwrap_err();
            now += wait + late;
            wait.as_secs()
        };
        let head_starts: Vec<u64> = (0..12).map(|_| head_start(&mut bisection, SECOND)).collect();
        assert_eq!(head_starts, [5, 5, 10, 10, 20, 20, 40, 40, 60, 60, 60, 60]);
        assert_eq!(head_start(&mut bisection, HEAD_START_MAX), 60);
        assert_eq!(head_start(&mut bisection, SECOND), 5, "a new search");
    }
}
