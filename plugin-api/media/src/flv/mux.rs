//! Writes tag headers for packets.

use super::{
    AAC_TAG, AUDIO_EX, FRAME_INTER, FRAME_KEY, PACKET_CODED_FRAMES, PACKET_CODED_FRAMES_X,
    PACKET_SEQUENCE_START, VIDEO_AVC, fourcc,
};
use crate::{Codec, NANOS_PER_MILLI, Packet};

/// Longest tag header written, in bytes.
pub const TAG_HEADER_BYTES_MAX: usize = 8;

/// Largest composition time that fits the signed 24-bit field, in milliseconds.
const COMPOSITION_MS_MAX: i64 = 0x7f_ffff;

/// The bytes before the payload in a tag body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagHeader {
    bytes: [u8; TAG_HEADER_BYTES_MAX],
    len: usize,
}

impl TagHeader {
    /// The header's bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn of(parts: [&[u8]; 3]) -> Self {
        let mut header = TagHeader { bytes: [0; TAG_HEADER_BYTES_MAX], len: 0 };
        for part in parts {
            header.bytes[header.len..header.len + part.len()].copy_from_slice(part);
            header.len += part.len();
        }
        header
    }
}

/// Time in whole milliseconds, rounded down.
pub(crate) fn floor_ms(time_ns: i64) -> i64 {
    time_ns.div_euclid(NANOS_PER_MILLI)
}

/// Writes the tag header of a packet; the tag body is the header and then the payload.
///
/// H.264 and AAC are written as legacy tags, HEVC, AV1 and Opus as Enhanced RTMP. Both times are rounded down to
/// milliseconds separately, and a composition time that does not fit into 24 bits is clamped.
pub fn mux(packet: &Packet) -> TagHeader {
    let config = packet.is_config();
    let packet_type = if config { PACKET_SEQUENCE_START } else { PACKET_CODED_FRAMES };
    let frame_type = if packet.keyframe || config { FRAME_KEY } else { FRAME_INTER };
    let composition = if config { 0 } else { floor_ms(packet.pts_ns) - floor_ms(packet.dts_ns) };
    let composition = composition.clamp(-COMPOSITION_MS_MAX - 1, COMPOSITION_MS_MAX) as i32;
    let [_, composition_bytes @ ..] = composition.to_be_bytes();
    let ex = |packet_type: u8| [0x80 | frame_type << 4 | packet_type];
    match packet.codec {
        Codec::H264 => TagHeader::of([&[frame_type << 4 | VIDEO_AVC], &[packet_type], &composition_bytes]),
        Codec::Hevc if config => TagHeader::of([&ex(packet_type), b"hvc1", &[]]),
        Codec::Hevc if composition == 0 => TagHeader::of([&ex(PACKET_CODED_FRAMES_X), b"hvc1", &[]]),
        Codec::Hevc => TagHeader::of([&ex(packet_type), b"hvc1", &composition_bytes]),
        Codec::Av1 => TagHeader::of([&ex(packet_type), b"av01", &[]]),
        Codec::Aac => TagHeader::of([&[AAC_TAG], &[packet_type], &[]]),
        Codec::Opus => TagHeader::of([&[AUDIO_EX << 4 | packet_type], &fourcc(Codec::Opus), &[]]),
    }
}
