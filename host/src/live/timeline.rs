//! One timeline for a session, whatever its encoders send: it begins at 0, never falls within a track, and goes on by the
//! wall over gaps.
//!
//! Pure: times are arguments.

use std::time::Duration;

/// A step of the timestamps this much larger than the time that has passed is a restart of the encoder's clock, not media
/// time. Below the longest stretch a destination's queue holds, so that a jump costs nobody packets.
pub(super) const AHEAD_MAX: Duration = Duration::from_secs(3);
/// A step back of a track beyond this is a restart as well; smaller ones are flattened.
pub(super) const BACK_MAX: Duration = Duration::from_secs(1);
/// Smallest step over a gap, so that the first packet after it is later than the last before it.
const GAP_MIN: Duration = Duration::from_millis(1);
/// Tracks that are told apart.
const TRACKS: usize = 2;

/// Maps an encoder's times to the session's.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// Session time minus encoder time, in nanoseconds.
    offset_ns: i64,
    /// Last encoder time of each track; `None` before the first packet of an encoder.
    last_in: [Option<i64>; TRACKS],
    /// Last session time of each track.
    last_out: [Option<i64>; TRACKS],
    /// Largest session time so far and the moment of the last packet.
    end: Option<(i64, Duration)>,
}

/// A packet's place on the session's timeline.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Decode time in nanoseconds.
    pub(super) dts_ns: i64,
    /// Presentation time in nanoseconds.
    pub(super) pts_ns: i64,
    /// The timeline was set anew before this packet.
    pub(super) discontinuity: bool,
}

impl Timeline {
    /// Another encoder, or the same one after a pause, begins.
    pub(super) fn new_encoder(&mut self) {
        self.last_in = [None; TRACKS];
    }

    /// The place of something that has no time: the end of what was placed so far.
    pub(super) fn here(&self) -> Placed {
        let end = self.end.map_or(0, |(end, _)| end);
        Placed { dts_ns: end, pts_ns: end, discontinuity: false }
    }

    /// Places a packet of `track` (0 or 1) with the encoder's times that came at the monotonic time `now`.
    pub(super) fn place(&mut self, track: usize, dts_ns: i64, pts_ns: i64, now: Duration) -> Placed {
        let track = track.min(TRACKS - 1);
        let mut discontinuity = false;
        if self.jumps(track, dts_ns, now) {
            let begin = match self.end {
                None => 0,
                Some((end, at)) => {
                    discontinuity = true;
                    end.saturating_add(nanos(now.saturating_sub(at).max(GAP_MIN)))
                }
            };
            self.offset_ns = begin.saturating_sub(dts_ns);
            self.last_in = [None; TRACKS];
        }
        self.last_in[track] = Some(dts_ns);
        let exact = dts_ns.saturating_add(self.offset_ns);
        let placed = self.last_out[track].map_or(exact, |last| exact.max(last));
        self.last_out[track] = Some(placed);
        let end = self.end.map_or(placed, |(end, _)| end.max(placed));
        self.end = Some((end, now));
        // Presentation may precede decoding only by broken input; the distance is kept, not judged.
        let pts_ns = exact.saturating_add(pts_ns.saturating_sub(dts_ns));
        Placed { dts_ns: placed, pts_ns, discontinuity }
    }

    fn jumps(&self, track: usize, dts_ns: i64, now: Duration) -> bool {
        let Some(newest) = self.last_in.iter().flatten().max() else { return true };
        let passed = self.end.map_or(Duration::ZERO, |(_, at)| now.saturating_sub(at));
        let is_ahead = dts_ns.saturating_sub(*newest) > nanos(passed.saturating_add(AHEAD_MAX));
        let is_back = self.last_in[track].is_some_and(|last| last.saturating_sub(dts_ns) > nanos(BACK_MAX));
        is_ahead || is_back
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

    fn place(timeline: &mut Timeline, track: usize, ms: i64, now: u64) -> (i64, bool) {
        let placed = timeline.place(track, ms * MS, ms * MS, at(now));
        (placed.dts_ns / MS, placed.discontinuity)
    }

    #[test]
    fn begins_at_zero_and_keeps_distances() {
        let mut timeline = Timeline::default();
        let first = timeline.place(1, 5_000 * MS, 5_040 * MS, at(9));
        assert_eq!(first, Placed { dts_ns: 0, pts_ns: 40 * MS, discontinuity: false });
        assert_eq!(
            place(&mut timeline, 0, 4_990, 9),
            (-10, false),
            "interleaved sound may be a little earlier"
        );
        assert_eq!(place(&mut timeline, 1, 5_033, 40), (33, false));
    }

    #[test]
    fn a_track_never_falls() {
        let mut timeline = Timeline::default();
        place(&mut timeline, 1, 1_000, 0);
        let back = timeline.place(1, 990 * MS, 1_030 * MS, at(1));
        assert_eq!(back, Placed { dts_ns: 0, pts_ns: 30 * MS, discontinuity: false });
        assert_eq!(place(&mut timeline, 1, 1_033, 33), (33, false));
    }

    #[test]
    fn a_returning_encoder_goes_on_after_the_gap() {
        let mut timeline = Timeline::default();
        place(&mut timeline, 1, 0, 1_000);
        place(&mut timeline, 1, 2_000, 3_000);
        timeline.new_encoder();
        assert_eq!(place(&mut timeline, 1, 0, 8_000), (7_000, true));
        assert_eq!(place(&mut timeline, 1, 33, 8_033), (7_033, false));
        assert_eq!(timeline.here().dts_ns, 7_033 * MS);
    }

    #[test]
    fn jumps_of_the_encoders_clock_are_set_right_in_both_directions() {
        for jump in [100_000, -100_000, 3_001, -1_001] {
            let mut timeline = Timeline::default();
            place(&mut timeline, 1, 200_000, 0);
            assert_eq!(place(&mut timeline, 1, 200_000 + jump, 0), (1, true), "{jump}");
        }
        for step in [3_000, -1_000] {
            let mut timeline = Timeline::default();
            place(&mut timeline, 1, 200_000, 0);
            assert!(!place(&mut timeline, 1, 200_000 + step, 0).1, "the limit itself is no jump: {step}");
        }
    }

    #[test]
    fn a_pause_that_the_clock_saw_too_is_no_jump() {
        let mut timeline = Timeline::default();
        place(&mut timeline, 1, 0, 0);
        assert_eq!(place(&mut timeline, 1, 20_000, 20_000), (20_000, false));
    }

    #[test]
    fn extreme_times_do_not_overflow() {
        let mut timeline = Timeline::default();
        for dts in [i64::MIN, i64::MAX, 0, i64::MIN, i64::MAX] {
            for track in 0..3 {
                timeline.place(track, dts, i64::MIN, at(1));
            }
        }
    }
}
