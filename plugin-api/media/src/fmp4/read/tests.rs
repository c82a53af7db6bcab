//! Segments of this crate are read back; other input is an error.

use std::sync::Arc;

use mp4_atom::Encode as _;

use super::*;
use crate::NANOS_PER_MILLI;
use crate::fmp4::tests::{AV1, HEVC};
use crate::fmp4::{AUDIO_TRACK_ID, Sample, TrackRun, VIDEO_TRACK_ID, media_segment, nanos_to_ticks};
use crate::fuzz::RECORDS;
use crate::segment::{Event, Segmenter};
use crate::testing::{Random, hex};

fn config(codec: Codec, record: &[u8]) -> Packet {
    Packet::configuration(codec, Bytes::copy_from_slice(record))
}

fn unit(codec: Codec, at_ms: i64, apart_ms: i64, keyframe: bool, fill: u8) -> Packet {
    let dts_ns = at_ms * NANOS_PER_MILLI;
    // The first byte is that of an Opus packet of 20 ms.
    let payload = Bytes::from([vec![0xfc], vec![fill; 3 + usize::from(fill)]].concat());
    let pts_ns = dts_ns + apart_ms * NANOS_PER_MILLI;
    Packet::media(codec, keyframe, dts_ns, pts_ns, payload)
}

/// Six seconds of video with frames of 40 ms and GOPs of one second, presented 80 ms after decode time, and audio packets of 20 ms
/// or 1024 samples.
pub(crate) fn programme(video: (Codec, &[u8]), audio: (Codec, &[u8]), start_ms: i64) -> Vec<Packet> {
    let mut all = vec![config(video.0, video.1), config(audio.0, audio.1)];
    let mut media = Vec::new();
    for number in 0..150i64 {
        let apart = [80, 120, 40, 40][(number % 4) as usize];
        media.push(unit(video.0, start_ms + number * 40, apart, number % 25 == 0, number as u8));
    }
    for number in 0..290i64 {
        let length_us = if audio.0 == Codec::Opus { 20_000 } else { 21_333 };
        media.push(unit(audio.0, start_ms + 80 + number * length_us / 1000, 0, false, (number % 200) as u8));
    }
    media.sort_by_key(|packet| packet.dts_ns);
    all.extend(media);
    all
}

pub(crate) struct Written {
    pub(crate) init: Bytes,
    pub(crate) segments: Vec<(Bytes, i64)>,
}

pub(crate) fn segments(packets: &[Packet], parts: bool) -> Written {
    let mut segmenter = Segmenter::new(1);
    if parts {
        segmenter = segmenter.with_parts(500 * NANOS_PER_MILLI);
    }
    packets.iter().for_each(|packet| segmenter.push(packet, 0));
    segmenter.finish();
    let mut written = Written { init: Bytes::new(), segments: Vec::new() };
    while let Some(event) = segmenter.poll_event() {
        match event {
            Event::Init(init) => written.init = init.bytes,
            Event::Segment(segment) => written.segments.push((segment.bytes, segment.offset_ns)),
            _ => {}
        }
    }
    assert_eq!(segmenter.stats().samples_dropped, 0, "{:?}", segmenter.stats());
    written
}

fn of_kind(packets: &[Packet], kind: Kind) -> Vec<&Packet> {
    packets.iter().filter(|packet| !packet.is_config() && packet.kind() == kind).collect()
}

/// Video times are exact to a tick, audio times are those of the audio clock.
fn assert_same(read: &[Packet], given: &[Packet]) {
    for (kind, far_ns) in [(Kind::Video, 12_000), (Kind::Audio, 2 * NANOS_PER_MILLI)] {
        let (read, given) = (of_kind(read, kind), of_kind(given, kind));
        assert_eq!(read.len(), given.len(), "{kind:?}");
        for (read, given) in read.iter().zip(given) {
            assert_eq!(
                (&read.payload, read.keyframe, read.codec),
                (&given.payload, given.keyframe, given.codec)
            );
            let apart = [read.dts_ns - given.dts_ns, read.pts_ns - given.pts_ns];
            assert!(apart.iter().all(|apart| apart.abs() <= far_ns), "{kind:?} {apart:?}");
        }
    }
}

#[test]
fn every_codec_is_read_back_with_times_on_the_session_timeline() {
    let (avc, aac, opus) = (RECORDS[0], RECORDS[2], RECORDS[4]);
    let (hevc, av1) = (hex(HEVC), hex(AV1));
    let videos = [avc, (Codec::Hevc, &hevc[..]), (Codec::Av1, &av1[..])];
    for (video, parts) in videos.into_iter().flat_map(|video| [(video, false), (video, true)]) {
        for audio in [aac, opus] {
            let given = programme(video, audio, 7_200_040);
            let written = segments(&given, parts);
            assert!(written.segments.len() >= 3);
            let mut reader = Reader::new(&written.init).expect("an init segment");
            let records = |reader: &Reader| {
                let configs = reader.configs(5).into_iter();
                configs.map(|packet| (packet.codec, packet.payload)).collect::<Vec<_>>()
            };
            let known = [video, audio].map(|(codec, record)| (codec, Bytes::copy_from_slice(record)));
            // The HEVC record itself has the flags that mark it as complete.
            assert_eq!(records(&reader)[1], known[1]);
            if video.0 != Codec::Hevc {
                assert_eq!(records(&reader)[0], known[0]);
            }
            known.iter().for_each(|(codec, record)| reader.set_record(*codec, record));
            assert_eq!(records(&reader), known);
            let (mut read, mut end) = (Vec::new(), None);
            for (bytes, offset_ns) in &written.segments {
                let segment = reader.segment(bytes, *offset_ns).expect("a media segment");
                assert!(end.is_none_or(|end| segment.start_ns <= end), "no gap between segments");
                end = Some(segment.end_ns);
                assert!(segment.packets.is_sorted_by_key(|packet| packet.dts_ns));
                read.extend(segment.packets);
            }
            assert_same(&read, &given);
        }
    }
}

#[test]
fn another_record_does_not_replace_the_written_one() {
    let written = segments(&programme(RECORDS[0], RECORDS[2], 0), false);
    let mut reader = Reader::new(&written.init).expect("an init segment");
    let before = reader.configs(0);
    for (codec, record) in [RECORDS[1], RECORDS[3], (Codec::H264, &b"garbage"[..])] {
        reader.set_record(codec, &Bytes::from_static(record));
    }
    assert_eq!(reader.configs(0), before);
}

#[test]
fn a_timestamp_jump_changes_the_offset() {
    let mut given = programme(RECORDS[0], RECORDS[2], 0);
    let records = given.drain(..2).collect::<Vec<_>>();
    let later = programme(RECORDS[0], RECORDS[2], 60_000).split_off(2);
    let all: Vec<_> = records.into_iter().chain(given).chain(later).collect();
    let written = segments(&all, false);
    let reader = Reader::new(&written.init).expect("an init segment");
    let read = |(bytes, offset_ns): &(Bytes, i64)| reader.segment(bytes, *offset_ns).expect("a segment");
    let read: Vec<_> = written.segments.iter().map(read).collect();
    let gaps: Vec<_> = read.windows(2).filter(|pair| pair[1].start_ns > pair[0].end_ns).collect();
    assert_eq!(gaps.len(), 1);
    assert_eq!(gaps[0][1].start_ns, 60_000 * NANOS_PER_MILLI);
    let packets: Vec<_> = read.iter().flat_map(|read| read.packets.clone()).collect();
    assert_same(&packets, &all);
}

fn small() -> (Reader, Vec<TrackRun>) {
    let tracks = [RECORDS[0], RECORDS[2]].map(|(codec, record)| {
        Arc::new(TrackConfig::parse(codec, &Bytes::from_static(record)).expect("a record"))
    });
    let init = init_segment(&[&tracks[0], &tracks[1]]).expect("two tracks");
    let sample =
        |fill: u8| Sample { duration: 10, composition: -5, sync: fill == 0, payload: vec![fill; 4].into() };
    let run = |track_id| TrackRun { track_id, decode_time: 90, samples: (0..3).map(sample).collect() };
    (Reader::new(&init).expect("an init segment"), vec![run(VIDEO_TRACK_ID), run(AUDIO_TRACK_ID)])
}

#[test]
fn input_of_another_writer_is_an_error() {
    let (reader, runs) = small();
    let whole = media_segment(1, &runs).expect("a segment");
    let read = reader.segment(&whole, 0).expect("a segment");
    assert_eq!(
        (read.packets.len(), read.start_ns),
        (6, ticks_to_nanos(90, 90_000).min(ticks_to_nanos(90, 48_000)))
    );
    assert!(read.packets.iter().filter(|packet| packet.keyframe).count() == 1, "audio has no keyframes");
    assert!(read.packets.iter().any(|packet| packet.pts_ns < packet.dts_ns));
    for end in 0..whole.len() {
        assert!(reader.segment(&whole.slice(..end), 0).is_err(), "cut at {end}");
    }
    let strange = TrackRun { track_id: 7, ..runs[0].clone() };
    let strange = media_segment(1, &[strange]).expect("a segment");
    assert_eq!(reader.segment(&strange, 0), Err(Fmp4Error::Tracks));
    let long = Bytes::from(vec![0; READ_BYTES_MAX + 1]);
    assert!(matches!(reader.segment(&long, 0), Err(Fmp4Error::TooLarge { .. })));
    assert!(matches!(Reader::new(&vec![0; INIT_BYTES_MAX + 1]), Err(Fmp4Error::Box(_))));
    assert_eq!(Reader::new(b"").map(drop), Err(Fmp4Error::Tracks));
    let times = [i64::MIN, i64::MAX];
    assert!(
        times.iter().all(|offset_ns| reader.segment(&whole, *offset_ns).is_ok()),
        "every offset is accepted"
    );
}

#[test]
fn a_claimed_sample_count_is_not_trusted() {
    let (reader, runs) = small();
    let many = |samples: usize| TrackRun {
        samples: vec![Sample { duration: 1, composition: 0, sync: true, payload: Bytes::new() }; samples],
        ..runs[0].clone()
    };
    let one = media_segment(1, &[many(SEGMENT_SAMPLES_MAX)]).expect("a segment");
    assert_eq!(reader.segment(&one, 0).expect("as many as allowed").packets.len(), SEGMENT_SAMPLES_MAX);
    let three = Bytes::from([&one[..], &one, &one].concat());
    assert!(matches!(reader.segment(&three, 0), Err(Fmp4Error::TooLarge { .. })));
    // A run of four billion samples without any field for each.
    let moof = Moof {
        traf: vec![Traf {
            tfhd: Tfhd { track_id: VIDEO_TRACK_ID, ..Tfhd::default() },
            trun: vec![mp4_atom::Trun {
                data_offset: Some(0),
                samples: mp4_atom::TrunSamples::Inherited { count: u32::MAX, first_flags: None },
            }],
            ..Traf::default()
        }],
        ..Moof::default()
    };
    let mut bytes = Vec::new();
    moof.encode(&mut bytes).expect("a box");
    assert!(matches!(reader.segment(&bytes.into(), 0), Err(Fmp4Error::TooLarge { .. })));
}

#[test]
fn unexpected_boxes_are_refused() {
    let written = segments(&programme(RECORDS[0], RECORDS[4], 0), true);
    let with = |kind: &[u8; 4], body: &[u8]| {
        let mut init = written.init.to_vec();
        let at = init.windows(4).position(|four| four == b"moov").expect("a moov") - 4;
        let mut more = u32::try_from(8 + body.len()).expect("a size").to_be_bytes().to_vec();
        more.extend_from_slice(kind);
        more.extend_from_slice(body);
        let size = u32::from_be_bytes(init[at..at + 4].try_into().expect("four")) + more.len() as u32;
        init[at..at + 4].copy_from_slice(&size.to_be_bytes());
        init.extend_from_slice(&more);
        Reader::new(&init).map(drop)
    };
    // Four billion sample groups of size zero.
    let groups = [&[1, 0, 0, 0][..], b"tele", &[0; 4], &[0xff; 4]].concat();
    for (kind, body) in [(b"sgpd", &groups[..]), (b"free", &[]), (b"moov", &[0, 0, 0, 9, 0])] {
        assert!(matches!(with(kind, body), Err(Fmp4Error::Box(_))), "{}", kind.escape_ascii());
    }
    let mut nested = Vec::new();
    for _ in 0..NESTED_MAX + 1 {
        nested.splice(0..0, [&(8 + nested.len() as u32).to_be_bytes()[..], b"trak"].concat());
    }
    assert!(matches!(with(b"trak", &nested), Err(Fmp4Error::Box(_))), "too deep");
}

#[test]
fn corrupted_bytes_never_panic() {
    let written = segments(&programme(RECORDS[0], RECORDS[4], 0), true);
    let reader = Reader::new(&written.init).expect("an init segment");
    let mut random = Random::new(0x0df3);
    for _ in 0..3_000 {
        let mut init = written.init.to_vec();
        let mut segment = written.segments[0].0[..1_200].to_vec();
        for _ in 0..=random.below(4) {
            let (at, head) = (random.below(init.len()), random.below(segment.len()));
            (init[at], segment[head]) = (random.next() as u8, random.next() as u8);
        }
        // Success and error are both fine, as long as it ends.
        let changed = Reader::new(&init);
        let segment = Bytes::from([&segment[..], &written.segments[0].0[1_200..]].concat());
        let _ = changed.unwrap_or_else(|_| reader.clone()).segment(&segment, 0);
    }
    assert_eq!(nanos_to_ticks(ticks_to_nanos(9, 90_000), 90_000), 9);
}

fn atom(kind: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let len = u32::try_from(content.len() + 8).unwrap();
    [&len.to_be_bytes()[..], kind, content].concat()
}

/// A `moov` with one track and this content of its `stsd`, after version, flags and one as the number of entries.
fn moov_with(entries: &[u8]) -> Vec<u8> {
    let stsd = atom(b"stsd", &[&[0, 0, 0, 0, 0, 0, 0, 1], entries].concat());
    [b"stbl", b"minf", b"mdia", b"trak", b"moov"].iter().fold(stsd, |inner, kind| atom(kind, &inner))
}

/// The decoder would read these to any depth, or make room for four thousand million entries.
#[test]
fn hostile_sample_entries_are_refused_before_they_are_decoded() {
    let mut nested = Vec::new();
    for _ in 0..10_000 {
        nested = atom(b"stsd", &[&[0, 0, 0, 0, 0, 0, 0, 1], &nested[..]].concat());
    }
    let groups = atom(b"sgpd", &[&[0, 0, 0, 0], b"seig", &[0xff; 4][..]].concat());
    let inside = atom(b"avc1", &[&[0; VIDEO_FIELDS - 8], &groups[..]].concat());
    let deep = atom(b"mp4a", &[&[0; AUDIO_FIELDS - 8], &nested[..]].concat());
    let newer = atom(b"mp4a", &[&[0, 0, 0, 0, 0, 0, 0, 1, 0, 1][..], &[0; AUDIO_FIELDS]].concat());
    let cut = [&atom(b"avc1", &[0; VIDEO_FIELDS - 8])[..], &[0, 0]].concat();
    for entries in [&nested, &groups, &inside, &deep, &newer, &cut, &vec![0; 3]] {
        let moov = moov_with(entries);
        let mut reach = crate::fmp4::Reach::default();
        assert!(matches!(Reader::new(&moov), Err(Fmp4Error::Box(_) | Fmp4Error::Tracks)));
        assert!(matches!(crate::fmp4::first_frame(&moov), Err(Fmp4Error::Box(_) | Fmp4Error::Tracks)));
        assert!(matches!(reach.moov(&moov), Err(Fmp4Error::Box(_) | Fmp4Error::Tracks)));
    }
}
