//! An encoder that is cut off and returns continues its session; one that hangs can be replaced.

use satcast_tests::caller::{Call, Outcome};
use satcast_tests::encoder::Publish;
use satcast_tests::record::{assert_configured, assert_media_run, assert_times_never_go_back};
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};
use serde_json::json;

#[test]
fn a_session_survives_its_encoder_for_the_reconnect_window() {
    let source = Source::shared();
    let sink = Sink::recording();
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "30").start();
    let api = service.api();
    let stream = api.create_stream("cut");
    let destination = api.add_destination(&stream, &sink.url(), "copy");

    let mut encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    sink.wait_for_media(200);
    let before = api.wait_for_stream(&stream, "live");
    encoder.cut();
    let cut = api.wait_for_stream(&stream, "reconnecting");
    assert_eq!((&cut["status"], &cut["startedAt"]), (&json!("active"), &before["startedAt"]));
    // The five seconds are the scenario: a router that restarts.
    std::thread::sleep(seconds(5));
    let first_part = sink.records().len();

    let mut encoder = Publish::of(&source).seconds(6).to(&service.ingest_url(&stream.key));
    let after = api.wait_for_stream(&stream, "live");
    assert_eq!(after["startedAt"], before["startedAt"], "a new session was begun");
    api.wait_for_destination(&stream, destination, "live");
    encoder.finish(seconds(60));
    api.wait_for_stream(&stream, "reconnecting");
    let stopped = api.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    assert_eq!(stopped["success"], true, "{stopped}");
    let ended = api.wait_for_stream(&stream, "idle");
    assert_eq!((&ended["status"], &ended["lastEndReason"]), (&json!("idle"), &json!("stopped")));
    sink.wait_until_left();

    let records = sink.records();
    assert_eq!(sink.publishes(), 1, "the push to the server was interrupted");
    assert_configured("the server", &records);
    assert_media_run("the server before the cut", source.records(), &records[..first_part]);
    assert_media_run("the server after the cut", source.records(), &records[first_part..]);
    assert_times_never_go_back("the server", &records);
}

#[test]
fn an_encoder_that_returns_at_once_is_not_refused_as_a_second_one() {
    const RETURNS: usize = 3;
    let source = Source::shared();
    let sink = Sink::recording();
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("at once");
    api.add_destination(&stream, &sink.url(), "copy");
    let mut encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    for turn in 1..=RETURNS {
        sink.wait_for_media(sink.records().len() + 60);
        encoder.cut();
        encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
        sink.wait_for_media(sink.records().len() + 60);
        assert!(encoder.running(), "return {turn}: {}", encoder.log());
    }
    assert_eq!(sink.publishes(), 1, "the push to the server was interrupted");
    service.assert_not_logged(&[("a refusal", "already publishing")]);
}

#[test]
fn an_encoder_that_stays_away_ends_its_session() {
    let source = Source::shared();
    let sink = Sink::recording();
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "1").start();
    let api = service.api();
    let stream = api.create_stream("gone");
    api.add_destination(&stream, &sink.url(), "copy");
    let mut encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
    sink.wait_for_media(60);
    encoder.cut();
    let ended = api.wait_for_stream(&stream, "idle");
    assert_eq!(ended["lastEndReason"], "unpublished");
    assert!(ended.get("startedAt").is_none(), "{ended}");
    sink.wait_until_left();
}

#[test]
fn a_silent_encoder_is_replaced_by_a_new_one() {
    let source = Source::shared();
    let sink = Sink::recording();
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("hanging");
    api.add_destination(&stream, &sink.url(), "copy");
    let (_silent, outcome) = Call::publish(service.rtmp_address(), "live", &stream.key);
    assert_eq!(outcome, Outcome::Publishing);

    let taken = wait::within("the silent encoder to be replaced", seconds(20), || {
        match Call::publish(service.rtmp_address(), "live", &stream.key) {
            (call, Outcome::Publishing) => Ok(call),
            (_, refused) => Err(format!("{refused:?}")),
        }
    });
    drop(taken);
    let _encoder = wait::until("an encoder to get through", || {
        let mut encoder = Publish::of(&source).to(&service.ingest_url(&stream.key));
        let from = sink.records().len();
        wait::until("media or an end", || {
            if sink.records().len() > from + 60 || !encoder.running() {
                Ok(())
            } else {
                Err("neither".into())
            }
        });
        if encoder.running() { Ok(encoder) } else { Err(encoder.log()) }
    });
}
