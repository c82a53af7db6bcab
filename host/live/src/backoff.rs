//! Back-off of a destination: capped exponential with full jitter, and floors by the kind of failure.
//!
//! Pure: randomness is an argument. There is no give-up while the session lives.

use std::time::Duration;

use satcast_plugin_api::{Class, Error};

/// Upper bound of the first wait.
pub(super) const BACKOFF_BASE: Duration = Duration::from_secs(1);
/// Upper bound of every wait.
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// No wait is shorter.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// Floor after a refused login: platforms block addresses that try too often.
pub(super) const AUTH_FLOOR: Duration = Duration::from_secs(60);
/// Upper bound of a floor that a driver asks for.
pub(super) const FLOOR_MAX: Duration = Duration::from_secs(3600);
/// A destination that was live for this long has recovered: its next failure counts as the first.
pub(super) const RECOVERED_AFTER: Duration = Duration::from_secs(20);
/// Panics of a driver in one destination before it is not retried.
pub(super) const PANICS_MAX: u32 = 2;

/// What to do after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// Retry after this time.
    Retry(Duration),
    /// No retry until the configuration or a codec changes.
    GiveUp,
}

/// Decides after the failure `error`, the `attempt`th in a row (from 1), with `random` from the whole range of `u64`.
pub(super) fn next(error: &Error, attempt: u32, panics: u32, random: u64) -> Next {
    if error.class == Class::Config || panics >= PANICS_MAX {
        return Next::GiveUp;
    }
    let doublings = attempt.saturating_sub(1).min(16);
    let bound = BACKOFF_BASE.saturating_mul(1 << doublings).min(BACKOFF_MAX);
    let jittered = bound.mul_f64(random as f64 / u64::MAX as f64).max(BACKOFF_MIN);
    let class_floor = if error.class == Class::Auth { AUTH_FLOOR } else { Duration::ZERO };
    let floor = error.retry_after.unwrap_or_default().min(FLOOR_MAX).max(class_floor);
    // The jitter is added to the floor, so that many destinations that were refused together do not return together.
    Next::Retry(if floor.is_zero() { jittered } else { floor + jittered })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(error: &Error, attempt: u32, random: u64) -> Duration {
        match next(error, attempt, 0, random) {
            Next::Retry(wait) => wait,
            Next::GiveUp => panic!("gave up"),
        }
    }

    #[test]
    fn waits_grow_to_the_cap_and_jitter_over_the_whole_range() {
        let error = Error::network("x");
        for (attempt, bound) in [(1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (60, 30), (u32::MAX, 30)] {
            assert_eq!(wait(&error, attempt, u64::MAX), Duration::from_secs(bound), "attempt {attempt}");
            assert_eq!(wait(&error, attempt, 0), BACKOFF_MIN);
        }
        assert_eq!(wait(&error, 3, u64::MAX / 2), Duration::from_secs(2));
    }

    #[test]
    fn floors_hold() {
        assert!(wait(&Error::auth("x"), 1, 0) >= AUTH_FLOOR);
        let asked = Error::remote("x").retry_after(Duration::from_secs(5));
        assert!(wait(&asked, 1, 0) >= Duration::from_secs(5));
        let greedy = Error::remote("x").retry_after(Duration::from_secs(1_000_000));
        assert!(wait(&greedy, 1, u64::MAX) <= FLOOR_MAX + BACKOFF_MAX);
    }

    #[test]
    fn wrong_configurations_and_repeated_panics_are_not_retried() {
        assert_eq!(next(&Error::config("x"), 1, 0, 0), Next::GiveUp);
        let panic = Error::new(Class::Panic, "x");
        assert!(matches!(next(&panic, 1, 1, 0), Next::Retry(_)));
        assert_eq!(next(&panic, 2, PANICS_MAX, 0), Next::GiveUp);
    }
}
