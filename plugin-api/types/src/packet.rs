//! The unit of media in all parts of the relay.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Nanoseconds in one millisecond, the unit of RTMP time.
pub const NANOS_PER_MILLI: i64 = 1_000_000;

/// Kind of track. The numbers are those of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Video.
    Video = 1,
    /// Audio.
    Audio = 2,
}

/// Codec of a packet's payload. The numbers are those of the C table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// H.264 / AVC (ISO/IEC 14496-10): length-prefixed NAL units; the configuration is an `AVCDecoderConfigurationRecord`.
    H264 = 1,
    /// H.265 / HEVC (ISO/IEC 23008-2): length-prefixed NAL units; the configuration is an `HEVCDecoderConfigurationRecord`.
    Hevc = 2,
    /// AV1: OBUs without temporal delimiters; the configuration is an `AV1CodecConfigurationRecord`.
    Av1 = 3,
    /// AAC (ISO/IEC 14496-3): raw frames without ADTS; the configuration is an `AudioSpecificConfig`.
    Aac = 4,
    /// Opus (RFC 6716): packets; the configuration is an `OpusHead` (RFC 7845).
    Opus = 5,
}

impl Codec {
    /// Every codec that is known.
    pub const ALL: [Codec; 5] = [Codec::H264, Codec::Hevc, Codec::Av1, Codec::Aac, Codec::Opus];

    /// Lower-case name in manifests, reports and the API.
    pub fn name(self) -> &'static str {
        match self {
            Codec::H264 => "h264",
            Codec::Hevc => "hevc",
            Codec::Av1 => "av1",
            Codec::Aac => "aac",
            Codec::Opus => "opus",
        }
    }

    /// The kind of track this codec belongs to.
    pub fn kind(self) -> Kind {
        match self {
            Codec::H264 | Codec::Hevc | Codec::Av1 => Kind::Video,
            Codec::Aac | Codec::Opus => Kind::Audio,
        }
    }

    /// The codec of a number of the C table; `None` for one that this version does not know.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| *codec as u32 == number)
    }
}

/// Role of a packet's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The codec configuration.
    Config,
    /// One access unit or audio frame.
    Data,
}

/// One codec configuration or access unit of one track. Cloning shares the payload, which serde leaves out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packet {
    /// Codec of the payload.
    pub codec: Codec,
    /// Codec configuration or media.
    pub role: Role,
    /// Decoders can start here: true only for video that is no configuration.
    pub keyframe: bool,
    /// Packets before this one are missing.
    pub discontinuity: bool,
    /// Track number inside its kind, from 0.
    pub track: u32,
    /// Number of the session; 0 before the packet belongs to one.
    pub source: u64,
    /// Position in the session, growing by one; 0 for packets of a backfill.
    pub sequence: u64,
    /// Decode time in nanoseconds, on the session's timeline, or before that on the publisher's unwrapped timeline; may be negative.
    pub dts_ns: i64,
    /// Presentation time in nanoseconds on the same timeline; equal to `dts_ns` for audio.
    pub pts_ns: i64,
    /// The configuration or access unit, in the form that [`Codec`] describes.
    #[serde(skip)]
    pub payload: Bytes,
}

impl Packet {
    /// Media of track 0, without a session.
    pub fn media(codec: Codec, keyframe: bool, dts_ns: i64, pts_ns: i64, payload: Bytes) -> Self {
        let (role, discontinuity, track, source, sequence) = (Role::Data, false, 0, 0, 0);
        Self { codec, role, keyframe, discontinuity, track, source, sequence, dts_ns, pts_ns, payload }
    }

    /// The codec configuration of track 0. Its time is 0, since configurations have none.
    pub fn configuration(codec: Codec, payload: Bytes) -> Self {
        Self { role: Role::Config, ..Self::media(codec, false, 0, 0, payload) }
    }

    /// Video or audio.
    pub fn kind(&self) -> Kind {
        self.codec.kind()
    }

    /// The payload is the codec configuration, not media.
    pub fn is_config(&self) -> bool {
        self.role == Role::Config
    }
}

impl fmt::Debug for Packet {
    /// Prints the payload's length instead of its bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("codec", &self.codec)
            .field("role", &self.role)
            .field("keyframe", &self.keyframe)
            .field("discontinuity", &self.discontinuity)
            .field("track", &self.track)
            .field("source", &self.source)
            .field("sequence", &self.sequence)
            .field("dts_ns", &self.dts_ns)
            .field("pts_ns", &self.pts_ns)
            .field("payload_bytes", &self.payload.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_keep_their_name_kind_and_number() {
        let names = ["h264", "hevc", "av1", "aac", "opus"];
        assert_eq!(Codec::ALL.map(Codec::name), names);
        let (video, audio) = (Kind::Video, Kind::Audio);
        assert_eq!(Codec::ALL.map(Codec::kind), [video, video, video, audio, audio]);
        assert_eq!(Codec::ALL.map(|codec| Codec::from_number(codec as u32)), Codec::ALL.map(Some));
        assert_eq!([0, 6, u32::MAX].map(Codec::from_number), [None; 3]);
    }

    #[test]
    fn debug_shows_only_the_length_of_the_payload() {
        let packet = Packet::media(Codec::Aac, false, 1, 1, Bytes::from_static(b"payload"));
        let text = format!("{packet:?}");
        assert!(text.contains("payload_bytes: 7"), "{text}");
        assert!(!text.contains("112"), "{text}");
    }
}
