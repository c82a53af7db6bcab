//! The event feed: a follower gets the documented events.

use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use reqwest::blocking::Response;
use satcast_tests::api::Api;
use satcast_tests::clients::document;
use satcast_tests::service::{Service, Setup};
use serde_json::{Value, json};

/// Longest life of a follower: a test that misses an event fails after it.
const FOLLOW_LIMIT: Duration = Duration::from_secs(30);
/// As many followers as an account may have.
const FOLLOWERS_MAX: usize = 32;
const EVENTS: &str = "/api/events";

/// What the committed document says of an answer with this status.
#[track_caller]
fn declared(status: u16) -> Value {
    let text = std::fs::read_to_string(document()).expect("the committed document");
    let committed: Value = serde_json::from_str(&text).expect("a JSON document");
    let answer = &committed["paths"][EVENTS]["get"]["responses"][status.to_string()];
    let shared = answer["$ref"].as_str().map(|path| &path[1..]);
    let answer = shared.and_then(|path| committed.pointer(path)).unwrap_or(answer);
    assert!(answer.is_object(), "the document has no status {status}");
    answer.clone()
}

#[track_caller]
fn ask(service: &Service, key: Option<&str>, last: Option<&str>) -> Response {
    let mut request = Api::new(&service.base(), None).request("GET", EVENTS).timeout(FOLLOW_LIMIT);
    for (name, value) in [("x-api-key", key), ("last-event-id", last)] {
        request = value.into_iter().fold(request, |request, value| request.header(name, value));
    }
    let response = request.send().expect("an answer");
    let answer = declared(response.status().as_u16());
    let content = response.headers()["content-type"].to_str().expect("a content type");
    let content = content.split(';').next().unwrap_or_default();
    let contents: Vec<_> = answer["content"].as_object().into_iter().flat_map(|kinds| kinds.keys()).collect();
    assert_eq!(contents, [content], "{}", response.status());
    response
}

/// A follower of the feed.
pub(super) struct Follower(BufReader<Response>);

impl Follower {
    #[track_caller]
    pub(super) fn new(service: &Service, key: &str, last: Option<&str>) -> Self {
        let response = ask(service, Some(key), last);
        assert_eq!(response.status(), 200);
        Self(BufReader::new(response))
    }

    /// The data of the next event of this name.
    #[track_caller]
    pub(super) fn until(&mut self, wanted: &str) -> Value {
        loop {
            let (_, name, data) = self.next().expect("more events");
            if name == wanted {
                return data;
            }
        }
    }

    /// The next event: its id, its name, its data; `None` at the end.
    #[track_caller]
    fn next(&mut self) -> Option<(String, String, Value)> {
        let (mut id, mut name, mut data) = Default::default();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("an event in time") == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("id", value)) => id = value.to_owned(),
                Some(("event", value)) => name = value.to_owned(),
                Some(("data", value)) => data = serde_json::from_str(value).expect("JSON in an event"),
                Some(("retry", value)) => assert_eq!(value, "3000"),
                None if line == "\n" && data != Value::Null => return Some((id, name, data)),
                // A comment, and its end.
                None => assert!(["\n", ":\n"].contains(&line.as_str()), "{line}"),
                Some(_) => panic!("a line that the document does not know: {line}"),
            }
        }
    }
}

#[test]
fn events_come_as_the_document_says_until_the_key_is_replaced() {
    let service = Setup::default().start();
    let api = service.api();
    let made = api.post("/api/keys", &json!({ "type": "permanent" })).ok();
    let key = made["key"].as_str().expect("a key");
    let mut follower = Follower::new(&service, key, None);
    let (ready, name, data) = follower.next().expect("the event ready");
    assert_eq!(name, "ready");
    assert!(data["at"].as_i64() > Some(1_700_000_000_000), "{data}");

    let stream = api.create_stream("followed");
    let (_, name, data) = follower.next().expect("the event of the change");
    assert_eq!(
        (name.as_str(), &data["target"]),
        ("stream.created", &json!({ "type": "stream", "id": stream.id }))
    );
    assert!(data["at"].as_i64() > Some(1_700_000_000_000), "{data}");

    // A follower that was disconnected meanwhile gets the event too.
    let mut late = Follower::new(&service, key, Some(&ready));
    let names: Vec<String> = (0..2).filter_map(|_| late.next()).map(|(_, name, _)| name).collect();
    assert_eq!(names, ["ready", "stream.created"]);

    let new = api.post(&format!("/api/keys/{}/rotate", made["id"]), &json!({})).ok();
    for mut follower in [follower, late] {
        assert_eq!(follower.next().map(|(_, name, _)| name).as_deref(), Some("key.replaced"));
        assert_eq!(follower.next(), None, "an answer goes on after its key is gone");
    }
    assert_eq!(ask(&service, Some(key), None).status(), 401);
    let new = new["key"].as_str().expect("a key");
    assert_eq!(Follower::new(&service, new, None).next().map(|(_, name, _)| name).as_deref(), Some("ready"));
    service.assert_not_logged(&[("the old key", key), ("the new key", new)]);
}

#[test]
fn events_are_refused_as_the_document_says() {
    let service = Setup::default().start();
    let code = |key: Option<&str>| {
        let response = ask(&service, key, None);
        let status = response.status().as_u16();
        let body: Value = response.json().expect("a JSON body");
        (status, body["code"].as_str().expect("a code").to_owned())
    };
    assert_eq!(code(None), (401, "key_required".to_owned()));
    assert_eq!(code(Some("sk_wrong")), (401, "invalid_key".to_owned()));
    assert_eq!(code(Some(&public_key(&service.api()))), (403, "key_type_not_allowed".to_owned()));
    let followers: Vec<Follower> =
        (0..FOLLOWERS_MAX).map(|_| Follower::new(&service, service.key(), None)).collect();
    assert_eq!(code(Some(service.key())), (429, "too_many_streams".to_owned()));
    drop(followers);
}

fn public_key(api: &Api) -> String {
    let stream = api.create_stream("watched");
    let path = format!("/api/streams/{}/destinations", stream.id);
    let destination = api.post(&path, &json!({ "type": "self-hosted", "config": {} })).ok()["id"].clone();
    let key = api.post("/api/keys", &json!({ "type": "public", "destinationId": destination })).ok();
    key["key"].as_str().expect("a key").to_owned()
}
