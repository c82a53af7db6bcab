//! A server that dies, one that stalls, one that refuses: each harms only itself, and comes back by itself.

use satcast_tests::encoder::Publish;
use satcast_tests::record::{assert_complete, assert_run_from_keyframe};
use satcast_tests::service::Setup;
use satcast_tests::sink::{Behaviour, Sink};
use satcast_tests::source::{SOURCE_SECONDS, Source};
use satcast_tests::wait::{self, seconds};

/// Far above what one stream needs, far below what an unbounded queue would take.
const RESIDENT_KIB_MAX: u64 = 256 * 1024;

#[test]
fn a_dead_and_a_stalled_server_harm_nobody_else() {
    let source = Source::shared();
    let healthy = Sink::recording();
    let mut dying = Sink::recording();
    let stalling = Sink::start(Behaviour::Stall);
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let api = service.api();
    let stream = api.create_stream("lame servers");
    let to_healthy = api.add_destination(&stream, &healthy.url(), "healthy");
    let to_dying = api.add_destination(&stream, &dying.url(), "dying-secret-key");
    let to_stalling = api.add_destination(&stream, &stalling.url(), "stalling");

    let mut encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    dying.wait_for_media(200, seconds(20));
    api.wait_for_destination(&stream, to_dying, "live", seconds(20));

    api.wait_for_destination(&stream, to_stalling, "live", seconds(20));

    dying.kill();
    let retrying = api.wait_for_destination(&stream, to_dying, "retrying", seconds(20));
    assert!(retrying["attempt"].as_i64() >= Some(1), "{retrying}");
    let live_since = api.destination(&stream, to_healthy)["liveSince"].as_i64();
    assert!(live_since.is_some(), "the healthy server is live");
    assert!(retrying["nextRetryAt"].as_i64() > live_since, "{retrying}");
    let error = retrying["error"].as_str().expect("the error says what happened");
    assert!(!error.is_empty() && !error.contains("dying-secret-key"), "{error}");

    dying.restart();
    let again = api.wait_for_destination(&stream, to_dying, "live", seconds(20));
    assert!(again["nextRetryAt"].is_null() && again["error"].is_null(), "{again}");
    assert_run_from_keyframe("the restarted server", source.records(), &dying.records_of(dying.publishes()));

    wait::until_api("the stalled server to be noticed", seconds(SOURCE_SECONDS), || {
        let shown = api.destination(&stream, to_stalling);
        if shown["droppedPackets"].as_i64() > Some(0) { Ok(()) } else { Err(shown.to_string()) }
    });
    assert_eq!(api.destination(&stream, to_healthy)["droppedPackets"], 0);

    encoder.finish(seconds(2 * SOURCE_SECONDS));
    api.wait_for_stream(&stream, "idle", seconds(30));
    healthy.wait_until_left(seconds(20));
    assert_complete("the healthy server", source.records(), &healthy.records());
    assert_eq!(healthy.publishes(), 1);
    let resident = service.process().resident_kib();
    assert!(resident < RESIDENT_KIB_MAX, "the service holds {resident} KiB");
    service.assert_not_logged(&[("the key of a destination", "dying-secret-key")]);
}

#[test]
fn a_server_that_refuses_is_shown_and_tried_again_slowly() {
    let source = Source::shared();
    let refusal =
        Behaviour::Refuse { code: "NetStream.Publish.BadName", description: "key is not known here" };
    let (refusing, healthy) = (Sink::start(refusal), Sink::recording());
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("refused");
    let refused = api.add_destination(&stream, &refusing.url(), "wrong-secret-key");
    api.add_destination(&stream, &healthy.url(), "right");

    let encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    let shown = api.wait_for_destination(&stream, refused, "retrying", seconds(20));
    let error = shown["error"].as_str().expect("the error says what happened");
    assert!(!error.contains("wrong-secret-key"), "{error}");
    let live_since = wait::until_api("the healthy server to be live", seconds(20), || {
        let list = api.get(&format!("/api/streams/{}/destinations", stream.id)).ok();
        let times =
            list.as_array().into_iter().flatten().filter_map(|entry| entry["liveSince"].as_i64()).max();
        times.ok_or_else(|| list.to_string())
    });
    // A login that was refused is not tried again within a minute; half of it leaves room for what passed.
    assert!(shown["nextRetryAt"].as_i64() > Some(live_since + 30_000), "{shown}");
    healthy.wait_for_media(300, seconds(20));
    assert_eq!(refusing.attempts(), 1);
    drop(encoder);
    service.assert_not_logged(&[("the key of a destination", "wrong-secret-key")]);
}
