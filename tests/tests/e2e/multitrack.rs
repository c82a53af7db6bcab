//! Enhanced RTMP with several tracks: the first of each kind is forwarded, the others are left out, and none of them ends the
//! connection.

use std::time::Duration;

use satcast_media::flv::mux;
use satcast_media::{Kind, Packet};
use satcast_tests::load::frames::{Rhythm, configuration};
use satcast_tests::obs::Obs;
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::wait::seconds;

/// Video: one track (0x0_), several of one codec (0x1_), several of several (0x2_), an unknown kind (0x3_), cut off.
const VIDEO: [&[u8]; 7] = [
    b"\x96\x01avc1\x01\0\0\0\0\0\0\x04\x65abc",
    b"\xa6\x01hvc1\x07\0\0\0\0\0\0\x04\x26abc",
    b"\x96\x11avc1\0\0\0\x08\0\0\0\0\0\0\x01\x65\x01\0\0\x08\0\0\0\0\0\0\x01\x65",
    b"\x96\x21avc1\0\0\0\x08\0\0\0\0\0\0\x01\x65hvc1\x01\0\0\x08\0\0\0\0\0\0\x01\x26",
    b"\x96\x31avc1\0\0\0\0abc",
    b"\x96\x00av01",
    b"\x96",
];
/// Audio, the same.
const AUDIO: [&[u8]; 5] = [
    b"\x95\x01mp4a\x01\x21abc",
    b"\x95\x11mp4a\0\0\0\x02\x21a\x01\0\0\x02\x21b",
    b"\x95\x21mp4a\0\0\0\x02\x21aOpus\x01\0\0\x02ab",
    b"\x95\xf1Opus",
    b"\x95",
];

fn tag(packet: &Packet) -> Vec<u8> {
    [mux(packet).as_slice(), &packet.payload].concat()
}

#[test]
fn the_first_track_of_each_kind_is_forwarded_whole_and_the_others_are_left_out() {
    let mut service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0").start();
    let (api, sink) = (service.api(), Sink::recording());
    let stream = api.create_stream("tracks");
    api.add_destination(&stream, &sink.url(), "copy");
    let mut obs = Obs::connect(service.rtmp_address(), "live");
    obs.ask(&stream.key);
    for name in ["_result", "onFCPublish", "_result", "onStatus"] {
        obs.answer(name);
    }
    let mut sent = Vec::new();
    let mut rhythm = Rhythm::default();
    configuration(0).iter().for_each(|packet| obs.media(packet.kind() == Kind::Video, 0, &tag(packet)));
    while rhythm.next().due() < seconds(2) {
        let frame = rhythm.take();
        let ms = u32::try_from(frame.due().as_millis()).expect("a short stream");
        let packet = frame.packet(0, 0, Duration::ZERO);
        obs.media(packet.kind() == Kind::Video, ms, &tag(&packet));
        sent.push((packet.kind() == Kind::Video, packet.payload.len()));
        VIDEO.iter().for_each(|body| obs.media(true, ms, body));
        AUDIO.iter().for_each(|body| obs.media(false, ms, body));
    }
    sink.wait_for_media(sent.len());
    assert_eq!(api.stream(&stream)["state"], "live");
    obs.leave(&stream.key);
    sink.wait_until_left();
    let records = sink.records();
    let got: Vec<_> = records
        .iter()
        .filter(|record| !record.config)
        .map(|record| (record.track == satcast_tests::record::Track::Video, record.size))
        .collect();
    assert_eq!(got, sent);
    let configurations = records.iter().filter(|record| record.config).count();
    assert_eq!((configurations, sink.publishes()), (2, 1));
    service.assert_running();
}
