//! Every limit, reached.

use super::*;
use crate::codec::PARAMETER_SETS_MAX;
use crate::codec::avc::AvcConfig;
use crate::ts::adts;
use crate::ts::latm::writing::frame as latm_frame;
use crate::ts::limits::{
    AUDIO_FRAME_BYTES_MAX, AUDIO_FRAMES_MAX, AUDIO_PES_BYTES_MAX, HELD_BYTES_MAX, RESYNC_BYTES_MAX,
    VIDEO_PES_BYTES_MAX,
};
use crate::ts::{PACKET_BYTES, TsError};
use crate::video::PARAMETER_SET_BYTES_MAX;

/// A start code and a NAL unit.
fn coded(nal: &[u8]) -> Vec<u8> {
    [&[0, 0, 1][..], nal].concat()
}

/// The parameter sets of H.264 and a small keyframe.
fn keyframe(sets: &[&[u8]]) -> Vec<u8> {
    sets.iter().copied().chain([&[0x65, 1, 2][..]]).flat_map(coded).collect()
}

#[test]
fn bytes_without_packets_end_the_stream() {
    let (mut demuxer, mut packets) = (Demuxer::default(), Vec::new());
    let pushed = demuxer.push(&vec![0x11; RESYNC_BYTES_MAX + 4 * PACKET_BYTES], &mut packets);
    assert_eq!((pushed, demuxer.held_bytes()), (Err(TsError::NoSync), 0));
}

#[test]
fn times_that_jump_for_ever_end_the_stream() {
    let mut stream = Handmade::new(None, Some(Format::Adts));
    let mut demuxer = Demuxer::default();
    let mut packets = Vec::new();
    let mut number = 0;
    let error = loop {
        stream.pes(Kind::Audio, Some(number * ((1 << 32) - 1)), &[0]);
        if let Err(error) = demuxer.push(&stream.bytes, &mut packets) {
            break error;
        }
        stream.bytes.clear();
        number += 1;
    };
    assert_eq!(error, TsError::TimestampRange);
    assert!(number > 90_000, "{number}");
}

#[test]
fn long_pes_packets_are_dropped() {
    for (kind, bytes_max) in [(Kind::Video, VIDEO_PES_BYTES_MAX), (Kind::Audio, AUDIO_PES_BYTES_MAX)] {
        // Without a length, and longer than the limit: the slice goes on for ever.
        let mut stream = Handmade::new(Some(Format::H264), Some(Format::Adts));
        stream.pes(kind, Some(0), &[&[0, 0, 1, 0x65][..], &vec![1; bytes_max.max(70_000)]].concat());
        stream.pes(kind, Some(3000), &[1]);
        let (mut demuxer, mut packets) = (Demuxer::default(), Vec::new());
        let mut most = 0;
        for block in stream.bytes.chunks(100 * PACKET_BYTES) {
            assert_eq!(demuxer.push(block, &mut packets), Ok(()));
            most = most.max(demuxer.held_bytes());
        }
        assert_eq!((demuxer.stats().pes_dropped, packets.len()), (1, 0), "{kind:?}");
        assert!((bytes_max - 100 * PACKET_BYTES..=bytes_max).contains(&most), "{kind:?}: {most}");
        assert!(most <= HELD_BYTES_MAX);
    }
}

#[test]
fn audio_frames_of_one_pes_packet_are_limited() {
    let config = crate::codec::aac::AacConfig::parse(&[0x11, 0x90]).expect("valid");
    let header = adts::template(&config).and_then(|template| adts::header(template, 1)).expect("a header");
    let frame = [&header[..], &[7]].concat();
    let mut stream = Handmade::new(None, Some(Format::Adts));
    stream.pes(Kind::Audio, Some(0), &frame.repeat(AUDIO_FRAMES_MAX + 9));
    stream.pes(Kind::Audio, Some(90_000), &frame);
    let (read, demuxer) = stream.demuxed();
    assert_eq!(only(&read, false).len(), AUDIO_FRAMES_MAX + 1);
    assert_eq!(demuxer.stats().frames_dropped, 9);
    assert!(read.last().is_some_and(|packet| packet.discontinuity));
    // Frames that carry nothing but another configuration each time.
    let empty = |record: &[u8]| {
        let config = crate::codec::aac::AacConfig::parse(record).expect("valid");
        adts::template(&config).and_then(|template| adts::header(template, 0)).expect("a header")
    };
    let mut stream = Handmade::new(None, Some(Format::Adts));
    let pair = [empty(&[0x11, 0x90]), empty(&[0x12, 0x10])].concat();
    stream.pes(Kind::Audio, Some(0), &pair.repeat(AUDIO_FRAMES_MAX));
    assert_eq!(stream.demuxed().0.len(), AUDIO_FRAMES_MAX);
}

#[test]
fn the_longest_audio_frame_is_held_until_it_is_complete() {
    let payload = vec![7; 8000];
    let frame = latm_frame(Some((&[0x11, 0x90], 16)), false, &[&payload]);
    let mut stream = Handmade::new(None, Some(Format::Latm));
    stream.pes(Kind::Audio, Some(0), &frame[..frame.len() - 1]);
    let (mut demuxer, mut packets) = (Demuxer::default(), Vec::new());
    assert_eq!(demuxer.push(&stream.bytes, &mut packets), Ok(()));
    assert!(packets.is_empty());
    assert!((8000..AUDIO_FRAME_BYTES_MAX).contains(&demuxer.held_bytes()));
    stream.bytes.clear();
    stream.pes(Kind::Audio, None, &frame[frame.len() - 1..]);
    assert_eq!(demuxer.push(&stream.bytes, &mut packets), Ok(()));
    assert_eq!(packets.last().map(|packet| packet.payload.len()), Some(8000));
    // A frame that never ends: its header says 8,191 bytes.
    let mut stream = Handmade::new(None, Some(Format::Latm));
    stream.pes(Kind::Audio, Some(0), &[&[0x56, 0xff, 0xff][..], &[0; 8190]].concat());
    let (_, demuxer) = stream.demuxed();
    assert_eq!(demuxer.held_bytes(), AUDIO_FRAME_BYTES_MAX - 1);
}

#[test]
fn parameter_sets_are_limited_in_length_and_number() {
    let old = record(Codec::H264);
    let config = AvcConfig::parse(&old).expect("valid");
    let (sps, pps) = (config.sps[0], config.pps[0]);
    let long_pps = |bytes: usize| [pps, &vec![1; bytes - pps.len()]].concat();
    let read = |sets: &[&[u8]]| {
        let mut stream = Handmade::new(Some(Format::H264), None);
        stream.pes(Kind::Video, Some(0), &keyframe(sets));
        let (read, demuxer) = stream.demuxed();
        assert!(demuxer.held_bytes() <= HELD_BYTES_MAX);
        read
    };
    let longest = long_pps(PARAMETER_SET_BYTES_MAX);
    assert_eq!(read(&[sps, &longest]).len(), 2);
    assert_eq!(read(&[sps, &long_pps(PARAMETER_SET_BYTES_MAX + 1)]).len(), 0);
    // 100 sets that differ: the first are taken.
    let many: Vec<Vec<u8>> = (1..=100).map(|number| [pps, &[number]].concat()).collect();
    let sets: Vec<&[u8]> = [sps].into_iter().chain(many.iter().map(|set| &set[..])).collect();
    let packets = read(&sets);
    let config = AvcConfig::parse(&packets[0].payload).expect("valid");
    assert_eq!((config.pps.len(), config.pps[0]), (PARAMETER_SETS_MAX - 1, &many[0][..]));
    // So many long ones give no configuration.
    let many: Vec<Vec<u8>> = (1..=60).map(|number| [&longest[..4000], &[number]].concat()).collect();
    let sets: Vec<&[u8]> = [sps].into_iter().chain(many.iter().map(|set| &set[..])).collect();
    assert_eq!(read(&sets).len(), 0);
}
