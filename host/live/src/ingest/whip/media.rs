//! Frames of a sender to packets: one timeline, parameter sets to codec configurations, and losses to cuts.

use std::io;
use std::time::{Duration, Instant, UNIX_EPOCH};

use bytes::Bytes;
use satcast_media::codec::opus;
use satcast_media::video::{Times, VideoReader};
use satcast_media::{Codec, Kind, Packet};
use str0m::format;
use str0m::media::{MediaData, MediaTime, Mid};

use super::super::end::End;
use super::super::limits::{WHIP_KEYFRAME_EVERY_MS, WHIP_KEYFRAME_REQUESTS_MS};
use super::clock::{Clocks, Report};
use super::offer::Offered;

const NANOS_PER_MICRO: i64 = 1_000;
/// Opus of WebRTC is always announced with two channels (RFC 7587, 7), and decoders drop what encoders put in front.
const OPUS_CHANNELS: u8 = 2;
const OPUS_PRE_SKIP: u16 = 312;

/// The tracks of one sender.
#[derive(Debug)]
pub(super) struct Media {
    started: Instant,
    clocks: Clocks,
    video: Option<(Mid, VideoReader, Codec)>,
    audio: Option<Mid>,
    has_opus: bool,
    /// Number of the RTP packet that comes next, of audio and video.
    next: [Option<u64>; 2],
    /// RTP packets that never came.
    pub(super) lost: u64,
    keyframes: Keyframes,
}

/// When a keyframe is asked for.
#[derive(Debug, Default)]
struct Keyframes {
    came: Option<Instant>,
    asked: Option<Instant>,
}

impl Media {
    pub(super) fn of(offered: &Offered, now: Instant) -> Self {
        Self {
            started: now,
            clocks: Clocks::default(),
            video: offered.video.map(|mid| (mid, VideoReader::new(Codec::H264), Codec::H264)),
            audio: offered.audio,
            has_opus: false,
            next: [None; 2],
            lost: 0,
            keyframes: Keyframes::default(),
        }
    }

    /// The track of video.
    pub(super) fn video(&self) -> Option<Mid> {
        self.video.as_ref().map(|(mid, ..)| *mid)
    }

    /// Appends the packets of a frame.
    ///
    /// # Errors
    /// Its time is out of range.
    pub(super) fn take(&mut self, data: &MediaData, packets: &mut Vec<Packet>) -> Result<(), End> {
        let kind = match (self.video(), self.audio) {
            (Some(mid), _) if mid == data.mid => Kind::Video,
            (_, Some(mid)) if mid == data.mid => Kind::Audio,
            _ => return Ok(()),
        };
        self.count(kind, **data.seq_range.start(), **data.seq_range.end());
        let arrived = i64::try_from(data.network_time.saturating_duration_since(self.started).as_nanos());
        let report = data.last_sender_info.and_then(|info| {
            let wall = info.ntp_time.duration_since(UNIX_EPOCH).ok()?.as_nanos();
            Some(Report { rtp_ns: nanos(info.rtp_time)?, wall_ns: i64::try_from(wall).ok()? })
        });
        let rtp = nanos(data.time).zip(arrived.ok());
        let time = rtp.and_then(|(rtp, arrived)| self.clocks.place(kind, rtp, arrived, report));
        let time =
            time.ok_or_else(|| End::Io(io::Error::other("timestamps of the sender are out of range")))?;
        match kind {
            Kind::Video => self.frame(data, time, packets),
            Kind::Audio => self.opus(data, time, packets),
        }
        Ok(())
    }

    fn frame(&mut self, data: &MediaData, time: i64, packets: &mut Vec<Packet>) {
        let Some((_, reader, codec)) = &mut self.video else { return };
        let sent = match data.params.spec().codec {
            format::Codec::H265 => Codec::Hevc,
            format::Codec::Av1 => Codec::Av1,
            _ => Codec::H264,
        };
        if *codec != sent {
            (*reader, *codec) = (VideoReader::new(sent), sent);
        }
        if !data.contiguous {
            reader.lost();
        }
        // There are no B-frames in WebRTC.
        let from = packets.len();
        reader.read(Some(Times { pts_ns: time, dts_ns: time }), &data.data, packets);
        if packets[from..].iter().any(|packet| packet.keyframe) {
            self.keyframes.came = Some(data.network_time);
        }
    }

    fn opus(&mut self, data: &MediaData, time: i64, packets: &mut Vec<Packet>) {
        if data.data.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.has_opus, true) {
            let head = opus::head(OPUS_CHANNELS, OPUS_PRE_SKIP, 0, &[]);
            packets.push(Packet::configuration(Codec::Opus, Bytes::from(head)));
        }
        // Also behind a loss it has no mark, which would cut a stream of audio alone: the times have the gap, and decoders fill it.
        packets.push(Packet::media(Codec::Opus, false, time, time, Bytes::copy_from_slice(&data.data)));
    }

    /// A frame of this track cannot be read.
    pub(super) fn unreadable(&mut self, track: Mid) {
        if let Some((mid, reader, _)) = &mut self.video
            && *mid == track
        {
            reader.lost();
        }
    }

    /// Counts what is missing in front of these RTP packets.
    fn count(&mut self, kind: Kind, first: u64, last: u64) {
        let next = &mut self.next[usize::from(kind == Kind::Video)];
        self.lost += next.map_or(0, |next| first.saturating_sub(next));
        *next = Some(last.saturating_add(1));
    }

    /// Whether the sender is to be asked for a keyframe now. Notes the request.
    pub(super) fn asks(&mut self, now: Instant) -> bool {
        let Some((_, reader, _)) = &self.video else { return false };
        self.keyframes.asks(reader.is_waiting(), now)
    }
}

impl Keyframes {
    /// `is_waiting`: nothing can be shown before the next keyframe. Otherwise one is asked for when the newest is old.
    fn asks(&mut self, is_waiting: bool, now: Instant) -> bool {
        let passed = |since: Option<Instant>, millis: u64| {
            since.is_none_or(|since| now >= since + Duration::from_millis(millis))
        };
        let is_wanted = is_waiting || passed(self.came, WHIP_KEYFRAME_EVERY_MS);
        let is_due = is_wanted && passed(self.asked, WHIP_KEYFRAME_REQUESTS_MS);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }
}

/// A time in nanoseconds; `None` beyond what fits.
fn nanos(time: MediaTime) -> Option<i64> {
    i64::try_from(time.as_micros()).ok()?.checked_mul(NANOS_PER_MICRO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyframes_are_asked_for_when_they_are_missing_or_old() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut keyframes = Keyframes::default();
        assert!(keyframes.asks(true, start) && !keyframes.asks(true, at(WHIP_KEYFRAME_REQUESTS_MS - 1)));
        assert!(keyframes.asks(true, at(WHIP_KEYFRAME_REQUESTS_MS)));
        keyframes.came = Some(at(1_000));
        assert!(!keyframes.asks(false, at(1_000 + WHIP_KEYFRAME_EVERY_MS - 1)));
        let old = 1_000 + WHIP_KEYFRAME_EVERY_MS;
        assert!(keyframes.asks(false, at(old)));
        assert!(!keyframes.asks(false, at(old + WHIP_KEYFRAME_REQUESTS_MS - 1)));
        assert!(keyframes.asks(false, at(old + WHIP_KEYFRAME_REQUESTS_MS)), "the request was lost");
        keyframes.came = Some(at(9_000));
        assert!(keyframes.asks(true, at(9_001)), "a loss behind the newest keyframe");
    }
}
