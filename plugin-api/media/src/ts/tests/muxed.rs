//! What the multiplexer writes.

use super::*;
use crate::codec::CodecError;
use crate::codec::nal::annex_b;
use crate::codec::opus::OpusConfig;
use crate::ts::limits::{AUDIO_PES_BYTES_MAX, NOTE_BYTES_MAX, VIDEO_PES_BYTES_MAX};
use crate::ts::packet::TsPacket;
use crate::ts::pes::Header;
use crate::ts::{MuxError, PACKET_BYTES, opus};

const INTERVAL_TICKS: i64 = 3600;
const TABLES_TICKS: i64 = 9000;

/// The packets of a stream.
fn ts_packets(bytes: &[u8]) -> Vec<TsPacket<'_>> {
    let (packets, rest) = bytes.as_chunks::<PACKET_BYTES>();
    assert!(rest.is_empty());
    packets.iter().map(|packet| TsPacket::parse(packet).expect("valid")).collect()
}

/// Asserts the intervals of tables and clock references; returns the number of references.
fn check_intervals(bytes: &[u8]) -> usize {
    let mut clocks: Vec<i64> = Vec::new();
    let mut tables_at: Option<i64> = None;
    let mut counters = [0x0fu8; 0x2000];
    for packet in ts_packets(bytes) {
        let counter = &mut counters[usize::from(packet.pid)];
        *counter = (*counter + u8::from(packet.payload.is_some())) & 0x0f;
        assert_eq!(packet.counter, *counter);
        if let Some(clock) = packet.pcr.map(|clock| clock as i64) {
            if let Some(last) = clocks.last() {
                assert!((1..=INTERVAL_TICKS).contains(&(clock - last)), "clock {last}, {clock}");
            }
            clocks.push(clock);
            assert!(!packet.discontinuity);
        }
        // Tables stand before the reference of their time, so their own time is known to one interval.
        if packet.pid == 0x1000
            && let Some(clock) = clocks.last()
        {
            let last = tables_at.replace(*clock);
            assert!(
                last.is_none_or(|last| clock - last <= TABLES_TICKS + INTERVAL_TICKS),
                "tables {last:?}, {clock}"
            );
        }
        let header =
            packet.payload.filter(|_| packet.start && packet.pid & 0xff00 == 0x100).and_then(Header::parse);
        if let Some(stamps) = header.and_then(|header| header.stamps) {
            let clock = *clocks.last().expect("a reference before the first frame");
            assert!((0..=90_000).contains(&(stamps.dts as i64 - clock)), "{stamps:?}, {clock}");
        }
    }
    clocks.len()
}

#[test]
fn tables_and_clock_come_often_enough() {
    for codecs in
        [&[Codec::H264, Codec::Aac][..], &[Codec::Hevc, Codec::Opus], &[Codec::H264], &[Codec::Opus]]
    {
        check_intervals(&muxed(&programme(codecs, 100, 0)));
    }
    // Five frames a second and nothing else: references fill the time between them.
    let mut packets = programme(&[Codec::H264], 20, 0);
    for (number, packet) in (0..).zip(packets.iter_mut().filter(|packet| !packet.is_config())) {
        packet.dts_ns = number * 200_000_000;
        packet.pts_ns = packet.dts_ns;
    }
    assert_eq!(check_intervals(&muxed(&packets)), 19 * 5 + 1);
}

#[test]
fn a_jump_of_the_times_is_a_discontinuity_and_is_not_filled() {
    let first = programme(&[Codec::H264, Codec::Aac], 10, 0);
    for start in [100_000_000, -50_000_000] {
        let packets =
            [first.clone(), only(&programme(&[Codec::H264, Codec::Aac], 10, start), false)].concat();
        let bytes = muxed(&packets);
        let jumps =
            ts_packets(&bytes).iter().filter(|packet| packet.discontinuity && packet.pcr.is_some()).count();
        assert_eq!(jumps, 1, "{start}");
        assert!(bytes.len() < 3 * muxed(&first).len(), "{start}");
        let (read, demuxer) = demuxed(&bytes, 1316);
        assert_eq!((read.len(), demuxer.stats().gaps), (packets.len(), 0), "{start}");
    }
}

#[test]
fn frames_have_a_delimiter_first_and_keyframes_their_parameter_sets() {
    let table: [(Codec, &[u8], &[u8]); 2] =
        [(Codec::H264, &[0x09, 0xf0], &[7, 8]), (Codec::Hevc, &[0x46, 0x01, 0x50], &[32, 33, 34])];
    for (codec, delimiter, sets) in table {
        let nal_type = |nal: &[u8]| if codec == Codec::Hevc { nal[0] >> 1 } else { nal[0] & 0x1f };
        let mut muxer = Muxer::default();
        for packet in programme(&[codec], 12, 0) {
            let mut bytes = Vec::new();
            assert_eq!(muxer.push(&packet, &mut bytes), Ok(()));
            let packets = ts_packets(&bytes);
            let of_video = packets.iter().filter(|packet| packet.pid == 0x100);
            let pes: Vec<u8> = of_video.filter_map(|packet| packet.payload).flatten().copied().collect();
            let Some(header) = Header::parse(&pes) else {
                assert!(packet.is_config());
                continue;
            };
            let units: Vec<&[u8]> = annex_b(&pes[header.payload_at..]).collect();
            assert_eq!(units[0], delimiter);
            let types: Vec<u8> = units[1..units.len() - 2].iter().map(|nal| nal_type(nal)).collect();
            assert_eq!(types, if packet.keyframe { sets } else { &[] }, "{packet:?}");
            let has_tables = packets.iter().any(|packet| packet.pid == 0x1000);
            assert!(has_tables || !packet.keyframe, "{packet:?}");
        }
    }
}

#[test]
fn own_delimiters_and_parameter_sets_are_not_written_twice() {
    let mut muxer = Muxer::default();
    let mut bytes = Vec::new();
    assert_eq!(muxer.push(&Packet::configuration(Codec::H264, record(Codec::H264)), &mut bytes), Ok(()));
    let mut unit = Vec::new();
    for nal in [&[0x09, 0x10][..], &[0x67, 0x42, 0xc0, 0x1e, 1], &[0x68, 0xce], &[0x65, 1, 2]] {
        push_prefixed(&mut unit, nal);
    }
    assert_eq!(muxer.push(&Packet::media(Codec::H264, true, 0, 0, unit.into()), &mut bytes), Ok(()));
    let last = &bytes[bytes.len() - 30..];
    let expected = [
        &[0, 0, 0, 1, 0x09, 0xf0][..],
        &[0, 0, 0, 1, 0x67, 0x42, 0xc0, 0x1e, 1],
        &[0, 0, 0, 1, 0x68, 0xce],
        &[0, 0, 0, 1, 0x65, 1, 2],
    ]
    .concat();
    assert!(last.ends_with(&expected), "{last:?}");
}

#[test]
fn a_note_about_the_program_is_read_again_and_limited() {
    for (length, read) in [(0, 0), (72, 72), (NOTE_BYTES_MAX, NOTE_BYTES_MAX), (255, NOTE_BYTES_MAX)] {
        let (mut muxer, mut bytes, note) = (Muxer::default(), Vec::new(), vec![b'x'; length]);
        muxer.set_note(&note);
        let packets = programme(&[Codec::Hevc, Codec::Opus], 30, 0);
        packets.iter().for_each(|packet| assert_eq!(muxer.push(packet, &mut bytes), Ok(())));
        let (got, demuxer) = demuxed(&bytes, 188);
        assert_eq!((demuxer.note(), got.len()), (&note[..read], packets.len()), "{length}");
        check_intervals(&bytes);
    }
}

#[test]
fn length_prefixes_of_other_sizes_are_read() {
    let mut config = record(Codec::H264).to_vec();
    config[4] = 0xfd;
    let packets = [
        Packet::configuration(Codec::H264, config.into()),
        Packet::media(Codec::H264, true, 0, 0, Bytes::from_static(&[0, 3, 0x65, 1, 2])),
    ];
    let (read, _) = demuxed(&muxed(&packets), 188);
    assert_eq!(read[0].payload, record(Codec::H264));
    assert_eq!(read[1].payload[..], [0, 0, 0, 3, 0x65, 1, 2]);
}

#[test]
fn samples_to_drop_are_spread_over_the_packets() {
    let mut config = record(Codec::Opus).to_vec();
    // 1,500 samples, and packets of 960.
    config[10..12].copy_from_slice(&1500u16.to_le_bytes());
    let mut muxer = Muxer::default();
    let mut bytes = Vec::new();
    assert_eq!(muxer.push(&Packet::configuration(Codec::Opus, config.into()), &mut bytes), Ok(()));
    let trims = [0, 1, 2].map(|number| {
        bytes.clear();
        let time = number * 20_000_000;
        let packet = Packet::media(Codec::Opus, false, time, time, Bytes::from_static(&[0xfc, 1, 2]));
        assert_eq!(muxer.push(&packet, &mut bytes), Ok(()));
        let packets = ts_packets(&bytes);
        let pes = packets.last().and_then(|packet| packet.payload).expect("a payload");
        let header = Header::parse(pes).expect("a header");
        opus::Control::parse(&pes[header.payload_at..]).map(|control| control.start_trim)
    });
    assert_eq!(trims, [Some(960), Some(540), Some(0)]);
    let read = demuxed(&muxed(&programme(&[Codec::Opus], 10, 0)), 188).0;
    assert_eq!(OpusConfig::parse(&read[0].payload).map(|config| config.pre_skip), Ok(312));
}

#[test]
fn packets_without_words_are_refused_and_the_next_ones_written() {
    let mut muxer = Muxer::default();
    let mut bytes = Vec::new();
    let mut push = |packet: Packet| {
        bytes.clear();
        let pushed = muxer.push(&packet, &mut bytes);
        assert!(pushed.is_ok() || bytes.is_empty());
        pushed
    };
    let config = |codec, record: &[u8]| Packet::configuration(codec, Bytes::copy_from_slice(record));
    let media =
        |codec: Codec, payload: Bytes| Packet::media(codec, codec.kind() == Kind::Video, 0, 0, payload);
    let (unit, frame) = (Bytes::from_static(&[0, 0, 0, 1, 0x65]), Bytes::from_static(&[0xfc]));
    for codec in Codec::ALL {
        assert_eq!(push(media(codec, unit.clone())), Err(MuxError::NoConfiguration(codec)));
    }
    assert_eq!(push(config(Codec::Av1, &[0x81, 5, 12, 0])), Err(MuxError::Codec(Codec::Av1)));
    assert_eq!(push(config(Codec::H264, &[1])), Err(MuxError::Record(CodecError::Truncated)));
    let surround = b"OpusHead\x01\x03\0\0\0\0\0\0\0\0\x01\x02\x01\x00\x01\x02";
    for (codec, record) in [(Codec::Aac, &[0x11, 0x94][..]), (Codec::Opus, &surround[..])] {
        assert!(matches!(push(config(codec, record)), Err(MuxError::Unsupported(_))), "{codec:?}");
    }
    for codec in [Codec::H264, Codec::Aac] {
        assert_eq!(push(config(codec, &record(codec))), Ok(()));
    }
    assert_eq!(push(media(Codec::H264, Bytes::from_static(&[0, 0, 0, 9, 0x65]))), Err(MuxError::AccessUnit));
    let long = Bytes::from(vec![1; 0x1fff - 6]);
    assert_eq!(push(media(Codec::Aac, long.clone())), Err(MuxError::TooLong(long.len())));
    let mut long = vec![1; VIDEO_PES_BYTES_MAX];
    let length = (long.len() - 4) as u32;
    long[..4].copy_from_slice(&length.to_be_bytes());
    assert_eq!(push(media(Codec::H264, long.into())), Err(MuxError::TooLong(VIDEO_PES_BYTES_MAX)));
    assert_eq!((push(media(Codec::H264, unit)), push(media(Codec::Aac, frame.clone()))), (Ok(()), Ok(())));
    // A configuration that is refused ends the track.
    assert!(push(config(Codec::Aac, &[])).is_err());
    assert_eq!(push(media(Codec::Aac, frame.clone())), Err(MuxError::NoConfiguration(Codec::Aac)));
    assert_eq!(push(config(Codec::Opus, &record(Codec::Opus))), Ok(()));
    let long = Bytes::from(vec![1; AUDIO_PES_BYTES_MAX]);
    assert_eq!(push(media(Codec::Opus, long.clone())), Err(MuxError::TooLong(long.len())));
    assert_eq!(push(media(Codec::Opus, frame)), Ok(()));
}
