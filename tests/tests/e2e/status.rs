//! The public status: exactly the specified values, offline, live and offline again, and the values that disappear when a stream ends.

use satcast_tests::api::{Answer, send};
use satcast_tests::encoder::Publish;
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::{Hosted, STATUS, now_secs, window_files};
use satcast_tests::http::Http;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};

/// The fields of the specification. The service may have more fields with other names.
const FIELDS: [&str; 9] = [
    "isLive",
    "hlsReady",
    "hlsUrl",
    "label",
    "streamKeyLabel",
    "startedAt",
    "playbackToken",
    "dvr",
    "bandwidth",
];
const LIMIT_TEXT: &str = "Rate limit exceeded. Maximum 60 requests per minute.";
const LIMIT: usize = 60;

/// Only the specified fields.
fn specified(status: &Value) -> Value {
    FIELDS.iter().map(|field| ((*field).to_owned(), status[*field].clone())).collect()
}

/// The specified values of a stream that is offline.
fn offline(label: &str) -> Value {
    json!({
        "isLive": false, "hlsReady": false, "hlsUrl": null, "label": label, "streamKeyLabel": label,
        "startedAt": null, "playbackToken": null,
        "dvr": { "enabled": false, "windowSeconds": 0, "maxWindowSeconds": 3600, "availableFrom": null },
        "bandwidth": {
            "usedGB": "0.00", "limitGB": 10, "remainingGB": "10.00", "overageGB": "0.00", "overageSats": 0,
            "hourStart": now_secs() / 3600 * 3600,
        },
    })
}

#[test]
fn status_and_window_follow_the_stream() {
    let source = Source::shared();
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "the show");
    assert_eq!(specified(&hosted.status()), offline("the show"));

    let began = now_secs();
    let encoder = Publish::of(&source).faster(4).endless().to(&service.ingest_url(&hosted.stream.key));
    let url = hosted.ready();
    let mut viewer = Viewer::of(&url);
    let media = viewer.media();
    assert!(!viewer.chunks(&media.segments).is_empty(), "the status is ready, but there is nothing to play");
    is_live(&service, &hosted, &hosted.status(), began);
    // More than the service holds in memory.
    viewer.media_when("a window on disk", |media| media.segments.len() >= 10);
    assert!(!window_files(&service).is_empty(), "nothing is on disk");

    let stop = service.api().post(&format!("/api/streams/{}/stop", hosted.stream.id), &json!({})).ok();
    assert_eq!(stop["success"], true, "{stop}");
    hosted.status_when("the end", |status| status["isLive"] == false);
    assert_eq!(specified(&hosted.status()), offline("the show"), "after the end");
    drop(encoder);
    index_is_gone(&url);
    let ended = viewer.media_when("the end of the playlist", |media| media.ended);
    assert!(viewer.chunks(&ended.segments).len() >= 10, "players that are watching cannot finish");
    the_rest_goes(&service, &mut viewer, &ended.newest().name);
}

#[track_caller]
fn is_live(service: &Service, hosted: &Hosted, status: &Value, began: i64) {
    let url = service.api().destination(&hosted.stream, hosted.destination)["url"].clone();
    let url = format!("{}?apiKey={}", url.as_str().expect("the address of the stream"), hosted.key);
    assert!(url.starts_with(&format!("{}/hls/", service.base())), "{url}");
    let expected = json!({
        "isLive": true, "hlsReady": true, "hlsUrl": url, "label": hosted.label, "streamKeyLabel": hosted.label,
    });
    let shown = ["isLive", "hlsReady", "hlsUrl", "label", "streamKeyLabel"];
    let shown: Value = shown.iter().map(|field| ((*field).to_owned(), status[*field].clone())).collect();
    assert_eq!(shown, expected);
    let seconds = began - 1..=now_secs() + 1;
    assert!(status["startedAt"].as_i64().is_some_and(|at| seconds.contains(&at)), "{status}");
    assert!(status["playbackToken"].as_str().is_some_and(|token| token.len() > 20), "{status}");
    let dvr = &status["dvr"];
    assert_eq!((&dvr["enabled"], &dvr["maxWindowSeconds"]), (&json!(true), &json!(3600)), "{status}");
    assert!(dvr["windowSeconds"].as_i64().is_some_and(|window| (1..30).contains(&window)), "{status}");
    assert!(dvr["availableFrom"].as_i64().is_some_and(|from| seconds.contains(&from)), "{status}");
    let detail = service.api().stream(&hosted.stream);
    assert_eq!(detail["startedAt"].as_i64().map(|at| at / 1000), status["startedAt"].as_i64(), "{detail}");
    assert!(detail["playback"].to_string().contains("/hls/"), "{detail}");
}

/// The address answers at once like that of a stream that never existed, and no cache may keep the answer.
#[track_caller]
fn index_is_gone(url: &str) {
    let (address, path) = satcast_tests::http::split_url(url);
    let reply = Http::new(address).get(&path, &[]);
    reply.assert_status(404);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let body: Value = serde_json::from_str(&reply.text()).expect("the error body");
    assert!(body["error"].as_str().is_some_and(|error| !error.is_empty()), "{body}");
}

/// After a minute of grace the files and the addresses of the window are gone.
#[track_caller]
fn the_rest_goes(service: &Service, viewer: &mut Viewer, newest: &str) {
    let path = viewer.path(newest);
    let reply = wait::within("segments to be gone", seconds(75), || {
        let reply = viewer.http.request("HEAD", &path, &[]);
        std::thread::sleep(seconds(1));
        if reply.status == 200 { Err("still there".into()) } else { Ok(reply) }
    });
    reply.assert_status(404);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    wait::until("the window to be gone from disk", || match window_files(service).len() {
        0 => Ok(()),
        left => Err(format!("{left} files")),
    });
}

#[test]
fn a_key_is_asked_for_and_answered_sixty_times_a_minute() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "limited");
    let other_key = Hosted::key(&service, hosted.destination);
    forms_of_the_key(&service, &other_key);
    for count in 1..=LIMIT {
        assert_eq!(hosted.status_of(&hosted.key).status, 200, "request {count}");
    }
    let refused = hosted.status_of(&hosted.key);
    assert_limited(&refused);
    assert_eq!(hosted.status_of(&other_key).status, 200, "another key has its own minute");
    service.assert_not_logged(&[("a public key", &hosted.key), ("a public key", &other_key)]);
}

#[track_caller]
fn assert_limited(answer: &Answer) {
    answer.assert_error(429, None);
    assert_eq!(answer.body["error"], LIMIT_TEXT);
    let after = answer.body["retryAfter"].as_u64().expect("retryAfter in seconds");
    assert!((1..=60).contains(&after), "{}", answer.text);
    assert_eq!(answer.header("retry-after"), Some(after.to_string().as_str()));
}

#[track_caller]
fn forms_of_the_key(service: &Service, key: &str) {
    let api = service.api().with_key(None);
    let query = |name: &str| format!("{STATUS}?{name}={key}");
    for request in [
        api.request("GET", STATUS).header("X-API-Key", key),
        api.request("GET", STATUS).bearer_auth(key),
        api.request("GET", &query("apiKey")),
        api.request("GET", &query("key")),
    ] {
        assert_eq!(send(request).ok()["isLive"], false);
    }
    let none = send(api.request("GET", STATUS));
    none.assert_error(400, None);
    for way in ["X-API-Key", "Authorization: Bearer", "apiKey"] {
        assert!(none.text.contains(way), "{way} is not named in {}", none.text);
    }
    for wrong in [service.key(), "pk_0123456789abcdefghijklmnopqrstuvwxyz01", "nonsense"] {
        let refused = send(api.request("GET", STATUS).header("X-API-Key", wrong));
        refused.assert_error(401, None);
        assert_eq!(refused.body["error"], "Invalid API key or destination disabled");
    }
}
