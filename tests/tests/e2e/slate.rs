//! The slate of a stream: it plays while the encoder is away, is charged like the encoder's media, and ends in time.

use std::time::Duration;

use satcast_tests::api::{Answer, Api, Stream};
use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::hosted::Hosted;
use satcast_tests::player::{Engine, Player, assert_moves};
use satcast_tests::probe;
use satcast_tests::record::{
    CARRIED_MILLIS, Record, Track, assert_carried, assert_media_run, assert_times_never_go_back,
};
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::until_api;
use serde_json::{Value, json};

/// Media packets of about two seconds.
const SOME: usize = 150;

fn upload(api: &Api, stream: &Stream, source: &Source, max_seconds: u32) -> Answer {
    let path = format!("/api/streams/{}/slate?maxSeconds={max_seconds}", stream.id);
    api.put_file(&path, "video/mp4", &source.mp4(""))
}

/// A service that waits a short time for encoders.
fn service() -> Service {
    Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start()
}

fn publish(service: &Service, stream: &Stream, source: &Source) -> Encoder {
    Publish::of(source).endless().to(&service.ingest_url(&stream.key))
}

/// Waits until the slate is on air; since when.
#[track_caller]
fn wait_for_slate(api: &Api, stream: &Stream) -> i64 {
    until_api("the slate", || {
        let detail = api.stream(stream);
        detail["slateSince"].as_i64().ok_or_else(|| detail["state"].to_string())
    })
}

fn wait_for_media(sink: &Sink, more: usize) {
    sink.wait_for_media(sink.records().len() + more);
}

/// Expects the media of `sent` from its begin, over and over, each packet once and in order.
#[track_caller]
fn assert_loops(receiver: &str, sent: &[Record], got: &[Record]) {
    for track in [Track::Video, Track::Audio] {
        let of_track = |records: &[Record]| -> Vec<[u8; 32]> {
            let media = records.iter().filter(|record| record.track == track && !record.config);
            media.map(|record| record.digest).collect()
        };
        let (sent, got) = (of_track(sent), of_track(got));
        assert!(got.len() > sent.len(), "{receiver} got less than one round of {track:?}");
        // A segment may begin with the second frame of audio.
        let begin = if track == Track::Audio { 0..3 } else { 0..1 };
        let follows =
            |begin: usize| got.iter().enumerate().all(|(at, one)| *one == sent[(begin + at) % sent.len()]);
        assert!(
            begin.into_iter().any(follows),
            "{receiver} got other {track:?} than the rounds of the slate"
        );
    }
}

/// The received packets by their source, in the order of arrival. A frame belongs to one source only.
fn parts(got: &[Record], sources: &[&Source]) -> Vec<(usize, Vec<Record>)> {
    let mut parts: Vec<(usize, Vec<Record>)> = Vec::new();
    for record in got.iter().filter(|record| !record.config) {
        let of = sources.iter().position(|source| {
            source.records().iter().any(|sent| sent.digest == record.digest && sent.track == record.track)
        });
        let of = of.unwrap_or_else(|| panic!("nobody sent {record:?}"));
        match parts.last_mut() {
            Some((last, records)) if *last == of => records.push(record.clone()),
            _ => parts.push((of, vec![record.clone()])),
        }
    }
    parts
}

#[test]
fn the_slate_goes_to_viewers_and_servers_until_the_encoder_returns() {
    let (service, sink) = (service(), Sink::recording());
    let (api, hosted) = (service.api(), Hosted::with(&service, "slate", &json!({ "dvrSeconds": 300 })));
    let stream = &hosted.stream;
    api.add_destination(stream, &sink.url(), "copy");
    let (first, slate, third) = (Source::shared(), Source::of(Recipe::SLATE), Source::of(Recipe::SCREEN));
    let set = upload(&api, stream, &slate, 60).ok();
    assert_eq!(
        (&set["videoCodec"], &set["width"], &set["maxSeconds"]),
        (&json!("h264"), &json!(1280), &json!(60))
    );
    assert_eq!(api.stream(stream)["slate"], set);

    let mut encoder = publish(&service, stream, &first);
    // Viewers get whole GOPs.
    wait_for_media(&sink, 3 * SOME);
    let live = api.wait_for_stream(stream, "live");
    assert_eq!(live["slateSince"], Value::Null);
    encoder.cut();
    wait_for_slate(&api, stream);
    let away = api.wait_for_stream(stream, "reconnecting");
    assert_eq!((&away["status"], &away["encoders"]), (&json!("active"), &json!([])));
    // More than a round, and longer than the reconnect window.
    wait_for_media(&sink, 3 * SOME);
    assert_eq!(hosted.status()["isLive"], true);
    let mut encoder = publish(&service, stream, &third);
    let live = api.wait_for_stream(stream, "live");
    wait_for_media(&sink, 3 * SOME);
    assert_eq!((&api.stream(stream)["slateSince"], &live["startedAt"]), (&Value::Null, &away["startedAt"]));

    let mut viewer = hosted.viewer();
    let media = viewer.media_when("the last part", |media| {
        media.segments.iter().filter(|segment| segment.discontinuity).count() == 2
    });
    let chunks = viewer.chunks(&media.segments);
    let runs: Vec<_> = probe::runs(&chunks).into_iter().map(probe::records).collect();
    assert_eq!(runs.len(), 3);
    assert_carried("a viewer", first.records(), &runs[0], CARRIED_MILLIS);
    assert_loops("a viewer", slate.records(), &runs[1]);
    assert_carried("a viewer", third.records(), &runs[2], CARRIED_MILLIS);

    // A clean end has no slate.
    encoder.stop();
    let ended = api.wait_for_stream(stream, "idle");
    assert_eq!((&ended["lastEndReason"], &ended["slateSince"]), (&json!("unpublished"), &Value::Null));
    sink.wait_until_left();
    let records = sink.records();
    assert_eq!(sink.publishes(), 1, "the push to the server was interrupted");
    assert_times_never_go_back("the server", &records);
    let parts = parts(&records, &[&first, &slate, &third]);
    assert_eq!(parts.iter().map(|(of, _)| *of).collect::<Vec<_>>(), [0, 1, 2]);
    assert_media_run("the server", first.records(), &parts[0].1);
    assert_loops("the server", slate.records(), &parts[1].1);
    assert_media_run("the server", third.records(), &parts[2].1);
}

/// It runs in real time, and needs the begin of a second minute.
#[test]
fn a_slate_is_charged_and_its_end_is_the_end_of_the_session() {
    const SLATE_SECONDS: u32 = 62;
    let (service, sink) = (service(), Sink::recording());
    let api = service.api();
    let stream = api.create_stream("charged");
    for key in ["a", "b", "c"] {
        api.add_destination(&stream, &sink.url(), key);
    }
    let _set = upload(&api, &stream, &Source::of(Recipe::SLATE), SLATE_SECONDS).ok();
    let mut encoder = publish(&service, &stream, &Source::shared());
    wait_for_media(&sink, SOME);
    encoder.cut();
    let since = wait_for_slate(&api, &stream);
    until_api("the second minute", || {
        let cost = api.get("/api/public/streams/active/cost").ok();
        if cost["totalCost"] == 8 { Ok(()) } else { Err(cost["totalCost"].to_string()) }
    });
    assert_eq!(api.stream(&stream)["slateSince"], since, "the second minute is the slate's alone");
    api.wait_for_stream(&stream, "idle");
    let history = api.get("/api/stream-history").ok();
    let entries = history.as_array().expect("a list");
    let mut costs: Vec<_> = entries.iter().map(|entry| entry["totalCostSats"].as_i64()).collect();
    costs.sort_unstable();
    assert_eq!(costs, [Some(0), Some(4), Some(4)], "{history}");
    for entry in entries {
        let ended = entry["endedAt"].as_i64().expect("an end");
        let late = ended - since - i64::from(SLATE_SECONDS) * 1_000;
        // Two clocks: the wall clock of the begin, and the monotonic one that counts.
        assert!((-20..=20).contains(&late), "{late} ms after the end of the slate: {history}");
    }
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], 10_000 - 8);
    service.run(&["ledger", "check"]);
}

#[test]
fn a_killed_service_leaves_whole_money_and_the_slate() {
    let sink = Sink::recording();
    let mut service = service();
    let api = service.api();
    let stream = api.create_stream("killed");
    for key in ["a", "b"] {
        api.add_destination(&stream, &sink.url(), key);
    }
    let set = upload(&api, &stream, &Source::of(Recipe::SLATE), 600).ok();
    let mut encoder = publish(&service, &stream, &Source::shared());
    wait_for_media(&sink, SOME);
    encoder.cut();
    wait_for_slate(&api, &stream);
    wait_for_media(&sink, SOME);
    service.kill();
    service.start();
    let detail = api.stream(&stream);
    assert_eq!((&detail["state"], &detail["lastEndReason"]), (&json!("idle"), &json!("interrupted")));
    assert_eq!((&detail["slate"], &detail["slateSince"]), (&set, &Value::Null));
    service.run(&["ledger", "check"]);
    assert_eq!(api.get("/api/wallet/balance").ok()["balance"], 10_000 - 2);
    // A stop ends the next one at once.
    let mut encoder = publish(&service, &stream, &Source::shared());
    wait_for_media(&sink, SOME);
    encoder.cut();
    wait_for_slate(&api, &stream);
    let _ = api.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    let ended = api.wait_for_stream(&stream, "idle");
    assert_eq!(ended["lastEndReason"], "stopped");
    sink.wait_until_left();
}

#[test]
fn a_slate_that_does_not_match_is_refused_or_withheld() {
    let (service, sink) = (service(), Sink::recording());
    let api = service.api();
    let stream = api.create_stream("differs");
    api.add_destination(&stream, &sink.url(), "copy");
    let small = Source::of(Recipe::SMALL);
    let _set = upload(&api, &stream, &small, 60).ok();
    let path = format!("/api/streams/{}/slate", stream.id);
    let fragmented = small.mp4("-movflags frag_keyframe+empty_moov");
    api.put_file(&path, "video/mp4", &fragmented).assert_error(422, Some("slate_unreadable"));
    let faststart = small.mp4("-movflags +faststart");
    let _set = api.put_file(&path, "video/mp4", &faststart).ok();

    let mut encoder = publish(&service, &stream, &Source::shared());
    wait_for_media(&sink, 4 * SOME);
    let has_issue = || {
        until_api("the issue", || {
            let issues = api.stream(&stream)["health"]["issues"].clone();
            let found =
                issues.as_array().into_iter().flatten().any(|issue| issue["code"] == "slate_mismatch");
            if found { Ok(()) } else { Err(issues.to_string()) }
        });
    };
    has_issue();
    upload(&api, &stream, &small, 60).assert_error(422, Some("slate_mismatch"));
    encoder.cut();
    api.wait_for_stream(&stream, "reconnecting");
    has_issue();
    assert_eq!(api.stream(&stream)["slateSince"], Value::Null);
    let ended = api.wait_for_stream(&stream, "idle");
    assert_eq!(ended["lastEndReason"], "unpublished");
    let parts = parts(&sink.records(), &[&Source::shared()]);
    assert_eq!(parts.len(), 1, "nothing of the slate");
}

/// The stalls of the viewer are printed, for the report of the run.
#[test]
fn hls_js_goes_on_through_the_slate() {
    let service = Setup::default().start();
    let hosted = Hosted::with(&service, "watched", &json!({ "lowLatency": true }));
    let api = service.api();
    let _set = upload(&api, &hosted.stream, &Source::of(Recipe::SLATE), 60).ok();
    let mut encoder = publish(&service, &hosted.stream, &Source::shared());
    let mut player = Player::launch(Engine::HlsJs);
    player.open(&hosted.ready());
    encoder.cut();
    wait_for_slate(&api, &hosted.stream);
    std::thread::sleep(Duration::from_secs(8));
    let _encoder = publish(&service, &hosted.stream, &Source::of(Recipe::SCREEN));
    let state = player.step("resolution 480 2");
    assert_moves(&state);
    assert_eq!(state["fatal"], json!([]), "{state}");
    println!("after the slate {} s behind, stalls {}", state["latency"], state["stalls"]);
    player.finish();
}
