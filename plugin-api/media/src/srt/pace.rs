//! How fast a sender sends: spread over time by the rate of its media, with a share for repeats (5.1.2).

use std::time::Duration;

/// The rate is measured over this time.
const MEASURED: Duration = Duration::from_secs(1);
/// Rate in bytes a second that is assumed at least; 2 Mbit/s.
const RATE_MIN: u64 = 250_000;
/// Packets leave at most this many times as fast as the media comes, because a keyframe has several times the bytes
/// of another frame.
const PEAK: u64 = 4;
/// Repeats take at most this part of the rate of the media (5 to 100 with libsrt, `SRTO_OHEADBW`): on a network that
/// reorders, a receiver reports every packet that is overtaken, and its lost ones must not wait behind these.
const REPEATS_PERCENT: u64 = 100;
/// Time that may be made up for at once: the timers of a driver are this exact.
const BURST: Duration = Duration::from_millis(10);
/// Unused share of repeats that is kept: after an outage a second of media can be repeated at once.
const REPEATS_KEPT: Duration = Duration::from_secs(1);

/// When the next packet may leave.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    /// Bytes a second of the media.
    rate: u64,
    /// Bytes since the measurement began.
    bytes: u64,
    since: Duration,
    /// When everything that was sent would have left at the peak rate, and all repeats in their share.
    due: Duration,
    repeats_due: Duration,
}

impl Pace {
    pub(super) fn new(now: Duration) -> Self {
        Self { rate: RATE_MIN, bytes: 0, since: now, due: now, repeats_due: now }
    }

    /// Media came.
    pub(super) fn came(&mut self, bytes: usize, now: Duration) {
        let took = now.saturating_sub(self.since);
        if took >= MEASURED {
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            let measured = self.bytes.saturating_mul(1_000_000) / micros;
            // It falls slowly, because the rate of media varies.
            self.rate = measured.max(self.rate / 8 * 7).max(RATE_MIN);
            (self.bytes, self.since) = (0, now);
        }
        self.bytes += bytes as u64;
    }

    /// A packet leaves.
    pub(super) fn sent(&mut self, bytes: usize, is_repeat: bool, now: Duration) {
        self.due = self.due.max(now) + time_of(bytes, self.rate * PEAK);
        if is_repeat {
            let share = self.rate * REPEATS_PERCENT / 100;
            self.repeats_due = self.repeats_due.max(now) + time_of(bytes, share);
        }
    }

    /// When a new packet may leave.
    pub(super) fn next(&self) -> Duration {
        self.due.saturating_sub(BURST)
    }

    /// When a repeat may leave.
    pub(super) fn next_repeat(&self) -> Duration {
        self.next().max(self.repeats_due.saturating_sub(REPEATS_KEPT))
    }
}

fn time_of(bytes: usize, rate: u64) -> Duration {
    Duration::from_micros(bytes as u64 * 1_000_000 / rate.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Bytes that leave in a second after the pace has measured `rate` bytes a second for a while.
    fn bytes_in_a_second(rate: usize, is_repeat: bool) -> u64 {
        let mut pace = Pace::new(ms(0));
        (0..10_000).for_each(|at| pace.came(rate / 1_000, ms(at)));
        let mut bytes = 0;
        for at in 20_000..21_000 {
            while (if is_repeat { pace.next_repeat() } else { pace.next() }) <= ms(at) {
                pace.sent(1_000, is_repeat, ms(at));
                bytes += 1_000;
            }
        }
        bytes
    }

    #[test]
    fn media_leaves_at_the_peak_and_repeats_within_their_share() {
        for rate in [1_000_000, 4_000_000] {
            let peak = PEAK * rate as u64;
            assert!((peak..peak * 103 / 100).contains(&bytes_in_a_second(rate, false)), "{rate}");
            let (kept, share) = (REPEATS_KEPT.as_secs(), REPEATS_PERCENT * rate as u64 / 100);
            let repeats = bytes_in_a_second(rate, true);
            assert!((share * kept..=share * (kept + 2)).contains(&repeats), "{rate}: {repeats}");
        }
        assert!(bytes_in_a_second(1_000, false) >= PEAK * RATE_MIN, "never slower than the least rate");
    }

    #[test]
    fn the_rate_follows_the_media() {
        let mut pace = Pace::new(ms(0));
        (0..3_000).for_each(|at| pace.came(2_000, ms(at)));
        assert!((1_900_000..=2_000_000).contains(&pace.rate), "{}", pace.rate);
        (3_000..6_000).for_each(|at| pace.came(10, ms(at)));
        assert!((RATE_MIN + 1..1_600_000).contains(&pace.rate), "{}", pace.rate);
        (6_000..60_000).for_each(|at| pace.came(10, ms(at)));
        assert_eq!(pace.rate, RATE_MIN);
    }
}
