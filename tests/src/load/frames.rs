//! The frames of the load, like those of a 720p30 encoder at 3 Mbit/s, each with a stamp.

use std::time::Duration;

use bytes::Bytes;
use satcast_media::NANOS_PER_MILLI;
use satcast_media::{Codec, Packet};

/// Video frames per second.
pub const FRAMES_PER_SECOND: u64 = 30;
/// Video frames per GOP: two seconds.
pub const FRAMES_PER_GOP: u64 = 60;
/// Samples of one frame of audio, and in a second.
const AUDIO: (u64, u64) = (1024, 48_000);
/// Payload of a keyframe, of another video frame and of an audio frame: 2.9 Mbit/s and 128 kbit/s.
const SIZES: [usize; 3] = [60_000, 11_350, 341];
/// Offset of the stamp in a payload: after the length and the first bytes of a video frame.
const STAMP_AT: usize = 8;
const STAMP_MAGIC: [u8; 4] = *b"St4m";
/// Numbers have four bits in a byte, so that no bytes of a stamp look like a start code of H.264.
const STAMP_BYTES: usize = 4 + 8 + 8 + 16;
const DIGIT: u8 = 0x50;

/// First byte of an audio frame. That of a video frame belongs to its length and is 0.
const AUDIO_BEGIN: u8 = 0x21;

/// Configuration of H.264 at 1280 x 720, as x264 writes it.
const VIDEO_CONFIG: &[u8] = &[
    0x01, 0x42, 0xc0, 0x1f, 0xff, 0xe1, 0x00, 0x17, 0x67, 0x42, 0xc0, 0x1f, 0xda, 0x01, 0x40, 0x16, 0xec,
    0x04, 0x40, 0x00, 0x00, 0x03, 0x00, 0x40, 0x00, 0x00, 0x0f, 0x03, 0xc6, 0x0c, 0xa8, 0x01, 0x00, 0x04,
    0x68, 0xce, 0x3c, 0x80,
];
/// AAC-LC of 48 kHz in two channels.
const AUDIO_CONFIG: &[u8] = &[0x11, 0x90];

/// The stamp in the payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which stream it was sent on.
    pub stream: u32,
    /// Its number among those of its track, from 0 on.
    pub number: u32,
    /// Time of sending, on the clock that both sides share.
    pub sent: Duration,
}

impl Stamp {
    fn write(self, payload: &mut [u8]) {
        let place = &mut payload[STAMP_AT..STAMP_AT + STAMP_BYTES];
        place[..4].copy_from_slice(&STAMP_MAGIC);
        let micros = u64::try_from(self.sent.as_micros()).unwrap_or(u64::MAX);
        let numbers = [&self.stream.to_be_bytes()[..], &self.number.to_be_bytes(), &micros.to_be_bytes()];
        let digits = numbers.concat().into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        place[4..].iter_mut().zip(digits).for_each(|(place, digit)| *place = DIGIT | digit);
    }

    /// The stamp in a payload; `None` when it has none.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let place = payload.get(STAMP_AT..STAMP_AT + STAMP_BYTES)?;
        let digits = place.strip_prefix(&STAMP_MAGIC)?;
        let number = |digits: &[u8]| digits.iter().fold(0, |sum, byte| sum << 4 | u64::from(byte ^ DIGIT));
        let word = |digits: &[u8]| u32::try_from(number(digits)).ok();
        let (words, micros) = digits.split_at(16);
        let sent = Duration::from_micros(number(micros));
        Some(Self { stream: word(&words[..8])?, number: word(&words[8..])?, sent })
    }

    /// All stamps in the bytes of a file in which frames lie whole, such as an MP4, with whether each is of a video frame.
    pub fn all(bytes: &[u8]) -> impl Iterator<Item = (bool, Self)> + '_ {
        let words = bytes.windows(STAMP_MAGIC.len()).enumerate();
        let places = words.filter(|(_, word)| **word == STAMP_MAGIC);
        places.filter_map(move |(place, _)| {
            let frame = bytes.get(place.checked_sub(STAMP_AT)?..)?;
            Some((frame[0] != AUDIO_BEGIN, Self::read(frame)?))
        })
    }
}

/// Numbers of the last frames of a stream: audio and video.
#[derive(Clone, Copy, Debug, Default)]
pub struct Last([Option<u32>; 2]);

impl Last {
    /// Takes the next frame; gives how many are missing before it, and `None` when it came before.
    pub fn take(&mut self, is_video: bool, number: u32) -> Option<u64> {
        let last = self.0[usize::from(is_video)].replace(number);
        last.map_or(Some(0), |last| number.checked_sub(last)?.checked_sub(1).map(u64::from))
    }
}

/// The next frame of a track, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Video.
    Video(u64),
    /// Audio.
    Audio(u64),
}

impl Frame {
    /// Time of sending after the beginning of its stream.
    #[must_use]
    pub fn due(self) -> Duration {
        match self {
            Self::Video(number) => Duration::from_micros(number * 1_000_000 / FRAMES_PER_SECOND),
            Self::Audio(number) => Duration::from_micros(number * AUDIO.0 * 1_000_000 / AUDIO.1),
        }
    }

    /// Whether a player can start with it.
    #[must_use]
    pub fn is_key(self) -> bool {
        matches!(self, Self::Video(number) if number.is_multiple_of(FRAMES_PER_GOP))
    }

    /// The frame as a packet of a stream that begins at `begin_ms` (RTMP uses its low 32 bits).
    #[must_use]
    pub fn packet(self, stream: u32, begin_ms: i64, sent: Duration) -> Packet {
        let (codec, number, size, first) = match self {
            Self::Video(number) if self.is_key() => (Codec::H264, number, SIZES[0], 0x65),
            Self::Video(number) => (Codec::H264, number, SIZES[1], 0x41),
            Self::Audio(number) => (Codec::Aac, number, SIZES[2], AUDIO_BEGIN),
        };
        let mut payload = vec![0x5a; size];
        if codec == Codec::H264 {
            // One NAL unit with its length.
            payload[..4].copy_from_slice(&u32::try_from(size - 4).unwrap_or_default().to_be_bytes());
            payload[4] = first;
        } else {
            payload[0] = first;
        }
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Stamp { stream, number, sent }.write(&mut payload);
        let ms = begin_ms.saturating_add(i64::try_from(self.due().as_millis()).unwrap_or(i64::MAX));
        let dts_ns = ms.saturating_mul(NANOS_PER_MILLI);
        Packet::media(codec, self.is_key(), dts_ns, dts_ns, Bytes::from(payload))
    }
}

/// The configuration of both tracks, at the time `begin_ms`.
#[must_use]
pub fn configuration(begin_ms: i64) -> [Packet; 2] {
    let dts_ns = begin_ms.saturating_mul(NANOS_PER_MILLI);
    [(Codec::H264, VIDEO_CONFIG), (Codec::Aac, AUDIO_CONFIG)].map(|(codec, record)| Packet {
        dts_ns,
        pts_ns: dts_ns,
        ..Packet::configuration(codec, Bytes::from_static(record))
    })
}

/// The frames of one stream in the order in which they are due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rhythm {
    video: u64,
    audio: u64,
}

impl Rhythm {
    /// The frame that is due next, which stays the same until it is taken.
    #[must_use]
    pub fn next(&self) -> Frame {
        let (video, audio) = (Frame::Video(self.video), Frame::Audio(self.audio));
        if video.due() <= audio.due() { video } else { audio }
    }

    /// Takes it.
    pub fn take(&mut self) -> Frame {
        let frame = self.next();
        match frame {
            Frame::Video(_) => self.video += 1,
            Frame::Audio(_) => self.audio += 1,
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_77_frames_and_three_megabits() {
        let mut rhythm = Rhythm::default();
        let (mut frames, mut bytes, mut keys) = (0, 0, 0);
        while rhythm.next().due() < Duration::from_secs(10) {
            let frame = rhythm.take();
            frames += 1;
            keys += usize::from(frame.is_key());
            bytes += frame.packet(0, 0, Duration::ZERO).payload.len();
        }
        assert_eq!((frames, keys), (300 + 469, 5));
        let megabits = bytes as f64 * 8.0 / 1e6 / 10.0;
        assert!((3.0..3.1).contains(&megabits), "{megabits} Mbit/s");
    }

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let sent = Duration::from_micros(1_234_567_890);
        for frame in [Frame::Video(0), Frame::Video(7), Frame::Audio(9)] {
            let packet = frame.packet(3, 0, sent);
            let (Frame::Video(number) | Frame::Audio(number)) = frame;
            let stamp = Stamp { stream: 3, number: u32::try_from(number).unwrap(), sent };
            assert_eq!(Stamp::read(&packet.payload), Some(stamp));
            assert_eq!(packet.keyframe, frame == Frame::Video(0));
        }
        assert_eq!(Stamp::read(&[0; 100]), None);
        assert_eq!(Stamp::read(&STAMP_MAGIC), None);
    }

    #[test]
    fn stamps_are_found_in_a_file() {
        let mut file = vec![0; 5];
        for frame in [Frame::Video(60), Frame::Audio(9), Frame::Video(61)] {
            file.extend_from_slice(&frame.packet(3, 0, Duration::ZERO).payload);
        }
        file.extend_from_slice(&STAMP_MAGIC);
        let found: Vec<(bool, u32, u32)> =
            Stamp::all(&file).map(|(is_video, stamp)| (is_video, stamp.stream, stamp.number)).collect();
        assert_eq!(found, [(true, 3, 60), (false, 3, 9), (true, 3, 61)]);
        assert_eq!(Stamp::all(&STAMP_MAGIC).count(), 0);
    }

    #[test]
    fn missing_and_repeated_frames_are_seen_for_each_track() {
        let mut last = Last::default();
        let frames = [(true, 10), (false, 3), (true, 11), (true, 14), (true, 14), (true, 2), (false, 4)];
        let taken = frames.map(|(is_video, number)| last.take(is_video, number));
        assert_eq!(taken, [Some(0), Some(0), Some(0), Some(2), None, None, Some(0)]);
    }
}
