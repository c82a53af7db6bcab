//! Webhooks: the events of a session, verified by the official libraries; none is lost when the service is killed.

use satcast_tests::encoder::Publish;
use satcast_tests::ports::Port;
use satcast_tests::receiver::Receiver;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;
use satcast_tests::verifiers::Verifier;
use satcast_tests::wait;
use serde_json::{Value, json};

fn service() -> Service {
    Setup::default().set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]").start()
}

fn webhook(service: &Service, url: &str) -> (i64, String) {
    let body = json!({ "url": url, "events": ["stream.started", "stream.ended"], "secret": "auto" });
    let made = service.api().post("/api/webhooks", &body).ok();
    (made["id"].as_i64().expect("an id"), made["secret"].as_str().expect("a secret").to_owned())
}

#[test]
fn a_session_is_delivered_and_the_official_libraries_verify_it() {
    let source = Source::shared();
    let (service, receiver) = (service(), Receiver::start(None));
    let api = service.api();
    let (id, old_secret) = webhook(&service, &receiver.url());
    let stream = api.create_stream("the show");
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    let started = receiver.wait_for(1);
    let data = started[0].json()["data"].clone();
    assert_eq!((&data["streamKeyId"], &data["label"]), (&json!(stream.id), &json!("the show")));
    assert_eq!(api.stream(&stream)["startedAt"], data["startedAt"]);

    let rotated = api.post(&format!("/api/webhooks/{id}/rotate-secret"), &json!({})).ok();
    let secret = rotated["secret"].as_str().expect("a secret").to_owned();
    let _ = api.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    let _ = encoder.stop();
    let tested = receiver.wait_for(2).len();
    let test = api.post(&format!("/api/webhooks/{id}/test"), &json!({})).ok();
    assert_eq!((&test["ok"], &test["status"]), (&json!(true), &json!(204)), "{test}");
    let received = receiver.wait_for(tested + 1);
    let types: Vec<Value> = received.iter().map(|request| request.json()["type"].clone()).collect();
    assert_eq!(types, ["stream.started", "stream.ended", "test.ping"]);
    let ended = received[1].json()["data"].clone();
    assert_eq!((&ended["sessionId"], &ended["endReason"]), (&data["sessionId"], &json!("stopped")));

    // The first event was signed before the rotation, the others with both secrets.
    let mut forged = [received[2].clone(), received[2].clone(), received[2].clone()];
    forged[0].body = forged[0].body.replace("test.ping", "test.pong");
    forged[1].headers["webhook-id"] = "msg_another".into();
    let signed_at: i64 = received[2].headers["webhook-timestamp"].as_str().unwrap().parse().unwrap();
    forged[2].headers["webhook-timestamp"] = (signed_at + 1).to_string().into();
    for library in Verifier::ALL {
        assert_eq!(library.accepts(&old_secret, &received), [true, true, true], "{library:?}");
        assert_eq!(library.accepts(&secret, &received), [false, true, true], "{library:?}");
        assert_eq!(library.accepts(&secret, &forged), [false, false, false], "{library:?}");
    }
    service.assert_not_logged(&[("the old secret", old_secret.as_str()), ("the secret", secret.as_str())]);
}

#[test]
fn deliveries_interrupted_by_a_kill_are_sent_after_the_restart() {
    let source = Source::shared();
    let mut service = service();
    // No server listens there before the service has been killed.
    let port = Port::lease();
    let address = port.address();
    let (id, secret) = webhook(&service, &format!("http://{address}/in"));
    let stream = service.api().create_stream("the show");
    let encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    service.api().wait_for_stream(&stream, "live");
    service.kill();
    drop(encoder);
    let receiver = Receiver::start(Some(address));
    service.start();
    let mut received = receiver.wait_for(2);
    received.sort_by_key(|request| request.json()["type"].as_str().map(str::to_owned));
    let [ended, started] = &received[..] else { panic!("{received:?}") };
    assert_eq!(started.json()["type"], "stream.started");
    assert_eq!(ended.json()["data"]["endReason"], "interrupted");
    assert_eq!(started.json()["data"]["sessionId"], ended.json()["data"]["sessionId"]);
    assert_eq!(Verifier::Rust.accepts(&secret, &received), [true, true]);
    // The service stores the result shortly after the answer.
    wait::until_api("both to be stored as delivered", || {
        let log = service.api().get(&format!("/api/webhooks/{id}/deliveries?state=delivered")).ok();
        if log.as_array().map(Vec::len) == Some(2) { Ok(()) } else { Err(log.to_string()) }
    });
}
