//! Decides when a failed upload is tried again, and when it is given up. Pure: no clock, no randomness.

use std::time::Duration;

use satcast_plugin_api::Class;

/// Pause after the first failure; doubles with each further one.
const FIRST: Duration = Duration::from_secs(1);
/// Longest pause while the network or the store fails.
const LONGEST: Duration = Duration::from_secs(300);
/// First and longest pause after a refusal. A refusal is fixed at the store, by a new policy or secret, often within
/// the day, so the upload is not given up earlier.
const REFUSED_FIRST: Duration = Duration::from_secs(60);
const REFUSED_LONGEST: Duration = Duration::from_secs(900);
const DOUBLINGS_MAX: u32 = 16;

/// The pauses; shorter in tests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pauses {
    /// First and longest pause.
    pub(crate) usual: (Duration, Duration),
    /// The same after a refusal.
    pub(crate) refused: (Duration, Duration),
    /// How long an upload is tried, counted from the first failure after the last progress, and not before the end of
    /// the recording.
    pub(crate) give_up: Duration,
}

impl Pauses {
    /// The pauses of an operator who wants uploads tried for `hours`.
    pub(crate) fn new(hours: u32) -> Self {
        Pauses {
            usual: (FIRST, LONGEST),
            refused: (REFUSED_FIRST, REFUSED_LONGEST),
            give_up: Duration::from_secs(u64::from(hours) * 3600),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Try again after this pause.
    Again(Duration),
    /// It has been tried long enough.
    GiveUp,
}

/// Failures in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    failures: u32,
    /// They are refusals. The count begins again when this changes.
    are_refused: bool,
}

impl Attempts {
    /// The next step after a failure of `class`. `failing_ms`: time without progress, counted as in
    /// [`Pauses::give_up`]; `None` during the recording, when nothing is given up. `jitter`: 0 to 1, any value.
    pub(crate) fn failed(
        &mut self,
        class: Class,
        failing_ms: Option<u64>,
        jitter: f64,
        pauses: &Pauses,
    ) -> Next {
        if failing_ms.is_some_and(|failing| Duration::from_millis(failing) >= pauses.give_up) {
            return Next::GiveUp;
        }
        let is_refused = matches!(class, Class::Auth | Class::Config);
        if is_refused != self.are_refused {
            *self = Self { failures: 0, are_refused: is_refused };
        }
        let (first, longest) = if is_refused { pauses.refused } else { pauses.usual };
        let full = first.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX)).min(longest);
        self.failures = self.failures.saturating_add(1);
        // Always at least half, so that a store in trouble is not asked at once.
        Next::Again(full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0)))
    }

    /// Resets the failures.
    pub(crate) fn progressed(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;

    /// Plays a day of failures on a clock of its own; returns how many there were and when it was given up.
    fn day(class: Class, jitter: f64) -> (u32, u64) {
        let (mut attempts, pauses) = (Attempts::default(), Pauses::new(24));
        let (mut now_ms, mut tries) = (0, 0);
        loop {
            tries += 1;
            match attempts.failed(class, Some(now_ms), jitter, &pauses) {
                Next::Again(pause) => now_ms += pause.as_millis() as u64,
                Next::GiveUp => return (tries, now_ms),
            }
        }
    }

    #[test]
    fn a_store_that_stays_down_is_given_up_after_a_day() {
        let (tries, at) = day(Class::Network, 1.0);
        assert!((290..310).contains(&tries), "{tries}");
        assert!((24 * HOUR_MS..24 * HOUR_MS + 300_000).contains(&at), "{at}");
        let (hurried, _) = day(Class::Remote, 0.0);
        assert!((570..600).contains(&hurried), "{hurried}");
        let (refused, at) = day(Class::Auth, 1.0);
        assert!((96..104).contains(&refused), "{refused}");
        assert!(at < 25 * HOUR_MS);
    }

    #[test]
    fn pauses_grow_are_capped_and_reset_after_progress() {
        let (mut attempts, pauses) = (Attempts::default(), Pauses::new(1));
        let mut next = || attempts.failed(Class::Network, Some(0), 1.0, &pauses);
        let pauses_of: Vec<Next> = (0..10).map(|_| next()).collect();
        let seconds = [1, 2, 4, 8, 16, 32, 64, 128, 256, 300];
        assert_eq!(pauses_of, seconds.map(|seconds| Next::Again(Duration::from_secs(seconds))));
        attempts.progressed();
        let first = attempts.failed(Class::Network, Some(0), 0.0, &pauses);
        assert_eq!(first, Next::Again(Duration::from_millis(500)));
    }

    #[test]
    fn refusals_and_other_failures_have_pauses_of_their_own() {
        let (mut attempts, pauses) = (Attempts::default(), Pauses::new(1));
        for (class, seconds) in [
            (Class::Remote, 1),
            (Class::Network, 2),
            (Class::Remote, 4),
            (Class::Auth, 60),
            (Class::Config, 120),
            (Class::Remote, 1),
            (Class::Auth, 60),
        ] {
            let next = attempts.failed(class, Some(0), 1.0, &pauses);
            assert_eq!(next, Next::Again(Duration::from_secs(seconds)), "{class:?}");
        }
    }

    #[test]
    fn nothing_is_given_up_while_it_runs() {
        let (mut attempts, pauses) = (Attempts::default(), Pauses::new(0));
        for _ in 0..100 {
            assert!(matches!(attempts.failed(Class::Auth, None, 0.5, &pauses), Next::Again(_)));
        }
        assert_eq!(attempts.failed(Class::Auth, Some(0), 0.5, &pauses), Next::GiveUp);
    }
}
