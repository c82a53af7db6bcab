//! The API of the running service: the specification's shapes, and every refusal with its body.

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use satcast_tests::api::{Answer, Api, Stream, send, stream_of};
use satcast_tests::caller::{Call, Outcome};
use satcast_tests::service::{Service, Setup};
use serde_json::{Value, json};

#[test]
fn streams_are_created_listed_read_and_deleted() {
    let service = Setup::default().start();
    let api = service.api();
    let plain = api.post("/api/streams", &json!({ "label": "  one  " })).ok();
    let first = stream_of(&plain);
    assert_eq!(
        plain,
        json!({ "id": first.id, "streamKey": first.key, "label": "one", "status": "idle", "limits": {} })
    );
    assert!(first.key.starts_with("live_") && first.key.len() == "live_".len() + 32);

    let destinations = json!([rtmp("rtmp://127.0.0.1:9/app", "k1"), rtmp("rtmp://127.0.0.1:9/app", "k2")]);
    let full = api.post("/api/streams", &json!({ "label": "two", "destinations": destinations })).ok();
    let second = stream_of(&full);
    assert_eq!(
        full,
        json!({ "id": second.id, "streamKey": second.key, "label": "two", "destinationsCount": 2 })
    );
    let empty = api.post("/api/streams", &json!({ "label": "three", "destinations": [] })).ok();
    assert_eq!(empty["limits"], json!({}));

    let list = api.get("/api/streams").ok();
    let labels: Vec<&str> =
        list.as_array().into_iter().flatten().filter_map(|entry| entry["label"].as_str()).collect();
    assert_eq!(labels, ["three", "two", "one"], "newest first");
    for field in ["id", "streamKey", "label", "status", "createdAt"] {
        assert!(list[2].get(field).is_some(), "no {field} in {list}");
    }
    assert!(list[2]["createdAt"].as_i64() > Some(1_700_000_000_000), "milliseconds: {list}");

    let detail = api.stream(&second);
    assert_eq!(detail["limits"], json!({}));
    assert_eq!(detail["destinations"].as_array().map(Vec::len), Some(2));
    assert!(detail.get("startedAt").is_none(), "{detail}");
    assert_eq!(api.delete(&format!("/api/streams/{}", first.id)).ok()["success"], true);
    api.get(&format!("/api/streams/{}", first.id)).assert_error(404, None);
}

#[test]
fn destinations_are_added_listed_and_deleted_in_both_forms() {
    let service = Setup::default().start();
    let api = service.api();
    let (stream, other) = (api.create_stream("one"), api.create_stream("other"));
    let key = "secret-of-the-destination";
    let id = api.add_destination(&stream, "rtmp://127.0.0.1:9/app", key);
    let in_url = api.add_destination(&stream, &format!("rtmp://127.0.0.1:9/app/{key}"), "");
    let list = api.get(&format!("/api/streams/{}/destinations", stream.id)).ok();
    assert!(!list.to_string().contains(key), "the key is shown in {list}");
    for shown in [api.destination(&stream, id), api.destination(&stream, in_url)] {
        assert_eq!(
            (&shown["type"], &shown["platform"], &shown["enabled"]),
            (&json!("rtmp"), &json!("rtmp"), &json!(true))
        );
        let url = shown["url"].as_str().expect("the masked address");
        assert!(url.starts_with("rtmp://127.0.0.1:9/app"), "{url}");
        assert!(url.ends_with("sec...ion"), "{url}");
        assert_eq!(shown["bytesSent"], 0, "{shown}");
    }
    let short = api.add_destination(&stream, "rtmp://127.0.0.1:9/app", "short");
    assert!(api.destination(&stream, short)["url"].as_str().is_some_and(|url| url.ends_with("***")));

    api.delete(&format!("/api/streams/{}/destinations/{id}", other.id)).assert_error(404, None);
    assert_eq!(
        api.delete(&format!("/api/streams/{}/destinations/{id}", stream.id)).ok(),
        json!({ "success": true })
    );
    assert_eq!(api.delete(&format!("/api/destinations/{in_url}")).ok(), json!({ "success": true }));
    api.delete(&format!("/api/destinations/{in_url}")).assert_error(404, None);
    let left = api.get(&format!("/api/streams/{}/destinations", stream.id)).ok();
    assert_eq!(left.as_array().map(Vec::len), Some(1), "{left}");
    service.assert_not_logged(&[("the key of a destination", key)]);
}

#[test]
fn refused_values_are_named_and_create_nothing() {
    let service = Setup::default().start();
    let api = service.api();
    let bad = [
        (400, json!({ "label": "x", "colour": "red" }), "colour"),
        (422, json!({ "label": "   " }), "label"),
        (422, json!({ "label": "x".repeat(129) }), "label"),
        (
            422,
            json!({ "label": "x", "destinations": [{ "type": "carrier-pigeon" }] }),
            "destinations[0].type",
        ),
        (422, json!({ "label": "x", "destinations": [{ "type": "rtmp", "config": {} }] }), "url"),
        (
            422,
            json!({ "label": "x", "destinations": [{ "type": "rtmp", "config": { "url": "https://x/y" } }] }),
            "url",
        ),
        (422, json!({ "label": "x", "destinations": [rtmp("rtmp://10.1.2.3/app", "k")] }), "url"),
        (422, json!({ "label": "x", "destinations": [rtmp("rtmp://169.254.169.254/app", "k")] }), "url"),
        (422, json!({ "label": "x", "destinations": [rtmp("rtmp://[::ffff:10.1.2.3]/app", "k")] }), "url"),
        (
            422,
            json!({ "label": "x", "destinations": [rtmp("rtmp://127.0.0.1/a", "k"), rtmp("rtmp://0x0a010203/a", "k")] }),
            "url",
        ),
    ];
    for (status, body, names) in bad {
        let answer = api.post("/api/streams", &body);
        answer.assert_error(status, None);
        assert!(answer.text.contains(names), "{body} is refused without naming {names}: {}", answer.text);
    }
    assert_eq!(api.get("/api/streams").ok(), json!([]), "a refused request created something");
}

#[test]
fn requests_that_cannot_be_read_get_the_error_body() {
    let service = Setup::default().start();
    let api = service.api();
    let authorised = |method: &str, path: &str| api.request(method, path).bearer_auth(service.key());
    let json_type = |text: &'static str| {
        authorised("POST", "/api/streams").header(CONTENT_TYPE, "application/json").body(text)
    };
    send(json_type("{")).assert_error(400, None);
    send(json_type("[]")).assert_error(400, None);
    send(json_type("")).assert_error(400, None);
    send(authorised("POST", "/api/streams").header(CONTENT_TYPE, "text/plain").body("{}"))
        .assert_error(415, None);
    let huge = format!("{{\"label\":\"{}\"}}", "x".repeat(8 << 20));
    send(authorised("POST", "/api/streams").header(CONTENT_TYPE, "application/json").body(huge))
        .assert_error(413, None);
    let refused = send(authorised("PUT", "/api/streams"));
    refused.assert_error(405, None);
    let allowed = refused.header("allow").expect("405 comes with Allow");
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    send(authorised("GET", "/api/nothing")).assert_error(404, None);
    send(authorised("GET", "/nothing")).assert_error(404, None);
    send(authorised("GET", "/api/streams/999999")).assert_error(404, None);
    let word = send(authorised("GET", "/api/streams/word"));
    assert!([400, 404].contains(&word.status), "{}", word.text);
    word.assert_error(word.status, None);
}

#[test]
fn keys_are_accepted_in_every_form_and_the_first_one_counts() {
    let service = Setup::default().start();
    let (api, key) = (service.api().with_key(None), service.key());
    let wrong = "sk_00000000000000000000000000000000000000";
    let list = || api.request("GET", "/api/streams");
    let with_query = |query: String| api.request("GET", &format!("/api/streams?{query}"));
    assert_eq!(send(list().header("X-API-Key", key)).status, 200);
    assert_eq!(send(list().header(AUTHORIZATION, format!("Bearer {key}"))).status, 200);
    assert_eq!(send(with_query(format!("apiKey={key}"))).status, 200);
    assert_eq!(send(with_query(format!("key={key}"))).status, 200);
    assert_eq!(
        send(list().header("X-API-Key", "").bearer_auth(key)).status,
        200,
        "an empty form does not count"
    );
    send(list()).assert_error(401, None);
    send(list().bearer_auth(wrong)).assert_error(401, None);
    send(list().header("X-API-Key", wrong).bearer_auth(key)).assert_error(401, None);
    send(with_query(format!("apiKey={key}")).bearer_auth(wrong)).assert_error(401, None);
    send(with_query(format!("apiKey={wrong}&key={key}"))).assert_error(401, None);
    send(list().bearer_auth("x".repeat(5000))).assert_error(401, None);
    service.assert_not_logged(&[("the API key", key), ("a wrong API key", wrong)]);
}

#[test]
fn accounts_do_not_see_each_other() {
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("mine");
    let destination = api.add_destination(&stream, "rtmp://127.0.0.1:9/app", "key");
    let _ = service.run(&["account", "create", "stranger"]);
    let key = service.run(&["key", "create", "--account", "stranger", "--type", "permanent"]);
    let stranger = api.with_key(Some(key.trim()));
    assert_eq!(stranger.get("/api/streams").ok(), json!([]));
    let path = format!("/api/streams/{}", stream.id);
    let new = rtmp("rtmp://127.0.0.1:9/app", "key");
    stranger.get(&path).assert_error(404, None);
    stranger.get(&format!("{path}/destinations")).assert_error(404, None);
    stranger.post(&format!("{path}/destinations"), &new).assert_error(404, None);
    stranger.post(&format!("{path}/stop"), &json!({})).assert_error(404, None);
    stranger.delete(&format!("{path}/destinations/{destination}")).assert_error(404, None);
    stranger.delete(&format!("/api/destinations/{destination}")).assert_error(404, None);
    stranger.delete(&path).assert_error(404, None);
    assert_eq!(api.stream(&stream)["destinations"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_stop_answers_in_every_state_and_keeps_the_encoder_out() {
    let service = Setup::default().start();
    let api = service.api();
    let stream = api.create_stream("stop");
    let stop = || api.post(&format!("/api/streams/{}/stop", stream.id), &json!({}));
    assert_eq!(stop().ok(), json!({ "success": true, "message": "No active session" }));
    api.post("/api/streams/999999/stop", &json!({})).assert_error(404, None);

    publish_and_stop(&service, &stream, stop);
    let (_, outcome) = Call::publish(service.rtmp_address(), "live", &stream.key);
    let Outcome::Rejected { code, description } = outcome else { panic!("a stopped stream was {outcome:?}") };
    assert!(code.starts_with("NetStream.Publish."), "{code}");
    assert!(description.to_lowercase().contains("stop"), "{description}");
}

fn publish_and_stop(service: &Service, stream: &Stream, stop: impl Fn() -> Answer) {
    use satcast_tests::{encoder::Publish, source::Source, wait::seconds};
    let mut encoder = Publish::of(&Source::shared()).to(&service.ingest_url(&stream.key));
    service.api().wait_for_stream(stream, "live");
    let body = stop().ok();
    assert_eq!(body["success"], true);
    assert!(body["message"].as_str().is_some_and(|message| message != "No active session"), "{body}");
    service.api().wait_for_stream(stream, "idle");
    encoder.wait(seconds(60));
}

#[test]
fn the_public_configuration_has_the_specified_shape() {
    let service = Setup::default().set("SATCAST_PRICING__COST_PER_PLATFORM", "7").start();
    let answer = Api::new(&service.base(), None).get("/api/public/config");
    let cached = answer.header("cache-control").map(str::to_owned);
    assert!(cached.is_some_and(|value| value.contains("max-age=60")));
    let body = answer.ok();
    let expected = json!({
        "BANDWIDTH_LIMIT_GB_PER_HOUR": 10,
        "BANDWIDTH_OVERAGE_SATS_PER_GB": 5,
        "COST_PER_PLATFORM": 7,
        "FREE_PLATFORMS": 1,
    });
    assert_eq!(body["pricing"], expected);
    assert!(body["version"].as_str().is_some_and(|version| version.split('.').count() == 3), "{body}");
    assert!(body["timestamp"].as_i64() > Some(1_700_000_000_000), "{body}");
}

#[test]
fn the_document_is_served_as_it_is_printed() {
    let service = Setup::default().start();
    let api = Api::new(&service.base(), None);
    let served = api.get("/openapi.json").ok();
    let printed: Value = serde_json::from_str(&service.run(&["openapi"])).expect("a JSON document");
    assert_eq!(served["paths"], printed["paths"]);
    assert_eq!(served["components"], printed["components"]);
}

fn rtmp(url: &str, key: &str) -> Value {
    json!({ "type": "rtmp", "config": { "url": url, "key": key } })
}
