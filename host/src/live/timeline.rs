//! One timeline for a session, whatever its encoders send: it begins at 0, never falls, and goes on by the wall over gaps.
//!
//! Pure: times are arguments.

use std::time::Duration;

/// A jump of an encoder's timestamps beyond this is taken for a restart of its clock, not for media time.
pub(super) const JUMP_MAX: Duration = Duration::from_secs(10);
/// Smallest step over a gap, so that the first packet after it is later than the last before it.
const GAP_MIN: Duration = Duration::from_millis(1);

/// Maps an encoder's times to the session's.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// Session time minus encoder time, in nanoseconds.
    offset_ns: i64,
    /// Last encoder time and the moment it came; `None` before the first packet of an encoder.
    last_in: Option<i64>,
    /// Largest session time so far and the moment of the last packet.
    end: Option<(i64, Duration)>,
}

/// A packet's place on the session's timeline.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Decode time in nanoseconds.
    pub dts_ns: i64,
    /// Presentation time in nanoseconds.
    pub pts_ns: i64,
    /// The timeline was set anew before this packet.
    pub discontinuity: bool,
}

impl Timeline {
    /// Another encoder, or the same one after a pause, begins.
    pub(super) fn new_encoder(&mut self) {
        self.last_in = None;
    }

    /// The place of something that has no time: the end of what was placed so far.
    pub(super) fn here(&self) -> Placed {
        let end = self.end.map_or(0, |(end, _)| end);
        Placed { dts_ns: end, pts_ns: end, discontinuity: false }
    }

    /// Places a packet with the encoder's times that came at the monotonic time `now`.
    pub(super) fn place(&mut self, dts_ns: i64, pts_ns: i64, now: Duration) -> Placed {
        let jumps = self.last_in.is_none_or(|last| dts_ns.abs_diff(last) > nanos(JUMP_MAX) as u64);
        let mut discontinuity = false;
        if jumps {
            let begin = match self.end {
                None => 0,
                Some((end, at)) => {
                    discontinuity = true;
                    end.saturating_add(nanos(now.saturating_sub(at).max(GAP_MIN)))
                }
            };
            self.offset_ns = begin.saturating_sub(dts_ns);
        }
        self.last_in = Some(dts_ns);
        let placed = dts_ns.saturating_add(self.offset_ns);
        let end = self.end.map_or(placed, |(end, _)| end.max(placed));
        self.end = Some((end, now));
        // Presentation may precede decoding only by broken input; the distance is kept, not judged.
        let pts = placed.saturating_add(pts_ns.saturating_sub(dts_ns));
        Placed { dts_ns: placed, pts_ns: pts, discontinuity }
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn begins_at_zero_and_keeps_distances() {
        let mut timeline = Timeline::default();
        let first = timeline.place(5_000 * MS, 5_040 * MS, at(9));
        assert_eq!(first, Placed { dts_ns: 0, pts_ns: 40 * MS, discontinuity: false });
        // A little back, as interleaved audio may be, is no jump.
        assert_eq!(timeline.place(4_990 * MS, 4_990 * MS, at(9)).dts_ns, -10 * MS);
        assert_eq!(timeline.place(5_033 * MS, 5_033 * MS, at(40)).dts_ns, 33 * MS);
    }

    #[test]
    fn a_returning_encoder_goes_on_after_the_gap() {
        let mut timeline = Timeline::default();
        timeline.place(0, 0, at(1_000));
        timeline.place(2_000 * MS, 2_000 * MS, at(3_000));
        timeline.new_encoder();
        let back = timeline.place(0, 0, at(8_000));
        assert_eq!(back, Placed { dts_ns: 7_000 * MS, pts_ns: 7_000 * MS, discontinuity: true });
        assert_eq!(timeline.place(33 * MS, 33 * MS, at(8_033)).dts_ns, 7_033 * MS);
    }

    #[test]
    fn jumps_of_the_encoders_clock_are_set_right_in_both_directions() {
        for jump in [100_000 * MS, -100_000 * MS] {
            let mut timeline = Timeline::default();
            timeline.place(200_000 * MS, 200_000 * MS, at(0));
            let after = timeline.place(200_000 * MS + jump, 200_000 * MS + jump, at(40));
            assert_eq!((after.dts_ns, after.discontinuity), (40 * MS, true));
        }
        let mut timeline = Timeline::default();
        timeline.place(0, 0, at(0));
        assert!(!timeline.place(nanos(JUMP_MAX), 0, at(0)).discontinuity, "the limit itself is no jump");
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        let mut timeline = Timeline::default();
        for dts in [i64::MIN, i64::MAX, 0, i64::MIN, i64::MAX] {
            timeline.place(dts, i64::MIN, at(1));
        }
    }
}
