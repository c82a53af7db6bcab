//! MPEG transport streams, both ways: bytes to packets and back.
//!
//! Sources: ISO/IEC 13818-1 (the same text as ITU-T H.222.0); clause and table numbers without another name are of it.
//! "Encapsulation of Opus in MPEG-2 transport streams" (ETSI TS draft 0.1.3), and ISO/IEC 14496-3 for ADTS and LATM.
//!
//! Policy of the [`Demuxer`]: the first program of the program association table (PAT), and in its program map
//! table (PMT) the first stream of each kind that [`crate::Codec`] knows. H.264 and HEVC come as byte streams
//! (annex B) and leave with length prefixes; delimiters and parameter sets are taken out of the access units, and the
//! parameter sets become the codec configuration. AAC comes in ADTS or in LATM, Opus with its control header. One PES
//! packet of video is one access unit, as all encoders send it. A lost packet drops its PES packet; audio goes on with
//! the next one, video with the next keyframe, and that packet has [`crate::Packet::discontinuity`].
//!
//! Policy of the [`Muxer`]: one program, one PES packet for each packet, parameter sets in every keyframe.
//!
//! Deliberately absent: packets of 192 and 204 bytes, scrambling, several programs, AV1, service information (DVB SI),
//! a constant bitrate with null packets, and any buffer for jitter. Every amount that a peer controls has a limit in
//! [`limits`].

mod adts;
mod audio;
mod demux;
mod latm;
pub mod limits;
mod mux;
mod opus;
mod packet;
mod pes;
mod section;
mod sink;
mod sync;
mod tables;
#[cfg(test)]
mod tests;
mod time;
mod track;
mod write;

pub use demux::Demuxer;
pub use mux::{MuxError, Muxer};
pub use sink::DemuxStats;

/// Bytes of a transport stream packet (2.4.3.2).
pub const PACKET_BYTES: usize = 188;
/// First byte of every packet.
const SYNC_BYTE: u8 = 0x47;
/// Packet identifiers (table 2-3): of the PAT, the lowest that streams may have, and of packets without content.
const PID_PAT: u16 = 0;
const PID_MIN: u16 = 0x10;
const PID_NULL: u16 = 0x1fff;

/// Reasons for which a transport stream cannot be read any further. All other faults are skipped and counted in
/// [`DemuxStats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TsError {
    /// No packets in [`limits::RESYNC_BYTES_MAX`] bytes.
    #[error(
        "the bytes are no MPEG transport stream with packets of 188 bytes; choose MPEG-TS in the encoder"
    )]
    NoSync,
    /// Timestamps jumped until their sum passed [`crate::rtmp::limits::TIME_MS_MAX`].
    #[error("timestamps of the transport stream jump too far; restart the encoder")]
    TimestampRange,
}
