//! Joins the segments of a window and the queue without duplicates or gaps. Pure.
//!
//! Both come from one publisher. A packet that is in a segment but not in the queue arrived before the queue started, so each track is
//! cut at its first queued packet. That packet is found by its bytes, near its time. Times of audio in segments are computed from sample
//! counts and may differ a little, so a match by time alone could lose or repeat a packet. Silence repeats the same bytes; the match
//! nearest in time counts.

use std::sync::Arc;

use satcast_plugin_api::{Kind, NANOS_PER_MILLI, Packet};

use crate::queue::Head;

/// Largest difference between the times of a packet in a segment and in the queue, in nanoseconds: the tolerance of the audio clock.
const APART_NANOS_MAX: i64 = (satcast_media::fmp4::AUDIO_RESYNC_MILLIS as i64 + 1) * NANOS_PER_MILLI;
/// Half of a usual audio packet. In a match by time alone, a packet nearer than this is the first queued one.
const HALF_AUDIO_NANOS: i64 = 10 * NANOS_PER_MILLI;

/// The cut between packets read from segments and packets in the queue.
#[derive(Debug, Default)]
pub(super) struct Join {
    video: Track,
    audio: Track,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Track {
    /// Packets near the first queued one, not decided yet.
    near: Vec<Packet>,
    /// The queue has packets of this track.
    waits: bool,
    is_cut: bool,
    /// It was cut at the first queued packet, or near its time. Otherwise packets may be missing.
    is_whole: bool,
}

impl Join {
    /// Returns the packets of a segment that precede the queue. `head`: the start of the queue, seen after the segment was read.
    pub(super) fn take(&mut self, segment: Vec<Packet>, head: &Head) -> Vec<Packet> {
        let (video, audio): (Vec<_>, Vec<_>) =
            segment.into_iter().partition(|packet| packet.kind() == Kind::Video);
        // A track without packets in a segment may have ended.
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

    /// There are no more segments: returns the undecided packets.
    pub(super) fn finish(&mut self, head: &Head) -> Vec<Packet> {
        let mut rest = self.video.take(Vec::new(), head.video.as_ref(), true);
        rest.extend(self.audio.take(Vec::new(), head.audio.as_ref(), true));
        rest.sort_by_key(|packet| packet.dts_ns);
        rest
    }

    /// All packets before the queue were returned, except those of [`Self::finish`].
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// No packet is missing between the returned packets and the queue.
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
            // The next segment may hold a nearer packet.
            let near = all.iter().position(|packet| apart(packet) >= -APART_NANOS_MAX);
            self.near = all.split_off(near.unwrap_or(all.len()));
            return all;
        }
        let is_same = |packet: &Packet| {
            packet.payload == first.payload && apart(packet).saturating_abs() <= APART_NANOS_MAX
        };
        let same = all.iter().enumerate().filter(|(_, packet)| is_same(packet));
        let found = same.min_by_key(|(_, packet)| apart(packet).saturating_abs()).map(|(at, _)| at);
        let by_time = || all.iter().position(|packet| apart(packet) >= -HALF_AUDIO_NANOS);
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

    fn frame(number: i64) -> Packet {
        read(Codec::H264, number * 40, number as u8)
    }

    /// Audio of 20 ms whose computed time differs by `off_ms` from that of its packet.
    fn audio(number: i64, off_ms: i64) -> Packet {
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

    /// Segments of ten frames and twenty packets of audio each, from the second number on that many.
    fn segment(number: i64, off_ms: i64) -> Vec<Packet> {
        let frames = (number * 10..number * 10 + 10).map(frame);
        frames.chain((number * 20..number * 20 + 20).map(|number| audio(number, off_ms))).collect()
    }

    #[test]
    fn each_track_is_cut_at_its_first_queued_packet_for_any_audio_clock() {
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
                let expected: Vec<u8> = (0..audio as u8).collect();
                assert_eq!(fills(&all, Kind::Audio), expected, "{off_ms} {audio}");
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
    fn all_packets_precede_an_empty_queue() {
        let mut join = Join::default();
        assert_eq!(join.take(segment(0, 0), &head(None, None)).len(), 30);
        assert!(!join.is_over());
        // The first queued packet of each track is in the next segment.
        let all = join.take(segment(1, 0), &head(Some(10), Some(20)));
        assert!(all.is_empty() && join.is_over() && join.is_whole());
    }

    #[test]
    fn audio_alone_and_video_alone_are_cut() {
        let audio_only =
            |number| segment(number, 3).into_iter().filter(|packet| packet.kind() == Kind::Audio);
        let (mut join, mut all) = (Join::default(), Vec::new());
        for number in 0..3 {
            all.extend(join.take(audio_only(number).collect(), &head(None, Some(25))));
        }
        assert_eq!((all.len(), join.is_over(), join.is_whole()), (25, true, true));
        let video_only =
            |number| segment(number, 0).into_iter().filter(|packet| packet.kind() == Kind::Video);
        let mut join = Join::default();
        // The queue has audio, and the segments have none.
        let all = join.take(video_only(0).collect(), &head(Some(4), Some(9)));
        assert_eq!((all.len(), join.is_over(), join.is_whole()), (4, true, true));
    }

    #[test]
    fn a_missing_segment_leaves_a_gap() {
        let mut join = Join::default();
        let head = head(Some(14), Some(28));
        assert_eq!(join.take(segment(0, 0), &head).len(), 30);
        let all = join.take(segment(3, 0), &head);
        assert!(all.is_empty() && join.is_over() && !join.is_whole());
    }

    #[test]
    fn undecided_packets_are_returned_at_the_end() {
        let mut join = Join::default();
        let waits = head(Some(10), Some(22));
        let mut all = join.take(segment(0, 0), &waits);
        assert!(all.len() < 30, "packets less than 101 ms before the first queued one are held back");
        all.extend(join.finish(&waits));
        assert_eq!((fills(&all, Kind::Video).len(), fills(&all, Kind::Audio).len()), (10, 20));
        assert!(!join.is_whole());
    }
}
