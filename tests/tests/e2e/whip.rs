//! Encoders by WHIP: Chromium over a good and a bad network, refused, gone and told to leave.

use std::path::Path;

use satcast_tests::encoder::Publish;
use satcast_tests::hls::{Chunk, Viewer};
use satcast_tests::hosted::Hosted;
use satcast_tests::lossy::{BAD, Lossy};
use satcast_tests::player::Player;
use satcast_tests::probe::{
    assert_decodes, assert_plays, assert_segments, hashes, hashes_of_file, runs, spans,
};
use satcast_tests::record::{Record, Track, assert_configured, assert_times_never_go_back};
use satcast_tests::s3::Store;
use satcast_tests::said;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait;
use serde_json::{Value, json};

use super::archive;
use super::srt_output::add_loop;

/// Ten seconds of video and Opus.
const PACKETS: usize = 700;
/// Two seconds and more of it.
const SOME: usize = 200;
/// Longest distance between the ends of audio and video, in seconds: a frame of video, and what the segment cuts off.
const APART_SECONDS: f64 = 0.2;

/// What is played of the bad network, and how much of it is there at least: a browser adapts to the network, and frames behind a loss
/// wait for a keyframe.
const PLAYED_SECONDS: u64 = 10;
const FRAMES_PER_SECOND_MIN: u64 = 2;

fn publish(browser: &mut Player, service: &Service, key: &str, more: &Value) -> Value {
    let mut request = json!({"url": service.whip_url(), "key": key});
    for (name, value) in more.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    browser.step(&format!("publish {request}"))
}

/// A digest as ffprobe writes it.
fn sha256(digest: &[u8]) -> String {
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("SHA256:{digits}")
}

/// Publishes with the codecs that the browser offers by itself, of which H.264 is taken; waits until it is connected.
#[track_caller]
fn publish_connected(browser: &mut Player, service: &Service, key: &str, port: Option<u16>) {
    publish_as(browser, service, key, &json!({"port": port}));
}

#[track_caller]
fn publish_as(browser: &mut Player, service: &Service, key: &str, more: &Value) {
    let answer = publish(browser, service, key, more);
    assert_eq!(answer["status"], 201, "{answer}");
    assert_eq!(browser.step("connected")["state"], "connected");
}

/// The packets of a track, as ffprobe writes their digests.
fn digests(records: &[Record], track: Track) -> Vec<String> {
    let of_track = records.iter().filter(|record| record.track == track && !record.config);
    of_track.map(|record| sha256(&record.digest)).collect()
}

/// A viewer, the recording and the server behind SRT got the packets of the server behind RTMP, more than `least` of each track in a row.
/// Of a network that loses packets (`gaps`) there are holes: audio around a hole belongs to no segment.
#[track_caller]
fn assert_all_alike(
    pushed: &[Record],
    chunks: &[Chunk],
    recording: &Path,
    by_srt: &[Record],
    (least, gaps): (usize, bool),
) {
    for track in [Track::Video, Track::Audio] {
        let pushed = digests(pushed, track);
        for (receiver, seen) in [
            ("a viewer", hashes(chunks, track)),
            ("the recording", hashes_of_file(recording, track)),
            ("the server behind SRT", digests(by_srt, track)),
        ] {
            assert!(seen.len() > least, "{receiver}: {} packets of {track:?}", seen.len());
            let mut rest = pushed.iter();
            let is_run = match gaps {
                false => pushed.windows(seen.len()).any(|run| run == seen),
                true => seen.iter().all(|packet| rest.any(|other| other == packet)),
            };
            assert!(is_run, "{receiver} got other packets of {track:?}: {} of {}", seen.len(), pushed.len());
        }
    }
}

#[test]
fn a_browser_is_seen_recorded_and_forwarded_until_it_leaves() {
    let mut browser = Player::launch_for_publishing();
    let (sink, platform, store) = (Sink::recording(), Sink::recording(), Store::start());
    let service = Setup::default().whip().srt().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let api = service.api();
    let hosted = Hosted::new(&service, "browser");
    let stream = &hosted.stream;
    api.add_destination(stream, &sink.url(), "copy");
    let body = json!({"type": "twitch", "config": {"key": "some-secret-key", "server": platform.url()}});
    let twitch = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok()["id"].as_i64();
    let body = json!({"type": "cloud-archive", "config": store.config()});
    let _made = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok();
    let (through, by_srt) = add_loop(&api, &service, stream);
    publish_connected(&mut browser, &service, &stream.key, None);
    let mut viewer = Viewer::of(&hosted.ready());
    let segments = viewer.media_when("four segments", |media| media.segments.len() >= 4).segments;
    let chunks = viewer.chunks(&segments);
    sink.wait_for_media(PACKETS);
    by_srt.wait_for_media(PACKETS);
    let health = api.stream(stream)["health"].clone();
    let codecs = (&health["video"]["codec"], &health["audio"]["codec"], &health["video"]["bFrames"]);
    assert_eq!(codecs, (&json!("h264"), &json!("opus"), &json!(false)), "{health}");
    assert_eq!((&health["whip"]["packetsLost"], &health["srt"]), (&json!(0), &Value::Null), "{health}");
    let shown = api.wait_for_destination(stream, twitch.expect("an id"), "failed");
    assert!(shown["error"].as_str().is_some_and(|error| error.contains(said::CODEC_NOT_TAKEN)), "{shown}");
    wait::until("the issue of the audio codec", || {
        let issues = api.stream(stream)["health"]["issues"].clone();
        let is_there = issues.as_array().into_iter().flatten().any(|issue| issue["code"] == "audio_codec");
        if is_there { Ok(()) } else { Err(issues.to_string()) }
    });

    // The address is that of this sender alone.
    assert_eq!(browser.step("leave {\"key\":\"live_another\"}")["status"], 401);
    assert_eq!(api.stream(stream)["state"], "live");
    let left = browser.step(&format!("leave {}", json!({"key": stream.key})));
    assert_eq!(left["status"], 200);
    let ended = api.wait_for_stream(stream, "idle");
    assert_eq!(ended["lastEndReason"], "unpublished", "{ended}");
    sink.wait_until_left();
    let got = sink.records();
    assert_configured("the sink", &got);
    assert_segments(&chunks);
    assert_decodes(&chunks);
    api.wait_for_stream(&through, "idle");
    by_srt.wait_until_left();
    let recording = store.file(&archive::key_of(&archive::wait_for(&api, "ready")));
    assert_all_alike(&got, &chunks, &recording, &by_srt.records(), (100, false));
    for chunk in &chunks {
        let spans = spans(chunk);
        let end = |track| {
            let span = spans.iter().find(|span| span.track == track).expect("both tracks");
            span.start + span.seconds()
        };
        let apart = end(Track::Video) - end(Track::Audio);
        assert!(apart.abs() < APART_SECONDS, "{apart} s in {:?}", chunk.entry);
    }
    service.assert_not_logged(&[("a stream key", &stream.key)]);
}

#[test]
fn av1_of_a_browser_is_seen_and_forwarded() {
    let mut browser = Player::launch_for_publishing();
    let sink = Sink::recording();
    let service = Setup::default().whip().start();
    let api = service.api();
    let hosted = Hosted::new(&service, "av1");
    let stream = &hosted.stream;
    api.add_destination(stream, &sink.url(), "copy");
    publish_as(&mut browser, &service, &stream.key, &json!({"codec": "video/AV1"}));
    let mut viewer = Viewer::of(&hosted.ready());
    let segments = viewer.media_when("three segments", |media| media.segments.len() >= 3).segments;
    let chunks = viewer.chunks(&segments);
    assert_eq!(api.stream(stream)["health"]["video"]["codec"], "av1");
    sink.wait_for_media(PACKETS / 2);
    assert_eq!(browser.step(&format!("leave {}", json!({"key": stream.key})))["status"], 200);
    sink.wait_until_left();
    assert_configured("the sink", &sink.records());
    assert_segments(&chunks);
    assert_decodes(&chunks);
    let (pushed, seen) = (digests(&sink.records(), Track::Video), hashes(&chunks, Track::Video));
    assert!(seen.len() > 50 && pushed.windows(seen.len()).any(|run| run == seen), "{} frames", seen.len());
}

#[test]
fn a_browser_takes_over_as_the_backup_and_hands_back() {
    let mut browser = Player::launch_for_publishing();
    let (source, sink) = (Source::shared(), Sink::recording());
    let service = Setup::default().whip().set("SATCAST_INGEST__FAILBACK_SECS", "3").start();
    let api = service.api();
    let hosted = Hosted::new(&service, "backup by WHIP");
    let stream = &hosted.stream;
    api.add_destination(stream, &sink.url(), "copy");
    let publish_primary = || Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    let mut primary = publish_primary();
    sink.wait_for_media(SOME);
    let backup_key = api.stream(stream)["backupKey"].as_str().expect("a backup key").to_owned();
    publish_connected(&mut browser, &service, &backup_key, None);
    api.wait_for_encoders(stream, &[("primary", "active"), ("backup", "standby")]);
    primary.cut();
    api.wait_for_encoders(stream, &[("backup", "active")]);
    sink.wait_for_media(sink.records().len() + SOME);
    let health = api.stream(stream)["health"].clone();
    assert_eq!((&health["audio"]["codec"], &health["failovers"]), (&json!("opus"), &json!(1)), "{health}");
    let _primary = publish_primary();
    api.wait_for_encoders(stream, &[("primary", "active"), ("backup", "standby")]);
    sink.wait_for_media(sink.records().len() + SOME);
    let mut viewer = hosted.viewer();
    let media = viewer.media_when("three parts", |media| {
        media.segments.iter().filter(|segment| segment.discontinuity).count() == 2
    });
    let chunks = viewer.chunks(&media.segments);
    assert_eq!(runs(&chunks).len(), 3);
    assert_decodes(&chunks);
    assert_eq!(sink.publishes(), 1, "the push to the server was interrupted");
    assert_times_never_go_back("the server", &sink.records());
    service.assert_not_logged(&[("the backup key", &backup_key), ("a stream key", &stream.key)]);
}

#[test]
fn video_of_a_browser_survives_a_bad_network() {
    let mut browser = Player::launch_for_publishing();
    let (sink, store) = (Sink::recording(), Store::start());
    let service = Setup::default().whip().srt().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2").start();
    let network = Lossy::before(service.whip_address(), BAD);
    let api = service.api();
    let hosted = Hosted::new(&service, "lossy");
    let stream = &hosted.stream;
    api.add_destination(stream, &sink.url(), "copy");
    let body = json!({"type": "cloud-archive", "config": store.config()});
    let _made = api.post(&format!("/api/streams/{}/destinations", stream.id), &body).ok();
    let (through, by_srt) = add_loop(&api, &service, stream);
    publish_connected(&mut browser, &service, &stream.key, Some(network.address().port()));
    let frames = assert_plays(&hosted.ready(), PLAYED_SECONDS);
    assert!(frames > PLAYED_SECONDS * FRAMES_PER_SECOND_MIN, "{frames} frames in {PLAYED_SECONDS} s");
    let health = wait::until("requests to send again", || {
        let health = api.stream(stream)["health"]["whip"].clone();
        if health["nacks"].as_u64() > Some(0) { Ok(health) } else { Err(health.to_string()) }
    });
    assert!(health["packetsLost"].is_u64(), "{health}");

    // Whatever came goes out alike.
    let mut viewer = Viewer::of(&hosted.ready());
    let segments = viewer.media_when("three segments", |media| media.segments.len() >= 3).segments;
    let chunks = viewer.chunks(&segments);
    assert_eq!(browser.step(&format!("leave {}", json!({"key": stream.key})))["status"], 200);
    api.wait_for_stream(stream, "idle");
    sink.wait_until_left();
    api.wait_for_stream(&through, "idle");
    by_srt.wait_until_left();
    let recording = store.file(&archive::key_of(&archive::wait_for(&api, "ready")));
    assert_segments(&chunks);
    assert_decodes(&chunks);
    assert_all_alike(
        &sink.records(),
        &chunks,
        &recording,
        &by_srt.records(),
        (PLAYED_SECONDS as usize, true),
    );
}

#[test]
fn senders_are_refused_with_a_reason() {
    let mut browser = Player::launch_for_publishing();
    let service = Setup::default().whip().start();
    let api = service.api();
    let stream = api.create_stream("refused");
    let unknown = stream.key.replace(|char: char| char.is_ascii_digit(), "z");
    for (key, more, status, code) in [
        ("", json!({}), 401, "key_required"),
        (&unknown, json!({}), 401, "invalid_key"),
        (&stream.key, json!({"codec": "video/VP8"}), 422, "codec_refused"),
    ] {
        let answer = publish(&mut browser, &service, key, &more);
        assert_eq!((&answer["status"], &answer["code"]), (&json!(status), &json!(code)), "{answer}");
        assert_eq!(api.stream(&stream)["state"], "idle");
    }
    assert_eq!(api.stream(&stream)["refusals"][0]["code"], "WHIP.NoCodec");
    publish_connected(&mut browser, &service, &stream.key, None);
    api.wait_for_stream(&stream, "live");
    let offers = service.whip_url();
    for (request, status) in [
        (json!({"method": "GET", "url": offers}), 405),
        (json!({"method": "POST"}), 405),
        (json!({"method": "POST", "url": offers, "bytes": 9, "type": "text/plain"}), 415),
        (json!({"method": "POST", "url": offers, "bytes": 65_537, "type": "application/sdp"}), 413),
    ] {
        assert_eq!(browser.step(&format!("request {request}"))["status"], status, "{request}");
    }
    let mut second = Player::launch_for_publishing();
    let answer = publish(&mut second, &service, &stream.key, &json!({}));
    assert_eq!((&answer["status"], &answer["code"]), (&json!(409), &json!("already_published")), "{answer}");
    service.assert_not_logged(&[("a stream key", &stream.key)]);
}

#[test]
fn a_sender_that_returns_continues_its_session_and_leaves_when_it_is_told_to() {
    let mut browser = Player::launch_for_publishing();
    let sink = Sink::recording();
    let service = Setup::default().whip().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "60").start();
    let api = service.api();
    let stream = api.create_stream("returns");
    api.add_destination(&stream, &sink.url(), "copy");
    publish_connected(&mut browser, &service, &stream.key, None);
    sink.wait_for_media(200);
    let before = api.wait_for_stream(&stream, "live");
    browser.step("gone");
    api.wait_for_stream(&stream, "reconnecting");
    let first = sink.records().len();
    publish_connected(&mut browser, &service, &stream.key, None);
    let after = api.wait_for_stream(&stream, "live");
    assert_eq!(after["startedAt"], before["startedAt"], "a new session was begun");
    sink.wait_for_media(first + 200);
    let stopped = api.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    assert_eq!(stopped["success"], true, "{stopped}");
    wait::until("the end of the connection", || match browser.step("state")["state"].as_str() {
        Some("connected") => Err("it is connected".to_owned()),
        _ => Ok(()),
    });
    sink.wait_until_left();
    assert_eq!(sink.publishes(), 1, "the push to the server was interrupted");
}
