//! Recordings after hours and days, with a manipulated clock.

use std::time::Duration;

use satcast_tests::api::{Api, Stream};
use satcast_tests::encoder::Publish;
use satcast_tests::moved::MovedClock;
use satcast_tests::receiver::Receiver;
use satcast_tests::s3::Store;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{seconds, until_api};
use serde_json::{Value, json};

use crate::archive::{archived, assert_kept, end, key_of, wait_for};
use crate::archive_store::add;

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: i64 = 3600 * 1000;
/// How often the driver looks at its recordings.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Hours that an upload is tried (`[driver.archive] retryHours`).
const RETRY_HOURS: u32 = 24;
const RECOVERY_SATS: i64 = 360;

fn service(clock: &MovedClock) -> Service {
    clock
        .set(Setup::default())
        .set("SATCAST_BILLING__INITIAL_CREDIT_SATS", "1000")
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
        .start()
}

/// Subscribes to the notice of deletions.
fn told(api: &Api) -> Receiver {
    let receiver = Receiver::start(None);
    let hook = json!({ "url": receiver.url(), "events": ["recording.expiring"] });
    let _ = api.post("/api/webhooks", &hook).ok();
    receiver
}

/// Waits until the list has no recording any more.
fn until_gone(api: &Api) {
    // The driver looks once a minute.
    until_api("the end of the recording", || match listed(api) {
        Some(left) if left.is_empty() => Ok(()),
        other => Err(json!(other).to_string()),
    });
}

/// Waits until the only recording has a time of deletion.
fn expiry(api: &Api) -> i64 {
    until_api("the time of the deletion", || {
        let shown = listed(api).map(|all| all.first().map(|one| one["expiresAt"].clone()));
        let at = shown.clone().flatten().and_then(|at| at.as_i64());
        at.ok_or_else(|| json!(shown).to_string())
    })
}

fn record(service: &Service, source: &Source, api: &Api, stream: &Stream) {
    Publish::of(source).faster(2).to(&service.ingest_url(&stream.key)).finish(seconds(60));
    end(api, stream);
}

/// The recordings; `None` if a jump of the clock ended the request: its idle connection, or its wait for the database.
fn listed(api: &Api) -> Option<Vec<Value>> {
    let answer = api.try_get("/api/archives").ok().filter(|answer| answer.status == 200)?;
    answer.ok().as_array().cloned()
}

#[test]
fn a_recording_leaves_store_and_list_when_its_days_are_over() {
    let (source, store) = (Source::of(Recipe::SMALL), Store::of_any_time());
    let mut clock = MovedClock::new();
    let service = service(&clock);
    let api = service.api();
    let stream = api.create_stream("kept");
    let _ = add(&api, &stream, &store, &json!({ "retentionDays": 2 }), None).ok();
    let receiver = told(&api);
    record(&service, &source, &api, &stream);
    let ready = wait_for(&api, "ready");
    let file = store.file(&key_of(&ready));
    clock.pass(LOOK_EVERY);
    let expires_at = expiry(&api);
    assert_eq!(expires_at, ready["startedAt"].as_i64().expect("a start") + 48 * HOUR_MS);
    let notice = receiver.wait_for(1)[0].json();
    assert_eq!(
        (&notice["type"], &notice["data"]["expiresAt"]),
        (&json!("recording.expiring"), &json!(expires_at))
    );
    assert_eq!(notice["data"]["fileName"], ready["fileName"]);

    // One hour before its end. The driver checks its recordings in between.
    clock.pass(47 * HOUR);
    std::thread::sleep(seconds(5));
    let _ = wait_for(&api, "ready");
    assert_kept(source.records(), &file);
    clock.pass(2 * HOUR);
    until_gone(&api);
    assert!(!file.exists(), "the object is still at its store");
    let log = api.get("/api/audit?action=archive.expired").ok();
    assert_eq!(log.as_array().map(Vec::len), Some(1), "{log}");
    assert_eq!(receiver.count(), 1, "the owner is told once");
}

/// The service is killed, and away at the time of the notice and of the deletion.
#[test]
fn a_service_that_was_away_gives_the_notice_late_and_deletes_later() {
    let (source, store) = (Source::of(Recipe::SMALL), Store::of_any_time());
    let mut clock = MovedClock::new();
    let mut service = service(&clock);
    let api = service.api();
    let stream = api.create_stream("kept");
    let _ = add(&api, &stream, &store, &json!({ "retentionDays": 4 }), None).ok();
    let receiver = told(&api);
    record(&service, &source, &api, &stream);
    let ready = wait_for(&api, "ready");
    let file = store.file(&key_of(&ready));
    clock.pass(LOOK_EVERY);
    let planned = expiry(&api);
    service.kill();
    clock.pass(240 * HOUR);
    service.start();
    let notice = receiver.wait_for(1)[0].json();
    let told_at = notice["data"]["expiresAt"].as_i64().expect("a time");
    // Ten days after its start, and a day more.
    assert!(told_at >= planned + (240 - 96 + 24) * HOUR_MS, "{notice} {planned}");
    assert_eq!(expiry(&api), told_at);
    // The next process finds the notice, and gives no second one.
    service.kill();
    clock.pass(23 * HOUR);
    service.start();
    std::thread::sleep(seconds(5));
    assert_kept(source.records(), &file);
    assert_eq!(expiry(&api), told_at);
    clock.pass(2 * HOUR);
    until_gone(&api);
    assert!(!file.exists(), "the object is still at its store");
    assert_eq!(receiver.count(), 1, "the owner is told once");
}

#[test]
fn an_abandoned_upload_is_recovered_for_its_fee() {
    let (source, store) = (Source::of(Recipe::SMALL), Store::of_any_time());
    let mut clock = MovedClock::new();
    let service = service(&clock);
    let api = service.api();
    let (stream, _) = archived(&api, "given up", &store);
    store.refuse(500);
    record(&service, &source, &api, &stream);
    let _ = wait_for(&api, "uploading");
    let balance = || api.get("/api/wallet/balance").ok()["balance"].as_i64().expect("a balance");
    let before = balance();

    // One hour per jump, so that no single jump covers the whole time limit. There are more jumps than needed, because an attempt may
    // outlast a few of them on a busy machine.
    let failed = (0..4 * RETRY_HOURS).find_map(|_| {
        clock.pass(HOUR);
        std::thread::sleep(seconds(2));
        listed(&api)?.into_iter().find(|one| one["state"] == "failed")
    });
    let failed = failed.expect("a failed upload");
    let recover = || api.post("/api/archives/recover-pay", &json!({ "fileName": failed["fileName"] }));
    recover().assert_error(502, None);
    assert_eq!(balance(), before, "an upload that the store did not open was charged");
    store.recover();
    assert_eq!(recover().ok()["success"], true);
    let ready = wait_for(&api, "ready");
    assert_eq!(balance(), before - RECOVERY_SATS);
    assert_kept(source.records(), &store.file(&key_of(&ready)));
    service.run(&["ledger", "check"]);
}
