//! Exact sliding-window rate limits: at most `max` requests in any window, whatever its start.
//!
//! Pure: time is an argument. Refused requests are not counted, so that a client that keeps trying gets in again
//! as soon as the window has capacity.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;

/// Most subjects of one limiter. With 300 requests of 16 bytes each that is 300 MB in the worst case of a full attack,
/// and a few megabytes in use. Beyond it new subjects share one window until old ones expire: a flood of addresses
/// refuses requests of new subjects and never exceeds the limit.
pub const SUBJECTS_MAX: usize = 65_536;
/// Subjects checked for an expired window with each new one: more expire than arrive, and no request scans
/// the whole table.
const SWEPT_MAX: usize = 4;

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRule {
    /// Name in the `RateLimit` headers.
    pub name: &'static str,
    /// Requests in one window.
    pub max: usize,
    /// Length of the window.
    pub window: Duration,
}

impl RateRule {
    /// `max` requests a minute.
    pub const fn per_minute(name: &'static str, max: usize) -> Self {
        Self { name, max, window: Duration::from_secs(60) }
    }
}

/// The decision of a limiter about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateVerdict {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The limit.
    pub rule: RateRule,
    /// Requests left in the window.
    pub remaining: usize,
    /// Time until the window has more capacity.
    pub resets_in: Duration,
}

impl RateVerdict {
    /// Whole seconds, at least 1, until the window has more capacity.
    pub fn reset_secs(&self) -> u64 {
        let whole = self.resets_in.as_secs() + u64::from(self.resets_in.subsec_nanos() > 0);
        whole.max(1)
    }
}

/// Counts requests by subject: a key, an address, a token.
#[derive(Debug)]
pub struct RateLimiter<S> {
    rule: RateRule,
    windows: Mutex<Windows<S>>,
}

#[derive(Debug)]
struct Windows<S> {
    by_subject: HashMap<S, VecDeque<Duration>>,
    /// Every subject of the map, the least recently checked first.
    order: VecDeque<S>,
    /// The shared window of subjects beyond the limit of the table.
    shared: VecDeque<Duration>,
}

impl<S: Eq + Hash + Clone> Windows<S> {
    /// The window of a subject: its own, or the shared one when the table is full.
    fn of(&mut self, subject: &S, window: Duration, now: Duration) -> &mut VecDeque<Duration> {
        if !self.by_subject.contains_key(subject) {
            self.sweep(window, now);
            if self.by_subject.len() < SUBJECTS_MAX {
                self.order.push_back(subject.clone());
                self.by_subject.insert(subject.clone(), VecDeque::new());
            }
        }
        self.by_subject.get_mut(subject).unwrap_or(&mut self.shared)
    }

    fn sweep(&mut self, window: Duration, now: Duration) {
        for _ in 0..SWEPT_MAX.min(self.order.len()) {
            let Some(subject) = self.order.pop_front() else { return };
            let last = self.by_subject.get(&subject).and_then(VecDeque::back);
            if last.is_some_and(|last| *last + window > now) {
                self.order.push_back(subject);
            } else {
                self.by_subject.remove(&subject);
            }
        }
    }
}

impl<S: Eq + Hash + Clone> RateLimiter<S> {
    /// A limiter without requests.
    pub fn new(rule: RateRule) -> Self {
        let windows = Windows { by_subject: HashMap::new(), order: VecDeque::new(), shared: VecDeque::new() };
        Self { rule, windows: Mutex::new(windows) }
    }

    /// The limit.
    pub fn rule(&self) -> RateRule {
        self.rule
    }

    /// Counts a request of `subject` at the monotonic time `now`, or refuses it.
    pub fn hit(&self, subject: S, now: Duration) -> RateVerdict {
        self.decide(&subject, now, true)
    }

    /// The decision of [`RateLimiter::hit`], without counting.
    pub fn peek(&self, subject: S, now: Duration) -> RateVerdict {
        self.decide(&subject, now, false)
    }

    fn decide(&self, subject: &S, now: Duration, count: bool) -> RateVerdict {
        let mut windows = self.windows.lock();
        let hits = windows.of(subject, self.rule.window, now);
        while hits.front().is_some_and(|first| *first + self.rule.window <= now) {
            hits.pop_front();
        }
        let allowed = hits.len() < self.rule.max;
        if allowed && count {
            hits.push_back(now);
        }
        self.verdict(hits, now, allowed)
    }

    fn verdict(&self, hits: &VecDeque<Duration>, now: Duration, allowed: bool) -> RateVerdict {
        let oldest_leaves =
            hits.front().map_or(Duration::ZERO, |first| (*first + self.rule.window).saturating_sub(now));
        RateVerdict {
            allowed,
            rule: self.rule,
            remaining: self.rule.max.saturating_sub(hits.len()),
            resets_in: oldest_leaves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RateRule = RateRule::per_minute("test", 60);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_request_above_the_limit_is_refused_until_the_oldest_expires() {
        let limiter = RateLimiter::new(RULE);
        for index in 0..60 {
            let verdict = limiter.hit("key", at(index * 100));
            assert!(verdict.allowed);
            assert_eq!(verdict.remaining, 59 - index as usize);
        }
        let refused = limiter.hit("key", at(10_000));
        assert_eq!((refused.allowed, refused.remaining, refused.reset_secs()), (false, 0, 50));
        assert!(!limiter.hit("key", at(59_999)).allowed);
        assert_eq!(limiter.hit("key", at(59_999)).reset_secs(), 1);
        assert!(limiter.hit("key", at(60_000)).allowed, "refused tries were not counted");
        assert!(!limiter.hit("key", at(60_000)).allowed, "only one request is free again");
        assert!(limiter.hit("other", at(60_000)).allowed, "subjects do not share");
    }

    #[test]
    fn no_window_has_more_requests_than_the_limit() {
        let limiter = RateLimiter::new(RULE);
        let allowed: Vec<u64> =
            (0..400_000).step_by(37).filter(|now| limiter.hit((), at(*now)).allowed).collect();
        for start in &allowed {
            let inside = allowed.iter().filter(|hit| (*start..start + 60_000).contains(hit)).count();
            assert!(inside <= 60, "{inside} requests in the window from {start}");
        }
    }

    #[test]
    fn peeking_counts_nothing() {
        let limiter = RateLimiter::new(RateRule::per_minute("test", 1));
        assert!(limiter.peek("key", at(0)).allowed && limiter.peek("key", at(0)).allowed);
        assert!(limiter.hit("key", at(0)).allowed);
        assert!(!limiter.peek("key", at(1)).allowed);
    }

    #[test]
    fn a_full_table_is_bounded_and_newcomers_share_one_window() {
        let limiter = RateLimiter::new(RateRule::per_minute("test", 2));
        for subject in 0..SUBJECTS_MAX {
            limiter.hit(subject, at(0));
        }
        let newcomers: Vec<_> =
            (0..4).map(|index| limiter.hit(SUBJECTS_MAX + index, at(1)).allowed).collect();
        assert_eq!(newcomers, [true, true, false, false], "they are counted together");
        assert!(limiter.hit(5, at(2)).allowed && !limiter.hit(5, at(3)).allowed, "known ones have their own");
        let sizes = |limiter: &RateLimiter<usize>| {
            let windows = limiter.windows.lock();
            (windows.by_subject.len(), windows.order.len(), windows.shared.len())
        };
        assert_eq!(sizes(&limiter), (SUBJECTS_MAX, SUBJECTS_MAX, 2));
        assert!(limiter.hit(usize::MAX, at(60_003)).allowed, "capacity again, in a window of its own");
        let swept = SUBJECTS_MAX - SWEPT_MAX + 1;
        assert_eq!(sizes(&limiter), (swept, swept, 2), "a call checks a few subjects, not all of them");
        for subject in 0..SUBJECTS_MAX {
            limiter.hit(subject, at(120_004));
        }
        assert!(sizes(&limiter).0 <= SUBJECTS_MAX);
    }

    #[test]
    fn expired_subjects_free_capacity_for_new_ones() {
        let limiter = RateLimiter::new(RateRule::per_minute("test", 1));
        for subject in 0..100_000_u64 {
            assert!(limiter.hit(subject, at(subject * 10)).allowed);
        }
        assert!(limiter.windows.lock().by_subject.len() < 9_000, "those of a minute and a few");
    }
}
