//! The 33-bit timestamps of 90 kHz (2.4.3.7), unwrapped to one timeline for the program.

use super::TsError;
use crate::rtmp::limits::TIME_MS_MAX;

/// Timestamps per millisecond.
pub(super) const TICKS_PER_MILLI: i64 = 90;
/// Bits of a timestamp.
const BITS: u32 = 33;
/// Nine ticks are this many nanoseconds.
const NANOS_OF_NINE: i64 = 100_000;

/// Ticks to nanoseconds, rounded to the nearest.
pub(super) fn to_nanos(ticks: i64) -> i64 {
    let whole = ticks.div_euclid(9).saturating_mul(NANOS_OF_NINE);
    whole.saturating_add((ticks.rem_euclid(9) * NANOS_OF_NINE + 4) / 9)
}

/// Nanoseconds to ticks, rounded to the nearest.
pub(super) fn to_ticks(nanos: i64) -> i64 {
    let rest = nanos.rem_euclid(NANOS_OF_NINE);
    nanos.div_euclid(NANOS_OF_NINE) * 9 + (rest * 9 + NANOS_OF_NINE / 2) / NANOS_OF_NINE
}

/// The 33 bits of a time.
pub(super) fn stamp(ticks: i64) -> u64 {
    ticks as u64 & ((1 << BITS) - 1)
}

/// Distance of two timestamps, by the shorter way round.
pub(super) fn distance(from: i64, to: i64) -> i64 {
    (to.wrapping_sub(from) << (64 - BITS)) >> (64 - BITS)
}

/// Unwraps the timestamps of one program. Audio, video and the clock reference share it, so that all pass a wrap in the
/// same way.
#[derive(Debug, Default)]
pub(super) struct TimeLine {
    last: Option<i64>,
}

impl TimeLine {
    /// Time in ticks that is nearest to the time before.
    ///
    /// # Errors
    /// [`TsError::TimestampRange`] beyond [`TIME_MS_MAX`].
    pub(super) fn place(&mut self, timestamp: u64) -> Result<i64, TsError> {
        let stamped = stamp(timestamp as i64) as i64;
        let ticks = self.last.map_or(stamped, |last| last + distance(last, stamped));
        if ticks.abs() > TIME_MS_MAX * TICKS_PER_MILLI {
            return Err(TsError::TimestampRange);
        }
        self.last = Some(ticks);
        Ok(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRAP: i64 = 1 << BITS;

    #[test]
    fn wraps_continue_forward_and_small_steps_go_back() {
        let mut line = TimeLine::default();
        let table = [(WRAP - 90, WRAP - 90), (10, WRAP + 10), (WRAP - 5, WRAP - 5), (3600, WRAP + 3600)];
        for (timestamp, expected) in table {
            assert_eq!(line.place(timestamp as u64), Ok(expected));
        }
        let mut line = TimeLine::default();
        assert_eq!((line.place(0), line.place(WRAP as u64 - 1)), (Ok(0), Ok(-1)));
    }

    #[test]
    fn range_is_limited() {
        let mut line = TimeLine::default();
        let step = WRAP / 2 - 1;
        let mut count = 0;
        let error = loop {
            match line.place(stamp(count * step)) {
                Ok(ticks) => assert_eq!(ticks, count * step),
                Err(error) => break error,
            }
            count += 1;
        };
        assert_eq!(error, TsError::TimestampRange);
        assert_eq!(count, TIME_MS_MAX * TICKS_PER_MILLI / step + 1);
    }

    #[test]
    fn ticks_survive_nanoseconds() {
        for ticks in [-WRAP, -10, -1, 0, 1, 2, 8, 9, 10, 3003, WRAP, TIME_MS_MAX * TICKS_PER_MILLI] {
            assert_eq!(to_ticks(to_nanos(ticks)), ticks);
        }
        assert_eq!((to_nanos(3003), to_nanos(-3003)), (33_366_667, -33_366_667));
        assert_eq!([to_ticks(5555), to_ticks(5556), to_ticks(-5556)], [0, 1, -1]);
        assert_eq!(to_ticks(i64::MAX) / 9, i64::MAX / NANOS_OF_NINE);
        assert_eq!(to_nanos(i64::MAX), i64::MAX);
        assert_eq!(stamp(-1), (1 << BITS) - 1);
    }
}
