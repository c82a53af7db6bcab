//! The behaviour of OBS: its calls get answers in the order it waits for, the key is found in every field that users put it into,
//! and its closing calls end the session.

use std::time::Duration;

use satcast_media::flv::mux;
use satcast_media::rtmp::amf0::Value;
use satcast_media::{Kind, Packet};
use satcast_tests::load::frames::{Rhythm, configuration};
use satcast_tests::obs::Obs;
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::wait::seconds;

fn send(obs: &mut Obs, packet: &Packet) {
    let body = [mux(packet).as_slice(), &packet.payload].concat();
    let ms = u32::try_from(packet.dts_ns / 1_000_000).expect("a short stream");
    obs.media(packet.kind() == Kind::Video, ms, &body);
}

#[test]
fn its_calls_are_answered_and_the_key_is_found_in_every_place() {
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0").start();
    let api = service.api();
    let stream = api.create_stream("obs");
    let sink = Sink::recording();
    api.add_destination(&stream, &sink.url(), "copy");
    let key = stream.key.as_str();
    let places = [
        ("live".to_owned(), key.to_owned()),
        ("live".to_owned(), format!("{key}?bandwidthtest=true")),
        (format!("live/{key}"), String::new()),
        ("live".to_owned(), format!("obs?key={key}")),
        (format!("live?key={key}"), "obs".to_owned()),
    ];
    let mut came = 0;
    for (publish, (app, name)) in places.iter().enumerate() {
        let mut obs = Obs::connect(service.rtmp_address(), app);
        obs.ask(name);
        assert_eq!(obs.answer("_result").transaction, 2.0, "releaseStream");
        assert_eq!(obs.answer("onFCPublish").transaction, 0.0);
        assert_eq!(obs.answer("_result").transaction, 3.0, "FCPublish");
        let status = obs.answer("onStatus");
        let code = status.args.iter().find_map(|value| value.member("code")).and_then(Value::text);
        assert_eq!(code, Some("NetStream.Publish.Start"), "{status:?}");
        configuration(0).iter().for_each(|packet| send(&mut obs, packet));
        let mut rhythm = Rhythm::default();
        while rhythm.next().due() < seconds(1) {
            send(&mut obs, &rhythm.take().packet(0, 0, Duration::ZERO));
            came += 1;
        }
        sink.wait_for_media(came);
        assert_eq!(api.stream(&stream)["state"], "live", "place {publish}");
        obs.leave(name);
        let ended = api.wait_for_stream(&stream, "idle");
        assert_eq!(ended["lastEndReason"], "unpublished", "place {publish}");
    }
    assert_eq!(sink.publishes(), places.len());
    service.assert_not_logged(&[("the stream key", key)]);
}

#[test]
fn a_wrong_key_is_refused_with_a_message_and_nothing_is_revealed_before() {
    let service = Setup::default().start();
    let mut obs = Obs::connect(service.rtmp_address(), "live");
    obs.ask("sk_0123456789");
    // OBS shows the text of the status. releaseStream and FCPublish fail as well, and not earlier.
    for transaction in [2.0, 3.0] {
        assert_eq!(obs.answer("_error").transaction, transaction);
    }
    let status = obs.answer("onStatus");
    let member = |name: &str| status.args.iter().find_map(|value| value.member(name)).and_then(Value::text);
    assert_eq!((member("level"), member("code")), (Some("error"), Some("NetStream.Publish.Denied")));
    assert!(member("description").is_some_and(|text| !text.is_empty()), "{status:?}");
}
