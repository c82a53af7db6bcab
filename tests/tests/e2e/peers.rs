//! Tests of the peers without the service: a failure here is not a fault of the service.

use satcast_tests::encoder::Publish;
use satcast_tests::nginx::Nginx;
use satcast_tests::record::assert_run_from_keyframe;
use satcast_tests::sink::{Behaviour, Sink};
use satcast_tests::source::Source;
use satcast_tests::wait::seconds;

const PACKETS: usize = 200;

#[test]
fn nginx_records_the_stream_of_ffmpeg() {
    let source = Source::shared();
    let nginx = Nginx::recording();
    let mut encoder = Publish::of(&source).seconds(4).to(&format!("{}/direct", nginx.url()));
    encoder.finish(seconds(60));
    let recordings = nginx.wait_for_recording("direct", PACKETS);
    assert_run_from_keyframe("nginx", source.records(), &recordings[0]);
}

#[test]
fn the_sink_records_the_stream_of_ffmpeg() {
    let source = Source::shared();
    let sink = Sink::recording();
    let mut encoder = Publish::of(&source).seconds(4).to(&format!("{}/direct", sink.url()));
    encoder.finish(seconds(60));
    sink.wait_until_left();
    assert_run_from_keyframe("the sink", source.records(), &sink.records());
    assert_eq!((sink.names(), sink.publishes()), (vec!["direct".to_owned()], 1));
}

#[test]
fn the_sink_relayed_to_by_nginx_gets_a_run_of_the_source() {
    let source = Source::shared();
    let sink = Sink::recording();
    let nginx = Nginx::relaying(&[format!("{}/relayed", sink.url())]);
    let encoder = Publish::of(&source).to(&format!("{}/relayed", nginx.url()));
    sink.wait_for_media(PACKETS);
    assert!(nginx.log().contains("relay"), "{}", nginx.log());
    drop(encoder);
}

#[test]
fn a_refusing_sink_turns_ffmpeg_away() {
    let source = Source::shared();
    let sink = Sink::start(Behaviour::Refuse { code: "NetStream.Publish.BadName", description: "not here" });
    let mut encoder = Publish::of(&source).seconds(4).to(&format!("{}/direct", sink.url()));
    assert!(!encoder.wait(seconds(60)).success());
    assert_eq!((sink.attempts(), sink.publishes()), (1, 0));
}

#[test]
fn a_killed_sink_comes_back_on_its_port() {
    let source = Source::shared();
    let mut sink = Sink::recording();
    let url = format!("{}/direct", sink.url());
    let mut encoder = Publish::of(&source).to(&url);
    sink.wait_for_media(30);
    sink.kill();
    assert!(!encoder.wait(seconds(60)).success(), "ffmpeg did not notice");
    sink.restart();
    let _encoder = Publish::of(&source).to(&url);
    sink.wait_for_media(sink.records_of(1).len() + 30);
    assert_eq!(sink.publishes(), 2);
}
