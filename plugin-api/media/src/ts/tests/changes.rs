//! What changes within a stream, and forms that only other senders use.

use super::*;
use crate::codec::avc::AvcConfig;
use crate::ts::latm::writing::frame as latm_frame;
use crate::ts::{adts, opus};

/// Parameter sets of a record of H.264 as a byte stream.
fn sets(record: &[u8]) -> Vec<u8> {
    let config = AvcConfig::parse(record).expect("valid");
    byte_stream(&[&config.sps[..], &config.pps].concat())
}

fn byte_stream(units: &[&[u8]]) -> Vec<u8> {
    units.iter().flat_map(|unit| [&[0, 0, 1][..], *unit].concat()).collect()
}

/// Frames of ADTS with `config` and payloads of 50 bytes and more.
fn adts_frames(record: &[u8], count: usize) -> Vec<Vec<u8>> {
    let config = crate::codec::aac::AacConfig::parse(record).expect("valid");
    let template = adts::template(&config).expect("a header");
    let mut random = Random::new(0xad75);
    let frame = |number: usize| {
        let payload = noise(&mut random, 0x21, 50 + number);
        let header = adts::header(template, payload.len()).expect("short");
        [&header[..], &payload].concat()
    };
    (0..count).map(frame).collect()
}

#[test]
fn a_change_of_both_codecs_loses_nothing() {
    let first = programme(&[Codec::H264, Codec::Aac], 25, 0);
    let second = programme(&[Codec::Hevc, Codec::Opus], 25, 25 * FRAME_TICKS);
    let third = programme(&[Codec::H264, Codec::Aac], 25, 50 * FRAME_TICKS);
    let packets = [first, second, third].concat();
    let (read, demuxer) = demuxed(&muxed(&packets), 1316);
    assert!(only(&read, false) == only(&shifted(&packets), false));
    let configurations = |packets: &[Packet], kind: Kind| {
        let configurations = only(packets, true).into_iter().filter(|packet| packet.kind() == kind);
        configurations.map(|packet| packet.payload).collect::<Vec<_>>()
    };
    for kind in [Kind::Video, Kind::Audio] {
        assert_eq!(configurations(&read, kind), configurations(&packets, kind));
    }
    assert_eq!((demuxer.stats().gaps, demuxer.stats().pes_dropped), (0, 0));
}

#[test]
fn frames_without_a_length_end_with_the_next_one_or_the_stream() {
    let mut stream = Handmade::new(Some(Format::H264), None);
    let sets = sets(&record(Codec::H264));
    let mut random = Random::new(3);
    let mut slices = Vec::new();
    for number in 0..3 {
        let slice = noise(&mut random, if number == 0 { 0x65 } else { 0x41 }, 70_000);
        let payload = [&sets[..], &byte_stream(&[&slice])].concat();
        stream.pes(Kind::Video, Some(number * FRAME_TICKS), &payload);
        slices.push(slice);
    }
    let (read, _) = stream.demuxed();
    assert_eq!(read.len(), 4);
    for (packet, slice) in read[1..].iter().zip(&slices) {
        assert!(packet.payload[4..] == slice[..] && packet.payload[..4] == 70_000u32.to_be_bytes());
    }
    // Before the end of the stream the last one is open.
    let (mut demuxer, mut packets) = (Demuxer::default(), Vec::new());
    assert_eq!(demuxer.push(&stream.bytes, &mut packets), Ok(()));
    assert_eq!(packets.len(), 3);
}

#[test]
fn parameter_sets_change_the_configuration_and_leave_the_frames() {
    let records = [RECORDS[0].1, RECORDS[1].1, RECORDS[1].1, RECORDS[0].1];
    let mut stream = Handmade::new(Some(Format::H264), None);
    for (number, record) in (0..).zip(records) {
        let payload = [sets(record), byte_stream(&[&[0x65, 1, 2, 3]])].concat();
        stream.pes(Kind::Video, Some(number * FRAME_TICKS), &payload);
    }
    let (read, _) = stream.demuxed();
    let given: Vec<(bool, usize)> =
        read.iter().map(|packet| (packet.is_config(), packet.payload.len())).collect();
    let [first, second] = [RECORDS[0].1.len(), RECORDS[1].1.len()];
    assert_eq!(
        given,
        [(true, first), (false, 8), (true, second), (false, 8), (false, 8), (true, first), (false, 8)]
    );
    assert!(read.iter().all(|packet| packet.keyframe != packet.is_config()));
}

#[test]
fn a_set_without_the_others_replaces_the_one_with_its_number() {
    let mut stream = Handmade::new(Some(Format::H264), None);
    let old = record(Codec::H264);
    let pps = AvcConfig::parse(&old).expect("valid").pps[0].to_vec();
    // The same number, other content; then another number.
    let changed = [&pps[..pps.len() - 1], &[0x41]].concat();
    let other = [&[0x68, 0x40 | pps[1] >> 2][..], &pps[2..]].concat();
    let key: &[u8] = &[0x65, 1, 2, 3];
    stream.pes(Kind::Video, Some(0), &[sets(&old), byte_stream(&[key])].concat());
    stream.pes(Kind::Video, Some(3000), &byte_stream(&[&changed, key]));
    stream.pes(Kind::Video, Some(6000), &byte_stream(&[&other, key]));
    // The parameter sets alone, in a PES packet of their own.
    stream.pes(Kind::Video, Some(9000), &byte_stream(&[&changed]));
    let (read, _) = stream.demuxed();
    let configurations = only(&read, true);
    let pps: Vec<Vec<Vec<u8>>> = configurations
        .iter()
        .map(|packet| {
            AvcConfig::parse(&packet.payload).expect("valid").pps.iter().map(|pps| pps.to_vec()).collect()
        })
        .collect();
    assert_eq!(pps[1..], [vec![changed.clone()], vec![changed, other]]);
    assert_eq!(read.len(), 6);
}

#[test]
fn video_starts_at_keyframes_with_parameter_sets() {
    let sets = sets(&record(Codec::H264));
    let recovery: &[u8] = &[0x06, 6, 1, 0xc4, 0x80];
    let later: &[u8] = &[0x06, 6, 1, 0x4c, 0x80];
    let (key, other): (&[u8], &[u8]) = (&[0x65, 1, 2], &[0x41, 1, 2]);
    let with_sets = |units: &[&[u8]]| [&sets[..], &byte_stream(units)].concat();
    let table = [
        // No sets yet; no keyframe; one that recovers later; one without sets.
        (byte_stream(&[key]), None),
        (with_sets(&[other]), None),
        (with_sets(&[later, other]), None),
        (byte_stream(&[recovery, other]), None),
        // An open GOP.
        (with_sets(&[recovery, other]), Some(true)),
        (byte_stream(&[recovery, other]), Some(false)),
        (byte_stream(&[&[0x09, 0xf0], key]), Some(true)),
    ];
    let mut stream = Handmade::new(Some(Format::H264), None);
    for (number, (payload, _)) in (0..).zip(&table) {
        stream.pes(Kind::Video, Some(number * FRAME_TICKS), payload);
    }
    let (read, demuxer) = stream.demuxed();
    let keyframes: Vec<bool> = only(&read, false).iter().map(|packet| packet.keyframe).collect();
    assert_eq!(keyframes, table.iter().filter_map(|(_, keyframe)| *keyframe).collect::<Vec<_>>());
    assert_eq!(demuxer.stats().frames_dropped, 4);
    // The delimiter is left out.
    assert_eq!(read.last().map(|packet| packet.payload.len()), Some(4 + 3));
}

#[test]
fn frames_without_a_time_are_lost_for_video_and_follow_for_audio() {
    let sets = sets(&record(Codec::H264));
    let key = [&sets[..], &byte_stream(&[&[0x65, 1, 2]])].concat();
    let mut stream = Handmade::new(Some(Format::H264), Some(Format::Adts));
    let frames = adts_frames(&[0x11, 0x90], 4);
    stream.pes(Kind::Audio, None, &frames[0]);
    stream.pes(Kind::Audio, Some(9000), &frames[1]);
    stream.pes(Kind::Audio, None, &frames[2..].concat());
    for pts in [Some(0), None, Some(6006)] {
        stream.pes(Kind::Video, pts, &key);
    }
    let (read, demuxer) = stream.demuxed();
    let times: Vec<(Kind, i64, bool)> = only(&read, false)
        .iter()
        .map(|packet| (packet.kind(), packet.dts_ns, packet.discontinuity))
        .collect();
    let step = 21_333_333;
    let expected = [
        (Kind::Audio, 100_000_000, true),
        (Kind::Audio, 100_000_000 + step, false),
        (Kind::Audio, 100_000_000 + 2 * step, false),
        (Kind::Video, 0, false),
        (Kind::Video, 66_733_333, true),
    ];
    assert_eq!(times, expected);
    assert_eq!(demuxer.stats().frames_dropped, 2);
}

#[test]
fn audio_frames_cross_the_borders_of_pes_packets() {
    let adts = adts_frames(&[0x11, 0x90], 30);
    let latm: Vec<Vec<u8>> = (0..30u8)
        .map(|number| {
            latm_frame((number % 10 == 0).then_some((&[0x11u8, 0x90][..], 16)), false, &[&[number; 60]])
        })
        .collect();
    for (format, frames) in [(Format::Adts, adts), (Format::Latm, latm)] {
        let stream = frames.concat();
        let starts: Vec<usize> = (0..30).map(|number| frames[..number].concat().len()).collect();
        for bytes in [1, 7, 30, 64, 65, 333, 5000] {
            let mut handmade = Handmade::new(None, Some(format));
            for (number, block) in (0..).zip(stream.chunks(bytes)) {
                let first = starts.iter().position(|start| start / bytes == number);
                handmade.pes(Kind::Audio, first.map(|first| 900_000 + first as i64 * 1920), block);
            }
            let (read, demuxer) = handmade.demuxed();
            let read_media = only(&read, false);
            assert_eq!((read_media.len(), read.len()), (30, 31), "{format:?}, {bytes}");
            assert_eq!(read[0].payload[..], [0x11, 0x90]);
            for (number, packet) in (0..).zip(&read_media) {
                let expected = to_nanos(900_000 + number * 1920);
                assert!((packet.dts_ns - expected).abs() < 50, "{format:?}, {bytes}: {packet:?}");
                let payload_bytes = if format == Format::Latm { 60 } else { 50 + number as usize };
                assert_eq!(packet.payload.len(), payload_bytes, "{format:?}, {bytes}");
            }
            assert_eq!(demuxer.stats().frames_dropped, 0, "{format:?}, {bytes}");
        }
    }
}

#[test]
fn strange_bytes_between_audio_frames_are_skipped() {
    let frames = adts_frames(&[0x11, 0x90], 3);
    let mut stream = Handmade::new(None, Some(Format::Adts));
    let payload = [&[0xff, 0xff, 0x12][..], &frames[0], &[0xff, 0, 0], &frames[1], &frames[2]].concat();
    stream.pes(Kind::Audio, Some(0), &payload);
    let (read, demuxer) = stream.demuxed();
    let marks: Vec<bool> = only(&read, false).iter().map(|packet| packet.discontinuity).collect();
    assert_eq!(marks, [true, true, false]);
    assert_eq!(demuxer.stats().frames_dropped, 2);
}

#[test]
fn a_change_of_the_audio_rate_gives_a_configuration() {
    let mut stream = Handmade::new(None, Some(Format::Adts));
    for (pts, record) in [(0, [0x11, 0x90]), (1920, [0x12, 0x10]), (4010, [0x12, 0x10])] {
        stream.pes(Kind::Audio, Some(pts), &adts_frames(&record, 1)[0]);
    }
    let (read, _) = stream.demuxed();
    let configurations: Vec<_> = only(&read, true).into_iter().map(|packet| packet.payload).collect();
    assert_eq!(configurations, [&[0x11, 0x90][..], &[0x12, 0x10]]);
    assert_eq!(read.len(), 5);
}

#[test]
fn opus_packets_of_one_pes_packet_follow_each_other() {
    let mut payload = Vec::new();
    // 20 ms, 10 ms, and 20 ms; only the first has samples to drop.
    for (toc, trim) in [(0xfcu8, 100), (0xf4, 0), (0xfc, 0)] {
        opus::write(&mut payload, 300, trim);
        payload.extend_from_slice(&[toc; 300]);
    }
    let mut stream = Handmade::new(None, Some(Format::Opus(1)));
    stream.pes(Kind::Audio, Some(9000), &payload);
    // Cut off, then whole again.
    stream.pes(Kind::Audio, Some(13_500), &payload[..400]);
    stream.pes(Kind::Audio, Some(18_000), &payload);
    let (read, demuxer) = stream.demuxed();
    assert_eq!(read[0].payload[..], opus::head(1, 100).expect("a header"));
    let times: Vec<(i64, bool)> =
        read[1..].iter().map(|packet| (packet.dts_ns / 1_000_000, packet.discontinuity)).collect();
    let expected =
        [(100, false), (120, false), (130, false), (150, false), (200, true), (220, false), (230, false)];
    assert_eq!(times, expected);
    assert_eq!(demuxer.stats().frames_dropped, 1);
}
