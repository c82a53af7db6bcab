//! The data that lets a destination start at once: the codec configuration of each track, and the newest GOP.

use satcast_plugin_api::{Codec, Kind, Packet};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most packets of a kept GOP.
pub(super) const GROUP_PACKETS_MAX: usize = 4096;
/// Most bytes of a kept GOP.
pub(super) const GROUP_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The current codec configuration of each kind of track.
#[derive(Debug, Clone, Default)]
pub(super) struct Configs {
    video: Option<Arc<Packet>>,
    audio: Option<Arc<Packet>>,
}

impl Configs {
    fn slot(&mut self, kind: Kind) -> &mut Option<Arc<Packet>> {
        match kind {
            Kind::Video => &mut self.video,
            Kind::Audio => &mut self.audio,
        }
    }

    /// Whether the configuration differs from the current one.
    pub(super) fn changes(&mut self, packet: &Packet) -> bool {
        let held = self.slot(packet.kind()).as_ref();
        held.is_none_or(|held| held.codec != packet.codec || held.payload != packet.payload)
    }

    pub(super) fn replace(&mut self, packet: &Arc<Packet>) {
        *self.slot(packet.kind()) = Some(packet.clone());
    }

    /// The track has ended.
    pub(super) fn forget(&mut self, kind: Kind) {
        *self.slot(kind) = None;
    }

    /// Video, then audio.
    pub(super) fn codecs(&self) -> [Option<Codec>; 2] {
        [&self.video, &self.audio].map(|config| config.as_ref().map(|config| config.codec))
    }

    pub(super) fn video(&self) -> Option<&Arc<Packet>> {
        self.video.as_ref()
    }

    /// The configurations, video first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Packet>> {
        self.video.iter().chain(&self.audio)
    }
}

/// The newest GOP: packets from the last video keyframe on, in order. Empty before the first keyframe, or when the GOP exceeded
/// its limits.
#[derive(Debug, Default)]
pub(super) struct Group {
    packets: VecDeque<Arc<Packet>>,
    bytes: usize,
    /// Over a limit: nothing is kept until the next keyframe.
    over: bool,
}

impl Group {
    /// Takes a media packet.
    pub(super) fn push(&mut self, packet: &Arc<Packet>) {
        let begins = packet.kind() == Kind::Video && packet.keyframe;
        if begins {
            self.clear();
        } else if self.packets.is_empty() || self.over {
            return;
        }
        if self.packets.len() >= GROUP_PACKETS_MAX || self.bytes + packet.payload.len() > GROUP_BYTES_MAX {
            self.clear();
            self.over = true;
            return;
        }
        self.bytes += packet.payload.len();
        self.packets.push_back(packet.clone());
    }

    /// Drops all packets, e.g. when the video configuration changes.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.bytes = 0;
        self.over = false;
    }

    /// The packets, keyframe first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Packet>> {
        self.packets.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_drivers::testing::{audio, video, video_config};

    #[test]
    fn keeps_from_the_last_keyframe_on() {
        let mut group = Group::default();
        group.push(&audio(0, 0));
        assert_eq!(group.iter().count(), 0, "nothing before a keyframe");
        for (sequence, key) in [(1, true), (2, false), (3, true), (4, false)] {
            group.push(&video(sequence, 0, key));
        }
        group.push(&audio(5, 0));
        assert_eq!(group.iter().map(|packet| packet.sequence).collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn a_gop_over_a_limit_is_dropped_and_the_next_one_is_kept() {
        let mut group = Group::default();
        group.push(&video(0, 0, true));
        for sequence in 1..=GROUP_PACKETS_MAX as u64 {
            group.push(&video(sequence, 0, false));
        }
        assert_eq!(group.iter().count(), 0);
        group.push(&video(9_000, 0, false));
        assert_eq!(group.iter().count(), 0);
        group.push(&video(9_001, 0, true));
        assert_eq!(group.iter().count(), 1);

        let mut packet = (*video(0, 0, true)).clone();
        packet.payload = vec![0; GROUP_BYTES_MAX + 1].into();
        group.push(&Arc::new(packet));
        assert_eq!(group.iter().count(), 0, "a single packet over the byte limit is not kept either");
    }

    #[test]
    fn a_repeated_configuration_is_no_change() {
        let mut configs = Configs::default();
        assert!(configs.changes(&video_config(0, b"one")));
        configs.replace(&video_config(0, b"one"));
        assert!(!configs.changes(&video_config(1, b"one")));
        assert!(configs.changes(&video_config(2, b"two")));
        assert_eq!(configs.iter().count(), 1);
        assert_eq!(configs.codecs(), [Some(Codec::H264), None]);
        configs.forget(Kind::Video);
        assert_eq!(configs.iter().count(), 0);
    }
}
