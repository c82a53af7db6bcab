//! Settings of an owner: delays of destinations, and the addresses from which a stream key may be used.

use satcast_tests::encoder::Publish;
use satcast_tests::said;
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};

#[test]
fn a_destination_starts_and_stops_late_and_the_other_does_not_wait_for_it() {
    let source = Source::shared();
    let (early, late) = (Sink::recording(), Sink::recording());
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("delays");
    let list = format!("/api/streams/{}/destinations", stream.id);
    let add = |sink: &Sink, more: Value| {
        let mut body = json!({ "type": "rtmp", "config": { "url": sink.url(), "key": "live_key_012345" } });
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        api.post(&list, &body).ok()["id"].as_i64().expect("an id")
    };
    let first = add(&early, json!({}));
    let second = add(&late, json!({ "startDelaySeconds": 4, "stopDelaySeconds": 3 }));
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    api.wait_for_destination(&stream, first, "live");
    let waiting = api.destination(&stream, second);
    let started = api.stream(&stream)["startedAt"].as_i64().expect("a start");
    let starts_at = waiting["startsAt"].as_i64().unwrap_or_else(|| panic!("{waiting}"));
    assert_eq!((&waiting["state"], late.attempts()), (&json!("stopped"), 0));
    assert!((4_000..6_000).contains(&(starts_at - started)), "{waiting}");
    let shown = api.wait_for_destination(&stream, second, "live");
    assert!(shown["liveSince"].as_i64() >= Some(starts_at), "{shown}");
    assert_eq!(shown["startsAt"], Value::Null);

    let _ = api.patch(&format!("{list}/{second}"), &json!({ "enabled": false })).ok();
    let going = api.destination(&stream, second);
    assert!(going["stopsAt"].as_i64().is_some() && going["state"] == "live", "{going}");
    late.wait_until_left();
    let stopped = api.wait_for_destination(&stream, second, "stopped");
    assert_eq!((&stopped["stopsAt"], &stopped["enabled"]), (&Value::Null, &json!(false)));
    assert_eq!(api.destination(&stream, first)["state"], "live");
    let _ = encoder.stop();
}

#[test]
fn a_stream_is_not_sent_back_to_itself() {
    let source = Source::shared();
    let service = Setup::default().start();
    let api = service.api();
    let streams = [api.create_stream("there"), api.create_stream("and back")];
    let add = |from: usize, to: usize| {
        let url = service.ingest_url("").trim_end_matches('/').to_owned();
        let body = json!({ "type": "rtmp", "config": { "url": url, "key": streams[to].key } });
        let path = format!("/api/streams/{}/destinations", streams[from].id);
        api.post(&path, &body).ok()["id"].as_i64().expect("an id")
    };
    let own = add(0, 0);
    let (there, back) = (add(0, 1), add(1, 0));
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&streams[0].key));
    api.wait_for_destination(&streams[0], there, "live");
    for (stream, destination) in [(0, own), (1, back)] {
        wait::until("the refusal", || {
            let shown = api.destination(&streams[stream], destination);
            let error = shown["error"].as_str().unwrap_or_default();
            if error.contains(said::SENDS_INTO_ITSELF) { Ok(()) } else { Err(shown.to_string()) }
        });
    }
    let _ = encoder.stop();
    api.wait_for_stream(&streams[0], "reconnecting");
}

#[test]
fn a_stream_key_works_only_from_the_named_addresses_and_until_it_is_replaced() {
    let source = Source::shared();
    let service = Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "0").start();
    let api = service.api();
    let stream = api.create_stream("addresses");
    let path = format!("/api/streams/{}", stream.id);
    let allow = |entries: Value| api.patch(&path, &json!({ "allowedAddresses": entries })).ok();
    let _ = allow(json!(["203.0.113.0/24"]));
    let mut refused = Publish::of(&source).to(&service.ingest_url(&stream.key));
    let status = refused.wait(seconds(60));
    assert!(!status.success(), "{}", refused.log());
    wait::until("the log line", || {
        let log = service.log();
        if log.contains(said::ADDRESS_NOT_ALLOWED) { Ok(()) } else { Err(log) }
    });
    assert_eq!(api.stream(&stream)["status"], "idle");

    let _ = allow(json!(["203.0.113.0/24", "127.0.0.0/8"]));
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    api.wait_for_stream(&stream, "live");
    let _ = allow(json!(["203.0.113.0/24"]));
    // A publisher whose address was removed from the list is disconnected at once, with the reason.
    api.wait_for_stream(&stream, "idle");
    assert_eq!(api.stream(&stream)["lastEndReason"], "key_revoked");
    assert!(!encoder.wait(seconds(60)).success(), "{}", encoder.log());

    // A new key: the publisher with the old key is disconnected and can return only with the new key.
    let _ = allow(json!([]));
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    api.wait_for_stream(&stream, "live");
    let rotated = api.post(&format!("{path}/rotate"), &json!({})).ok();
    let new_key = rotated["streamKey"].as_str().unwrap_or_else(|| panic!("{rotated}"));
    assert!(!encoder.wait(seconds(60)).success(), "{}", encoder.log());
    assert_eq!(api.wait_for_stream(&stream, "idle")["lastEndReason"], "key_revoked");
    let mut late = Publish::of(&source).to(&service.ingest_url(&stream.key));
    assert!(!late.wait(seconds(60)).success(), "{}", late.log());
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(new_key));
    api.wait_for_stream(&stream, "live");
    service.assert_not_logged(&[("the old key", &stream.key), ("the new key", new_key)]);
}
