//! Recordings: list, deletion, and recoveries with their order of checks and their price.

use poem::http::Method;
use serde_json::json;

use satcast_plugin_api::recording::{EXPIRY_NOTICE_MS, Recording, RecordingState};
use satcast_plugin_api::{Class, Error};

use super::recordings::stream_of;
use super::{LINKED_DRIVER, Rig};
use crate::api::archives;
use crate::base::ApiError;
use satcast_archive::testing::{self, put, reports};
use satcast_core::ids::{Msat, Sats, SessionId, StreamId};
use satcast_drivers::RecordingsError;
use satcast_store::{Actor, NewSession, Terms};

const RECOVER: &str = "/api/archives/recover-pay";

/// The driver's report of a recording with a new destination and session of `rig`'s account; added to the driver's journal.
pub(super) async fn recording(rig: &Rig, name: &str, state: RecordingState) -> Recording {
    let stream = rig.stream().await;
    let target = json!({"type": "self-hosted", "config": {}});
    let destination =
        rig.post(&format!("/api/streams/{stream}/destinations"), &target).await.ok()["id"].as_i64();
    let (session_id, now) = (SessionId(format!("ses_{name}")), rig.app.clock.now());
    let new = NewSession {
        id: session_id.clone(),
        stream_id: StreamId(stream),
        started_at: now,
        terms: Terms::default(),
    };
    rig.app.store.begin_session(new).await.unwrap();
    let failed = state == RecordingState::Failed;
    let recording = Recording {
        destination_id: destination.unwrap(),
        session_id: session_id.0,
        file_name: name.into(),
        state,
        size_bytes: 5_000_000,
        uploaded_bytes: 1_000_000,
        duration_ms: 61_500,
        error: failed.then(|| "the store refused the upload".into()),
        error_class: failed.then_some(Class::Remote),
        url: (state == RecordingState::Ready).then(|| format!("s3://bucket/{name}")),
        started_at_ms: now.0,
        changed_at_ms: now.0,
        attempt: 0,
        attempt_opened: false,
        has_copy: true,
        gone: false,
        expires_at_ms: None,
        asks_notice: false,
        audio_only: false,
    };
    put(recording.clone());
    recording
}

/// Notifies the mirror.
pub(super) async fn tell(rig: &Rig, recording: Recording) -> i64 {
    let name = recording.file_name.clone();
    reports().put(LINKED_DRIVER, recording);
    rig.app.archive.save_reports().await;
    rig.app.store.archive_by_name(rig.account, &name).await.unwrap().unwrap().id
}

pub(super) async fn record(rig: &Rig, name: &str, state: RecordingState) -> i64 {
    tell(rig, recording(rig, name, state).await).await
}

/// An uploaded recording whose driver asks for the notice of its deletion.
pub(super) async fn expiring(rig: &Rig, name: &str) -> i64 {
    let ready = recording(rig, name, RecordingState::Ready).await;
    tell(rig, Recording { expires_at_ms: Some(ready.started_at_ms), asks_notice: true, ..ready }).await
}

#[tokio::test]
async fn the_time_of_a_deletion_is_shown() {
    let rig = Rig::new().await;
    expiring(&rig, "a.mp4").await;
    let shown = rig.get("/api/archives").await.ok();
    assert_eq!(shown[0]["expiresAt"], rig.app.clock.now().0 + EXPIRY_NOTICE_MS);
}

#[tokio::test]
async fn recordings_are_listed_newest_first_in_pages_only_to_their_owner() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.get("/api/archives").await.ok(), json!([]));
    let failed = recording(&rig, "a.mp4", RecordingState::Failed).await;
    let first = tell(&rig, failed.clone()).await;
    let second = record(&rig, "b.mp4", RecordingState::Ready).await;
    let page = rig.get("/api/archives?limit=1").await;
    assert!(page.header("link").contains(&format!("cursor={second}&limit=1")), "{}", page.header("link"));
    assert_eq!(page.ok()[0]["url"], "s3://bucket/b.mp4");
    let rest = rig.get(&format!("/api/archives?cursor={second}")).await.ok();
    assert_eq!(
        rest,
        json!([{"id": first, "fileName": "a.mp4", "state": "failed", "destinationId": failed.destination_id,
                "sessionId": "ses_a.mp4", "streamKeyId": stream_of(&rig, first).await, "sizeBytes": 5_000_000, "uploadedBytes": 1_000_000,
                "durationSeconds": 61.5, "error": "the store refused the upload", "url": null,
                "playbackUrl": null, "posterUrl": null, "public": false,
                "startedAt": 1_800_000_000_000_i64, "updatedAt": 1_800_000_000_000_i64, "expiresAt": null}])
    );
    rig.key = rig.account("stranger").await.1;
    assert_eq!(rig.get("/api/archives").await.ok(), json!([]));
    rig.delete(&format!("/api/archives/{first}")).await.error(404, "not_found");
    rig.post(RECOVER, &json!({"fileName": "a.mp4"})).await.error(404, "not_found");
}

#[tokio::test]
async fn refused_recoveries_follow_the_specified_order_and_are_free() {
    let rig = Rig::new().await;
    rig.post(RECOVER, &json!({})).await.error(400, "malformed_field");
    rig.post(RECOVER, &json!({"fileName": "x".repeat(1_025)})).await.error(400, "malformed_field");
    rig.post(RECOVER, &json!({"fileName": "lost.mp4"})).await.error(404, "not_found");
    for (name, state) in [
        ("a.mp4", RecordingState::Recording),
        ("b.mp4", RecordingState::Uploading),
        ("c.mp4", RecordingState::Ready),
    ] {
        record(&rig, name, state).await;
        rig.post(RECOVER, &json!({"fileName": name})).await.error(409, "archive_not_failed");
    }
    record(&rig, "refused-d.mp4", RecordingState::Failed).await;
    let wanted = json!({"fileName": "refused-d.mp4"});
    let text = rig.post(RECOVER, &wanted).await.error(402, "insufficient_funds");
    assert_eq!(text, archives::too_little(Msat(360_000), Msat(0)).to_string());
    let now = rig.app.clock.now();
    rig.app.store.credit(&Actor::command(rig.account, now), Sats(360), "test".into()).await.unwrap();
    let text = rig.post(RECOVER, &wanted).await.error(502, "archive_unavailable");
    let failure = RecordingsError::Refused(Error::remote(testing::STORE_503));
    assert_eq!(text, ApiError::archive_unavailable(archives::NOT_CHARGED, &failure).to_string());
    assert_eq!(rig.get("/api/wallet/balance").await.ok()["balance"], 360);
    // Those with an unreadable body were not counted; this was the sixth of ten in a minute.
    for _ in 6..10 {
        rig.post(RECOVER, &wanted).await.error(502, "archive_unavailable");
    }
    rig.post(RECOVER, &wanted).await.error(429, "rate_limited");
}

#[tokio::test]
async fn a_recovery_is_charged_and_blocks_a_second_one() {
    let rig = Rig::new().await;
    let now = rig.app.clock.now();
    rig.app.store.credit(&Actor::command(rig.account, now), Sats(400), "test".into()).await.unwrap();
    record(&rig, "a.mp4", RecordingState::Failed).await;
    let wanted = json!({"fileName": "a.mp4"});
    assert_eq!(rig.post(RECOVER, &wanted).await.ok()["success"], true);
    // The driver's last report is shown, and a running recovery is refused before the balance check.
    assert_eq!(rig.get("/api/archives").await.ok()[0]["state"], "uploading");
    rig.post(RECOVER, &wanted).await.error(409, "archive_not_failed");
    let lines = rig.get("/api/wallet/ledger").await.ok();
    assert_eq!((&lines[0]["kind"], &lines[0]["amountMsat"]), (&json!("recovery"), &json!(-360_000)));
    tell(&rig, testing::fail("a.mp4", Class::Internal)).await;
    let lines = rig.get("/api/wallet/ledger").await.ok();
    assert_eq!((&lines[0]["kind"], &lines[0]["amountMsat"]), (&json!("refund"), &json!(360_000)));
    assert_eq!((&lines[0]["fileName"], &lines[1]["fileName"]), (&json!("a.mp4"), &json!("a.mp4")));
    let stream = rig.get("/api/streams").await.ok()[0]["id"].clone();
    assert_eq!((&lines[0]["streamKeyId"], &lines[1]["streamKeyId"]), (&stream, &stream));
    assert_eq!(rig.get("/api/wallet/balance").await.ok()["balance"], 400);
}

#[tokio::test]
async fn without_a_copy_a_recovery_is_refused_before_the_balance_check() {
    let rig = Rig::new().await;
    let gone = recording(&rig, "a.mp4", RecordingState::Failed).await;
    tell(&rig, gone).await;
    testing::change("a.mp4", |recording| recording.has_copy = false);
    rig.post(RECOVER, &json!({"fileName": "a.mp4"})).await.error(409, "archive_no_copy");
    assert_eq!(rig.get("/api/wallet/ledger").await.ok(), json!([]));
}

#[tokio::test]
async fn without_billing_a_recovery_needs_no_money() {
    let rig = Rig::with_config("[billing]\nmode = \"off\"").await;
    record(&rig, "a.mp4", RecordingState::Failed).await;
    rig.post(RECOVER, &json!({"fileName": "a.mp4"})).await.ok();
    assert_eq!(rig.get("/api/wallet/ledger").await.ok(), json!([]));
}

#[tokio::test]
async fn recordings_are_deleted_locally_or_remotely_but_not_while_recording() {
    let rig = Rig::new().await;
    let running = record(&rig, "a.mp4", RecordingState::Recording).await;
    rig.delete(&format!("/api/archives/{running}?remote=true")).await.error(409, "archive_recording");
    let ready = record(&rig, "remote-b.mp4", RecordingState::Ready).await;
    rig.delete(&format!("/api/archives/{ready}?remote=yes")).await.error(400, "malformed_parameter");
    rig.delete(&format!("/api/archives/{ready}")).await.ok();
    assert!(testing::journal("remote-b.mp4").is_some(), "the object was not meant");
    let ready = record(&rig, "remote-c.mp4", RecordingState::Ready).await;
    rig.delete(&format!("/api/archives/{ready}?remote=true")).await.ok();
    assert_eq!(testing::journal("remote-c.mp4"), None);
    rig.delete(&format!("/api/archives/{ready}?remote=true")).await.error(404, "not_found");
    let stuck = record(&rig, "stuck-d.mp4", RecordingState::Failed).await;
    let text = rig.delete(&format!("/api/archives/{stuck}")).await.error(502, "archive_unavailable");
    let failure = RecordingsError::Refused(Error::network(testing::DOWN));
    assert_eq!(text, ApiError::archive_unavailable(archives::STILL_LISTED, &failure).to_string());
    assert_eq!(rig.get("/api/archives").await.ok().as_array().unwrap().len(), 2, "the other recordings stay");
    rig.ask(Method::POST, "/api/archives", None).await.error(405, "method_not_allowed");
}

#[tokio::test]
async fn addresses_are_signed_on_request() {
    let rig = Rig::new().await;
    record(&rig, "a.mp4", RecordingState::Ready).await;
    record(&rig, "b.mp4", RecordingState::Ready).await;
    assert_eq!(rig.get("/api/archives").await.ok()[1]["url"], "s3://bucket/a.mp4");
    assert_eq!(rig.get("/api/archives?sign=false").await.ok()[1]["url"], "s3://bucket/a.mp4");
    let page = rig.get("/api/archives?sign=true&limit=1").await;
    assert!(page.header("link").contains("sign=true"), "{}", page.header("link"));
    assert_eq!(page.ok()[0]["url"], "https://store.example/b.mp4?valid=3600");
    rig.get("/api/archives?sign=yes").await.error(400, "malformed_parameter");
}

/// Uploads continue without a session, so the driver is notified without one.
#[tokio::test]
async fn drivers_are_notified_of_changed_and_deleted_destinations() {
    let rig = Rig::new().await;
    let reported = tell(&rig, recording(&rig, "a.mp4", RecordingState::Uploading).await).await;
    let found = rig.app.store.archive(rig.account, reported).await.unwrap().unwrap();
    let destination = found.report.destination_id.0;
    let stream = rig.get("/api/streams").await.ok()[0]["id"].as_i64().unwrap();
    let path = format!("/api/streams/{stream}/destinations/{destination}");
    rig.ask(Method::PATCH, &path, Some(r#"{"enabled": false}"#)).await.ok();
    assert_eq!(testing::configurations_of(destination), [], "its configuration is as it was");
    rig.ask(Method::PATCH, &path, Some(r#"{"config": {"deaf": true}}"#)).await.ok();
    assert_eq!(testing::configurations_of(destination), [Some(json!({"deaf": true}))]);
    rig.delete(&path).await.ok();
    assert_eq!(testing::configurations_of(destination).last(), Some(&None));
}

#[tokio::test]
async fn recordings_unknown_to_the_driver_are_not_recovered() {
    let rig = Rig::new().await;
    record(&rig, "a.mp4", RecordingState::Failed).await;
    testing::lose("a.mp4");
    rig.post(RECOVER, &json!({"fileName": "a.mp4"})).await.error(409, "archive_lost");
    assert_eq!(rig.get("/api/wallet/ledger").await.ok(), json!([]));
}

#[tokio::test]
async fn a_recording_has_an_address_to_watch_it_and_a_public_switch() {
    let mut rig = Rig::new().await;
    let mut empty = recording(&rig, "empty.mp4", RecordingState::Recording).await;
    (empty.size_bytes, empty.uploaded_bytes) = (0, 0);
    let empty = tell(&rig, empty).await;
    let running = record(&rig, "a.mp4", RecordingState::Recording).await;
    let ready = record(&rig, "b.mp4", RecordingState::Ready).await;
    let failed = record(&rig, "c.mp4", RecordingState::Failed).await;
    for (id, can_play) in [(empty, false), (running, true), (ready, true), (failed, false)] {
        let shown = rig.get(&format!("/api/archives/{id}")).await.ok();
        assert_eq!(shown["id"], id);
        assert_eq!(shown["playbackUrl"].is_string(), can_play, "{shown}");
        let all = rig.get("/api/archives").await.ok();
        assert!(all.as_array().unwrap().contains(&shown), "{all}");
        let address = shown["playbackUrl"].as_str().unwrap_or_default();
        assert!(!can_play || address.contains(&format!("/vod/{id}/index.m3u8?token=")), "{address}");
    }
    let path = format!("/api/archives/{ready}");
    assert_eq!(
        rig.get(&format!("{path}?sign=true")).await.ok()["url"],
        "https://store.example/b.mp4?valid=3600"
    );
    for public in [true, true, false] {
        rig.ask(Method::PATCH, &path, Some(&json!({"public": public}).to_string())).await.ok();
        assert_eq!(rig.get(&path).await.ok()["public"], public);
    }
    for wrong in ["{}", "{\"public\": 1}", "{\"public\": null}"] {
        rig.ask(Method::PATCH, &path, Some(wrong)).await.error(400, "malformed_field");
    }
    rig.key = rig.account("stranger").await.1;
    rig.get(&path).await.error(404, "not_found");
    rig.ask(Method::PATCH, &path, Some("{\"public\": true}")).await.error(404, "not_found");
}
