//! Cutting rules with synthetic packets: tables of inputs and expected segments.

mod changes;
mod limits;
mod parts;

use bytes::Bytes;

use super::*;
use crate::fuzz::RECORDS;
use crate::{Packet, Role};

pub(super) const MS: i64 = 1_000_000;
/// Indices into the records.
pub(super) const AVC: usize = 0;
pub(super) const OTHER_AVC: usize = 1;
pub(super) const AAC: usize = 2;
pub(super) const OTHER_AAC: usize = 3;
pub(super) const OPUS: usize = 4;

pub(super) fn packet(record: usize, role: Role, keyframe: bool, ms: i64, bytes: usize) -> Packet {
    let (codec, config) = RECORDS[record];
    let payload = match role {
        Role::Config => Bytes::from_static(config),
        Role::Data => Bytes::from(vec![0xfc; bytes]),
    };
    Packet { role, ..Packet::media(codec, keyframe, ms * MS, ms * MS, payload) }
}

pub(super) fn record(record: usize) -> Packet {
    packet(record, Role::Config, false, 0, 0)
}

pub(super) fn key(ms: i64) -> Packet {
    packet(AVC, Role::Data, true, ms, 100)
}

pub(super) fn delta(ms: i64) -> Packet {
    packet(AVC, Role::Data, false, ms, 100)
}

/// Frames at 25 frames per second from `from` to `to`, with a keyframe every `gop` milliseconds.
pub(super) fn frames(from: i64, to: i64, gop: i64) -> Vec<Packet> {
    let frame = |ms| if (ms - from) % gop == 0 { key(ms) } else { delta(ms) };
    (from..to).step_by(40).map(frame).collect()
}

/// Opus packets of 20 ms.
pub(super) fn audio(from: i64, to: i64) -> Vec<Packet> {
    (from..to).step_by(20).map(|ms| packet(OPUS, Role::Data, false, ms, 50)).collect()
}

/// Codec configurations first, the other packets by decode time.
pub(super) fn mixed(parts: impl IntoIterator<Item = Vec<Packet>>) -> Vec<Packet> {
    let mut packets: Vec<Packet> = parts.into_iter().flatten().collect();
    packets.sort_by_key(|packet| (!packet.is_config(), packet.dts_ns));
    packets
}

pub(super) fn push(segmenter: &mut Segmenter, packets: &[Packet]) {
    packets.iter().for_each(|packet| segmenter.push(packet, 1_000_000));
}

pub(super) fn events(segmenter: &mut Segmenter) -> Vec<Event> {
    std::iter::from_fn(|| segmenter.poll_event()).collect()
}

pub(super) fn segments(segmenter: &mut Segmenter) -> Vec<Segment> {
    let segment = |event| match event {
        Event::Segment(segment) => Some(segment),
        _ => None,
    };
    events(segmenter).into_iter().filter_map(segment).collect()
}

/// Target, segments and counters of a whole session.
pub(super) fn session(packets: &[Packet]) -> (u32, Vec<Segment>, SegmenterStats) {
    let mut segmenter = Segmenter::new(5);
    push(&mut segmenter, packets);
    segmenter.finish();
    let target = segmenter.limit_ns() / NANOS_PER_SECOND;
    let segments = segments(&mut segmenter);
    (target as u32, segments, segmenter.stats())
}

/// Durations in milliseconds.
pub(super) fn durations(segments: &[Segment]) -> Vec<i64> {
    segments.iter().map(|segment| segment.duration_ns / MS).collect()
}

#[test]
fn the_target_is_fixed_by_the_gops_of_the_first_segment() {
    // Length of the GOPs, target, durations of the first segments.
    let table: [(i64, u32, &[i64]); 9] = [
        (400, 2, &[2000, 2000]),
        (1000, 2, &[2000, 2000]),
        (1480, 2, &[1480, 1480]),
        (2000, 2, &[2000, 2000]),
        (2400, 2, &[2400, 2400]),
        (2520, 3, &[2520, 2520]),
        (5000, 5, &[5000, 5000]),
        (8000, 8, &[8000, 8000]),
        // Over the cap: cut inside the GOP.
        (20_000, 10, &[10_480, 9520]),
    ];
    for (gop, target, expected) in table {
        let packets = mixed([vec![record(AVC)], frames(0, 24_000, gop)]);
        let (found, segments, stats) = session(&packets);
        assert_eq!((found, &durations(&segments)[..2]), (target, expected), "GOPs of {gop} ms");
        assert_eq!(stats.samples_dropped, 0);
        assert_eq!(stats.overlong_gops, u64::from(gop == 20_000));
    }
}

#[test]
fn segments_have_short_fragments_with_all_tracks() {
    // End of the media in milliseconds; of the last segment: fragments, and those with both tracks.
    for (end, expected) in [(4000, (4, 4)), (4720, (1, 1)), (4760, (2, 2)), (5600, (3, 3))] {
        let packets = mixed([vec![record(AVC), record(OPUS)], frames(0, end, 2000), audio(0, end)]);
        let (_, segments, stats) = session(&packets);
        let bytes = &segments.last().expect("a segment").bytes;
        let count = |kind: &[u8; 4]| bytes.windows(4).filter(|four| *four == kind).count();
        assert_eq!((count(b"moof"), count(b"traf") / 2), expected, "{end} ms");
        let samples = packets.iter().filter(|packet| !packet.is_config()).count() as u64;
        assert_eq!((stats.samples_out, stats.samples_dropped), (samples, 0), "{end} ms");
    }
    let (_, segments, _) = session(&mixed([vec![record(OPUS)], audio(0, 4000)]));
    let moofs = segments[0].bytes.windows(4).filter(|four| four == b"moof").count();
    assert_eq!(moofs, segments[0].duration_ns as usize / (500 * MS as usize), "audio alone");
}

/// Keyframes at these times, with a frame every 40 ms between them, up to `to`.
pub(super) fn keyed(keys: &[i64], to: i64) -> Vec<Packet> {
    let ends = keys.iter().skip(1).chain([&to]);
    keys.iter().zip(ends).flat_map(|(from, to)| frames(*from, *to, 1 << 40)).collect()
}

#[test]
fn gops_of_different_lengths_get_a_larger_target() {
    // Keyframes, target.
    let table: [(&[i64], u32); 11] = [
        // Scene cuts.
        (&[0, 800, 2800], 3),
        (&[0, 1000, 4000], 10),
        // A difference of 5 %, and slightly more.
        (&[0, 1000, 2050], 2),
        (&[0, 1000, 2120], 3),
        // A difference of one frame of 40 ms, and of two.
        (&[0, 400, 840, 1280, 1680, 2080], 2),
        (&[0, 400, 880, 1280, 1680, 2080], 3),
        // 29.97 frames per second in whole milliseconds.
        (&[0, 2002, 4004], 2),
        // GOPs after the first segment do not count, whatever their length: they come too late.
        (&[0, 2000, 3500], 2),
        (&[0, 2000], 2),
        (&[0, 8000], 8),
        // A GOP without an end after short ones.
        (&[0, 400, 800], 10),
    ];
    for (keys, target) in table {
        let packets = mixed([vec![record(AVC)], keyed(keys, 24_000)]);
        let mut segmenter = Segmenter::new(0);
        push(&mut segmenter, &packets);
        assert_eq!(segmenter.poll_event(), Some(Event::Started { target_seconds: target }), "{keys:?}");
    }
}

#[test]
fn no_event_comes_before_the_first_segment_is_complete() {
    let mut segmenter = Segmenter::new(5);
    push(&mut segmenter, &mixed([vec![record(AVC)], frames(0, 2000, 2000)]));
    assert_eq!(events(&mut segmenter), []);
    push(&mut segmenter, &[key(2000)]);
    let events = events(&mut segmenter);
    assert_eq!(events[0], Event::Started { target_seconds: 2 });
    assert!(matches!(&events[1], Event::Init(Init { id: 0, .. })));
    assert!(matches!(&events[2], Event::Segment(segment) if segment.sequence == 5), "{events:?}");
    assert_eq!(events.len(), 3);
}

#[test]
fn a_longer_gop_raises_the_target_once_and_is_not_cut() {
    // Keyframes, durations, target, segments cut. The keyframes of the first row are those of x264 with its defaults.
    let table: [(&[i64], &[i64], u32, usize); 6] = [
        (&[0, 2000, 4000, 5500, 13_800, 22_200], &[2000, 2000, 1500, 8300, 8400, 1800], 10, 0),
        (&[0, 2000, 4000, 6480, 8000, 24_000], &[2000, 2000, 2480, 1520, 10_480, 5520], 10, 1),
        (&[0, 2000, 4000, 14_480, 22_000], &[2000, 2000, 10_480, 7520, 2000], 10, 0),
        // Two GOPs share a segment until the second is too long; this does not raise the target.
        (&[0, 1000, 2000, 3000, 5400, 7400, 9400], &[2000, 1000, 2400, 2000, 2000], 2, 0),
        (&[0, 1000, 2000, 3000, 8000, 10_000, 12_000], &[2000, 1000, 5000, 2000, 2000], 10, 0),
        // Two GOPs together are too long for the first target.
        (&[0, 2000, 3520, 5200, 15_200, 24_000], &[2000, 1520, 1680, 10_000, 8800], 10, 0),
    ];
    for (keys, expected, target, expected_cuts) in table {
        let end = 24_000.min(keys[keys.len() - 1] + 2000);
        let mut segmenter = Segmenter::new(5);
        push(&mut segmenter, &mixed([vec![record(AVC), record(OPUS)], keyed(keys, end), audio(0, end)]));
        segmenter.finish();
        assert_eq!(segmenter.stats().samples_dropped, 0, "{keys:?}");
        let events = events(&mut segmenter);
        let raised = |event: &&Event| matches!(event, Event::TargetRaised { target_seconds: 10 });
        assert_eq!(events[0], Event::Started { target_seconds: 2 }, "{keys:?}");
        let raises = events.iter().filter(raised).count();
        assert_eq!(raises, usize::from(target == 10), "{keys:?}");
        let mut limit_ns = 0;
        let mut listed = Vec::new();
        for event in events {
            match event {
                Event::Started { target_seconds } | Event::TargetRaised { target_seconds } => {
                    limit_ns = i64::from(target_seconds) * NANOS_PER_SECOND + TARGET_EXCESS_NANOS;
                }
                Event::Segment(segment) => {
                    assert!(segment.duration_ns <= limit_ns, "raised too late for {segment:?}");
                    listed.push(segment);
                }
                _ => {}
            }
        }
        assert_eq!(&durations(&listed)[..expected.len()], expected, "{keys:?}");
        let cut = listed.iter().filter(|segment| !segment.independent).count();
        assert_eq!(cut, expected_cuts, "{keys:?}");
        // Audio starts with its video.
        let mut start_ms = 0;
        for segment in &listed {
            assert_eq!(first_tick(segment, 0), start_ms * 90, "{keys:?}");
            assert_eq!(first_tick(segment, 1), start_ms.div_ceil(20) * 960, "{keys:?} at {start_ms} ms");
            start_ms += (segment.duration_ns / MS) as u64;
        }
    }
}

#[test]
fn a_gop_too_long_for_any_target_is_cut_and_marked() {
    let packets = mixed([vec![record(AVC)], frames(0, 4000, 2000), frames(4000, 30_000, 22_000)]);
    let (target, segments, stats) = session(&packets);
    assert_eq!((target, stats.overlong_gops), (10, 2));
    assert_eq!(durations(&segments), [2000, 2000, 10_480, 10_480, 1040, 4000]);
    let independent: Vec<bool> = segments.iter().map(|segment| segment.independent).collect();
    assert_eq!(independent, [true, true, true, false, false, true]);
}

#[test]
fn audio_goes_to_the_segment_of_its_presentation_time() {
    // Frames are presented 200 ms after they are decoded; audio arrives with the frames of the same decode time.
    let mut packets = mixed([frames(0, 9000, 2000), audio(0, 9000)]);
    for packet in packets.iter_mut().filter(|packet| packet.codec.kind() == Kind::Video) {
        packet.pts_ns += 200 * MS;
    }
    packets.splice(0..0, [record(AVC), record(OPUS)]);
    let (_, segments, stats) = session(&packets);
    assert_eq!(durations(&segments)[..4], [2000; 4]);
    // Ten audio packets lie before the presentation time of the first frame.
    assert_eq!((stats.samples_dropped, segments[1].program_date_time_ms), (10, 1_002_000));
    let starts: Vec<u64> = segments.iter().map(|segment| first_tick(segment, 1)).collect();
    assert_eq!(starts[..4], [9_600, 105_600, 201_600, 297_600]);
}

#[test]
fn early_audio_moves_to_the_next_segment() {
    let mut packets = mixed([frames(0, 9000, 2000), audio(0, 9000)]);
    // Audio arrives 300 ms ahead of video.
    let ahead = |packet: &Packet| if packet.kind() == Kind::Audio { 300 * MS } else { 0 };
    packets.sort_by_key(|packet| packet.dts_ns - ahead(packet));
    packets.splice(0..0, [record(AVC), record(OPUS)]);
    let (_, segments, stats) = session(&packets);
    assert_eq!((durations(&segments), stats.samples_dropped), (vec![2000, 2000, 2000, 2000, 1000], 0));
    let starts: Vec<u64> = segments.iter().map(|segment| first_tick(segment, 1)).collect();
    assert_eq!(starts, [0, 96_000, 192_000, 288_000, 384_000]);
}

/// Decode time of a track of a segment.
pub(super) fn first_tick(segment: &Segment, track: usize) -> u64 {
    use mp4_atom::{Decode, Moof, Styp};
    let mut rest = &segment.bytes[..];
    Styp::decode(&mut rest).expect("styp first");
    let moof = Moof::decode(&mut rest).expect("moof");
    moof.traf[track].tfdt.as_ref().expect("tfdt").base_media_decode_time
}
