//! Recordings of the isolated archive driver: they behave as with the driver on threads, and stay complete when the process is killed.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use satcast_tests::encoder::Publish;
use satcast_tests::receiver::Receiver;
use satcast_tests::s3::{SECRET_KEY, Store};
use satcast_tests::said;
use satcast_tests::scene::children;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{seconds, until, until_api, within_api};
use serde_json::{Value, json};

use super::archive::{archived, archives, assert_whole, contents, end, key_of, seconds_of, wait_for};

/// Seconds recorded before the kill; the service loses less than this: one fragment, and the packets for the next.
const RECORDED_SECONDS: f64 = 4.0;
const LOST_SECONDS_MAX: f64 = 2.5;

fn service() -> Service {
    let setup = Setup::default()
        .set("SATCAST_DRIVER__ARCHIVE__ISOLATION", "process")
        .set("SATCAST_BILLING__INITIAL_CREDIT_SATS", "1000")
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]");
    let service = setup.start();
    assert_eq!(children(&service).len(), 1, "the archive driver, and no other");
    service
}

/// Kills the driver's process, and waits for the next one.
fn kill_child(service: &Service) {
    let before = children(service);
    let [child] = before[..] else { panic!("one child, not {before:?}") };
    kill(Pid::from_raw(child), Signal::SIGKILL).expect("SIGKILL to the driver's process");
    until("another process", || match children(service) {
        after if after.len() == 1 && after != before => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn an_isolated_archive_records_uploads_lists_signs_deletes_and_reports() {
    let (source, store, receiver) = (Source::of(Recipe::SMALL), Store::start(), Receiver::start(None));
    let service = service();
    let api = service.api();
    let events = json!({ "url": receiver.url(), "events": ["recording.ready"] });
    let _ = api.post("/api/webhooks", &events).ok();
    let (stream, destination) = archived(&api, "isolated", &store);
    let path = format!("/api/streams/{}/destinations/{destination}", stream.id);
    let mut wrong = store.config();
    wrong["secretKey"] = json!("not-the-secret");
    api.patch(&path, &json!({ "config": wrong })).assert_error(422, Some("config_refused"));
    let _ = api.patch(&path, &json!({ "config": wrong, "checkStore": false })).ok();
    let mut encoder = Publish::of(&source).faster(4).to(&service.ingest_url(&stream.key));
    let _ = api.wait_for_destination(&stream, destination, "live");
    let running = wait_for(&api, "recording");
    api.delete(&format!("/api/archives/{}", running["id"])).assert_error(409, None);
    encoder.finish(seconds(60));
    end(&api, &stream);
    // The store refuses, and the destination shows it. With the right secret the upload continues at once, though no stream is live.
    let why = until_api("a reason", || {
        let waiting = wait_for(&api, "uploading");
        waiting["error"].as_str().map(str::to_owned).ok_or_else(|| waiting.to_string())
    });
    assert!(why.contains("secretKey"), "{why}");
    let _ = api.patch(&path, &json!({ "config": store.config() })).ok();
    let ready = within_api("the upload before the next try", seconds(45), || {
        let all = archives(&api);
        all.iter().find(|one| one["state"] == "ready").cloned().ok_or_else(|| json!(all).to_string())
    });
    let key = key_of(&ready);
    assert_eq!(store.keys(), std::slice::from_ref(&key), "once");
    assert_whole(source.records(), &store.file(&key));
    let size = std::fs::metadata(store.file(&key)).expect("the object").len();
    let event = receiver.wait_for(1)[0].json();
    assert_eq!((&event["data"]["fileName"], &event["data"]["sizeBytes"]), (&ready["fileName"], &json!(size)));

    let signed = api.get("/api/archives?sign=true").ok()[0]["url"].as_str().expect("an address").to_owned();
    let fetched = reqwest::blocking::get(&signed).expect("an answer");
    assert!(fetched.status().is_success(), "{}", fetched.status());
    assert_eq!(fetched.bytes().expect("the object").len() as u64, size);
    let _ = api.delete(&format!("/api/archives/{}?remote=true", ready["id"])).ok();
    assert_eq!((store.keys().len(), archives(&api).len()), (0, 0));
    service.assert_not_logged(&[("the key of the store", SECRET_KEY)]);
}

#[test]
fn an_isolated_archive_uploads_a_failed_recording_again_for_its_fee() {
    let (source, store) = (Source::of(Recipe::SMALL), Store::start());
    let service = service();
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
    let balance = || api.get("/api/wallet/balance").ok()["balance"].as_i64().expect("a balance");
    let recover = || api.post("/api/archives/recover-pay", &json!({ "fileName": failed["fileName"] }));
    let before = balance();
    recover().assert_error(502, None);
    assert_eq!(balance(), before, "an upload that the store did not open was charged");
    std::fs::remove_file(&file).expect("the other object goes");
    let answer = until("a recovery that is opened", || {
        let answer = recover();
        // The driver's report about the previous attempt may not be stored yet.
        if answer.status == 200 { Ok(answer.body) } else { Err(answer.body.to_string()) }
    });
    assert_eq!(answer["success"], true, "{answer}");
    let ready = wait_for(&api, "ready");
    assert_eq!(balance(), before - 360);
    service.run(&["ledger", "check"]);
    assert_whole(source.records(), &store.file(&key_of(&ready)));
}

#[test]
fn a_process_killed_while_it_records_and_uploads_ends_with_whole_recordings() {
    let (source, store) = (Source::shared(), Store::start());
    let mut service = service();
    let api = service.api();
    let (stream, destination) = archived(&api, "killed", &store);
    let mut encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    let _ = api.wait_for_destination(&stream, destination, "live");
    let is_long = |recording: &Value| seconds_of(recording) >= RECORDED_SECONDS;
    until_api("some seconds of a recording", || match archives(&api).as_slice() {
        [one] if is_long(one) => Ok(()),
        others => Err(json!(others).to_string()),
    });
    kill_child(&service);
    service.wait_for_log("its end", |line| {
        line.contains(&format!("{}archive", said::DRIVER_PROCESS)) && line.contains("killed")
    });
    // The same stream continues in another file, while the first one is uploaded.
    let _ = api.wait_for_destination(&stream, destination, "live");
    until_api("the second recording, beside the first in the store", || {
        let all = archives(&api);
        let states: Vec<&str> = all.iter().filter_map(|one| one["state"].as_str()).collect();
        let is_so = states == ["recording", "ready"] && is_long(&all[0]);
        if is_so { Ok(()) } else { Err(json!(all).to_string()) }
    });
    // The store is unreachable when the stream ends, and the process dies with the upload still open.
    store.vanish();
    encoder.cut();
    end(&api, &stream);
    until_api("an upload that cannot go on", || match archives(&api).as_slice() {
        [second, _] if second["state"] == "uploading" => Ok(()),
        others => Err(json!(others).to_string()),
    });
    kill_child(&service);
    store.recover();
    until_api("recordings that are all in the store", || {
        let all = archives(&api);
        let is_whole = all.len() == 2 && all.iter().all(|one| one["state"] == "ready");
        if is_whole { Ok(()) } else { Err(json!(all).to_string()) }
    });
    let all = archives(&api);
    let mut keys: Vec<String> = all.iter().map(key_of).collect();
    keys.sort();
    assert_eq!(store.keys(), keys, "each once");
    for one in &all {
        assert!(!contents(&store.file(&key_of(one))).is_empty(), "{one}");
        assert!(seconds_of(one) > RECORDED_SECONDS - LOST_SECONDS_MAX, "{one}");
        assert_eq!(one["destinationId"], json!(destination));
    }
    service.assert_running();
}
