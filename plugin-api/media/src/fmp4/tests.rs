//! Boxes read back, codec strings, limits.

use bytes::Bytes;
use mp4_atom::{Any, Codec as Entry, Decode, DecodeMaybe, Ftyp, Moof, Moov, Styp, TrunEntry};

use super::*;
use crate::Codec;
use crate::codec::CodecError;
use crate::fuzz::RECORDS;
use crate::testing::hex;

pub(crate) const HEVC: &str = concat!(
    "0101600000009000000000005df000fcfdf8f800000f03a00001001840010c01ffff01600000030090000003",
    "000003005d959809a10001002b42010101600000030090000003000003005da00280802d165959a4932bc05a",
    "020000030002000003003c10a2000100074401c172b46240"
);
/// Of SVT-AV1 at 320x180.
pub(crate) const AV1: &str = "81000c000a0b000000043cfecc02f80040";
/// Of libaom and SMPTE ST 2084, of x265 and x264 and ARIB STD-B67.
pub(crate) const AV1_PQ: &str = "81004c000a0e000000043cfeccdaf95091009040";
const HEVC_HLG: &str = concat!(
    "0102200000009000000000003cf000fcfdfafa00000f03a00001001840010c01ffff0220000003009000000300000300",
    "3c959809a10001002d42010102200000030090000003000003003ca00a080b9f6d96566924caf016a122412080000003",
    "008000000c84a2000100074401c172b46240"
);
const AVC_HLG: &str = concat!(
    "0164000cffe1001c6764000cacd941419f9f016a042404800000030080000019078a14cb01000668ebe3cb22c0fdf8f8",
    "00"
);

fn track(codec: Codec, record: &[u8]) -> Result<TrackConfig, Fmp4Error> {
    TrackConfig::parse(codec, &Bytes::copy_from_slice(record))
}

fn sample(duration: u32, composition: i32, sync: bool, payload: &'static [u8]) -> Sample {
    Sample { duration, composition, sync, payload: Bytes::from_static(payload) }
}

#[test]
fn codec_strings_and_sizes_come_from_the_record() {
    let table: [(Codec, Vec<u8>, &str); 7] = [
        (Codec::H264, RECORDS[0].1.to_vec(), "avc1.64001f"),
        (Codec::H264, RECORDS[1].1.to_vec(), "avc1.42c01e"),
        (Codec::Hevc, hex(HEVC), "hvc1.1.6.L93.90"),
        (Codec::Aac, vec![0x11, 0x90], "mp4a.40.2"),
        (Codec::Aac, vec![0x2b, 0x11, 0x88, 0x00], "mp4a.40.5"),
        (Codec::Aac, vec![0xeb, 0x09, 0x88, 0x00], "mp4a.40.29"),
        (Codec::Opus, RECORDS[4].1.to_vec(), "opus"),
    ];
    for (codec, record, expected) in table {
        assert_eq!(track(codec, &record).expect(expected).codec_string(), expected);
    }
    let size = |codec, record: &[u8]| match track(codec, record).expect("valid").details() {
        TrackDetails::Video { size, range } => (size.width, size.height, range),
        TrackDetails::Audio { .. } => panic!("a video track"),
    };
    assert_eq!(size(Codec::H264, RECORDS[1].1), (854, 480, VideoRange::Sdr));
    assert_eq!(size(Codec::Hevc, &hex(HEVC)), (1280, 720, VideoRange::Sdr));
}

#[test]
fn he_aac_runs_at_the_rate_of_its_core() {
    let config = track(Codec::Aac, &[0x2b, 0x11, 0x88, 0x00]).expect("valid");
    let details = TrackDetails::Audio { sample_rate: 24_000, channels: 2, frame_samples: Some(1024) };
    assert_eq!((config.details(), config.timescale()), (details, 24_000));
    let short = track(Codec::Aac, &[0x11, 0x94]).expect("valid");
    assert_eq!((short.audio_samples(b"any"), short.timescale()), (Some(960), 48_000));
    let opus = track(Codec::Opus, RECORDS[4].1).expect("valid");
    assert_eq!((opus.audio_samples(&[0xfc]), opus.audio_samples(&[0xff, 63])), (Some(960), None));
}

#[test]
fn records_that_cannot_be_packaged_are_refused() {
    let long = vec![0; RECORD_BYTES_MAX + 1];
    let unsupported = |error| matches!(error, Err(Fmp4Error::Unsupported(_)));
    assert_eq!(track(Codec::Aac, &long), Err(Fmp4Error::RecordTooLong(long.len())));
    assert!(unsupported(track(Codec::Aac, &[0xf9, 0x46, 0x40])), "USAC");
    assert!(unsupported(track(Codec::Av1, &[0x81, 0x05, 0x0c, 0x00])), "no sequence header");
    assert_eq!(track(Codec::H264, &[1, 2]), Err(Fmp4Error::Record(CodecError::Truncated)));
    // A channel that no stream decodes.
    let mapping = b"OpusHead\x01\x03\0\0\0\0\0\0\0\0\x01\x02\x01\x00\x02\x09";
    assert!(matches!(track(Codec::Opus, mapping), Err(Fmp4Error::Box(_))));
}

#[test]
fn an_init_segment_has_both_tracks() {
    let video = track(Codec::H264, RECORDS[0].1).expect("valid");
    let audio = track(Codec::Opus, RECORDS[4].1).expect("valid");
    let bytes = init_segment(&[&video, &audio]).expect("two tracks");
    let mut rest = &bytes[..];
    Ftyp::decode(&mut rest).expect("ftyp first");
    let moov = Moov::decode(&mut rest).expect("moov");
    assert!(rest.is_empty());
    let ids: Vec<(u32, u32)> =
        moov.trak.iter().map(|trak| (trak.tkhd.track_id, trak.mdia.mdhd.timescale)).collect();
    assert_eq!(ids, [(VIDEO_TRACK_ID, 90_000), (AUDIO_TRACK_ID, 48_000)]);
    assert_eq!(moov.mvex.expect("fragmented").trex.len(), 2);
    let entry = &moov.trak[1].mdia.minf.stbl.stsd.codecs[0];
    let Entry::Opus(opus) = entry else { panic!("{entry:?}") };
    // Little-endian 0x0138 in OpusHead.
    assert_eq!((opus.dops.pre_skip, opus.dops.input_sample_rate, opus.audio.channel_count), (312, 48_000, 2));
    for tracks in [&[][..], &[&video, &video], &[&video, &audio, &audio]] {
        assert_eq!(init_segment(tracks), Err(Fmp4Error::Tracks));
    }
}

#[test]
fn a_media_segment_has_signed_composition_and_exact_offsets() {
    let video = TrackRun {
        track_id: VIDEO_TRACK_ID,
        decode_time: 1 << 40,
        samples: vec![sample(3000, 0, true, b"key"), sample(3003, -90, false, b"delta")],
    };
    let audio = TrackRun {
        track_id: AUDIO_TRACK_ID,
        decode_time: 7,
        samples: vec![sample(1024, 0, true, b"one"), sample(1024, 0, true, b"two")],
    };
    let bytes = media_segment(9, &[video, audio]).expect("small");
    let mut rest = &bytes[..];
    Styp::decode(&mut rest).expect("styp first");
    let from_moof = rest;
    let moof = Moof::decode(&mut rest).expect("moof");
    let Ok(Some(Any::Mdat(_))) = Any::decode_maybe(&mut rest) else { panic!("mdat last") };
    assert!(rest.is_empty());
    assert_eq!(moof.mfhd.sequence_number, 9);
    let first = &moof.traf[0];
    assert_eq!(first.tfdt.as_ref().map(|tfdt| tfdt.base_media_decode_time), Some(1 << 40));
    let entry = |duration, size, flags, cts| TrunEntry {
        duration: Some(duration),
        size: Some(size),
        flags: Some(flags),
        cts: Some(cts),
    };
    let entries: Vec<TrunEntry> = first.trun[0].samples.iter().collect();
    assert_eq!(entries, [entry(3000, 3, 0x0200_0000, 0), entry(3003, 5, 0x0101_0000, -90)]);
    // Values that all samples share are written once, as defaults.
    let second = &moof.traf[1];
    let defaults = (second.tfhd.default_sample_duration, second.tfhd.default_sample_flags);
    assert_eq!(defaults, (Some(1024), Some(0x0200_0000)));
    for (traf, payload) in moof.traf.iter().zip([&b"keydelta"[..], b"onetwo"]) {
        let at = traf.trun[0].data_offset.expect("offset") as usize;
        assert_eq!(&from_moof[at..at + payload.len()], payload);
    }
}

#[test]
fn too_large_segments_are_refused() {
    let run = |count: usize, payload: &Bytes| TrackRun {
        track_id: AUDIO_TRACK_ID,
        decode_time: 0,
        samples: vec![Sample { duration: 1, composition: 0, sync: true, payload: payload.clone() }; count],
    };
    let small = Bytes::from_static(b"x");
    assert!(media_segment(1, &[run(SEGMENT_SAMPLES_MAX, &small)]).is_ok());
    let samples = SEGMENT_SAMPLES_MAX + 1;
    let error = Err(Fmp4Error::TooLarge { samples, bytes: samples });
    assert_eq!(media_segment(1, &[run(samples, &small)]), error);
    // The payload is shared, so this needs the memory of one payload only.
    let quarter = Bytes::from(vec![0; SEGMENT_BYTES_MAX / 4]);
    let bytes = quarter.len() * 5;
    assert_eq!(media_segment(1, &[run(5, &quarter)]), Err(Fmp4Error::TooLarge { samples: 5, bytes }));
    assert_eq!(media_segment(1, &[run(0, &small)]), Err(Fmp4Error::Tracks));
    assert_eq!(media_segment(1, &[run(1, &small), run(1, &small), run(1, &small)]), Err(Fmp4Error::Tracks));
}

#[test]
fn an_av1_record_gives_its_size_from_the_sequence_header() {
    let config = track(Codec::Av1, &hex(AV1)).expect("valid");
    let TrackDetails::Video { size, range } = config.details() else { panic!("{config:?}") };
    assert_eq!((size.width, size.height, range), (320, 180, VideoRange::Sdr));
    assert_eq!(config.codec_string(), "av01.0.00M.08");
}

#[test]
fn the_dynamic_range_comes_from_the_transfer_characteristics() {
    let table = [
        (Codec::Av1, AV1_PQ, VideoRange::Pq, "av01.0.00M.10"),
        (Codec::Hevc, HEVC_HLG, VideoRange::Hlg, "hvc1.2.4.L60.90"),
        (Codec::H264, AVC_HLG, VideoRange::Hlg, "avc1.64000c"),
    ];
    for (codec, record, expected, name) in table {
        let config = track(codec, &hex(record)).expect(name);
        let TrackDetails::Video { range, .. } = config.details() else { panic!("{config:?}") };
        assert_eq!((range, config.codec_string()), (expected, name));
    }
    let names = [VideoRange::Sdr, VideoRange::Hlg, VideoRange::Pq].map(VideoRange::as_str);
    assert_eq!(names, ["SDR", "HLG", "PQ"]);
}
