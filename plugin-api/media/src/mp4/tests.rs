//! Files that are read, and a list of hostile ones.

use super::made::File;
use super::*;
use crate::Codec;
use crate::fmp4::init_segment;
use crate::fmp4::tests::{AV1, HEVC};
use crate::fuzz::RECORDS;
use crate::testing::{Random, hex};

const MS: i64 = NANOS_PER_MILLI;

fn read(file: &File) -> Result<Movie, Mp4Error> {
    Movie::read(&file.bytes().into())
}

/// Payloads of one kind.
fn payloads(movie: &Movie, kind: Kind) -> Vec<Bytes> {
    let of_kind = movie.packets.iter().filter(|packet| packet.kind() == kind);
    of_kind.map(|packet| packet.payload.clone()).collect()
}

/// Decode times of one kind in milliseconds.
fn times(movie: &Movie, kind: Kind) -> Vec<i64> {
    let of_kind = movie.packets.iter().filter(|packet| packet.kind() == kind);
    of_kind.map(|packet| packet.dts_ns / MS).collect()
}

#[test]
fn a_file_is_read_with_its_movie_box_before_or_behind_the_media() {
    for moov_last in [false, true] {
        let file = File { moov_last, ..File::default() };
        let movie = read(&file).expect("a good file");
        let codecs: Vec<_> = movie.tracks.iter().map(TrackConfig::codec).collect();
        assert_eq!(codecs, [Codec::H264, Codec::Aac]);
        assert_eq!(payloads(&movie, Kind::Video), file.video());
        assert_eq!(payloads(&movie, Kind::Audio), file.heard());
        assert_eq!(times(&movie, Kind::Video), (0..50).map(|index| index * 40).collect::<Vec<_>>());
        assert!(movie.packets.is_sorted_by_key(|packet| packet.dts_ns));
        let keys = movie.packets.iter().filter(|packet| packet.keyframe);
        assert_eq!(keys.map(|packet| packet.dts_ns / MS).collect::<Vec<_>>(), [0, 1_000]);
        // 94 frames of audio are longer than 50 of video.
        assert_eq!((movie.frame_rate, movie.length_ns / MS), (25.0, 2_005));
        assert!(movie.configs().eq([
            Packet::configuration(Codec::H264, Bytes::from_static(RECORDS[0].1)),
            Packet::configuration(Codec::Aac, Bytes::from_static(RECORDS[2].1)),
        ]));
    }
}

#[test]
fn every_codec_that_is_relayed_is_read_from_its_sample_entry() {
    let of_corpus = [0, 2, 3, 4].map(|index| (RECORDS[index].0, Bytes::from_static(RECORDS[index].1)));
    let more = [(Codec::Hevc, hex(HEVC).into()), (Codec::Av1, hex(AV1).into())];
    for (codec, record) in of_corpus.into_iter().chain(more) {
        let config = TrackConfig::parse(codec, &record).expect("a configuration");
        let init = init_segment(&[&config]).expect("one track");
        let path: [&[u8; 4]; 6] = [b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd"];
        let stsd = inside(&init, &path).expect("the sample entries");
        let read = entry::track(stsd, codec.kind()).expect("a known codec");
        // The boxes of AV1 and HEVC are written from what was read of the configuration.
        assert_eq!((read.codec(), read.details()), (codec, config.details()), "{codec:?}");
        assert!(entry::track(&stsd[..stsd.len() - 1], codec.kind()).is_err());
        // High 4:2:2, Main 10, and AV1 High, in the second byte of the record.
        let (code, profile) = match codec {
            Codec::H264 => (b"avcC", 122),
            Codec::Hevc => (b"hvcC", 2),
            Codec::Av1 => (b"av1C", 1 << 5),
            Codec::Aac | Codec::Opus => continue,
        };
        let at = stsd.windows(4).position(|bytes| bytes == code).expect("the record") + code.len() + 1;
        let other = [&stsd[..at], &[profile], &stsd[at + 1..]].concat();
        assert_eq!(entry::track(&other, Kind::Video).unwrap_err(), Mp4Error::PixelFormat, "{codec:?}");
    }
}

#[test]
fn frames_are_shown_by_their_tables_and_a_simple_edit_list() {
    let file = File { compositions: vec![80, 160, 40], edits: vec![(2_000, 80, 1)], ..File::default() };
    let movie = read(&file).expect("a simple edit");
    let video = movie.packets.iter().filter(|packet| packet.kind() == Kind::Video);
    let shown: Vec<_> = video.map(|packet| (packet.dts_ns / MS, packet.pts_ns / MS)).take(4).collect();
    assert_eq!(shown, [(-80, 0), (-40, 120), (0, 40), (40, 120)]);
    let delayed = File { edits: vec![(40, -1, 1), (2_000, 0, 1)], ..File::default() };
    assert_eq!(times(&read(&delayed).expect("a delay"), Kind::Video)[..2], [40, 80]);
    let alone = File { audio: None, keyframes: None, ..File::default() };
    let movie = read(&alone).expect("no audio");
    assert_eq!((movie.tracks.len(), movie.length_ns), (1, 2_000 * MS));
    assert!(movie.packets.iter().all(|packet| packet.keyframe));
}

#[test]
fn every_reason_is_reached() {
    let codec = |kind, code: &str| Mp4Error::Codec(kind, code.to_owned());
    let made = File::default();
    let table: [(File, Mp4Error); 15] = [
        (File { fragmented: true, ..made.clone() }, Mp4Error::Fragmented),
        (File { keyframes: Some(vec![2, 26]), ..made.clone() }, Mp4Error::FirstFrame),
        (File { keyframes: Some(vec![]), ..made.clone() }, Mp4Error::FirstFrame),
        (File { codes: [*b"mp4v", *b"mp4a"], ..made.clone() }, codec("video", "mp4v")),
        (File { codes: [*b"av\x01\xff", *b"mp4a"], ..made.clone() }, codec("video", "av??")),
        (File { codes: [*b"hvc1", *b"mp4a"], ..made.clone() }, codec("video", "hvc1")),
        (File { codes: [*b"avc1", *b"ac-3"], ..made.clone() }, codec("audio", "ac-3")),
        (File { frames: 0, audio: None, ..made.clone() }, Mp4Error::NoVideo),
        (File { frames: 12, audio: None, ..made.clone() }, Mp4Error::Length(480)),
        (File { frames: 3_001, audio: None, ..made.clone() }, Mp4Error::Length(120_040)),
        (File { frames: SAMPLES_MAX as u32 + 1, ..made.clone() }, Mp4Error::Samples),
        (File { frames: SAMPLES_MAX as u32, ..made.clone() }, Mp4Error::Samples),
        (File { audio: Some(47), ..made.clone() }, Mp4Error::Apart(997)),
        (File { edits: vec![(1_700, 300, 1)], ..made.clone() }, Mp4Error::Edits),
        (File { edits: vec![(1_700, 0, 1)], ..made.clone() }, Mp4Error::Edits),
    ];
    for (file, reason) in table {
        assert_eq!(read(&file).expect_err("a refusal"), reason, "{file:?}");
    }
    for edits in [
        vec![(300, -1, 1), (2_000, 0, 1)],
        vec![(1_000, 0, 1), (1_000, 0, 1)],
        vec![(2_000, 0, 2)],
        vec![(2_000, 0, 1), (40, -1, 1)],
    ] {
        let file = File { edits, ..made.clone() };
        assert_eq!(read(&file).expect_err("a refusal"), Mp4Error::Edits, "{file:?}");
    }
    // The limits themselves are allowed.
    for file in [
        File { frames: 13, audio: None, ..made.clone() },
        File { frames: 3_000, audio: None, ..made.clone() },
        File { edits: vec![(1_750, 250, 1)], ..made.clone() },
        File { edits: vec![(250, -1, 1), (1_750, 0, 1)], ..made.clone() },
    ] {
        assert!(read(&file).is_ok(), "{file:?}");
    }
}

/// Where four bytes begin, `at` bytes behind the code of a box.
fn place(bytes: &[u8], kind: &[u8; 4], at: usize) -> usize {
    bytes.windows(4).position(|four| four == kind).expect("the box") + 4 + at
}

#[test]
fn rates_have_limits_which_are_allowed_themselves() {
    let write = |bytes: &mut Vec<u8>, place: usize, number: u32| {
        bytes[place..place + 4].copy_from_slice(&number.to_be_bytes());
    };
    // Frames of 1 ms, and shorter ones.
    let mut bytes = File { frames: 3_000, audio: None, ..File::default() }.bytes();
    let scale = place(&bytes, b"mdhd", 12);
    for (number, expected) in [(40_000, None), (40_100, Some(Mp4Error::Rate))] {
        write(&mut bytes, scale, number);
        assert_eq!(Movie::read(&bytes.clone().into()).err(), expected, "{number}");
    }
    // The last frame takes almost all that half a second may have: 12 others have 8 bytes each.
    let frames = 13;
    let mut bytes = File { frames, audio: None, ..File::default() }.bytes();
    let most = (BIT_RATE_MAX / 8) as u32 * 40 * frames / 1_000 - 8 * (frames - 1);
    let size = place(&bytes, b"stsz", 12 + 4 * (frames as usize - 1));
    bytes.resize(bytes.len() + most as usize, 0);
    for (number, expected) in [(most, None), (most + 1, Some(Mp4Error::Rate))] {
        write(&mut bytes, size, number);
        assert_eq!(Movie::read(&bytes.clone().into()).err(), expected, "{number}");
    }
}

/// The file with four bytes changed, which begin `at` bytes behind the code of a box.
fn with(kind: &[u8; 4], at: usize, number: u32) -> Vec<u8> {
    let mut bytes = File::default().bytes();
    let place = place(&bytes, kind, at);
    bytes[place..place + 4].copy_from_slice(&number.to_be_bytes());
    bytes
}

#[test]
fn hostile_files_are_refused_and_nothing_is_allocated_for_their_counts() {
    let huge = u32::MAX;
    let whole = File::default().bytes();
    let with_second_track = {
        let mut bytes = whole.clone();
        let handler = bytes.windows(4).position(|four| four == b"soun").expect("the handler");
        bytes[handler..handler + 4].copy_from_slice(b"vide");
        bytes
    };
    for bytes in [
        Vec::new(),
        b"not an mp4 at all".to_vec(),
        vec![0; 4_096],
        vec![0xff; 4_096],
        // Cut inside of the media, and inside of the movie box.
        whole[..whole.len() - 1].to_vec(),
        whole[..200].to_vec(),
        // Counts.
        with(b"stsz", 8, huge),
        with(b"stsz", 8, 51),
        with(b"stsz", 4, huge),
        with(b"stts", 4, 0),
        with(b"stts", 8, 49),
        with(b"stts", 12, huge),
        with(b"stco", 4, 0),
        with(b"stco", 8, huge),
        with(b"stsc", 4, 0),
        with(b"stsc", 8, 2),
        with(b"stsc", 12, 0),
        with(b"stsd", 4, 2),
        // A size of 0, sizes of boxes, time scales.
        with(b"stsz", 12, 0),
        with(b"mdhd", 12, 0),
        with(b"mvhd", 12, 0),
        with(b"mdhd", 12, huge),
        with(b"esds", 4, huge),
        with(b"avcC", 0, huge),
        with_second_track,
    ] {
        assert!(Movie::read(&bytes.into()).is_err());
    }
    // The announced counts are over what is there, and what is there is enough.
    for bytes in [with(b"stts", 4, huge), with(b"stss", 4, huge), with(b"stco", 4, huge)] {
        assert!(Movie::read(&bytes.into()).is_ok());
    }
}

#[test]
fn changed_bytes_give_an_error_or_media_inside_of_the_file() {
    let mut random = Random::new(29);
    for file in [
        File { compositions: vec![80, 160, 40], edits: vec![(2_000, 80, 1)], ..File::default() },
        File { moov_last: true, ..File::default() },
    ] {
        let whole = file.bytes();
        for _ in 0..5_000 {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            crate::fuzz::mp4(&bytes);
        }
    }
}
