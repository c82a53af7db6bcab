//! Runs every target over the committed fuzz corpus, unchanged and mutated.
//!
//! `SATCAST_WRITE_CORPUS=1 cargo test -p satcast-media --test suite corpus` writes the seeds again.

use std::path::PathBuf;

use crate::common::{MS, Random, programme, run};
use bytes::Bytes;
use satcast_media::fmp4::{
    AUDIO_TRACK_ID, Sample, TrackConfig, TrackRun, VIDEO_TRACK_ID, init_segment, media_segment,
};
use satcast_media::fuzz;
use satcast_media::mp4::made;
use satcast_media::rtmp::amf0::{Value, encode_all};
use satcast_media::srt::calling;
use satcast_media::ts::{Muxer, PACKET_BYTES};
use satcast_media::{Codec, Kind, Packet};

/// Mutations of each corpus file.
const MUTATIONS: usize = 200;

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

fn with_byte(first: u8, rest: &[u8]) -> Vec<u8> {
    [&[first], rest].concat()
}

/// Codec configurations, then frames of 33 ms with a keyframe every `gop` frames, and audio.
fn packet_steps(packets: usize, gop: usize) -> Vec<u8> {
    let mut steps = vec![0x64, 0, 0, 0, 0x66, 0, 0, 0];
    for frame in 0..packets / 2 {
        let video = if frame % gop == 0 { 0x80 + 2 } else { 0 };
        steps.extend_from_slice(&[video, 33, [0, 66, 225][frame % 3], 40, 2, 33, 0, 9]);
    }
    steps
}

/// A small file with a video and an audio track; frames are presented later than they are decoded.
fn fragmented(composed: bool) -> Vec<u8> {
    let track = |index: usize| {
        let (codec, record) = fuzz::RECORDS[index];
        TrackConfig::parse(codec, &Bytes::from_static(record)).expect("a record")
    };
    let init = init_segment(&[&track(0), &track(4)]).expect("two tracks");
    let sample = |number: u8| Sample {
        duration: 3000,
        composition: if composed { 3000 * i32::from(number % 3) - 3000 } else { 0 },
        sync: number == 0,
        payload: vec![0xfc, number, number].into(),
    };
    let run = |track_id| TrackRun { track_id, decode_time: 9, samples: (0..4).map(sample).collect() };
    let segment = media_segment(1, &[run(VIDEO_TRACK_ID), run(AUDIO_TRACK_ID)]).expect("a segment");
    [&init[..], &segment, &segment].concat()
}

/// The first byte of a transport stream: blocks of 185 bytes, which cut every packet.
const TS_STEP: u8 = 23;

/// A codec configuration of x265.
const HEVC: &[u8] =
    b"\x01\x01\x60\0\0\0\x90\0\0\0\0\0\x5d\xf0\0\xfc\xfd\xf8\xf8\0\0\x0f\x03\xa0\0\x01\0\x18\x40\x01\
      \x0c\x01\xff\xff\x01\x60\0\0\x03\0\x90\0\0\x03\0\0\x03\0\x5d\x95\x98\x09\xa1\0\x01\0\x2b\x42\x01\
      \x01\x01\x60\0\0\x03\0\x90\0\0\x03\0\0\x03\0\x5d\xa0\x02\x80\x80\x2d\x16\x59\x59\xa4\x93\x2b\xc0\
      \x5a\x02\0\0\x03\0\x02\0\0\x03\0\x3c\x10\xa2\0\x01\0\x07\x44\x01\xc1\x72\xb4\x62\x40";

/// Frames of 40 ms of a video and an audio track.
fn transport_stream(tracks: [(Codec, &'static [u8]); 2]) -> Vec<u8> {
    let mut muxer = Muxer::default();
    let mut bytes = vec![TS_STEP];
    for (codec, record) in tracks {
        let config = Packet::configuration(codec, Bytes::from_static(record));
        muxer.push(&config, &mut bytes).expect("a configuration");
    }
    for (frame, (codec, _)) in (0..12u8).flat_map(|frame| tracks.map(|track| (frame, track))) {
        let is_video = codec.kind() == Kind::Video;
        let keyframe = is_video && frame % 6 == 0;
        let mut payload = vec![frame | 1; if keyframe { 400 } else { 40 }];
        payload[0] = match (codec, keyframe) {
            (Codec::Hevc, true) => 38,
            (Codec::Hevc, false) => 2,
            (Codec::H264, true) => 0x65,
            (Codec::H264, false) => 0x41,
            _ => 0xfc,
        };
        if is_video {
            payload = [&(payload.len() as u32).to_be_bytes()[..], &payload].concat();
        }
        let time = i64::from(frame) * 40 * MS;
        muxer.push(&Packet::media(codec, keyframe, time, time, payload.into()), &mut bytes).expect("a frame");
    }
    bytes
}

/// AAC in LATM, which the service only reads: tables, and PES packets of two frames of 75 bytes.
fn latm_stream() -> Vec<u8> {
    let packet = |pid: u16, counter: u8, payload: &[u8]| {
        let [high, low] = pid.to_be_bytes();
        let mut packet = vec![0x47, 0x40 | high, low, 0x10 | counter];
        packet.extend_from_slice(payload);
        packet.resize(PACKET_BYTES, 0xff);
        packet
    };
    let pat = b"\0\0\xb0\x0d\0\x01\xc1\0\0\0\x01\xf0\0\x2a\xb1\x04\xb2";
    let pmt = b"\0\x02\xb0\x12\0\x01\xc1\0\0\xe1\x01\xf0\0\x11\xe1\x01\xf0\0\x9c\x37\xf5\x07";
    let mut pes = b"\0\0\x01\xc0\0\xb2\x84\x80\x05\x21\0\x01\0\x01".to_vec();
    for head in [&b"\x20\0\x11\x90\x1f\xe2\x58"[..], b"\xa5\x80"] {
        pes.extend_from_slice(b"\x56\xe0\x52");
        pes.extend_from_slice(head);
        pes.resize(pes.len() + 82 - head.len(), 0);
    }
    let tables = [packet(0, 0, pat), packet(0x1000, 0, pmt)].concat();
    let frames = (0..4).flat_map(|counter| packet(0x101, counter, &pes));
    [TS_STEP].into_iter().chain(tables).chain(frames).collect()
}

/// Datagrams of an SRT caller for the target, of which each `kept`th data packet is there, with control packets between.
fn callers_datagrams(kept: u32) -> Vec<u8> {
    let stream_id = calling::stream_id("#!::r=live_x,m=publish");
    let mut datagrams = vec![calling::induction(9), calling::conclusion(9, 7, 5, 120, &stream_id)];
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    for number in (0..40).step_by(kept as usize) {
        datagrams.push([words(&[5 + number, 0xc000_0000, number * 4_000, 1]), vec![0x47; 188]].concat());
        // A confirmation, a request to drop, and a keep-alive.
        datagrams.push(words(&[0x8006_0000, number / 3, number * 4_000, 1]));
        datagrams.push(words(&[0x8007_0000, 0, number * 4_000, 1, 5 + number, 6 + number]));
        datagrams.push(words(&[0x8001_0000, 0, number * 4_000, 1, 0]));
    }
    let framed = |datagram: Vec<u8>| [vec![4, datagram.len() as u8], datagram].concat();
    datagrams.into_iter().flat_map(framed).collect()
}

/// Name and bytes of the seeds of a target.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let mut random = Random::new(0xc0_4b05);
    let recording = run(128, &programme(0x00ff_ffe0, 2, 200, &mut random), |left| left);
    let (client, server) = (&recording.client_bytes[3073..], &recording.server_bytes[3073..]);
    let named = |files: Vec<Vec<u8>>| {
        files.into_iter().enumerate().map(|(index, bytes)| (format!("seed-{index}"), bytes)).collect()
    };
    named(match target {
        "amf0" => vec![
            encode_all(&[Value::String("connect".into()), Value::Number(1.0), Value::Null]),
            encode_all(&[Value::Object(vec![("app".into(), Value::String("live".into()))])]),
            encode_all(&[Value::EcmaArray(vec![("stereo".into(), Value::Boolean(true))])]),
            encode_all(&[Value::StrictArray(vec![Value::Undefined, Value::Date(0.0)])]),
            vec![0x10, 0, 1, b'C', 0, 1, b'a', 5, 0, 0, 9],
        ],
        "chunk" => vec![[&[7, 255], client].concat(), [&[7, 2], &client[..700]].concat()],
        "server_session" => vec![with_byte(255, client), with_byte(1, &client[..900])],
        "client_session" => vec![with_byte(255, server), with_byte(0, server)],
        "flv" => vec![
            b"\x00\x17\x00\x00\x00\x00\x01\x64\x00\x1f".to_vec(),
            b"\x00\x27\x01\xff\xff\xdf\x00\x00\x00\x01\x65".to_vec(),
            b"\x00\xa1hvc1\x00\x00\x21abc".to_vec(),
            b"\x00\x97\x02\x01\xe2\x40\x06\x01hvc1\x00\x00\x00\x0aabc".to_vec(),
            b"\x00\x91av01\x12\x00\x0a\x01".to_vec(),
            b"\x01\xaf\x01\x21\x22".to_vec(),
            b"\x01\x95\x01Opus\x00abc".to_vec(),
        ],
        "read" => vec![fragmented(false), fragmented(true)],
        "clip" => vec![with_byte(0xf0, &fragmented(false)), with_byte(0x42, &fragmented(true))],
        "ts" => vec![
            transport_stream([fuzz::RECORDS[0], fuzz::RECORDS[2]]),
            transport_stream([fuzz::RECORDS[1], fuzz::RECORDS[4]]),
            transport_stream([(Codec::Hevc, HEVC), fuzz::RECORDS[2]]),
            latm_stream(),
        ],
        "srt" => vec![callers_datagrams(1), callers_datagrams(3)],
        "mp4" => vec![
            made::File::default().bytes(),
            made::File { moov_last: true, compositions: vec![80, 160, 40], ..made::File::default() }.bytes(),
            made::File {
                edits: vec![(40, -1, 1), (1_000, 0, 1)],
                frames: 25,
                audio: None,
                ..made::File::default()
            }
            .bytes(),
        ],
        "segmenter" => vec![packet_steps(2000, 60), packet_steps(3000, 180), packet_steps(1500, 1)],
        _ => vec![
            b"\x01\x64\x00\x28\xff\xe1\x00\x08\x67\x64\x00\x28\xac\xd9\x40\x78\x01\x00\x02\x68\xeb".to_vec(),
            b"\x67\x64\x00\x28\xac\xd9\x40\x78\x02\x27\xe5\xc0\x44\x00\x00\x03\x00\x04\x00\x00\x03".to_vec(),
            b"\x01\x01\x60\0\0\0\x90\0\0\0\0\0\x78\xf0\0\xfc\xfd\xf8\xf8\0\0\x0f\x01\x21\0\x01\0\x02\x42\x01"
                .to_vec(),
            b"\x81\x05\x0c\x00\x0a\x01\x00".to_vec(),
            b"OpusHead\x01\x03\0\0\0\0\0\0\0\0\x01\x02\x01\x00\x02\x01".to_vec(),
            b"\x2b\x11\x88\x00".to_vec(),
        ],
    })
}

#[test]
fn every_file_of_the_corpus_passes() {
    let write = std::env::var_os("SATCAST_WRITE_CORPUS").is_some();
    for (target, body) in fuzz::TARGETS {
        let folder = folder(target);
        if write {
            std::fs::create_dir_all(&folder).expect("corpus folder");
            for (name, bytes) in seeds(target) {
                std::fs::write(folder.join(name), bytes).expect("corpus file");
            }
        }
        let mut random = Random::new(0xc0_4b06);
        let mut files = 0;
        for entry in std::fs::read_dir(&folder).expect("corpus is committed") {
            let bytes = std::fs::read(entry.expect("corpus entry").path()).expect("corpus file");
            body(&bytes);
            for _ in 0..MUTATIONS {
                let mut mutated = bytes.clone();
                for _ in 0..=random.below(3) {
                    let at = random.below(mutated.len());
                    mutated[at] = random.next() as u8;
                }
                body(&mutated);
            }
            files += 1;
        }
        assert!(files >= seeds(target).len(), "{target} has {files} files");
    }
}
