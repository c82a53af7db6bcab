//! The one media unit that every part of the relay hands on.

use std::fmt;

use bytes::Bytes;

/// Nanoseconds in one millisecond, the unit of RTMP time.
pub const NANOS_PER_MILLI: i64 = 1_000_000;

/// Codec of a packet's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// H.264 / AVC (ISO/IEC 14496-10).
    H264,
    /// H.265 / HEVC (ISO/IEC 23008-2).
    Hevc,
    /// AV1 (AOMedia bitstream specification).
    Av1,
    /// AAC (ISO/IEC 14496-3), raw access units without ADTS.
    Aac,
    /// Opus (RFC 6716).
    Opus,
}

impl Codec {
    /// Lower-case name used in reports: `h264`, `hevc`, `av1`, `aac` or `opus`.
    pub fn as_str(self) -> &'static str {
        match self {
            Codec::H264 => "h264",
            Codec::Hevc => "hevc",
            Codec::Av1 => "av1",
            Codec::Aac => "aac",
            Codec::Opus => "opus",
        }
    }

    /// The kind of track this codec belongs to.
    pub fn kind(self) -> TrackKind {
        match self {
            Codec::H264 | Codec::Hevc | Codec::Av1 => TrackKind::Video,
            Codec::Aac | Codec::Opus => TrackKind::Audio,
        }
    }
}

/// Kind of track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrackKind {
    /// Pictures.
    Video,
    /// Sound.
    Audio,
}

/// What a packet's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The codec configuration record: avcC, hvcC or av1C body, AudioSpecificConfig, OpusHead.
    Config,
    /// One access unit.
    Data,
}

/// One configuration record or access unit of one track.
///
/// Data payloads: H.264 and HEVC as length-prefixed NAL units, AV1 as OBUs without the temporal delimiter,
/// AAC as a raw access unit, Opus as one packet. Cloning shares the payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Packet {
    /// Track the packet belongs to; always `codec.kind()`.
    pub kind: TrackKind,
    /// Codec of the payload.
    pub codec: Codec,
    /// Configuration record or access unit.
    pub role: Role,
    /// True only for video data that a decoder can start at; false for audio and configuration records.
    pub keyframe: bool,
    /// Decode time in nanoseconds, unwrapped, on the publisher's own time line; may be negative.
    pub dts_ns: i64,
    /// Presentation time in nanoseconds on the same time line; equal to `dts_ns` for audio.
    pub pts_ns: i64,
    /// The record or access unit.
    pub payload: Bytes,
}

impl fmt::Debug for Packet {
    /// Prints the payload's length instead of its bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("codec", &self.codec)
            .field("role", &self.role)
            .field("keyframe", &self.keyframe)
            .field("dts_ns", &self.dts_ns)
            .field("pts_ns", &self.pts_ns)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_has_a_name_and_a_kind() {
        let table = [
            (Codec::H264, "h264", TrackKind::Video),
            (Codec::Hevc, "hevc", TrackKind::Video),
            (Codec::Av1, "av1", TrackKind::Video),
            (Codec::Aac, "aac", TrackKind::Audio),
            (Codec::Opus, "opus", TrackKind::Audio),
        ];
        for (codec, name, kind) in table {
            assert_eq!((codec.as_str(), codec.kind()), (name, kind));
        }
    }

    #[test]
    fn debug_shows_the_length_and_not_the_payload() {
        let packet = Packet {
            kind: TrackKind::Audio,
            codec: Codec::Aac,
            role: Role::Data,
            keyframe: false,
            dts_ns: 1,
            pts_ns: 1,
            payload: Bytes::from_static(b"payload"),
        };
        let text = format!("{packet:?}");
        assert!(text.contains("payload_bytes: 7"), "{text}");
        assert!(!text.contains("112"), "{text}");
    }
}
