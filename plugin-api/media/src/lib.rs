//! Sans-I/O live media: RTMP and SRT in both roles, FLV and Enhanced RTMP tags, MPEG transport streams, codec
//! configurations, fragmented and ordinary MP4, segments and HLS playlists.
//!
//! Bytes go in, [`Packet`]s and bytes come out. Nothing here opens a socket, reads a clock, spawns a task,
//! draws a random number or logs. Every size, depth and count that a peer controls has a limit in
//! [`rtmp::limits`], [`srt::limits`] and [`ts::limits`], or beside the type it limits in [`fmp4`], [`mp4`], [`segment`] and [`playlist`]. Deliberately
//! absent: RTMPE, RTMPT, the digest handshake, RTMP playback, AMF3, aggregate messages, and codecs other
//! than H.264, HEVC, AV1, AAC and Opus (such messages are skipped and counted).
//!
//! Map: [`rtmp::server::ServerSession`] and [`rtmp::client::ClientSession`] are the two peers, built from
//! [`rtmp::handshake`], [`rtmp::chunk`], [`rtmp::message`] and [`rtmp::amf0`]; [`flv`] turns message bodies
//! into packets and back, [`ts`] does so with transport streams, which [`srt`] carries, and [`video`] reads access units
//! with their parameter sets in band; [`codec`] reads codec configurations. [`segment::Segmenter`] turns packets into
//! [`fmp4`] segments, and [`playlist`] writes their playlists. [`mp4`] reads files that others made.

#![warn(missing_docs)]

pub mod codec;
pub mod flv;
pub mod fmp4;
#[doc(hidden)]
pub mod fuzz;
pub mod mp4;
pub mod playlist;
pub mod rtmp;
pub mod segment;
pub mod srt;
#[cfg(test)]
mod testing;
pub mod ts;
pub mod video;

pub use satcast_types::{Codec, Kind, NANOS_PER_MILLI, Packet, Role};
