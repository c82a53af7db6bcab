//! The events that the service writes for webhooks, compared with the API document.

use poem::http::Method;
use serde_json::{Value, json};

use satcast_plugin_api::recording::RecordingState;

use super::{Rig, archives, clips};
use crate::api::document::testing::{Unknown, bundled, first_fault};
use satcast_core::ids::{DestinationId, EndReason, Msat, Sats, SessionId, StreamId};
use satcast_store::{
    Actor, Charged, DestinationNotice, EventType, FailoverNotice, HealthNotice, IssueNotice, Limit,
    NewSession, Notice, NoticeKind, SingleCharge, Terms,
};

const SESSION: &str = "ses_events";

/// Starts a session, reports everything that can happen in it, and ends it at a limit.
async fn session(rig: &Rig) {
    let stream = rig.stream().await;
    let target = json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live"}});
    let added = rig.post(&format!("/api/streams/{stream}/destinations"), &target).await.ok();
    let (session, now) = (SessionId(SESSION.to_owned()), rig.app.clock.now());
    let (stream_id, terms) = (StreamId(stream), Terms::default());
    rig.app
        .store
        .begin_session(NewSession { id: session.clone(), stream_id, started_at: now, terms })
        .await
        .unwrap();
    let destination =
        DestinationNotice { id: DestinationId(added["id"].as_i64().unwrap()), platform: "rtmp".to_owned() };
    let issue = IssueNotice {
        code: "keyframe_interval",
        text: "keyframe interval 5.0 s".to_owned(),
        platforms: vec!["twitch".to_owned()],
    };
    let health =
        HealthNotice { appeared: vec!["keyframe_interval"], cleared: vec!["no_audio"], issues: vec![issue] };
    for what in [
        NoticeKind::LimitWarning(Limit::MaxSats),
        NoticeKind::Connected(destination.clone()),
        NoticeKind::Failed(destination.clone(), "the server closed the connection".to_owned()),
        NoticeKind::Recovered(destination),
        NoticeKind::Health(health),
        NoticeKind::Failover(FailoverNotice { from: "primary", to: "backup", reason: "stalled" }),
    ] {
        rig.app.store.note(&Notice { session: session.clone(), what, at: now }).await.unwrap();
    }
    rig.app.store.end_session(&session, now, EndReason::MaxSats).await.unwrap();
}

/// Takes the balance below `lowBalanceSats`.
async fn nearly_all_credit(rig: &Rig) {
    let now = rig.app.clock.now();
    let actor = Actor::command(rig.account, now);
    rig.app.store.credit(&actor, Sats(200), "test".to_owned()).await.unwrap();
    let charge = SingleCharge {
        account: rig.account,
        amount: Msat(150_000),
        kind: "test",
        idem: "test:charge".to_owned(),
        destination: None,
        now,
    };
    assert!(matches!(rig.app.store.charge_once(&charge).await.unwrap(), Charged::Posted(_)));
}

#[tokio::test]
async fn every_event_that_is_written_has_the_documented_form() {
    let rig = Rig::with_config("[webhooks]\nallow_targets = [\"127.0.0.1\"]").await;
    let events = EventType::ALL.map(EventType::as_str);
    // No test listens on the discard port: a test of the webhook fails, and its event is written.
    let hook = json!({"url": "http://127.0.0.1:9/in", "events": events});
    let id = rig.post("/api/webhooks", &hook).await.ok()["id"].clone();
    session(&rig).await;
    archives::record(&rig, "ready.mp4", RecordingState::Ready).await;
    archives::record(&rig, "failed.mp4", RecordingState::Failed).await;
    archives::expiring(&rig, "expiring.mp4").await;
    clips::ready_and_failed(&rig).await;
    nearly_all_credit(&rig).await;
    rig.ask(Method::POST, &format!("/api/webhooks/{id}/test"), None).await;
    let document = bundled();
    let mut written: Vec<String> = Vec::new();
    for body in rig.intruder().await.event_bodies().await {
        let body: Value = serde_json::from_slice(&body).unwrap();
        let name = body["type"].as_str().unwrap();
        let content = &document["x-webhooks"][name]["post"]["requestBody"]["content"]["application/json"];
        assert_eq!(first_fault(&document, &content["schema"], &body, Unknown::Fault), None, "{body}");
        written.push(name.to_owned());
    }
    let missing: Vec<&str> =
        events.into_iter().filter(|event| !written.iter().any(|name| name == event)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "written: {written:?}");
}
