//! Both directions against each other, and streams made by hand.

mod changes;
mod limits;
mod loss;
mod muxed;

use bytes::Bytes;

use super::tables::{Format, Pat, Pmt, Stream};
use super::time::{to_nanos, to_ticks};
use super::write::{self, Field, LastCounter};
use super::{Demuxer, Muxer, pes};
use crate::codec::nal::push_prefixed;
use crate::codec::tests::HEVC;
use crate::fuzz::RECORDS;
use crate::testing::{Random, hex};
use crate::{Codec, Kind, Packet};

/// Frames between keyframes.
const GOP: usize = 10;
/// 29.97 frames a second, in ticks.
const FRAME_TICKS: i64 = 3003;
/// What the muxer adds to all times, in ticks.
const START_TICKS: i64 = 90_000;
const PID_VIDEO: u16 = 0x100;
const PID_AUDIO: u16 = 0x101;

/// A codec configuration.
fn record(codec: Codec) -> Bytes {
    if codec == Codec::Hevc {
        return Bytes::from(hex(HEVC[0].0));
    }
    let known = RECORDS.iter().find(|(known, _)| *known == codec);
    Bytes::from_static(known.expect("a record").1)
}

/// Bytes without zeros, which cannot be mistaken for start codes.
fn noise(random: &mut Random, first: u8, bytes: usize) -> Vec<u8> {
    let mut noise: Vec<u8> = (0..bytes).map(|_| random.next() as u8 | 1).collect();
    noise[0] = first;
    noise
}

/// An access unit of two slices.
fn unit(codec: Codec, keyframe: bool, random: &mut Random) -> Bytes {
    let first = match (codec, keyframe) {
        (Codec::Hevc, true) => 19 << 1,
        (Codec::Hevc, false) => 1 << 1,
        (_, true) => 0x65,
        (_, false) => 0x41,
    };
    let mut unit = Vec::new();
    for bytes in if keyframe { [2500, 700] } else { [300, 40] } {
        push_prefixed(&mut unit, &noise(random, first, bytes));
    }
    Bytes::from(unit)
}

/// Codec configurations and `frames` frames of video with the audio beside them, in the order of decode times.
fn programme(codecs: &[Codec], frames: usize, start_ticks: i64) -> Vec<Packet> {
    let mut random = Random::new(0x7500);
    let mut packets: Vec<Packet> = Vec::new();
    for codec in codecs.iter().copied() {
        let step = match codec {
            Codec::Aac => 1920,
            Codec::Opus => 1800,
            _ => FRAME_TICKS,
        };
        let count = frames as i64 * FRAME_TICKS / step;
        for number in 0..count {
            let dts = start_ticks + number * step;
            let keyframe = codec.kind() == Kind::Video && (number as usize).is_multiple_of(GOP);
            let (composition, payload) = match codec.kind() {
                Kind::Video => ([1, 3, 0][number as usize % 3] * step, unit(codec, keyframe, &mut random)),
                // The first byte says that an Opus packet has 20 ms.
                Kind::Audio => (0, Bytes::from(noise(&mut random, 0xfc, 100 + number as usize % 100))),
            };
            packets.push(Packet::media(codec, keyframe, to_nanos(dts), to_nanos(dts + composition), payload));
        }
    }
    packets.sort_by_key(|packet| packet.dts_ns);
    let configurations = codecs.iter().map(|codec| Packet::configuration(*codec, record(*codec)));
    configurations.chain(packets).collect()
}

fn muxed(packets: &[Packet]) -> Vec<u8> {
    let (mut muxer, mut bytes) = (Muxer::default(), Vec::new());
    for packet in packets {
        assert_eq!(muxer.push(packet, &mut bytes), Ok(()));
    }
    bytes
}

fn demuxed(bytes: &[u8], block: usize) -> (Vec<Packet>, Demuxer) {
    let (mut demuxer, mut packets) = (Demuxer::default(), Vec::new());
    for block in bytes.chunks(block) {
        assert_eq!(demuxer.push(block, &mut packets), Ok(()));
    }
    assert_eq!(demuxer.finish(&mut packets), Ok(()));
    (packets, demuxer)
}

/// Packets with the times that the muxer gives them.
fn shifted(packets: &[Packet]) -> Vec<Packet> {
    let shift = |nanos: i64| to_nanos(to_ticks(nanos) + START_TICKS);
    let shifted = |packet: &Packet| match packet.is_config() {
        true => packet.clone(),
        false => Packet { dts_ns: shift(packet.dts_ns), pts_ns: shift(packet.pts_ns), ..packet.clone() },
    };
    packets.iter().map(shifted).collect()
}

/// The packets that are no codec configurations, or those that are.
fn only(packets: &[Packet], configurations: bool) -> Vec<Packet> {
    packets.iter().filter(|packet| packet.is_config() == configurations).cloned().collect()
}

/// The media of one kind, without the marks of missing packets.
fn media(packets: &[Packet], kind: Kind) -> Vec<Packet> {
    let of_kind = packets.iter().filter(|packet| packet.kind() == kind && !packet.is_config());
    of_kind.map(|packet| Packet { discontinuity: false, ..packet.clone() }).collect()
}

/// A stream with tables and PES packets that are given one by one.
struct Handmade {
    bytes: Vec<u8>,
    counters: [LastCounter; 2],
}

impl Handmade {
    fn new(video: Option<Format>, audio: Option<Format>) -> Self {
        let video = video.map(|format| Stream { pid: PID_VIDEO, format });
        let audio = audio.map(|format| Stream { pid: PID_AUDIO, format });
        let pmt = Pmt { pcr_pid: PID_VIDEO, video, audio, ..Pmt::default() };
        let (mut pat_section, mut pmt_section) = (Vec::new(), Vec::new());
        Pat::write(&mut pat_section, 0x1000);
        pmt.write(&mut pmt_section, 0, &[]);
        let mut bytes = Vec::new();
        write::section(&mut bytes, 0, &mut LastCounter::default(), &pat_section);
        write::section(&mut bytes, 0x1000, &mut LastCounter::default(), &pmt_section);
        Handmade { bytes, counters: [LastCounter::default(); 2] }
    }

    /// Adds a PES packet with its time in ticks, or without one.
    fn pes(&mut self, kind: Kind, pts: Option<i64>, payload: &[u8]) {
        let (pid, id) = match kind {
            Kind::Video => (PID_VIDEO, pes::ID_VIDEO),
            Kind::Audio => (PID_AUDIO, pes::ID_AUDIO),
        };
        let mut bytes = Vec::new();
        match pts {
            Some(pts) => pes::open(&mut bytes, id, pts, pts),
            None => bytes.extend_from_slice(&[0, 0, 1, id, 0, 0, 0x80, 0, 0]),
        }
        bytes.extend_from_slice(payload);
        pes::close(&mut bytes);
        let counter = &mut self.counters[usize::from(kind == Kind::Audio)];
        write::pes(&mut self.bytes, pid, counter, Field::default(), &bytes);
    }

    fn demuxed(&self) -> (Vec<Packet>, Demuxer) {
        demuxed(&self.bytes, self.bytes.len())
    }
}

#[test]
fn every_codec_survives_both_ways() {
    let table: [&[Codec]; 8] = [
        &[Codec::H264, Codec::Aac],
        &[Codec::H264, Codec::Opus],
        &[Codec::Hevc, Codec::Aac],
        &[Codec::Hevc, Codec::Opus],
        &[Codec::H264],
        &[Codec::Hevc],
        &[Codec::Aac],
        &[Codec::Opus],
    ];
    for codecs in table {
        let packets = programme(codecs, 40, 0);
        let bytes = muxed(&packets);
        for block in [1, 187, 188, 1316, 1 << 20] {
            let (read, demuxer) = demuxed(&bytes, block);
            assert!(only(&read, false) == only(&shifted(&packets), false), "{codecs:?} in blocks of {block}");
            let mut configurations = only(&read, true);
            configurations.sort_by_key(|packet| packet.kind() == Kind::Audio);
            assert!(configurations == only(&packets, true), "{codecs:?}");
            let stats = demuxer.stats();
            assert_eq!(stats.packets, (bytes.len() / super::PACKET_BYTES) as u64);
            let faults = [
                stats.packets_refused,
                stats.resyncs,
                stats.gaps,
                stats.sections_refused,
                stats.pes_dropped,
                stats.frames_dropped,
            ];
            assert_eq!(faults, [0; 6], "{codecs:?}");
            assert!(demuxer.has_streams() && demuxer.foreign().next().is_none());
        }
    }
}

#[test]
fn times_continue_over_the_wrap_of_the_timestamps() {
    let wrap = 1 << 33;
    let packets = programme(&[Codec::H264, Codec::Aac], 60, wrap - START_TICKS - 30 * FRAME_TICKS);
    let (read, demuxer) = demuxed(&muxed(&packets), 1316);
    assert!(only(&read, false) == only(&shifted(&packets), false));
    let clock = demuxer.clock_ns().expect("a clock");
    let last = read.last().expect("packets").dts_ns;
    assert!(clock > to_nanos(wrap) && (0..300_000_000).contains(&(last - clock)), "{clock}, {last}");
}

#[test]
fn times_before_zero_stay_in_order() {
    let packets = programme(&[Codec::H264, Codec::Aac], 40, -2 * START_TICKS);
    let (read, _) = demuxed(&muxed(&packets), 1316);
    let wrapped = to_nanos(1 << 33);
    let expected: Vec<Packet> = only(&shifted(&packets), false);
    assert_eq!(read.len(), packets.len());
    for (packet, expected) in only(&read, false).iter().zip(&expected) {
        // The sum of two roundings.
        assert!((packet.dts_ns - wrapped - expected.dts_ns).abs() <= 1, "{packet:?}, {expected:?}");
    }
}
