//! Where the segments of a window meet the queue: no packet twice, none missing. Pure.
//!
//! Both come from one publisher. What is in a segment and not in the queue came before the queue began, so each track is cut at its first
//! packet that waits. That is found by its bytes near its time: times of sound in segments are counted and may be a little off, and by
//! times alone a packet could be lost or doubled. Silence is the same bytes over and over, of which the nearest in time counts.

use std::sync::Arc;

use satcast_plugin_api::{Kind, NANOS_PER_MILLI, Packet};

use crate::queue::Head;

/// How far the time of a packet in a segment may be from its time in the queue, in nanoseconds: as far as the clock of sound lets it.
const APART_NANOS_MAX: i64 = (satcast_media::fmp4::AUDIO_RESYNC_MILLIS as i64 + 1) * NANOS_PER_MILLI;
/// Half of the usual packet of sound: by times alone, what is nearer to the first one is that one.
const HALF_SOUND_NANOS: i64 = 10 * NANOS_PER_MILLI;

/// The cut between what is read from segments and what waits in the queue.
#[derive(Debug, Default)]
pub(super) struct Join {
    video: Track,
    audio: Track,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Track {
    /// Packets near the first one that waits, not decided on.
    near: Vec<Packet>,
    /// Packets of it wait.
    waits: bool,
    is_cut: bool,
    /// It was cut at the first packet that waits, or by its time; else something may be missing.
    is_whole: bool,
}

impl Join {
    /// Gives those packets of a segment that came before what waits, which is `head` as seen after the segment was read.
    pub(super) fn take(&mut self, segment: Vec<Packet>, head: &Head) -> Vec<Packet> {
        let (video, audio): (Vec<_>, Vec<_>) =
            segment.into_iter().partition(|packet| packet.kind() == Kind::Video);
        // One of which a segment has nothing may have ended.
        let is_open = |track: &Track, waits: bool, has_any: bool| waits && has_any && !track.is_cut;
        let (has_video, has_audio) = (!video.is_empty(), !audio.is_empty());
        let mut before = self.video.take(video, head.video.as_ref(), false);
        before.extend(self.audio.take(audio, head.audio.as_ref(), false));
        before.sort_by_key(|packet| packet.dts_ns);
        self.is_over = (self.video.is_cut || self.audio.is_cut)
            && !is_open(&self.video, head.video.is_some(), has_video)
            && !is_open(&self.audio, head.audio.is_some(), has_audio);
        before
    }

    /// No more segments come: what was not decided on.
    pub(super) fn finish(&mut self, head: &Head) -> Vec<Packet> {
        let mut rest = self.video.take(Vec::new(), head.video.as_ref(), true);
        rest.extend(self.audio.take(Vec::new(), head.audio.as_ref(), true));
        rest.sort_by_key(|packet| packet.dts_ns);
        rest
    }

    /// All that came before was given, but for what [`Self::finish`] gives.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Nothing is missing between what was given and what waits.
    pub(super) fn is_whole(&self) -> bool {
        if self.video.waits { self.video.is_whole } else { self.audio.is_whole }
    }
}

impl Track {
    fn take(&mut self, read: Vec<Packet>, first: Option<&Arc<Packet>>, is_last: bool) -> Vec<Packet> {
        if self.is_cut {
            return Vec::new();
        }
        let mut all = std::mem::take(&mut self.near);
        all.extend(read);
        let Some(first) = first else { return all };
        self.waits = true;
        let apart = |packet: &Packet| packet.dts_ns.saturating_sub(first.dts_ns);
        if !is_last && all.last().is_none_or(|last| apart(last) <= APART_NANOS_MAX) {
            // The nearest may still come.
            let near = all.iter().position(|packet| apart(packet) >= -APART_NANOS_MAX);
            self.near = all.split_off(near.unwrap_or(all.len()));
            return all;
        }
        let is_same = |packet: &Packet| {
            packet.payload == first.payload && apart(packet).saturating_abs() <= APART_NANOS_MAX
        };
        let same = all.iter().enumerate().filter(|(_, packet)| is_same(packet));
        let found = same.min_by_key(|(_, packet)| apart(packet).saturating_abs()).map(|(at, _)| at);
        let by_time = || all.iter().position(|packet| apart(packet) >= -HALF_SOUND_NANOS);
        if let Some(end) = found.or_else(by_time) {
            self.is_cut = true;
            self.is_whole = apart(&all[end]) <= APART_NANOS_MAX;
            all.truncate(end);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use satcast_plugin_api::Codec;

    use super::*;
    use satcast_drivers::testing;

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
                let (mut join, mut all) = (Join::default(), Vec::new());
                for number in 0..5 {
                    if !join.is_over() {
                        all.extend(join.take(segment(number, off_ms), &head));
                    }
                }
                assert!(join.is_over() && join.is_whole(), "{off_ms} {audio}");
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
            let mut join = Join::default();
            let mut all = Vec::new();
            for number in 0..3 {
                all.extend(join.take(segment(number, off_ms).into_iter().map(silent).collect(), &head));
            }
            assert_eq!(fills(&all, Kind::Audio).len(), 28, "{off_ms}");
        }
    }

    #[test]
    fn everything_came_before_while_nothing_waits() {
        let mut join = Join::default();
        assert_eq!(join.take(segment(0, 0), &head(None, None)).len(), 30);
        assert!(!join.is_over());
        // Then the first of each is in the segment that follows.
        let all = join.take(segment(1, 0), &head(Some(10), Some(20)));
        assert!(all.is_empty() && join.is_over() && join.is_whole());
    }

    #[test]
    fn sound_alone_is_cut_and_pictures_alone_too() {
        let sound_only =
            |number| segment(number, 3).into_iter().filter(|packet| packet.kind() == Kind::Audio);
        let (mut join, mut all) = (Join::default(), Vec::new());
        for number in 0..3 {
            all.extend(join.take(sound_only(number).collect(), &head(None, Some(25))));
        }
        assert_eq!((all.len(), join.is_over(), join.is_whole()), (25, true, true));
        let pictures = |number| segment(number, 0).into_iter().filter(|packet| packet.kind() == Kind::Video);
        let mut join = Join::default();
        // Sound waits, and segments have none.
        let all = join.take(pictures(0).collect(), &head(Some(4), Some(9)));
        assert_eq!((all.len(), join.is_over(), join.is_whole()), (4, true, true));
    }

    #[test]
    fn a_segment_that_is_missing_leaves_a_gap() {
        let mut join = Join::default();
        let head = head(Some(14), Some(28));
        assert_eq!(join.take(segment(0, 0), &head).len(), 30);
        let all = join.take(segment(3, 0), &head);
        assert!(all.is_empty() && join.is_over() && !join.is_whole());
    }

    #[test]
    fn what_is_near_is_decided_on_at_the_end() {
        let mut join = Join::default();
        let waits = head(Some(10), Some(22));
        let mut all = join.take(segment(0, 0), &waits);
        assert!(all.len() < 30, "what is less than 101 ms before the first that waits is held back");
        all.extend(join.finish(&waits));
        assert_eq!((fills(&all, Kind::Video).len(), fills(&all, Kind::Audio).len()), (10, 20));
        assert!(!join.is_whole());
    }
}
