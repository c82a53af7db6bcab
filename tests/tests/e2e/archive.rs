//! Recordings: the store has the complete stream exactly once, despite failures of the store and of the service.

use std::path::Path;
use std::time::Duration;

use satcast_tests::api::{Api, Stream};
use satcast_tests::caller::{Call, Outcome};
use satcast_tests::coded::{Coded, Coding};
use satcast_tests::encoder::Publish;
use satcast_tests::flv;
use satcast_tests::probe::{assert_plays, hashes_of_file};
use satcast_tests::receiver::Receiver;
use satcast_tests::record::{Record, Track, assert_carried, assert_complete, media};
use satcast_tests::s3::{SECRET_KEY, Store};
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::soak;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{seconds, until_api, within_api};
use serde_json::{Value, json};

/// Five seconds of media.
const CARRIED_PACKETS: usize = 360;
/// Kills of a normal run; `cargo xtask soak` does fifty.
const KILLS: u64 = 5;
/// The kill comes at a random moment of this time after the recording begins.
const KILL_WITHIN_MS: u64 = 4_000;
/// Seconds of a recording that may be lost when the service is killed: a fragment lasts a second, and packets wait for it.
const LOST_SECONDS_MAX: f64 = 2.5;
/// Length of a recording that shows how it is kept.
const RECORDED_SECONDS: f64 = 8.0;
/// Times of ffmpeg's FLV are whole milliseconds, and a recording begins at 0.
const ROUNDING_MS: i64 = 2;

pub(crate) fn service() -> Service {
    Setup::default().set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]").start()
}

pub(crate) fn archived(api: &Api, label: &str, store: &Store) -> (Stream, i64) {
    let stream = api.create_stream(label);
    let path = format!("/api/streams/{}/destinations", stream.id);
    let added = api.post(&path, &json!({ "type": "cloud-archive", "config": store.config() })).ok();
    (stream, added["id"].as_i64().expect("a destination"))
}

pub(crate) fn archives(api: &Api) -> Vec<Value> {
    api.get("/api/archives").ok().as_array().cloned().expect("a list")
}

/// Waits until the only recording has this state, and returns it.
#[track_caller]
pub(crate) fn wait_for(api: &Api, state: &str) -> Value {
    until_api(&format!("a recording that is {state}"), || match archives(api).as_slice() {
        [one] if one["state"] == state => Ok(one.clone()),
        others => Err(json!(others).to_string()),
    })
}

pub(crate) fn key_of(archive: &Value) -> String {
    format!("shows/{}", archive["fileName"].as_str().expect("a name"))
}

/// The packets that ffmpeg reads from a file without decoding them.
pub(crate) fn contents(file: &Path) -> Vec<Record> {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out.flv");
    let mut command = std::process::Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-i"]).arg(file).args(["-c", "copy"]).arg(&out);
    let output = command.output().expect("ffmpeg starts");
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    flv::read(&out)
}

/// Expects that the object holds the source up to its end. On a busy machine a recording begins late, with a later GOP.
#[track_caller]
pub(crate) fn assert_kept(sent: &[Record], object: &Path) {
    let (sent, got) = (media(sent), contents(object));
    assert_carried("the recording", &sent, &got, ROUNDING_MS);
    for track in [Track::Video, Track::Audio] {
        let last = |records: &[Record]| {
            let mut of_track = records.iter().filter(|record| record.track == track && !record.config);
            of_track.next_back().map(|record| record.digest)
        };
        assert_eq!(last(&got), last(&sent), "the last packet of {track:?}");
    }
}

/// Expects that the object holds the complete source.
#[track_caller]
pub(crate) fn assert_whole(sent: &[Record], object: &Path) {
    let (sent, got) = (media(sent), contents(object));
    assert_carried("the recording", &sent, &got, ROUNDING_MS);
    for track in [Track::Video, Track::Audio] {
        let times = |records: &[Record]| -> Vec<i64> {
            let of_track = records.iter().filter(|record| record.track == track && !record.config);
            of_track.map(|record| record.dts_ms).collect()
        };
        let (sent, got) = (times(&sent), times(&got));
        let ends = |times: &[i64]| (times.first().copied(), times.last().copied());
        let (first, last) = (ends(&sent), ends(&got));
        assert_eq!(
            got.len(),
            sent.len(),
            "packets of {track:?}, sent first: {first:?}, received last: {last:?}"
        );
    }
}

/// Time from the first packet to the last.
fn lasted_ms(sent: &[Record]) -> i64 {
    let times = || media(sent).into_iter().map(|record| record.dts_ms);
    times().max().unwrap_or_default() - times().min().unwrap_or_default()
}

/// Ends a session after its encoder has left and everything that it sent was received.
pub(crate) fn end(api: &Api, stream: &Stream) {
    until_api("the end of the encoder", || match api.stream(stream)["state"].as_str() {
        Some("reconnecting" | "idle") => Ok(()),
        state => Err(format!("{state:?}")),
    });
    // On a busy machine the reconnect window may be over.
    let _ended = api.post(&format!("/api/streams/{}/stop", stream.id), &json!({}));
}

pub(crate) fn seconds_of(archive: &Value) -> f64 {
    archive["durationSeconds"].as_f64().expect("a length")
}

#[test]
fn a_stream_is_recorded_uploaded_and_reported() {
    let (source, store, receiver) = (Source::shared(), Store::start(), Receiver::start(None));
    let service = service();
    let api = service.api();
    let events = json!({ "url": receiver.url(), "events": ["recording.ready"] });
    let _ = api.post("/api/webhooks", &events).ok();
    let (stream, destination) = archived(&api, "My Höt Show!", &store);
    let shown = api.destination(&stream, destination).to_string();
    assert!(shown.contains("s3://recordings/shows") && !shown.contains(SECRET_KEY), "{shown}");

    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    let _ = api.wait_for_destination(&stream, destination, "live");
    let running = wait_for(&api, "recording");
    api.delete(&format!("/api/archives/{}", running["id"])).assert_error(409, None);
    until_api("some seconds of it", || match wait_for(&api, "recording") {
        running if seconds_of(&running) >= RECORDED_SECONDS => Ok(()),
        running => Err(running.to_string()),
    });
    let sent = encoder.end();
    end(&api, &stream);

    let ready = wait_for(&api, "ready");
    let key = key_of(&ready);
    assert_eq!(store.keys(), std::slice::from_ref(&key), "once");
    assert_eq!(ready["url"], format!("s3://recordings/{key}"));
    let size = std::fs::metadata(store.file(&key)).expect("the object").len();
    assert_eq!((&ready["sizeBytes"], &ready["uploadedBytes"]), (&json!(size), &json!(size)));
    let lasted = lasted_ms(&sent) as f64 / 1000.0;
    assert!((lasted - 1.0..lasted + 1.0).contains(&seconds_of(&ready)), "{lasted} s: {ready}");
    assert_whole(&sent, &store.file(&key));

    let event = receiver.wait_for(1)[0].json();
    let data = &event["data"];
    assert_eq!((&event["type"], &data["fileName"]), (&json!("recording.ready"), &ready["fileName"]));
    assert_eq!((&data["sizeBytes"], &data["destinationId"]), (&json!(size), &json!(destination)));
    assert_eq!((&data["label"], &data["url"]), (&json!("My Höt Show!"), &ready["url"]));

    let signed = api.get("/api/archives?sign=true").ok()[0]["url"].as_str().expect("an address").to_owned();
    assert!(!signed.contains(SECRET_KEY), "{signed}");
    let fetched = reqwest::blocking::get(&signed).expect("an answer");
    assert!(fetched.status().is_success(), "{}", fetched.status());
    assert_eq!(fetched.bytes().expect("the object").len() as u64, size);

    let recover = |name: &Value| api.post("/api/archives/recover-pay", &json!({ "fileName": name }));
    recover(&ready["fileName"]).assert_error(409, None);
    recover(&json!("no-such/file.mp4")).assert_error(404, None);
    let _ = api.delete(&format!("/api/archives/{}?remote=true", ready["id"])).ok();
    assert_eq!((store.keys().len(), archives(&api).len()), (0, 0));
    service.assert_not_logged(&[("the key of the store", SECRET_KEY)]);
}

#[test]
fn a_store_that_returns_after_an_outage_has_the_complete_recording() {
    let (source, store) = (Source::of(Recipe::SMALL), Store::start());
    let service = service();
    let api = service.api();
    store.vanish();
    let (stream, destination) = archived(&api, "away", &store);
    let mut encoder = Publish::of(&source).faster(4).to(&service.ingest_url(&stream.key));
    let _ = api.wait_for_destination(&stream, destination, "live");
    encoder.finish(seconds(60));
    end(&api, &stream);
    let _ = wait_for(&api, "uploading");
    store.refuse(500);
    service.wait_for_log("the store's refusal", |line| line.contains("500"));
    store.recover();
    let ready = wait_for(&api, "ready");
    let key = key_of(&ready);
    assert_whole(source.records(), &store.file(&key));
}

#[test]
fn a_failed_upload_is_recovered_for_its_fee_and_charged_once() {
    let (source, store) = (Source::of(Recipe::SMALL), Store::start());
    let service = Setup::default().set("SATCAST_BILLING__INITIAL_CREDIT_SATS", "1000").start();
    let api = service.api();
    let (stream, _) = archived(&api, "taken", &store);
    let mut encoder = Publish::of(&source).faster(4).to(&service.ingest_url(&stream.key));
    let running = wait_for(&api, "recording");
    // Another object already has the name. It must not be overwritten.
    let file = store.file(&key_of(&running));
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder in the bucket");
    std::fs::write(&file, "somebody else's").expect("an object");
    encoder.finish(seconds(60));
    end(&api, &stream);
    let failed = wait_for(&api, "failed");
    assert!(failed["error"].as_str().is_some_and(|error| !error.contains(SECRET_KEY)), "{failed}");
    assert_eq!(std::fs::read_to_string(&file).expect("the object"), "somebody else's");

    let balance = || api.get("/api/wallet/balance").ok()["balance"].as_i64().expect("a balance");
    let recover = || api.post("/api/archives/recover-pay", &json!({ "fileName": failed["fileName"] }));
    let before = balance();
    recover().assert_error(502, None);
    assert_eq!(balance(), before, "an upload that the store did not open was charged");
    std::fs::remove_file(&file).expect("the other object goes");
    // No wait is needed: the driver's report about the attempt was stored before the answer.
    let answer = recover().ok();
    assert_eq!(answer["success"], true, "{answer}");
    let ready = wait_for(&api, "ready");
    assert_eq!(balance(), before - 360);
    recover().assert_error(409, None);
    assert_eq!(balance(), before - 360);
    service.run(&["ledger", "check"]);
    assert_whole(source.records(), &store.file(&key_of(&ready)));
}

/// The requested entries of ffprobe for a file.
fn probed(file: &Path, entries: &str) -> String {
    let mut command = std::process::Command::new("ffprobe");
    let output =
        command.args(["-v", "warning", "-show_entries", entries, "-of", "csv=p=0"]).arg(file).output();
    let output = output.expect("ffprobe starts");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{complaints}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sends a stream of these codecs in real time, and compares the object with the file it comes from.
fn carries(coding: Coding, video_codec: &str) {
    let (coded, store) = (Coded::of(coding), Store::start());
    let service = service();
    let api = service.api();
    let (stream, _) = archived(&api, "codecs", &store);
    let (mut call, outcome) = Call::publish(service.rtmp_address(), "live", &stream.key);
    assert_eq!(outcome, Outcome::Publishing);
    coded.publish_faster(&mut call, 4);
    drop(call);
    end(&api, &stream);
    let ready = wait_for(&api, "ready");
    let object = store.file(&key_of(&ready));
    let frames = assert_plays(object.to_str().expect("a path in UTF-8"), 30);
    assert_eq!(
        frames,
        hashes_of_file(coded.path(), Track::Video).len() as u64,
        "frames that a decoder shows"
    );
    let codecs = probed(&object, "stream=codec_name");
    assert_eq!(codecs.split_whitespace().collect::<Vec<_>>(), [video_codec, "opus"]);
    for track in [Track::Video, Track::Audio] {
        let (sent, got) = (hashes_of_file(coded.path(), track), hashes_of_file(&object, track));
        assert!(sent.len() > 250, "{} packets of {track:?}", sent.len());
        // Audio before the first frame is left out.
        let skipped = sent.len().saturating_sub(got.len());
        assert!(
            skipped <= usize::from(track == Track::Audio),
            "{} of {} of {track:?}",
            got.len(),
            sent.len()
        );
        assert!(got == sent[skipped..], "other packets of {track:?} than were sent");
    }
    assert!((10.5..11.5).contains(&seconds_of(&ready)), "{ready}");
}

#[test]
fn hevc_is_recorded_as_it_was_sent() {
    carries(Coding::HEVC_OPUS, "hevc");
}

#[test]
fn av1_is_recorded_as_it_was_sent() {
    carries(Coding::AV1_OPUS, "av1");
}

/// A full disk is shown at the recording, and does not affect the stream.
#[test]
fn a_full_disk_stops_the_recording_and_never_the_stream() {
    let (source, store, sink) = (Source::of(Recipe::SMALL), Store::start(), Sink::recording());
    let receiver = Receiver::start(None);
    let mut service = service();
    let _ = service.stop();
    let settings = "[driver.archive]\nfreeBytesMin = 9000000000000000000\n";
    std::fs::write(service.folder().join("satcast.toml"), settings).expect("the configuration");
    service.start();
    let api = service.api();
    let events = json!({ "url": receiver.url(), "events": ["destination.failed"] });
    let _ = api.post("/api/webhooks", &events).ok();
    let (stream, destination) = archived(&api, "full", &store);
    let to_sink = api.add_destination(&stream, &sink.url(), "copy");
    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    let shown = api.wait_for_destination(&stream, destination, "retrying");
    assert!(shown["error"].as_str().is_some_and(|error| error.contains("freeBytesMin")), "{shown}");
    let event = receiver.wait_for(1)[0].json();
    assert_eq!(
        (&event["type"], &event["data"]["destinationId"]),
        (&json!("destination.failed"), &json!(destination))
    );
    api.wait_for_destination(&stream, to_sink, "live");
    sink.wait_for_media(CARRIED_PACKETS);
    let sent = encoder.end();
    end(&api, &stream);
    sink.wait_until_left();
    assert_complete("the sink", &sent, &sink.records());
    assert_eq!((archives(&api).len(), store.keys().len()), (0, 0));
}

#[test]
fn soak_kills_at_random_moments_leave_every_recording_complete_and_once() {
    let (source, store) = (Source::shared(), Store::start());
    let mut service = service();
    let api = service.api();
    let (stream, destination) = archived(&api, "killed", &store);
    let mut random = soak::seed();
    let kills = soak::rounds(KILLS);
    let mut recorded = Vec::new();
    for _ in 0..kills {
        let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
        let _ = api.wait_for_destination(&stream, destination, "live");
        let after = Duration::from_millis(soak::next(&mut random) % KILL_WITHIN_MS);
        std::thread::sleep(after);
        recorded.push(after.as_secs_f64());
        service.kill();
        encoder.cut();
        service.start();
    }
    within_api("recordings that are all in the store", seconds(60 + 3 * kills), || {
        let all = archives(&api);
        let is_whole = all.len() as u64 == kills && all.iter().all(|one| one["state"] == "ready");
        if is_whole { Ok(()) } else { Err(json!(all).to_string()) }
    });
    let mut all = archives(&api);
    all.reverse();
    let mut keys: Vec<String> = all.iter().map(key_of).collect();
    keys.sort();
    assert_eq!(store.keys(), keys, "each once");
    for (one, recorded) in all.iter().zip(recorded) {
        let got = contents(&store.file(&key_of(one)));
        assert!(!got.is_empty(), "{one}");
        assert!(seconds_of(one) > recorded - LOST_SECONDS_MAX, "{recorded} s were recorded: {one}");
    }
}
