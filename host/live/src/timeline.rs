//! One timeline for a session, for any input of its encoders: it starts at 0, never decreases within a track, and follows the monotonic
//! clock across gaps.
//!
//! Pure: times are arguments.

use std::time::Duration;

/// A step of the timestamps that exceeds the elapsed time by more than this is a restart of the encoder's clock, not media time.
/// Shorter than a destination's queue may hold, so that a jump causes no drops.
pub(super) const AHEAD_MAX: Duration = Duration::from_secs(3);
/// A larger step back of a track is a restart as well. Smaller ones are flattened.
pub(super) const BACK_MAX: Duration = Duration::from_secs(1);
/// A track may start this long before the other one, or be flattened by this much.
pub(super) const LATE_MAX: Duration = AHEAD_MAX;
/// Smallest step over a gap, so that the first packet after it is later than the last before it.
const GAP_MIN: Duration = Duration::from_millis(1);
/// Audio and video.
const TRACKS: usize = 2;
const AUDIO: usize = 0;

/// Maps an encoder's times to the session's.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    tracks: [Track; TRACKS],
    /// Largest session time so far in nanoseconds, and the monotonic time of the last packet.
    end: Option<(i64, Duration)>,
}

/// Each track has its own clock: most encoders reset both together, some only one.
#[derive(Debug, Default, Clone, Copy)]
struct Track {
    /// Session time minus encoder time, in nanoseconds.
    offset_ns: i64,
    /// Last encoder time and its monotonic arrival time; `None` before the first packet of an encoder.
    last_in: Option<(i64, Duration)>,
    /// Last session time.
    last_out: Option<i64>,
}

/// A packet's place on the session's timeline.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Decode time in nanoseconds.
    pub(super) dts_ns: i64,
    /// Presentation time in nanoseconds.
    pub(super) pts_ns: i64,
    /// The timeline was reset before this packet.
    pub(super) discontinuity: bool,
}

impl Timeline {
    /// A timeline that goes on: it was at `position` at the monotonic time `now`.
    pub(super) fn resumed(position: Duration, now: Duration) -> Self {
        Self { end: Some((nanos(position), now)), ..Self::default() }
    }

    /// Where a packet after a gap would be at the monotonic time `now`.
    pub(super) fn position(&self, now: Duration) -> Duration {
        Duration::from_nanos(u64::try_from(self.next(now)).unwrap_or(0))
    }

    /// A new encoder starts, or the same one after a pause.
    pub(super) fn new_encoder(&mut self) {
        self.tracks.iter_mut().for_each(|track| track.last_in = None);
    }

    /// The place of a packet without a time: the current end of the timeline.
    pub(super) fn here(&self) -> Placed {
        let end = self.end.map_or(0, |(end, _)| end);
        Placed { dts_ns: end, pts_ns: end, discontinuity: false }
    }

    /// Places a packet of `track` (0: audio, 1: video) with the encoder's times; it arrived at the monotonic time `now`. `None` for
    /// audio of a new encoder that belongs before the end of what the former one sent.
    pub(super) fn place(&mut self, track: usize, dts_ns: i64, pts_ns: i64, now: Duration) -> Option<Placed> {
        let track = track.min(TRACKS - 1);
        let discontinuity = self.tracks[track].begins(dts_ns, now) && !self.joins(track, dts_ns, now) && {
            self.tracks[track].offset_ns = self.next(now).saturating_sub(dts_ns);
            self.end.is_some()
        };
        let own = &mut self.tracks[track];
        let exact = dts_ns.saturating_add(own.offset_ns);
        if track == AUDIO && own.last_in.is_none() && own.last_out.is_some_and(|last| exact <= last) {
            return None;
        }
        own.last_in = Some((dts_ns, now));
        let placed = own.last_out.map_or(exact, |last| exact.max(last));
        own.last_out = Some(placed);
        let end = self.end.map_or(placed, |(end, _)| end.max(placed));
        self.end = Some((end, now));
        // Presentation before decoding is broken input. The distance is kept, not checked.
        let pts_ns = exact.saturating_add(pts_ns.saturating_sub(dts_ns));
        let pts_ns = if placed > exact { pts_ns.max(placed) } else { pts_ns };
        Some(Placed { dts_ns: placed, pts_ns, discontinuity })
    }

    /// Session time of the first packet after a gap.
    fn next(&self, now: Duration) -> i64 {
        self.end.map_or(0, |(end, at)| end.saturating_add(nanos(now.saturating_sub(at).max(GAP_MIN))))
    }

    /// Puts a track that starts on the clock of the other one, if the times fit, so that both stay in sync.
    fn joins(&mut self, track: usize, dts_ns: i64, now: Duration) -> bool {
        let (own, other) = (self.tracks[track], self.tracks[TRACKS - 1 - track]);
        let Some((end, at)) = self.end.filter(|_| other.last_in.is_some()) else { return false };
        let exact = dts_ns.saturating_add(other.offset_ns);
        let latest = end.saturating_add(nanos(now.saturating_sub(at).saturating_add(AHEAD_MAX)));
        let late_max = if own.last_in.is_some() { BACK_MAX } else { LATE_MAX };
        let joins = exact <= latest && own.last_out.unwrap_or(end).saturating_sub(exact) <= nanos(late_max);
        if joins {
            self.tracks[track].offset_ns = other.offset_ns;
        }
        joins
    }
}

impl Track {
    /// Whether its clock differs from that of its last packet, or this is the encoder's first packet.
    fn begins(&self, dts_ns: i64, now: Duration) -> bool {
        let Some((last, at)) = self.last_in else { return true };
        let elapsed = now.saturating_sub(at);
        let exact = dts_ns.saturating_add(self.offset_ns);
        dts_ns.saturating_sub(last) > nanos(elapsed.saturating_add(AHEAD_MAX))
            || last.saturating_sub(dts_ns) > nanos(BACK_MAX)
            || self.last_out.is_some_and(|out| out.saturating_sub(exact) > nanos(LATE_MAX))
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
        let placed = timeline.place(track, ms * MS, ms * MS, at(now)).expect("a place");
        (placed.dts_ns / MS, placed.discontinuity)
    }

    #[test]
    fn begins_at_zero_and_keeps_distances() {
        let mut timeline = Timeline::default();
        let first = timeline.place(1, 5_000 * MS, 5_040 * MS, at(9));
        assert_eq!(first, Some(Placed { dts_ns: 0, pts_ns: 40 * MS, discontinuity: false }));
        assert_eq!(
            place(&mut timeline, 0, 4_990, 9),
            (-10, false),
            "interleaved audio may be a little earlier"
        );
        assert_eq!(place(&mut timeline, 1, 5_033, 40), (33, false));
    }

    #[test]
    fn times_of_a_track_never_decrease() {
        let mut timeline = Timeline::default();
        place(&mut timeline, 1, 1_000, 0);
        let back = timeline.place(1, 990 * MS, 1_030 * MS, at(1));
        assert_eq!(back, Some(Placed { dts_ns: 0, pts_ns: 30 * MS, discontinuity: false }));
        let audio =
            |timeline: &mut Timeline, ms: i64| timeline.place(0, ms * MS, ms * MS, at(2)).expect("a place");
        audio(&mut timeline, 1_020);
        let back = audio(&mut timeline, 1_010);
        assert_eq!((back.dts_ns, back.pts_ns), (20 * MS, 20 * MS), "not shown before it is decoded");
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
    fn audio_of_a_new_encoder_begins_behind_that_of_the_former_one() {
        let mut timeline = Timeline::default();
        place(&mut timeline, 1, 0, 0);
        place(&mut timeline, 0, 0, 0);
        place(&mut timeline, 0, 60, 60);
        timeline.new_encoder();
        // Its keyframe comes first, and the audio beside it was sent a little earlier.
        assert_eq!(place(&mut timeline, 1, 5_000, 65), (65, true));
        let audio = |timeline: &mut Timeline, ms: i64| {
            timeline.place(0, ms * MS, ms * MS, at(66)).map(|placed| placed.dts_ns / MS)
        };
        assert_eq!([4_952, 4_974, 4_995].map(|ms| audio(&mut timeline, ms)), [None, None, None]);
        assert_eq!(audio(&mut timeline, 5_017), Some(82));
        // A small step back of the same encoder is flattened, as before.
        assert_eq!(audio(&mut timeline, 5_010), Some(82));
    }

    #[test]
    fn a_timeline_goes_on_at_another_node() {
        let mut first = Timeline::default();
        place(&mut first, 1, 0, 1_000);
        place(&mut first, 1, 2_000, 3_000);
        let position = first.position(at(4_000));
        assert_eq!(position, at(3_000));
        let mut next = Timeline::resumed(position, at(50));
        next.new_encoder();
        assert_eq!(place(&mut next, 1, 90_000, 1_050), (4_000, true));
        assert_eq!(place(&mut next, 0, 90_010, 1_060), (4_010, false));
    }

    #[test]
    fn jumps_of_the_encoders_clock_are_corrected_in_both_directions() {
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
    fn a_jump_of_one_track_alone_leaves_the_other_as_it_was() {
        for jump in [4_000, 100_000, -4_000, -100_000] {
            let mut timeline = Timeline::default();
            let mut shift = 0;
            for n in 0..200_u64 {
                let ms = n as i64 * 40;
                assert_eq!(place(&mut timeline, 0, 200_000 + ms, n * 40), (ms, false), "{jump}: {n}");
                shift += if n == 100 { jump } else { 0 };
                let (placed, discontinuity) = place(&mut timeline, 1, 200_000 + ms + shift, n * 40);
                assert_eq!(discontinuity, n == 100, "{jump}: {n}");
                assert!((placed - ms).abs() <= 1, "{jump}: {n}: {placed}");
            }
            // The clock is corrected, and both tracks are in sync again.
            let (placed, discontinuity) = place(&mut timeline, 1, 208_000, 8_000);
            assert_eq!((placed, discontinuity), (8_000, false), "{jump}");
        }
    }

    #[test]
    fn a_jump_of_both_tracks_keeps_them_in_sync_with_packets_in_flight() {
        for jump in [3_500, 100_000, -2_000, -100_000] {
            let mut timeline = Timeline::default();
            place(&mut timeline, 1, 200_000, 0);
            place(&mut timeline, 0, 200_010, 10);
            assert_eq!(place(&mut timeline, 1, 200_040 + jump, 40), (40, true), "{jump}");
            assert_eq!(place(&mut timeline, 0, 200_031, 40), (31, false), "{jump}: audio from before it");
            assert_eq!(place(&mut timeline, 0, 200_052 + jump, 52), (52, false), "{jump}");
            assert_eq!(place(&mut timeline, 1, 200_073 + jump, 73), (73, false), "{jump}");
        }
    }

    #[test]
    fn tracks_with_unrelated_clocks_both_continue() {
        let mut timeline = Timeline::default();
        place(&mut timeline, 1, 5_000_000, 0);
        for n in 0..100_u64 {
            let ms = n as i64 * 40;
            let (audio, _) = place(&mut timeline, 0, ms, n * 40);
            assert!((audio - ms).abs() <= 1, "{n}: {audio}");
            assert!(!place(&mut timeline, 1, 5_000_000 + ms, n * 40).1);
        }
    }

    #[test]
    fn many_small_steps_back_do_not_hold_a_track_for_ever() {
        let mut timeline = Timeline::default();
        let (mut encoder, mut last, mut held, mut held_most) = (0, -1, 0, 0);
        for n in 0..1_000_u64 {
            encoder += if n % 10 == 0 { -960 } else { 40 };
            let (placed, _) = place(&mut timeline, 1, encoder, n * 40);
            held = if placed == last { held + 1 } else { 0 };
            held_most = held.max(held_most);
            last = placed;
        }
        assert!(held_most > 20 && held_most < 80, "{held_most}");
    }

    #[test]
    fn a_pause_of_the_same_length_on_the_clock_is_no_jump() {
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
