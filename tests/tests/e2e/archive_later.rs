//! Recordings after hours and days, with a manipulated clock.

use std::time::Duration;

use satcast_tests::api::{Api, Stream};
use satcast_tests::encoder::Publish;
use satcast_tests::moved::MovedClock;
use satcast_tests::s3::Store;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{seconds, until_api};
use serde_json::{Value, json};

use crate::archive::{archived, assert_whole, end, key_of, wait_for};
use crate::archive_store::add;

const HOUR: Duration = Duration::from_secs(3600);
/// Hours that an upload is tried (`[driver.archive] retryHours`).
const RETRY_HOURS: u32 = 24;
const RECOVERY_SATS: i64 = 360;

fn service(clock: &MovedClock) -> Service {
    clock.set(Setup::default()).set("SATCAST_BILLING__INITIAL_CREDIT_SATS", "1000").start()
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
    record(&service, &source, &api, &stream);
    let ready = wait_for(&api, "ready", seconds(60));
    let file = store.file(&key_of(&ready));

    // One hour before its end. The driver checks its recordings in between.
    clock.pass(47 * HOUR);
    std::thread::sleep(seconds(5));
    let _ = wait_for(&api, "ready", seconds(20));
    assert_whole(source.records(), &file);
    clock.pass(2 * HOUR);
    until_api("the end of the recording", seconds(60), || match listed(&api) {
        Some(left) if left.is_empty() => Ok(()),
        other => Err(json!(other).to_string()),
    });
    assert!(!file.exists(), "the object is still at its store");
    let log = api.get("/api/audit?action=archive.expired").ok();
    assert_eq!(log.as_array().map(Vec::len), Some(1), "{log}");
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
    let _ = wait_for(&api, "uploading", seconds(20));
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
    let ready = wait_for(&api, "ready", seconds(60));
    assert_eq!(balance(), before - RECOVERY_SATS);
    assert_whole(source.records(), &store.file(&key_of(&ready)));
    service.run(&["ledger", "check"]);
}
