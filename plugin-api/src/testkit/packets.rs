//! Packets to feed a destination with.

use bytes::Bytes;

use crate::host::Packet;
use crate::packet::{Codec, Kind};

/// A configuration packet at time 0.
pub fn config(codec: Codec, record: &'static [u8]) -> Packet {
    Packet { config: true, ..media(codec, 0, 0, false, Bytes::from_static(record)) }
}

/// A media packet of track 0; decode and presentation time are the same.
pub fn media(codec: Codec, sequence: u64, dts_ms: i64, keyframe: bool, payload: Bytes) -> Packet {
    let kind = if matches!(codec, Codec::Aac | Codec::Opus) { Kind::Audio } else { Kind::Video };
    Packet {
        kind,
        codec,
        config: false,
        keyframe,
        discontinuity: false,
        track: 0,
        source: 1,
        sequence,
        dts_ns: dts_ms * 1_000_000,
        pts_ns: dts_ms * 1_000_000,
        payload,
    }
}
