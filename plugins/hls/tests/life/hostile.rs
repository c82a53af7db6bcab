//! Packets that no normal encoder sends: the opening goes on and ends normally.

use bytes::Bytes;
use satcast_plugin_api::driver::State;
use satcast_plugin_api::testkit::{Testkit, config, media as access_unit};
use satcast_plugin_api::{Codec, Error, Packet};
use serde_json::json;

use super::media::{self, AUDIO, VIDEO};
use super::open;

/// What a driver may share with the host between batches, in bytes.
const SHARED_BYTES_MAX: usize = 32 * 1024 * 1024;

pub(crate) fn packets_that_make_no_sense(kit: &Testkit) {
    let destination = open(kit, &json!({}));
    let good = media::encode(&format!("{VIDEO} {AUDIO}"), 8);
    let length = good.last().unwrap().dts_ns;
    let mut bad = vec![
        config(Codec::H264, b""),
        config(Codec::H264, b"no record at all"),
        config(Codec::Aac, b"\xff\xff\xff"),
        access_unit(Codec::H264, 0, 0, true, Bytes::new()),
        access_unit(Codec::Hevc, 0, 0, true, Bytes::from_static(b"without a record")),
        Packet { track: 3, ..access_unit(Codec::H264, 0, 0, true, Bytes::from_static(b"another track")) },
    ];
    for time in [i64::MIN, i64::MAX, -1, 1 << 59, 0] {
        bad.push(Packet {
            dts_ns: time,
            pts_ns: time.wrapping_neg(),
            ..access_unit(Codec::H264, 0, 0, true, Bytes::from_static(b"time"))
        });
    }
    media::push(&destination, bad.clone());
    media::push(&destination, good.clone());
    assert!(destination.wait_for_state(State::Live));
    // In the middle of a session they cost a segment or two, and no more.
    media::push(&destination, bad);
    let later = good.into_iter().map(|packet| Packet {
        dts_ns: packet.dts_ns + length * 2,
        pts_ns: packet.pts_ns + length * 2,
        ..packet
    });
    media::push(&destination, later.collect());
    destination.stop();
    destination.wait_for_end().unwrap();
    destination.report(|report| {
        let text = media::text(report, "media.m3u8");
        let (_, listed) = media::discontinuities(report, "media.m3u8");
        // That of the opening, which follows another, and at least one more.
        assert!(media::numbers(report).len() >= 7 && listed >= 2, "{text}");
    });
    assert_eq!(destination.leased_packets(), 0);
    kit.forget_assets(&destination);
}

pub(crate) fn nothing_at_all(kit: &Testkit) {
    let destination = open(kit, &json!({}));
    destination.stop();
    destination.wait_for_end().unwrap();
    destination.report(|report| assert!(report.assets.is_empty() && report.playback.is_none()));
}

/// Playback is not ready far behind the last keyframe, and the owner is notified; with new keyframes it is ready again.
pub(crate) fn keyframes_that_are_too_far_apart(kit: &Testkit) {
    let destination = open(kit, &json!({}));
    destination.push(media::encode(VIDEO, 1).into_iter().find(|packet| packet.is_config()).unwrap());
    // Two frames a second, so that cuts come after 10 s.
    let push = |halves: std::ops::Range<i64>, is_key: fn(i64) -> bool| {
        for half in halves {
            let frame = Bytes::from_static(b"\x00\x00\x00\x02\x65\x00");
            destination.push(access_unit(Codec::H264, half as u64, half * 500, is_key(half), frame));
        }
    };
    let playable = |is_playable: bool, segments: usize| {
        assert!(kit.wait_until(&destination, |report| {
            let fresh =
                report.playback.as_ref().is_some_and(|reported| (reported.fresh_ms == 30_000) == is_playable);
            fresh && media::numbers(report).len() == segments
        }));
        let last = if is_playable { State::Live } else { State::Connecting };
        assert!(kit.wait_until(&destination, |report| report.states.last().unwrap().0 == last));
    };
    push(0..63, |half| half == 0);
    playable(true, 3);
    push(63..83, |_| false);
    playable(false, 4);
    push(83..103, |_| false);
    playable(false, 5);
    push(103..112, |half| half % 4 == 0);
    playable(true, 7);
    destination.stop();
    destination.wait_for_end().unwrap();
    destination.report(|report| {
        let reasons: Vec<_> = report.states.iter().filter_map(|(_, reason)| reason.as_ref()).collect();
        let said = "keyframes are more than 10 s apart; set the encoder's keyframe interval to 2 s";
        assert_eq!(reasons, [&Error::remote(said)], "{:?}", report.states);
        let events: Vec<_> = report.events.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(events, ["keyframes_too_far"]);
    });
    kit.forget_assets(&destination);
}

/// 50 Mbit/s with groups of 10 s: the host stops at 64 MiB on loan, so the driver must not need as much before it lets go.
pub(crate) fn large_groups_do_not_stop_the_host(kit: &Testkit) {
    let destination = open(kit, &json!({ "dvrSeconds": 0 }));
    let record = media::encode(VIDEO, 1).into_iter().find(|packet| packet.is_config()).unwrap();
    destination.push(record);
    let frame_bytes = 6_250_000;
    let frame = Bytes::from(vec![1; frame_bytes]);
    let most = (SHARED_BYTES_MAX / frame_bytes) as u64;
    let mut sent = 0;
    for second in 0..25 {
        destination.push(access_unit(
            Codec::H264,
            second,
            second as i64 * 1000,
            second % 10 == 0,
            frame.clone(),
        ));
        sent += frame_bytes as u64;
        let took = super::until(|| destination.counter("bytes_sent") > sent);
        assert!(took, "the driver stopped at {second} s");
        assert!(super::until(|| destination.leased_packets() <= most), "{}", destination.leased_packets());
    }
    assert!(destination.wait_for_state(State::Live));
    destination.stop();
    destination.wait_for_end().unwrap();
    assert_eq!(destination.leased_packets(), 0);
    kit.forget_assets(&destination);
}
