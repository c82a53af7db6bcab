//! Tags written and read back, handwritten, truncated and mutated.

use bytes::Bytes;

use super::*;
use crate::rtmp::limits::{CONFIG_BYTES_MAX, MODEX_MAX};
use crate::testing::Random;
use crate::{Kind, Packet, Role};

const MS: i64 = crate::NANOS_PER_MILLI;

fn packet(codec: Codec, role: Role, keyframe: bool, composition_ms: i64) -> Packet {
    let (dts_ns, pts_ns) = (40 * MS, (40 + composition_ms) * MS);
    Packet { role, ..Packet::media(codec, keyframe, dts_ns, pts_ns, Bytes::from_static(b"\x0a\x0b\x0c")) }
}

fn body(packet: &Packet) -> Bytes {
    let header = mux(packet);
    Bytes::from([header.as_slice(), &packet.payload].concat())
}

/// Every kind of packet that the writer supports.
fn all() -> Vec<Packet> {
    let mut packets = Vec::new();
    for codec in [Codec::H264, Codec::Hevc, Codec::Av1] {
        packets.push(packet(codec, Role::Config, false, 0));
        packets.push(packet(codec, Role::Data, true, 0));
        packets.push(packet(codec, Role::Data, false, 0));
    }
    for composition_ms in [1, 80, -1, -0x80_0000, 0x7f_ffff] {
        packets.push(packet(Codec::H264, Role::Data, false, composition_ms));
        packets.push(packet(Codec::Hevc, Role::Data, true, composition_ms));
    }
    for codec in [Codec::Aac, Codec::Opus] {
        packets.push(packet(codec, Role::Config, false, 0));
        packets.push(packet(codec, Role::Data, false, 0));
    }
    packets
}

fn video(bytes: &[u8]) -> Result<Option<Packet>, FlvError> {
    demux(Kind::Video, 40, &Bytes::copy_from_slice(bytes))
}

fn audio(bytes: &[u8]) -> Result<Option<Packet>, FlvError> {
    demux(Kind::Audio, 40, &Bytes::copy_from_slice(bytes))
}

#[test]
fn every_packet_survives_a_round_trip() {
    for packet in all() {
        let body = body(&packet);
        assert_eq!(demux(packet.kind(), 40, &body), Ok(Some(packet.clone())));
        assert_eq!(body.len() - packet.payload.len(), mux(&packet).as_slice().len());
    }
}

#[test]
fn headers_are_the_bytes_of_the_specifications() {
    let table: [(Packet, &[u8]); 9] = [
        (packet(Codec::H264, Role::Config, false, 0), b"\x17\x00\x00\x00\x00"),
        (packet(Codec::H264, Role::Data, false, -2), b"\x27\x01\xff\xff\xfe"),
        (packet(Codec::Hevc, Role::Config, false, 0), b"\x90hvc1"),
        (packet(Codec::Hevc, Role::Data, true, 0), b"\x93hvc1"),
        (packet(Codec::Hevc, Role::Data, false, 33), b"\xa1hvc1\x00\x00\x21"),
        (packet(Codec::Av1, Role::Data, true, 0), b"\x91av01"),
        (packet(Codec::Aac, Role::Config, false, 0), b"\xaf\x00"),
        (packet(Codec::Opus, Role::Config, false, 0), b"\x90Opus"),
        (packet(Codec::Opus, Role::Data, false, 0), b"\x91Opus"),
    ];
    for (packet, expected) in table {
        assert_eq!(mux(&packet).as_slice(), expected);
    }
}

#[test]
fn both_times_are_rounded_down_to_milliseconds_separately() {
    let mut late = packet(Codec::H264, Role::Data, false, 0);
    (late.dts_ns, late.pts_ns) = (33_900_000, 67_100_000);
    assert_eq!(mux(&late).as_slice()[2..], [0, 0, 34]);
}

#[test]
fn hevc_frames_come_with_and_without_composition_time() {
    let with = video(b"\xa1hvc1\x00\x00\x21abc").expect("valid").expect("read");
    assert_eq!((with.pts_ns - with.dts_ns, with.keyframe, &with.payload[..]), (33 * MS, false, &b"abc"[..]));
    let without = video(b"\x93hvc1abc").expect("valid").expect("read");
    assert_eq!((without.pts_ns - without.dts_ns, without.keyframe), (0, true));
    assert_eq!(&without.payload[..], b"abc");
}

#[test]
fn enhanced_avc_and_aac_are_read_too() {
    let avc = video(b"\x91avc1\xff\xff\xffabc").expect("valid").expect("read");
    assert_eq!((avc.codec, avc.pts_ns, &avc.payload[..]), (Codec::H264, 39 * MS, &b"abc"[..]));
    let aac = audio(b"\x90mp4a\x11\x90").expect("valid").expect("read");
    assert_eq!((aac.codec, aac.role, &aac.payload[..]), (Codec::Aac, Role::Config, &b"\x11\x90"[..]));
}

#[test]
fn the_av1_temporal_delimiter_is_removed_from_data_only() {
    let data = video(b"\x91av01\x12\x00\x0a\x01").expect("valid").expect("read");
    assert_eq!(&data.payload[..], b"\x0a\x01");
    let config = video(b"\x90av01\x12\x00\x0a\x01").expect("valid").expect("read");
    assert_eq!(&config.payload[..], b"\x12\x00\x0a\x01");
    assert_eq!(video(b"\x91av01\x12\x00"), Ok(None));
}

#[test]
fn mod_ex_refines_the_time() {
    // Three bytes of offset 0x01e240 = 123,456 ns, type 0, then coded frames.
    let read = video(b"\x97\x02\x01\xe2\x40\x01hvc1\x00\x00\x0aabc").expect("valid").expect("read");
    assert_eq!((read.dts_ns, read.pts_ns), (40 * MS + 123_456, 50 * MS + 123_456));
    let read = audio(b"\x97\x02\x01\xe2\x40\x01Opusabc").expect("valid").expect("read");
    assert_eq!((read.dts_ns, read.pts_ns), (40 * MS + 123_456, 40 * MS + 123_456));
    // An unknown ModEx type is skipped; an offset over a millisecond is clamped.
    let read = video(b"\x97\x00\xee\x17\x02\xff\xff\xff\x03hvc1abc").expect("valid").expect("read");
    assert_eq!(read.dts_ns, 40 * MS + 999_999);
    // The two-byte length: 255 then 0x0100 + 1 bytes.
    let mut long = b"\x97\xff\x01\x00".to_vec();
    long.extend_from_slice(&[0; 257]);
    long.extend_from_slice(b"\x03hvc1abc");
    assert_eq!(video(&long).map(|packet| packet.map(|packet| packet.payload)), Ok(Some("abc".into())));
    // Too short for an offset: no offset.
    let read = video(b"\x97\x00\xee\x03hvc1abc").expect("valid").expect("read");
    assert_eq!(read.dts_ns, 40 * MS);
}

#[test]
fn the_number_of_mod_ex_prefixes_is_limited() {
    let tag = |count: usize| {
        let mut tag = vec![0x97];
        for index in 1..=count {
            tag.extend_from_slice(&[0, 0, if index == count { 0x13 } else { 0x17 }]);
        }
        tag.extend_from_slice(b"hvc1abc");
        video(&tag)
    };
    assert!(matches!(tag(MODEX_MAX), Ok(Some(_))));
    assert_eq!(tag(MODEX_MAX + 1), Err(FlvError::TooManyModEx));
}

#[test]
fn multitrack_is_read_for_one_track_zero_only() {
    let one = video(b"\x96\x01hvc1\x00\x00\x00\x21abc").expect("valid").expect("read");
    assert_eq!((one.pts_ns, &one.payload[..]), (73 * MS, &b"abc"[..]));
    let config = video(b"\x96\x00av01\x00abc").expect("valid").expect("read");
    assert_eq!((config.role, &config.payload[..]), (Role::Config, &b"abc"[..]));
    let opus = audio(b"\x95\x01Opus\x00abc").expect("valid").expect("read");
    assert_eq!((opus.codec, &opus.payload[..]), (Codec::Opus, &b"abc"[..]));
    // Track 1, several tracks of one codec, several codecs.
    for tag in
        [&b"\x96\x01hvc1\x01abc"[..], b"\x96\x11hvc1\x00\x00\x00\x01a", b"\x96\x21hvc1\x00\x00\x00\x01a"]
    {
        assert_eq!(video(tag), Ok(None), "{tag:?}");
    }
    assert_eq!(audio(b"\x95\x01Opus\x01abc"), Ok(None));
    assert_eq!(audio(b"\x95\x11Opus\x00\x00\x00\x01a"), Ok(None));
}

#[test]
fn tags_skipped_by_policy_are_not_errors() {
    let videos: [&[u8]; 10] = [
        b"\x12abc",
        b"\x57\x00",
        b"\x17\x02\x00\x00\x00",
        b"\x17\x01\x00\x00\x00",
        b"\x91vp09abc",
        b"\x92hvc1",
        b"\x94\x02abc",
        b"\xd1\x00",
        b"\x93hvc1",
        b"\x91Opusabc",
    ];
    for tag in videos {
        assert_eq!(video(tag), Ok(None), "{tag:?}");
    }
    for tag in [&b"\x2fabc"[..], b"\xaf\x01", b"\x91fLaCabc", b"\x92Opus", b"\x94Opusabc", b"\x91hvc1abc"] {
        assert_eq!(audio(tag), Ok(None), "{tag:?}");
    }
}

#[test]
fn long_configuration_records_are_refused() {
    let tag = |bytes: usize| {
        let mut tag = b"\x90hvc1".to_vec();
        tag.resize(5 + bytes, 0);
        video(&tag).map(|packet| packet.map(|packet| packet.payload.len()))
    };
    assert_eq!(tag(CONFIG_BYTES_MAX), Ok(Some(CONFIG_BYTES_MAX)));
    assert_eq!(tag(CONFIG_BYTES_MAX + 1), Err(FlvError::ConfigTooLong(CONFIG_BYTES_MAX + 1)));
}

#[test]
fn unsupported_codecs_have_names() {
    let named = |kind, body: &[u8]| ForeignCodec::of(kind, body).map(|codec| codec.to_string());
    for (body, name) in [
        (&b"\x12abc"[..], "Sorenson H.263"),
        (b"\x14abc", "VP6"),
        (b"\x1cabc", "HEVC without Enhanced RTMP"),
        (b"\x1fabc", "number 15 of FLV"),
        (b"\x91vp09abc", "VP9"),
        (b"\x96\x01vp08\x00abc", "VP8"),
        (b"\x91a\x1bb\nabc", "a\\x1bb\\n"),
    ] {
        assert_eq!(named(Kind::Video, body).as_deref(), Some(name), "{body:?}");
        assert_eq!(video(body), Ok(None), "{body:?}");
    }
    for (body, name) in [
        (&b"\x2fabc"[..], "MP3"),
        (b"\x3eabc", "PCM"),
        (b"\xb2abc", "Speex"),
        (b"\x91.mp3abc", "MP3"),
        (b"\x91fLaCabc", "FLAC"),
        (b"\x97\x00\x00\x01ac-3abc", "AC-3"),
    ] {
        assert_eq!(named(Kind::Audio, body).as_deref(), Some(name), "{body:?}");
        assert_eq!(audio(body), Ok(None), "{body:?}");
    }
    // Empty and truncated tags, tracks other than the first, and supported codecs.
    for body in [&b""[..], b"\x12", b"\x91vp0", b"\x96\x01vp08\x01abc", b"\x96\x11vp08\x00abc"] {
        assert_eq!(named(Kind::Video, body), None, "{body:?}");
    }
    for packet in all() {
        assert_eq!(named(packet.kind(), &body(&packet)), None, "{packet:?}");
    }
}

#[test]
fn truncation_at_any_byte_is_an_error_or_empty() {
    let mut tags: Vec<(Kind, Bytes)> = all().iter().map(|packet| (packet.kind(), body(packet))).collect();
    tags.push((Kind::Video, Bytes::from_static(b"\x97\x02\x01\xe2\x40\x06\x01hvc1\x00\x00\x00\x0aabc")));
    for (kind, tag) in tags {
        let header = tag.len() - 3;
        for end in 0..tag.len() {
            let read = demux(kind, 40, &tag.slice(..end));
            match end {
                _ if end < header => assert_eq!(read, Err(FlvError::Truncated), "{tag:?} cut at {end}"),
                _ if end == header => assert_eq!(read, Ok(None), "{tag:?}"),
                _ => assert_eq!(read.map(|p| p.map(|p| p.payload)), Ok(Some(tag.slice(header..end)))),
            }
        }
    }
}

#[test]
fn mutated_tags_do_not_panic() {
    let mut random = Random::new(0xf1f1_f1f1);
    let packets = all();
    let mut read = 0;
    for round in 0..50_000 {
        let packet = &packets[round % packets.len()];
        let mut tag = body(packet).to_vec();
        for _ in 0..=random.below(3) {
            let index = random.below(tag.len());
            tag[index] = random.next() as u8;
        }
        tag.truncate(1 + random.below(tag.len() + 1));
        let time_ms = if round % 7 == 0 { i64::MAX } else { 0 };
        for kind in [Kind::Video, Kind::Audio] {
            if let Ok(Some(packet)) = demux(kind, time_ms, &Bytes::copy_from_slice(&tag)) {
                assert!(packet.payload.len() < tag.len());
                read += 1;
            }
        }
    }
    assert!(read > 1000, "mutation leaves nothing readable: {read}");
}
