//! Holds the packets of the start until the target duration can be fixed.

use super::{
    AUDIO_ONLY_NANOS, HELD_BYTES_MAX, HELD_PACKETS_MAX, NANOS_PER_SECOND, PROBE_GROUPS, TARGET_SECONDS_MAX,
    TARGET_SECONDS_MIN,
};
use crate::packet::{Packet, Role, TrackKind};

/// Packets held, each with its wall time in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Probe {
    held: Vec<(Packet, i64)>,
    bytes: usize,
    groups: usize,
    longest_ns: i64,
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

    fn look(&mut self, packet: &Packet) -> bool {
        let dts = packet.dts_ns;
        if packet.kind == TrackKind::Video {
            self.has_video = true;
            if packet.role == Role::Config {
                return false;
            }
            if packet.keyframe {
                self.group_ended(packet.pts_ns);
            }
            let since_first = self.first_keyframe.map_or(0, |first| dts.saturating_sub(first));
            return self.groups >= PROBE_GROUPS
                || since_first >= i64::from(TARGET_SECONDS_MAX) * NANOS_PER_SECOND;
        }
        if packet.role == Role::Config {
            return false;
        }
        let first = *self.first_audio.get_or_insert(dts);
        let wait =
            if self.has_video { i64::from(TARGET_SECONDS_MAX) * NANOS_PER_SECOND } else { AUDIO_ONLY_NANOS };
        dts.saturating_sub(first) >= wait && self.first_keyframe.is_none()
    }

    fn group_ended(&mut self, pts: i64) {
        if let Some(last) = self.last_keyframe.replace(pts) {
            // A jump of the time stamps is no long group.
            let length = pts.saturating_sub(last);
            if (1..=i64::from(TARGET_SECONDS_MAX) * NANOS_PER_SECOND).contains(&length) {
                self.longest_ns = self.longest_ns.max(length);
            }
            self.groups += 1;
        }
        self.first_keyframe.get_or_insert(pts);
    }

    /// Target duration in seconds: the longest group and a quarter, rounded up, within the limits. When no
    /// group ended in time the largest; for sound only the smallest.
    pub(super) fn target_seconds(&self) -> u32 {
        if self.groups == 0 {
            return if self.first_keyframe.is_some() { TARGET_SECONDS_MAX } else { TARGET_SECONDS_MIN };
        }
        let with_quarter = self.longest_ns + self.longest_ns / 4;
        let seconds = (with_quarter + NANOS_PER_SECOND - 1) / NANOS_PER_SECOND;
        u32::try_from(seconds).unwrap_or(TARGET_SECONDS_MAX).clamp(TARGET_SECONDS_MIN, TARGET_SECONDS_MAX)
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn take(self) -> Vec<(Packet, i64)> {
        self.held
    }
}
