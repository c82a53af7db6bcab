//! Where what was before a destination meets what waits for it: no packet twice, none missing. Pure.
//!
//! Both come from one publisher. What is in a segment and not in the queue came before the queue began, so the cut is at the first packet
//! that waits, track by track. It is found by its bytes near its time: times of sound in segments are counted and may be a little off,
//! and by times alone a packet could be lost or doubled. Silence is the same bytes over and over, of which the nearest in time counts.

use std::sync::Arc;

use satcast_plugin_api::{Kind, NANOS_PER_MILLI, Packet};

use crate::live::queue::Head;

/// How far the time of a packet in a segment may be from its time in the queue, in nanoseconds: as far as the clock of sound lets it.
pub(super) const APART_NANOS_MAX: i64 =
    (satcast_media::fmp4::AUDIO_RESYNC_MILLIS as i64 + 1) * NANOS_PER_MILLI;
/// Half of the usual packet of sound: by times alone, what is nearer to the first one is that one.
const HALF_SOUND_NANOS: i64 = 10 * NANOS_PER_MILLI;

/// How far one track has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Everything so far came before.
    #[default]
    Open,
    /// The first packet that waits was found.
    Met,
    /// Later packets were found, and it was not: something may be missing.
    Passed,
}

/// The cut between what is read from segments and what waits in the queue.
#[derive(Debug, Default)]
pub(super) struct Joint {
    video: Side,
    audio: Side,
    /// Sound near the first that waits, not decided on.
    near: Vec<Packet>,
    /// Pictures wait.
    has_pictures: bool,
    is_over: bool,
}

impl Joint {
    /// Gives those packets of a segment that came before what waits, which is `head` as seen after the segment was read.
    pub(super) fn take(&mut self, segment: Vec<Packet>, head: &Head) -> Vec<Packet> {
        let (video, audio): (Vec<_>, Vec<_>) =
            segment.into_iter().partition(|packet| packet.kind() == Kind::Video);
        let has_sound = !audio.is_empty() || !self.near.is_empty();
        let mut before = self.pictures(video, head.video.as_ref());
        before.extend(self.sound(audio, head.audio.as_ref(), false));
        before.sort_by_key(|packet| packet.dts_ns);
        let pictures = head.video.is_none() || self.video != Side::Open;
        let sound = head.audio.is_none() || self.audio != Side::Open || !has_sound;
        self.has_pictures = head.video.is_some();
        self.is_over = pictures && sound && (head.video.is_some() || self.audio != Side::Open);
        before
    }

    /// No more segments come: what was not decided on.
    pub(super) fn finish(&mut self, head: &Head) -> Vec<Packet> {
        self.sound(Vec::new(), head.audio.as_ref(), true)
    }

    /// All that came before was given.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Nothing is missing between what was given and what waits.
    pub(super) fn is_whole(&self) -> bool {
        let side = if self.has_pictures { self.video } else { self.audio };
        side == Side::Met
    }

    fn pictures(&mut self, mut read: Vec<Packet>, first: Option<&Arc<Packet>>) -> Vec<Packet> {
        if self.video != Side::Open {
            return Vec::new();
        }
        let Some(first) = first else { return read };
        let end = read.iter().position(|packet| {
            let apart = packet.dts_ns.saturating_sub(first.dts_ns);
            apart > APART_NANOS_MAX || is_same(packet, first)
        });
        if let Some(end) = end {
            self.video = if is_same(&read[end], first) { Side::Met } else { Side::Passed };
            read.truncate(end);
        }
        read
    }

    fn sound(&mut self, read: Vec<Packet>, first: Option<&Arc<Packet>>, is_last: bool) -> Vec<Packet> {
        if self.audio != Side::Open {
            return Vec::new();
        }
        let mut all = std::mem::take(&mut self.near);
        all.extend(read);
        let Some(first) = first else { return all };
        let apart = |packet: &Packet| packet.dts_ns.saturating_sub(first.dts_ns);
        let is_seen = is_last || all.last().is_some_and(|last| apart(last) > APART_NANOS_MAX);
        if !is_seen {
            // The nearest may still come.
            let near = all.iter().position(|packet| apart(packet) >= -APART_NANOS_MAX);
            self.near = all.split_off(near.unwrap_or(all.len()));
            return all;
        }
        let same = all.iter().enumerate().filter(|(_, packet)| is_same(packet, first));
        let found = same.min_by_key(|(_, packet)| apart(packet).saturating_abs()).map(|(at, _)| at);
        let by_time = || all.iter().position(|packet| apart(packet) >= -HALF_SOUND_NANOS);
        if let Some(end) = found.or_else(by_time) {
            self.audio = Side::Met;
            all.truncate(end);
        }
        all
    }
}

/// The packet of a segment is the one that waits.
fn is_same(read: &Packet, waits: &Packet) -> bool {
    read.dts_ns.saturating_sub(waits.dts_ns).saturating_abs() <= APART_NANOS_MAX
        && read.payload == waits.payload
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use satcast_plugin_api::Codec;

    use super::*;
    use crate::live::testing;

    const MS: i64 = NANOS_PER_MILLI;

    fn read(codec: Codec, at_ms: i64, fill: u8) -> Packet {
        Packet::media(codec, false, at_ms * MS, at_ms * MS, Bytes::from(vec![fill; 8]))
    }

    fn picture(number: i64) -> Packet {
        read(Codec::H264, number * 40, number as u8)
    }

    /// Sound of 20 ms whose counted time is `off_ms` from what its packet said.
    fn sound(number: i64, off_ms: i64) -> Packet {
        read(Codec::Aac, number * 20 + off_ms, number as u8)
    }

    fn head(video: Option<i64>, audio: Option<i64>) -> Head {
        let waits = |packet: Arc<Packet>, fill: i64| {
            Arc::new(Packet { payload: vec![fill as u8; 8].into(), ..(*packet).clone() })
        };
        Head {
            video: video.map(|number| waits(testing::video(1, number * 40, true), number)),
            audio: audio.map(|number| waits(testing::audio(1, number * 20), number)),
            ..Head::default()
        }
    }

    fn fills(packets: &[Packet], kind: Kind) -> Vec<u8> {
        packets.iter().filter(|packet| packet.kind() == kind).map(|packet| packet.payload[0]).collect()
    }

    /// Segments of ten pictures and twenty packets of sound each, from the second number on that many.
    fn segment(number: i64, off_ms: i64) -> Vec<Packet> {
        let pictures = (number * 10..number * 10 + 10).map(picture);
        pictures.chain((number * 20..number * 20 + 20).map(|number| sound(number, off_ms))).collect()
    }

    #[test]
    fn the_cut_is_where_each_track_waits_whatever_the_clock_of_sound_says() {
        for off_ms in [-95, -30, -1, 0, 1, 30, 95] {
            for audio in [26, 28, 30, 32] {
                let head = head(Some(14), Some(audio));
                let (mut joint, mut all) = (Joint::default(), Vec::new());
                for number in 0..5 {
                    if !joint.is_over() {
                        all.extend(joint.take(segment(number, off_ms), &head));
                    }
                }
                assert!(joint.is_over() && joint.is_whole(), "{off_ms} {audio}");
                assert_eq!(fills(&all, Kind::Video), (0..14).collect::<Vec<u8>>());
                let sound: Vec<u8> = (0..audio as u8).collect();
                assert_eq!(fills(&all, Kind::Audio), sound, "{off_ms} {audio}");
            }
        }
    }

    #[test]
    fn silence_is_cut_at_the_nearest_time() {
        let silent = |packet: Packet| match packet.kind() {
            Kind::Audio => Packet { payload: vec![0; 8].into(), ..packet },
            Kind::Video => packet,
        };
        let mut head = head(Some(14), Some(28));
        head.audio =
            head.audio.map(|packet| Arc::new(Packet { payload: vec![0; 8].into(), ..(*packet).clone() }));
        for off_ms in [-9, 0, 9] {
            let mut joint = Joint::default();
            let mut all = Vec::new();
            for number in 0..3 {
                all.extend(joint.take(segment(number, off_ms).into_iter().map(silent).collect(), &head));
            }
            assert_eq!(fills(&all, Kind::Audio).len(), 28, "{off_ms}");
        }
    }

    #[test]
    fn everything_came_before_while_nothing_waits() {
        let mut joint = Joint::default();
        assert_eq!(joint.take(segment(0, 0), &head(None, None)).len(), 30);
        assert!(!joint.is_over());
        // Then the first of each is in the segment that follows.
        let all = joint.take(segment(1, 0), &head(Some(10), Some(20)));
        assert!(all.is_empty() && joint.is_over() && joint.is_whole());
    }

    #[test]
    fn sound_alone_is_cut_and_pictures_alone_too() {
        let sound_only =
            |number| segment(number, 3).into_iter().filter(|packet| packet.kind() == Kind::Audio);
        let (mut joint, mut all) = (Joint::default(), Vec::new());
        for number in 0..3 {
            all.extend(joint.take(sound_only(number).collect(), &head(None, Some(25))));
        }
        assert_eq!((all.len(), joint.is_over(), joint.is_whole()), (25, true, true));
        let pictures = |number| segment(number, 0).into_iter().filter(|packet| packet.kind() == Kind::Video);
        let mut joint = Joint::default();
        // Sound waits, and segments have none.
        let all = joint.take(pictures(0).collect(), &head(Some(4), Some(9)));
        assert_eq!((all.len(), joint.is_over(), joint.is_whole()), (4, true, true));
    }

    #[test]
    fn a_segment_that_is_missing_leaves_a_gap() {
        let mut joint = Joint::default();
        let head = head(Some(14), Some(28));
        assert_eq!(joint.take(segment(0, 0), &head).len(), 30);
        let all = joint.take(segment(3, 0), &head);
        assert!(all.is_empty() && joint.is_over() && !joint.is_whole());
    }

    #[test]
    fn the_last_sound_is_decided_on_at_the_end() {
        let mut joint = Joint::default();
        let waits = head(Some(10), Some(22));
        let all = joint.take(segment(0, 0), &waits);
        // 101 ms before the first that waits, sound is held back; here none is.
        assert_eq!(fills(&all, Kind::Audio).len() + joint.near.len(), 20);
        let rest = joint.finish(&waits);
        assert_eq!(fills(&all, Kind::Audio).len() + rest.len(), 20);
        assert!(!joint.is_whole());
    }
}
