//! All limits on the memory, parsing and work that a transport stream can cause.
//!
//! Each has a test that reaches it (named beside it). The memory of one [`super::Demuxer`] is the sum of
//! [`HELD_BYTES_MAX`]; it allocates for a PES packet and for a changed table, never for a transport stream packet.

use crate::rtmp::limits::MESSAGE_BYTES_MAX;

/// Bytes in which no packet is found before the stream is given up. Test: `sync::tests`.
pub const RESYNC_BYTES_MAX: usize = 64 * 1024;

/// Packets in a row that must begin with the sync byte to find the stream again. Test: `sync::tests`.
pub const SYNC_PACKETS: usize = 3;

/// Longest section of a table, in bytes (2.4.4: section_length is at most 1,021). Test: `section::tests`.
pub const SECTION_BYTES_MAX: usize = 1024;

/// Streams of a program that are looked at; the rest of the table is skipped. Test: `tables::tests`.
pub const STREAMS_MAX: usize = 16;

/// Longest PES packet of video, in bytes with its header: an access unit is limited as over RTMP. Test:
/// `tests::limits`.
pub const VIDEO_PES_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

/// Longest PES packet of audio, in bytes with its header: the length field has 16 bits (table 2-21). Test:
/// `tests::limits`.
pub const AUDIO_PES_BYTES_MAX: usize = 6 + 0xffff;

/// Audio frames that are taken from one PES packet. Test: `tests::limits`.
pub const AUDIO_FRAMES_MAX: usize = 512;

/// Longest ADTS or LATM frame with its header, in bytes: the length fields have 13 bits, and the one of LATM does not
/// count its header. Test: `tests::limits`.
pub const AUDIO_FRAME_BYTES_MAX: usize = 3 + 0x1fff;

/// Longest note about a program, in bytes; the rest is cut. With it the program map table fits into one packet. Test:
/// `tests::muxed`.
pub const NOTE_BYTES_MAX: usize = 128;

/// Bytes that one demultiplexer holds at most: two open PES packets, an audio frame that is not complete, parameter
/// sets, and two sections. Test: `tests::limits`.
pub const HELD_BYTES_MAX: usize = VIDEO_PES_BYTES_MAX
    + AUDIO_PES_BYTES_MAX
    + AUDIO_FRAME_BYTES_MAX
    + NOTE_BYTES_MAX
    + crate::video::HELD_BYTES_MAX
    + 2 * (SECTION_BYTES_MAX + super::PACKET_BYTES);
