//! Packets for a destination under test.

use bytes::Bytes;

use crate::{Codec, NANOS_PER_MILLI, Packet};

/// A configuration packet at time 0.
pub fn config(codec: Codec, record: &'static [u8]) -> Packet {
    Packet { source: 1, ..Packet::configuration(codec, Bytes::from_static(record)) }
}

/// A media packet of track 0; decode and presentation time are the same.
pub fn media(codec: Codec, sequence: u64, dts_ms: i64, keyframe: bool, payload: Bytes) -> Packet {
    let dts_ns = dts_ms * NANOS_PER_MILLI;
    Packet { source: 1, sequence, ..Packet::media(codec, keyframe, dts_ns, dts_ns, payload) }
}
