//! The schedule of retries, and when a webhook is disabled. Pure: the time and the random number are arguments.

use std::time::Duration;

use satcast_core::ids::UnixMillis;
use satcast_store::{DELIVERY_TRIES_MAX, Health};

/// Waits between the tries, each counted from the try before; the first try is immediate.
const WAITS: [Duration; DELIVERY_TRIES_MAX as usize - 1] = [
    Duration::from_secs(5),
    Duration::from_secs(5 * 60),
    Duration::from_secs(30 * 60),
    Duration::from_secs(2 * 60 * 60),
    Duration::from_secs(5 * 60 * 60),
    Duration::from_secs(10 * 60 * 60),
    Duration::from_secs(14 * 60 * 60),
    Duration::from_secs(20 * 60 * 60),
    Duration::from_secs(24 * 60 * 60),
];
/// Jitter of a wait, as a part of it, so that deliveries that failed together are not tried together.
const JITTER: f64 = 0.2;
/// Longest wait that a receiver can ask for: the longest wait of the schedule.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// A webhook is disabled when all its deliveries have failed for this long...
pub(super) const FAILING_MAX_MS: i64 = 5 * 24 * 60 * 60 * 1_000;
/// ...and there were at least this many failures.
pub(super) const FAILURES_MIN: i64 = 20;
/// The status by which a receiver unsubscribes.
const GONE: u16 = 410;

/// The parts of an attempt's result that matter here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// HTTP status; `None` without an answer.
    pub(super) status: Option<u16>,
    /// The receiver's `Retry-After`.
    pub(super) retry_after: Option<Duration>,
}

impl Outcome {
    pub(super) fn is_delivered(self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    fn is_gone(self) -> bool {
        self.status == Some(GONE)
    }
}

/// The wait before the next try after `tries` tries, with `random` from the whole range of `u64`; `None` if there is no
/// further try.
pub(super) fn wait(outcome: Outcome, tries: u32, random: u64) -> Option<Duration> {
    if outcome.is_delivered() || outcome.is_gone() {
        return None;
    }
    let wait = *WAITS.get(usize::try_from(tries).ok()?.checked_sub(1)?)?;
    let part = random as f64 / u64::MAX as f64;
    let wait = wait.mul_f64(1.0 - JITTER + 2.0 * JITTER * part);
    Some(wait.max(outcome.retry_after.unwrap_or_default().min(RETRY_AFTER_MAX)))
}

/// The effect of an attempt on the health of its webhook at `now`; a test never counts as a failure.
pub(super) fn health(outcome: Outcome, is_test: bool, now: UnixMillis) -> Health {
    if outcome.is_delivered() {
        return Health::Good;
    }
    if is_test {
        return Health::Unknown;
    }
    if outcome.is_gone() {
        let reason = "The receiver answered 410 Gone, so it wants no more events. Enable the webhook to send events again";
        return Health::Gone { reason: reason.to_owned() };
    }
    Health::Bad {
        since: UnixMillis(now.0.saturating_sub(FAILING_MAX_MS)),
        failures: FAILURES_MIN,
        reason:
            "Every delivery failed for 5 days. Repair the receiver (the deliveries show its answers), then \
                 enable the webhook"
                .to_owned(),
    }
}

pub(super) fn later(time: UnixMillis, by: Duration) -> UnixMillis {
    UnixMillis(time.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> Outcome {
        Outcome { status: Some(status), retry_after: None }
    }

    #[test]
    fn the_schedule_has_ten_tries() {
        let middle = u64::MAX / 2;
        let waits: Vec<_> = (1..).map_while(|tries| wait(status(500), tries, middle)).collect();
        let hour = 3_600;
        let secs: Vec<u64> = waits.iter().map(|wait| wait.as_secs_f64().round() as u64).collect();
        assert_eq!(
            secs,
            [5, 300, 1_800, 2 * hour, 5 * hour, 10 * hour, 14 * hour, 20 * hour, 24 * hour],
            "nine waits, ten tries"
        );
        assert_eq!(wait(Outcome::default(), 10, 0), None);
        assert_eq!(wait(Outcome::default(), 0, 0), None, "nothing was tried");
    }

    #[test]
    fn waits_have_a_jitter_of_a_fifth() {
        assert_eq!(wait(status(500), 2, 0), Some(Duration::from_secs(240)));
        assert_eq!(wait(status(500), 2, u64::MAX), Some(Duration::from_secs(360)));
    }

    #[test]
    fn a_receiver_can_ask_for_a_longer_wait_up_to_a_day_and_never_for_a_shorter_one() {
        let asking = |secs| Outcome { status: Some(429), retry_after: Some(Duration::from_secs(secs)) };
        assert_eq!(wait(asking(90), 1, 0), Some(Duration::from_secs(90)));
        assert_eq!(wait(asking(0), 1, u64::MAX), Some(Duration::from_secs(6)));
        assert_eq!(wait(asking(u64::MAX), 1, 0), Some(RETRY_AFTER_MAX));
        assert_eq!(wait(asking(90), 10, 0), None, "not more often");
    }

    #[test]
    fn success_and_410_end_the_schedule() {
        for code in [200, 204, 299, 410] {
            assert_eq!(wait(status(code), 1, 0), None, "{code}");
        }
        for code in [199, 301, 302, 400, 404, 429, 500, 503] {
            assert!(wait(status(code), 1, 0).is_some(), "{code}");
        }
    }

    #[test]
    fn tests_do_not_count_as_failures_of_a_webhook() {
        let now = UnixMillis(FAILING_MAX_MS + 7);
        assert_eq!(health(status(204), false, now), Health::Good);
        assert_eq!(health(status(204), true, now), Health::Good);
        for outcome in [Outcome::default(), status(410), status(500)] {
            assert_eq!(health(outcome, true, now), Health::Unknown);
        }
        assert!(matches!(health(status(410), false, now), Health::Gone { .. }));
        let Health::Bad { since, failures, .. } = health(Outcome::default(), false, now) else { panic!() };
        assert_eq!((since, failures), (UnixMillis(7), 20));
    }
}
