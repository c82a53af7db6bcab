//! Unwraps 32-bit message times to one timeline for the session.

use super::RtmpError;
use super::limits::TIME_MS_MAX;

/// Unwraps the times of one session. Audio and video share it, so both pass a wrap in the same way.
#[derive(Debug, Default)]
pub(crate) struct TimeLine {
    last_ms: Option<i64>,
}

impl TimeLine {
    /// Time in milliseconds that is nearest to the time before: a wrap continues forward, a small step back stays a step back.
    ///
    /// # Errors
    /// [`RtmpError::TimestampRange`] beyond [`TIME_MS_MAX`].
    pub(crate) fn unwrap_ms(&mut self, timestamp: u32) -> Result<i64, RtmpError> {
        let ms = match self.last_ms {
            None => i64::from(timestamp),
            Some(last) => last + i64::from(timestamp.wrapping_sub(last as u32) as i32),
        };
        if ms.abs() > TIME_MS_MAX {
            return Err(RtmpError::TimestampRange);
        }
        self.last_ms = Some(ms);
        Ok(ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_continue_forward_and_small_steps_go_back() {
        let mut line = TimeLine::default();
        let table: [(u32, i64); 6] = [
            (0xffff_fff0, 0xffff_fff0),
            (5, 0x1_0000_0005),
            (0xffff_fffe, 0xffff_fffe),
            (40, 0x1_0000_0028),
            (20, 0x1_0000_0014),
            (0x7000_0000, 0x1_7000_0000),
        ];
        for (timestamp, expected) in table {
            assert_eq!(line.unwrap_ms(timestamp), Ok(expected));
        }
    }

    #[test]
    fn time_may_go_below_zero() {
        let mut line = TimeLine::default();
        assert_eq!(line.unwrap_ms(0), Ok(0));
        assert_eq!(line.unwrap_ms(u32::MAX), Ok(-1));
    }

    #[test]
    fn range_is_limited() {
        let mut line = TimeLine::default();
        let step = 0x7fff_ffff;
        let mut timestamp = 0u32;
        let mut count: i64 = 0;
        let error = loop {
            match line.unwrap_ms(timestamp) {
                Ok(ms) => assert_eq!(ms, count * i64::from(step)),
                Err(error) => break error,
            }
            timestamp = timestamp.wrapping_add(step);
            count += 1;
        };
        assert_eq!(error, RtmpError::TimestampRange);
        assert_eq!(count, TIME_MS_MAX / i64::from(step) + 1);
    }
}
