//! Converts FLV and Enhanced RTMP tag bodies to packets and back.
//!
//! Sources: "Adobe Flash Video File Format Specification 10.1", annex E; "Enhanced RTMP (V2)" (Veovera).
//! A tag body is the payload of an RTMP audio or video message.
//!
//! Policy: one track per kind. H.264, HEVC, AV1, AAC and Opus are read; other codecs, tracks other than
//! track 0, several tracks in one tag, commands, end-of-sequence marks and per-frame metadata are skipped.
//! [`ForeignCodec`] names the unsupported codec of a skipped tag.

mod demux;
mod foreign;
mod mux;
#[cfg(test)]
mod tests;

pub use demux::demux;
use demux::{Cursor, mod_ex, one_track};
pub use foreign::ForeignCodec;
pub(crate) use mux::floor_ms;
pub use mux::{TAG_HEADER_BYTES_MAX, TagHeader, mux};

use crate::Codec;

/// Reasons for which a tag body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlvError {
    /// The body ends inside its header.
    #[error("tag is cut off")]
    Truncated,
    /// More than [`crate::rtmp::limits::MODEX_MAX`] ModEx prefixes.
    #[error("tag has too many ModEx prefixes")]
    TooManyModEx,
    /// A codec configuration over [`crate::rtmp::limits::CONFIG_BYTES_MAX`].
    #[error("codec configuration record of {0} bytes is over the limit")]
    ConfigTooLong(usize),
}

/// Legacy video codec id of H.264.
const VIDEO_AVC: u8 = 7;
/// Legacy audio format of AAC.
const AUDIO_AAC: u8 = 10;
/// Audio format that announces an Enhanced RTMP audio header.
const AUDIO_EX: u8 = 9;
/// First byte of legacy AAC tags: AAC, 44 kHz, 16 bit, stereo, independent of the real format (annex E.4.2.1).
const AAC_TAG: u8 = 0xaf;
/// Frame types.
const FRAME_KEY: u8 = 1;
const FRAME_INTER: u8 = 2;
const FRAME_COMMAND: u8 = 5;

/// Packet types of Enhanced RTMP; 0 and 1 mean the same in legacy AVC and AAC tags.
const PACKET_SEQUENCE_START: u8 = 0;
const PACKET_CODED_FRAMES: u8 = 1;
const PACKET_CODED_FRAMES_X: u8 = 3;
const VIDEO_PACKET_METADATA: u8 = 4;
const VIDEO_PACKET_MULTITRACK: u8 = 6;
const AUDIO_PACKET_MULTITRACK: u8 = 5;
const PACKET_MODEX: u8 = 7;
/// ModEx type of a nanosecond offset.
const MODEX_TIMESTAMP_NANOS: u8 = 0;
/// Multitrack type of one track.
const MULTITRACK_ONE: u8 = 0;

/// The FourCC Enhanced RTMP uses for a codec.
pub fn fourcc(codec: Codec) -> [u8; 4] {
    match codec {
        Codec::H264 => *b"avc1",
        Codec::Hevc => *b"hvc1",
        Codec::Av1 => *b"av01",
        Codec::Aac => *b"mp4a",
        Codec::Opus => *b"Opus",
    }
}

/// The codec of a FourCC, if it is supported.
pub fn codec_of_fourcc(fourcc: [u8; 4]) -> Option<Codec> {
    Codec::ALL.into_iter().find(|codec| self::fourcc(*codec) == fourcc)
}
