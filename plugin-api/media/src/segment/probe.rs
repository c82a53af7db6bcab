//! Watches the first GOPs until the target duration can be fixed, and holds their packets unless there are parts.

use super::{
    AUDIO_ONLY_NANOS, HELD_BYTES_MAX, HELD_PACKETS_MAX, NANOS_PER_SECOND, SEGMENT_NANOS, SEGMENT_NANOS_MIN,
    TARGET_EXCESS_NANOS, TARGET_SECONDS_MAX, TARGET_SECONDS_MIN,
};
use crate::{Kind, Packet};

/// GOPs of a fixed keyframe interval differ by at most this fraction of the longest: 1/20.
const REGULAR_PART: i64 = 20;
const LONGEST_NANOS: i64 = TARGET_SECONDS_MAX as i64 * NANOS_PER_SECOND;
/// Video without any audio after which parts begin without an audio track, in nanoseconds.
const PART_AUDIO_WAIT_NANOS: i64 = NANOS_PER_SECOND;

/// Smallest target duration, in seconds, to which a segment of `duration_ns` rounds, within the limits.
pub(super) fn target_for(duration_ns: i64) -> u32 {
    let seconds = (duration_ns - TARGET_EXCESS_NANOS + NANOS_PER_SECOND - 1) / NANOS_PER_SECOND;
    u32::try_from(seconds.max(0)).unwrap_or(TARGET_SECONDS_MAX).clamp(TARGET_SECONDS_MIN, TARGET_SECONDS_MAX)
}

/// Packets held, each with its wall time in milliseconds, and what is known of the GOPs.
#[derive(Debug, Default)]
pub(super) struct Probe {
    held: Vec<(Packet, i64)>,
    bytes: usize,
    /// Complete GOPs: shortest, longest, total length, and number of frames.
    shortest_ns: Option<i64>,
    longest_ns: i64,
    known_ns: i64,
    known_frames: i64,
    /// Frames since the last keyframe, including it, and the presentation time of the newest.
    frames: i64,
    newest_pts: i64,
    /// Decode times of the last keyframe and the newest frame.
    keyframe_dts: i64,
    newest_dts: i64,
    last_keyframe: Option<i64>,
    first_keyframe: Option<i64>,
    first_audio: Option<i64>,
    has_video: bool,
}

impl Probe {
    /// Takes a packet; true when enough is known.
    pub(super) fn push(&mut self, packet: Packet, wall_ms: i64) -> bool {
        let done = self.look(&packet);
        self.bytes = self.bytes.saturating_add(packet.payload.len());
        self.held.push((packet, wall_ms));
        done || self.held.len() >= HELD_PACKETS_MAX || self.bytes >= HELD_BYTES_MAX
    }

    /// Looks at a packet without holding it; true when enough is known.
    pub(super) fn look(&mut self, packet: &Packet) -> bool {
        let dts = packet.dts_ns;
        if packet.kind() == Kind::Video {
            self.has_video = true;
            if packet.is_config() {
                return false;
            }
            if packet.keyframe {
                self.gop_ended(packet.pts_ns);
                self.keyframe_dts = dts;
            }
            self.frames += 1;
            self.newest_pts = packet.pts_ns;
            self.newest_dts = dts;
            let since_first = self.first_keyframe.map_or(0, |first| dts.saturating_sub(first));
            // The first segment would end here.
            return self.known_ns >= SEGMENT_NANOS_MIN || since_first >= LONGEST_NANOS;
        }
        if packet.is_config() {
            return false;
        }
        let first = *self.first_audio.get_or_insert(dts);
        let wait = if self.has_video { LONGEST_NANOS } else { AUDIO_ONLY_NANOS };
        dts.saturating_sub(first) >= wait && self.first_keyframe.is_none()
    }

    fn gop_ended(&mut self, pts: i64) {
        if let Some(last) = self.last_keyframe.replace(pts) {
            // A jump of the timestamps is not a long GOP.
            let length = pts.saturating_sub(last);
            if (1..=LONGEST_NANOS).contains(&length) {
                self.shortest_ns = Some(self.shortest_ns.map_or(length, |shortest| shortest.min(length)));
                self.longest_ns = self.longest_ns.max(length);
                self.known_ns += length;
                self.known_frames += self.frames;
            }
        }
        self.frames = 0;
        self.first_keyframe.get_or_insert(pts);
    }

    /// Target duration in seconds, within the limits. If the encoder seems to have a fixed keyframe interval: the longest
    /// GOP, rounded to seconds, because players stay three targets behind the live edge. If the GOPs differ and none is
    /// longer than the intended segment: one second above the smallest target. This is most often an interval of two
    /// seconds with extra keyframes at scene cuts, which does not justify half a minute of latency. Otherwise the largest
    /// target: the next GOP may have any length. For audio only: the smallest target.
    pub(super) fn target_seconds(&self) -> u32 {
        if self.first_keyframe.is_none() {
            return TARGET_SECONDS_MIN;
        }
        if !self.is_regular() {
            let is_short = (1..=SEGMENT_NANOS + TARGET_EXCESS_NANOS).contains(&self.longest_ns)
                && self.running_ns() <= SEGMENT_NANOS + TARGET_EXCESS_NANOS;
            return if is_short { TARGET_SECONDS_MIN + 1 } else { TARGET_SECONDS_MAX };
        }
        target_for(self.longest_ns)
    }

    /// The first part of `part_ns` nanoseconds is here, with audio if the encoder sends any.
    pub(super) fn has_a_part(&self, part_ns: i64) -> bool {
        let long_ns = self.known_ns.saturating_add(self.newest_dts.saturating_sub(self.keyframe_dts));
        let wait_ns = if self.first_audio.is_some() { part_ns } else { part_ns.max(PART_AUDIO_WAIT_NANOS) };
        // Times of publishers are rounded.
        self.first_keyframe.is_some() && long_ns >= wait_ns - wait_ns / 100
    }

    /// All complete GOPs have the same length, except for a small fraction or one frame, and the open GOP is not longer.
    fn is_regular(&self) -> bool {
        let Some(shortest) = self.shortest_ns else { return false };
        let frame_ns = self.known_ns / self.known_frames.max(1);
        let apart = (self.longest_ns / REGULAR_PART).max(frame_ns);
        self.longest_ns - shortest <= apart && self.running_ns() <= shortest.saturating_add(apart)
    }

    /// Length of the open GOP so far.
    fn running_ns(&self) -> i64 {
        self.last_keyframe.map_or(0, |last| self.newest_pts.saturating_sub(last))
    }

    /// Mean duration of a frame in nanoseconds, of complete GOPs if there are any; `None` with less than two frames.
    pub(super) fn frame_ns(&self) -> Option<i64> {
        if self.known_frames > 0 {
            return Some(self.known_ns / self.known_frames);
        }
        let long_ns = self.newest_dts.saturating_sub(self.keyframe_dts);
        (self.frames > 1 && long_ns > 0).then(|| long_ns / (self.frames - 1))
    }

    /// Packets were lost: the open GOP is not looked at any more.
    pub(super) fn gap(&mut self) {
        (self.frames, self.last_keyframe, self.first_keyframe) = (0, None, None);
    }

    /// A keyframe has arrived.
    pub(super) fn has_video(&self) -> bool {
        self.first_keyframe.is_some()
    }

    /// Longest complete GOP, in nanoseconds.
    pub(super) fn longest_ns(&self) -> i64 {
        self.longest_ns
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn take(&mut self) -> Vec<(Packet, i64)> {
        self.bytes = 0;
        std::mem::take(&mut self.held)
    }
}
