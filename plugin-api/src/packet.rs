//! What a media packet is, on both sides of the boundary.

use crate::abi;

/// Video or audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Pictures.
    Video,
    /// Sound.
    Audio,
}

/// The codec of a packet; the payload forms are described at the `CODEC_*` constants of [`abi`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// H.264 (ISO/IEC 14496-10).
    H264,
    /// HEVC (ISO/IEC 23008-2).
    Hevc,
    /// AV1.
    Av1,
    /// AAC (ISO/IEC 14496-3).
    Aac,
    /// Opus (RFC 6716).
    Opus,
}

impl Codec {
    /// Name in manifests and the API.
    pub fn name(self) -> &'static str {
        match self {
            Codec::H264 => "h264",
            Codec::Hevc => "hevc",
            Codec::Av1 => "av1",
            Codec::Aac => "aac",
            Codec::Opus => "opus",
        }
    }

    /// Number on the wire.
    pub fn to_abi(self) -> u32 {
        match self {
            Codec::H264 => abi::CODEC_H264,
            Codec::Hevc => abi::CODEC_HEVC,
            Codec::Av1 => abi::CODEC_AV1,
            Codec::Aac => abi::CODEC_AAC,
            Codec::Opus => abi::CODEC_OPUS,
        }
    }

    /// From the number on the wire.
    pub fn from_abi(codec: u32) -> Option<Self> {
        Some(match codec {
            abi::CODEC_H264 => Codec::H264,
            abi::CODEC_HEVC => Codec::Hevc,
            abi::CODEC_AV1 => Codec::Av1,
            abi::CODEC_AAC => Codec::Aac,
            abi::CODEC_OPUS => Codec::Opus,
            _ => return None,
        })
    }
}
