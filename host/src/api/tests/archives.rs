//! Recordings: the list, and the order in which a recovery or a deletion is refused.

use poem::http::Method;
use serde_json::json;

use super::Rig;
use crate::ids::{DestinationId, Sats, SessionId, StreamId, UnixMillis};
use crate::store::{Actor, ArchiveReport, ArchiveState, NewSession, Terms};

const RECOVER: &str = "/api/archives/recover-pay";

/// What a driver tells of a recording of a new destination and session of `rig`'s account.
async fn report(rig: &Rig, name: &str, state: ArchiveState) -> ArchiveReport {
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
    ArchiveReport {
        destination_id: DestinationId(destination.unwrap()),
        session_id,
        file_name: name.into(),
        state,
        size_bytes: 5_000_000,
        uploaded_bytes: 1_000_000,
        duration_ms: 61_500,
        error: (state == ArchiveState::Failed).then(|| "the store refused the upload".into()),
        url: (state == ArchiveState::Ready).then(|| format!("s3://bucket/{name}")),
        started_at: now,
        changed_at: now,
    }
}

pub(super) async fn record(rig: &Rig, name: &str, state: ArchiveState) -> i64 {
    let report = report(rig, name, state).await;
    rig.app.store.record_archive(report).await.unwrap()
}

#[tokio::test]
async fn recordings_are_listed_newest_first_in_pages_to_their_owner_alone() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.get("/api/archives").await.ok(), json!([]));
    let failed = report(&rig, "a.mp4", ArchiveState::Failed).await;
    let first = rig.app.store.record_archive(failed.clone()).await.unwrap();
    let second = record(&rig, "b.mp4", ArchiveState::Ready).await;
    let page = rig.get("/api/archives?limit=1").await;
    assert!(page.header("link").contains(&format!("cursor={second}&limit=1")), "{}", page.header("link"));
    assert_eq!(page.ok()[0]["url"], "s3://bucket/b.mp4");
    let rest = rig.get(&format!("/api/archives?cursor={second}")).await.ok();
    assert_eq!(
        rest,
        json!([{"id": first, "fileName": "a.mp4", "state": "failed", "destinationId": failed.destination_id.0,
                "sessionId": "ses_a.mp4", "sizeBytes": 5_000_000, "uploadedBytes": 1_000_000,
                "durationSeconds": 61.5, "error": "the store refused the upload", "url": null,
                "startedAt": 1_800_000_000_000_i64, "updatedAt": 1_800_000_000_000_i64}])
    );
    rig.key = rig.account("stranger").await.1;
    assert_eq!(rig.get("/api/archives").await.ok(), json!([]));
    rig.delete(&format!("/api/archives/{first}")).await.error(404, "not_found");
    rig.post(RECOVER, &json!({"fileName": "a.mp4"})).await.error(404, "not_found");
}

#[tokio::test]
async fn the_newest_report_of_a_recording_counts() {
    let rig = Rig::new().await;
    let first = report(&rig, "a.mp4", ArchiveState::Uploading).await;
    let id = rig.app.store.record_archive(first.clone()).await.unwrap();
    let newer = ArchiveReport {
        state: ArchiveState::Ready,
        uploaded_bytes: 5_000_000,
        changed_at: UnixMillis(first.changed_at.0 + 5),
        ..first.clone()
    };
    assert_eq!(rig.app.store.record_archive(newer.clone()).await.unwrap(), id);
    assert_eq!(rig.app.store.record_archive(first.clone()).await.unwrap(), id, "an old report is late");
    assert_eq!(rig.app.store.archive(rig.account, id).await.unwrap().unwrap().report, newer);
    let foreign = ArchiveReport { destination_id: DestinationId(99), ..first };
    assert!(rig.app.store.record_archive(foreign).await.is_err());
}

#[tokio::test]
async fn a_recovery_is_refused_in_the_decided_order_and_charges_nothing() {
    let rig = Rig::new().await;
    rig.post(RECOVER, &json!({})).await.error(400, "malformed_field");
    rig.post(RECOVER, &json!({"fileName": "x".repeat(1_025)})).await.error(400, "malformed_field");
    rig.post(RECOVER, &json!({"fileName": "lost.mp4"})).await.error(404, "not_found");
    for (name, state) in [
        ("a.mp4", ArchiveState::Recording),
        ("b.mp4", ArchiveState::Uploading),
        ("c.mp4", ArchiveState::Ready),
    ] {
        record(&rig, name, state).await;
        rig.post(RECOVER, &json!({"fileName": name})).await.error(409, "archive_not_failed");
    }
    record(&rig, "d.mp4", ArchiveState::Failed).await;
    let wanted = json!({"fileName": "d.mp4"});
    let text = rig.post(RECOVER, &wanted).await.error(402, "insufficient_funds");
    assert_eq!(text, "Recovering a recording costs 360 sats and the balance is 0 sats; add credit first");
    let now = rig.app.clock.now();
    rig.app.store.credit(&Actor::command(rig.account, now), Sats(360), "test".into()).await.unwrap();
    rig.post(RECOVER, &wanted).await.error(502, "archive_unavailable");
    assert_eq!(rig.get("/api/wallet/balance").await.ok()["balance"], 360);
    // Those with an unreadable body were not counted; this was the sixth of ten in a minute.
    for _ in 6..10 {
        rig.post(RECOVER, &wanted).await.error(502, "archive_unavailable");
    }
    rig.post(RECOVER, &wanted).await.error(429, "rate_limited");
}

#[tokio::test]
async fn without_billing_a_recovery_needs_no_money() {
    let rig = Rig::with_config("[billing]\nmode = \"off\"").await;
    record(&rig, "a.mp4", ArchiveState::Failed).await;
    rig.post(RECOVER, &json!({"fileName": "a.mp4"})).await.error(502, "archive_unavailable");
}

#[tokio::test]
async fn a_recording_being_made_is_not_deleted() {
    let rig = Rig::new().await;
    let running = record(&rig, "a.mp4", ArchiveState::Recording).await;
    rig.delete(&format!("/api/archives/{running}?remote=true")).await.error(409, "archive_recording");
    let ready = record(&rig, "b.mp4", ArchiveState::Ready).await;
    rig.delete(&format!("/api/archives/{ready}?remote=yes")).await.error(400, "malformed_parameter");
    rig.delete(&format!("/api/archives/{ready}")).await.error(502, "archive_unavailable");
    assert_eq!(rig.get("/api/archives").await.ok().as_array().unwrap().len(), 2, "nothing is lost");
    rig.ask(Method::POST, "/api/archives", None).await.error(405, "method_not_allowed");
}
