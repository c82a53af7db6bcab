//! Made-up packets, and the output of the cutter for them.

use bytes::Bytes;
use satcast_media::Packet;
use satcast_media::fuzz::RECORDS;

use crate::cut::{CutEvent, Cutter};

pub(crate) const MS: i64 = 1_000_000;
/// Indices into the records.
pub(crate) const AVC: usize = 0;
pub(crate) const OTHER_AVC: usize = 1;
pub(crate) const AAC: usize = 2;
pub(crate) const OTHER_AAC: usize = 3;
pub(crate) const OPUS: usize = 4;

pub(crate) fn packet(record: usize, keyframe: bool, ms: i64, bytes: usize) -> Packet {
    let (codec, _) = RECORDS[record];
    // Opus packets say their length in the first byte: 20 ms.
    let mut payload = vec![(ms % 251) as u8; bytes];
    payload[0] = 0xfc;
    Packet::media(codec, keyframe, ms * MS, ms * MS, payload.into())
}

pub(crate) fn record(record: usize) -> Packet {
    let (codec, config) = RECORDS[record];
    Packet::configuration(codec, Bytes::from_static(config))
}

/// A codec configuration and `count` video frames, 25 a second, with a keyframe every `group`.
pub(crate) fn video(count: i64, group: i64) -> Vec<Packet> {
    video_of(AVC, 0, count, group, 100)
}

pub(crate) fn video_of(config: usize, from_ms: i64, count: i64, group: i64, bytes: usize) -> Vec<Packet> {
    let frame = |number: i64| packet(config, number % group == 0, from_ms + number * 40, bytes);
    std::iter::once(record(config)).chain((0..count).map(frame)).collect()
}

/// A codec configuration and Opus packets of 20 ms.
pub(crate) fn audio(from_ms: i64, to_ms: i64) -> Vec<Packet> {
    let packets = (from_ms..to_ms).step_by(20).map(|ms| packet(OPUS, false, ms, 50));
    std::iter::once(record(OPUS)).chain(packets).collect()
}

/// Records first, the rest in the order of time.
pub(crate) fn mixed(parts: impl IntoIterator<Item = Vec<Packet>>) -> Vec<Packet> {
    let mut packets: Vec<Packet> = parts.into_iter().flatten().collect();
    packets.sort_by_key(|packet| (!packet.is_config(), packet.dts_ns));
    packets
}

/// All output for a whole session.
pub(crate) fn events(packets: Vec<Packet>) -> Vec<CutEvent> {
    let mut cutter = Cutter::default();
    packets.into_iter().for_each(|packet| cutter.push(packet));
    cutter.finish();
    std::iter::from_fn(|| cutter.poll()).collect()
}

/// The files of a whole session.
pub(crate) fn files(packets: Vec<Packet>) -> Vec<Vec<u8>> {
    let mut files: Vec<Vec<u8>> = Vec::new();
    for event in events(packets) {
        match event {
            CutEvent::Begin { init, .. } => files.push(init.to_vec()),
            CutEvent::Fragment { bytes, .. } => files.last_mut().unwrap().extend_from_slice(&bytes),
            CutEvent::TrackRefused(..) => {}
        }
    }
    files
}
