//! Lost, repeated, damaged and strange bytes.

use super::*;
use crate::ts::{PACKET_BYTES, pes};

const CODECS: [Codec; 2] = [Codec::H264, Codec::Aac];

/// Asserts that `read` is `all` without some packets, and returns how many are missing.
fn missing(read: &[Packet], all: &[Packet], kind: Kind, what: &str) -> usize {
    let (read, all) = (media(read, kind), media(all, kind));
    let mut rest = all.iter();
    for packet in &read {
        assert!(rest.any(|other| other == packet), "{what}: {packet:?} is new or out of order");
    }
    all.len() - read.len()
}

/// Where packets were lost, video begins again with a keyframe, and both kinds say that something is missing.
fn check_marks(read: &[Packet], all: &[Packet], what: &str) {
    for kind in [Kind::Video, Kind::Audio] {
        let all = media(all, kind);
        let mut next = 0;
        for packet in read.iter().filter(|packet| packet.kind() == kind && !packet.is_config()) {
            let at = all.iter().position(|other| other.dts_ns == packet.dts_ns).expect("known");
            // At the start nothing is known of what came before.
            if next > 0 && at != next {
                assert!(packet.discontinuity, "{what}: {packet:?}");
                assert!(packet.keyframe || kind == Kind::Audio, "{what}: {packet:?}");
            }
            next = at + 1;
        }
    }
}

#[test]
fn a_loss_at_any_packet_costs_one_gop_at_most() {
    for codecs in [CODECS, [Codec::Hevc, Codec::Opus]] {
        let all = shifted(&programme(&codecs, 35, 0));
        let bytes = muxed(&programme(&codecs, 35, 0));
        for lost in 0..bytes.len() / PACKET_BYTES {
            let what = format!("{codecs:?}, packet {lost}");
            let kept = [&bytes[..lost * PACKET_BYTES], &bytes[(lost + 1) * PACKET_BYTES..]].concat();
            let (read, demuxer) = demuxed(&kept, 1316);
            assert!(missing(&read, &all, Kind::Video, &what) <= GOP, "{what}");
            // The first tables come again within 100 ms.
            let most = if lost < 2 { 6 } else { 1 };
            assert!(missing(&read, &all, Kind::Audio, &what) <= most, "{what}");
            check_marks(&read, &all, &what);
            assert!(demuxer.stats().gaps <= 1, "{what}");
        }
    }
}

#[test]
fn losses_of_several_packets_leave_whole_frames_in_order() {
    let all = shifted(&programme(&CODECS, 60, 0));
    let bytes = muxed(&programme(&CODECS, 60, 0));
    let mut random = Random::new(0x1055);
    for round in 0..100 {
        let kept: Vec<u8> =
            bytes.chunks(PACKET_BYTES).filter(|_| random.below(20) != 0).flatten().copied().collect();
        let what = format!("round {round}");
        let (read, _) = demuxed(&kept, 1316);
        missing(&read, &all, Kind::Video, &what);
        missing(&read, &all, Kind::Audio, &what);
        check_marks(&read, &all, &what);
    }
}

#[test]
fn a_stream_that_ends_anywhere_has_no_torn_frame() {
    let all = shifted(&programme(&CODECS, 35, 0));
    let mut bytes = muxed(&programme(&CODECS, 35, 0));
    // Most encoders write no length for video.
    for packet in bytes.chunks_mut(PACKET_BYTES) {
        if let Some(start) = packet.windows(4).position(|bytes| bytes == [0, 0, 1, pes::ID_VIDEO]) {
            packet[start + 4..start + 6].fill(0);
        }
    }
    for end in 1..=bytes.len() / PACKET_BYTES {
        let what = format!("{end} packets");
        let (read, _) = demuxed(&bytes[..end * PACKET_BYTES], 1316);
        let frames = media(&read, Kind::Video);
        assert_eq!(frames, media(&all, Kind::Video)[..frames.len()], "{what}");
    }
    assert_eq!(missing(&demuxed(&bytes, 1316).0, &all, Kind::Video, "all"), 0);
}

#[test]
fn repeated_packets_change_nothing() {
    let bytes = muxed(&programme(&CODECS, 35, 0));
    let twice: Vec<u8> = bytes.chunks(PACKET_BYTES).flat_map(|packet| [packet, packet].concat()).collect();
    let (read, demuxer) = demuxed(&twice, 1316);
    assert!(read == demuxed(&bytes, 1316).0);
    assert_eq!(demuxer.stats().gaps, 0);
}

#[test]
fn garbage_between_packets_costs_one_gop_at_most() {
    let all = shifted(&programme(&CODECS, 60, 0));
    let bytes = muxed(&programme(&CODECS, 60, 0));
    let packets = bytes.len() / PACKET_BYTES;
    let mut random = Random::new(0x9a4b);
    for garbage in [1, 100, 188, 564, 5000] {
        // In the first third, so that keyframes follow.
        let at = (packets / 10 + random.below(packets / 3)) * PACKET_BYTES;
        // Not the sync byte.
        let strange: Vec<u8> = (0..garbage).map(|_| random.next() as u8 | 0x80).collect();
        let what = format!("{garbage} bytes at {at}");
        let (read, demuxer) = demuxed(&[&bytes[..at], &strange, &bytes[at..]].concat(), 1316);
        assert_eq!(demuxer.stats().resyncs, 1, "{what}");
        assert!(missing(&read, &all, Kind::Video, &what) <= GOP, "{what}");
        assert!(missing(&read, &all, Kind::Audio, &what) <= 1, "{what}");
        check_marks(&read, &all, &what);
    }
}

#[test]
fn a_stream_that_is_cut_off_at_any_byte_gives_its_beginning() {
    let bytes = muxed(&programme(&CODECS, 5, 0));
    let (all, _) = demuxed(&bytes, 1316);
    let mut before = 0;
    for end in 0..=bytes.len() {
        let (read, _) = demuxed(&bytes[..end], 1316);
        assert!(read[..] == all[..read.len()], "cut at {end}");
        assert!(read.len() >= before, "cut at {end}");
        before = read.len();
    }
    assert_eq!(before, all.len());
}

#[test]
fn damaged_and_scrambled_packets_count_as_lost() {
    let bytes = muxed(&programme(&CODECS, 35, 0));
    let all = shifted(&programme(&CODECS, 35, 0));
    for (index, flag) in [(1, 0x80), (3, 0x40)] {
        let mut damaged = bytes.clone();
        // The second packet of the first keyframe.
        damaged[3 * PACKET_BYTES + index] |= flag;
        let (read, demuxer) = demuxed(&damaged, 1316);
        assert_eq!((demuxer.stats().packets_refused, demuxer.stats().gaps), (1, 1));
        assert_eq!(missing(&read, &all, Kind::Video, "damaged"), GOP);
        assert_eq!(missing(&read, &all, Kind::Audio, "damaged"), 0);
    }
}
