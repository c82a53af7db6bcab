//! Access of viewers, and the limits for viewers that do not read.

use satcast_tests::api::send;
use satcast_tests::encoder::Publish;
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::{Hosted, STATUS};
use satcast_tests::http::{Http, Slow, split_url};
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{self, seconds};
use serde_json::{Value, json};

const LIMIT: usize = 60;
const REFUSED: &str = "Invalid API key or destination disabled";
/// Longest time for which an unread answer may keep its connection; the service's own limit is 30 s.
const PATIENCE_SECONDS: u64 = 36;
/// Reads of at most 4 KiB per second by the slow viewer: too few to watch, but above the service's minimum rate.
const CREEPING_READS: usize = 4;
/// More bytes of an answer than the buffers of both sides hold.
const BUFFERED_BYTES: u64 = 400_000;
/// Time until a change of a key or destination is seen by viewers; the service asks its database every second.
const SEEN_AFTER_SECONDS: u64 = 5;

#[test]
fn keys_open_only_their_stream_and_appear_nowhere_else() {
    let service = Setup::default().start();
    let (hosted, other) = (Hosted::new(&service, "mine"), Hosted::new(&service, "another"));
    let _encoder =
        Publish::of(&Source::of(Recipe::SMALL)).endless().to(&service.ingest_url(&hosted.stream.key));
    let url = hosted.ready();
    let (address, with_key) = split_url(&url);
    let (path, _) = with_key.split_once('?').expect("a key in the address");
    let mut http = Http::new(address);
    let asks = |http: &mut Http, query: &str| http.get(&format!("{path}{query}"), &[]).status;
    assert_eq!(asks(&mut http, &format!("?apiKey={}", hosted.key)), 200);
    assert_eq!(asks(&mut http, ""), 400, "no key");
    for (what, query) in [
        ("a key that is none", "?apiKey=nonsense".to_owned()),
        ("a wrong key", format!("?apiKey={}", mistyped(&hosted.key))),
        ("a foreign key", format!("?apiKey={}", other.key)),
        ("a key of the owner", format!("?apiKey={}", service.key())),
        ("a wrong token", "?token=AQIDBAUGBwgJCgsMDQ4PEA".to_owned()),
    ] {
        let reply = http.get(&format!("{path}{query}"), &[]);
        assert_eq!(reply.status, 401, "{what}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{what}");
        assert_eq!(reply.header("access-control-allow-origin"), Some("*"), "{what}");
        let body: Value = serde_json::from_str(&reply.text()).expect("the error body");
        assert_eq!(body["error"], REFUSED, "{what}");
    }
    let mut viewer = Viewer::of(&url);
    let media = viewer.media();
    viewer.chunks(&media.segments);
    children_are_their_own(&mut viewer, &other);
    changes_end_playback(&service, &hosted, &mut viewer);
    let secrets = [("a public key", hosted.key.as_str()), ("a foreign key", &other.key)];
    service.assert_not_logged(&secrets);
    let token = viewer.path("").split('/').rev().nth(1).expect("a token").to_owned();
    service.assert_not_logged(&[("a token of a viewer", &token)]);
}

/// The key with another last letter.
fn mistyped(key: &str) -> String {
    let (rest, last) = key.split_at(key.len() - 1);
    format!("{rest}{}", if last == "x" { 'y' } else { 'x' })
}

/// Addresses in playlists contain no key, and no token opens another path.
#[track_caller]
fn children_are_their_own(viewer: &mut Viewer, other: &Hosted) {
    let folder = viewer.path("");
    let texts: Vec<String> = ["media.m3u8", "preview.m3u8"]
        .map(|name| viewer.http.get(&format!("{folder}{name}"), &[]).text())
        .into();
    for text in texts.iter().chain([&viewer.index().media]) {
        assert!(!text.contains("pk_") && !text.contains("apiKey"), "a key is in {text}");
    }
    let newest = viewer.media().newest().name.clone();
    let path = viewer.path(&newest);
    let detail = other.status_of(&other.key).ok();
    assert_eq!(detail["hlsUrl"], Value::Null);
    // A change of any letter of the token makes its signature invalid.
    let at = folder.trim_end_matches('/').rfind('/').expect("a token") + 3;
    for (place, letter) in [(at, 'A'), (at, 'B'), (path.rfind('/').expect("a name") - 2, 'A')] {
        let mut changed = path.clone();
        changed.replace_range(place..=place, &letter.to_string());
        if changed != path {
            let status = viewer.http.get(&changed, &[]).status;
            assert!(matches!(status, 401 | 404), "a changed token was answered {status}");
        }
    }
}

/// A revoked key ends playback at the next playlist, a disabled destination likewise.
#[track_caller]
fn changes_end_playback(service: &Service, hosted: &Hosted, viewer: &mut Viewer) {
    let owner = service.api();
    let second = Hosted::key(service, hosted.destination);
    for key in owner.get("/api/keys").ok().as_array().expect("a list of keys") {
        if key["destinationId"] == hosted.destination {
            let _ =
                send(owner.request("DELETE", &format!("/api/keys/{}", key["id"])).bearer_auth(service.key()))
                    .ok();
        }
    }
    let kept = Hosted::key(service, hosted.destination);
    let playlist = viewer.path("media.m3u8");
    wait::within("the revoked key to be refused", seconds(SEEN_AFTER_SECONDS), || {
        match viewer.http.get(&playlist, &[]).status {
            401 | 404 => Ok(()),
            status => Err(status.to_string()),
        }
    });
    let api = service.api().with_key(None);
    for key in [&hosted.key, &second] {
        let refused = send(api.request("GET", STATUS).header("X-API-Key", key));
        refused.assert_error(401, None);
        assert_eq!(refused.body["error"], REFUSED);
    }
    let status = hosted.status_of(&kept).ok();
    let url = status["hlsUrl"].as_str().expect("another key still opens the stream");
    let mut other = Viewer::of(url);
    other.media();
    let path = format!("/api/streams/{}/destinations/{}", hosted.stream.id, hosted.destination);
    let _ = send(owner.request("PATCH", &path).bearer_auth(service.key()).json(&json!({ "enabled": false })))
        .ok();
    wait::within("the disabled destination to be refused", seconds(SEEN_AFTER_SECONDS), || {
        let refused = hosted.status_of(&kept);
        if refused.status == 401 { Ok(()) } else { Err(refused.text) }
    });
    let playlist = other.path("media.m3u8");
    wait::within("its viewers to be refused", seconds(SEEN_AFTER_SECONDS), || {
        match other.http.get(&playlist, &[]).status {
            401 | 404 => Ok(()),
            status => Err(status.to_string()),
        }
    });
}

#[test]
fn the_preview_is_answered_sixty_times_a_minute() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "preview");
    let _encoder =
        Publish::of(&Source::of(Recipe::SMALL)).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut paying = hosted.viewer();
    let url = hosted.preview_url(&mut paying);
    let (address, path) = split_url(&url);
    let mut first = Viewer::of(&url);
    let media = first.media();
    let segment = first.path(&media.newest().name);
    let mut spent = 2;
    // Another viewer with the same token: the minute is one for all.
    let mut second = Http::new(address);
    while spent < LIMIT {
        let asked = if spent % 2 == 0 { &path } else { &segment };
        let reply = second.get(asked, &[]);
        assert_eq!(reply.status, 200, "request {}", spent + 1);
        assert_eq!(reply.header("cache-control"), Some("private, no-store"));
        spent += 1;
    }
    for asked in [&path, &segment] {
        let refused = second.get(asked, &[]);
        assert_eq!(refused.status, 429, "request {}", LIMIT + 1);
        assert_eq!(refused.header("access-control-allow-origin"), Some("*"));
        let body: Value = serde_json::from_str(&refused.text()).expect("the error body");
        assert_eq!(body["error"], "Rate limit exceeded. Maximum 60 requests per minute.");
        let after = body["retryAfter"].as_u64().expect("retryAfter");
        assert!((1..=60).contains(&after), "{body}");
        assert_eq!(refused.header("retry-after"), Some(after.to_string().as_str()));
    }
    for _ in 0..2 * LIMIT {
        paying.media();
    }
}

#[test]
fn a_viewer_that_reads_nothing_is_cut_off_and_others_continue() {
    let service = Setup::default().start();
    let hosted = Hosted::new(&service, "slow");
    let _encoder =
        Publish::of(&Source::of(Recipe::HEAVY)).endless().to(&service.ingest_url(&hosted.stream.key));
    let mut viewer = hosted.viewer();
    let newest = viewer.media().newest().name.clone();
    let path = viewer.path(&newest);
    let size = viewer.http.get(&path, &[]).body.len() as u64;
    let (address, _) = split_url(&service.base());
    let mut stuck: Vec<Slow> = (0..2).map(|_| Slow::get(address, &path)).collect();
    let mut creeping = Slow::get(address, &path);
    assert!(stuck.iter().all(|slow| slow.status == 200));

    let began = std::time::Instant::now();
    let mut crept = 0;
    let mut media = viewer.media();
    while began.elapsed() < seconds(PATIENCE_SECONDS) {
        for _ in 0..CREEPING_READS {
            crept += creeping.read().expect("a viewer that takes a little keeps its connection");
        }
        let now = viewer.media();
        let fresh: Vec<_> =
            now.segments.iter().filter(|one| one.sequence > media.newest().sequence).cloned().collect();
        viewer.chunks(&fresh);
        media = now;
        std::thread::sleep(seconds(1));
    }
    // More than the buffers hold: the slow viewer was not cut off, the others were.
    let (rest, rests): (u64, Vec<u64>) = std::thread::scope(|scope| {
        let draining: Vec<_> =
            stuck.iter_mut().map(|slow| scope.spawn(|| slow.drain(BUFFERED_BYTES))).collect();
        let rest = creeping.drain(BUFFERED_BYTES);
        (rest, draining.into_iter().map(|one| one.join().expect("the rest of the answer")).collect())
    });
    assert!(
        rest > BUFFERED_BYTES,
        "a viewer that takes a little was cut off after {crept} bytes, {rest} more came"
    );
    for rest in rests {
        assert!(
            rest <= BUFFERED_BYTES,
            "a viewer that took nothing was not cut off: {rest} of {size} bytes came"
        );
    }
    let fresh =
        viewer.media_when("the stream goes on", |now| now.newest().sequence > media.newest().sequence);
    assert_eq!(fresh.discontinuity_sequence, 0);
    assert!(fresh.segments.iter().all(|segment| !segment.discontinuity), "the stream was disturbed");
}
