//! Events of recordings for webhooks and watchers: one for each transition.

use serde_json::{Value, json};

use super::*;
use satcast_core::feed::Seen;
use satcast_core::ids::WebhookId;
use satcast_core::secret::Redacted;
use satcast_store::{EventType, NewWebhook, SendingCaps};

impl Rig {
    pub(super) async fn webhook(&self, events: &[EventType]) -> WebhookId {
        let new = NewWebhook {
            stream_id: Some(self.billed.stream),
            url: Redacted::new("https://hooks.example/in".to_owned()),
            host: "hooks.example".to_owned(),
            events: events.to_vec(),
            secret: None,
            cap: 9,
        };
        self.billed.store.create_webhook(&self.owner(), new).await.unwrap()
    }

    /// Bodies of new webhook deliveries, oldest first.
    pub(super) async fn waiting(&self) -> Vec<Value> {
        let (now, caps) =
            (self.billed.clock.now(), SendingCaps { per_webhook: 99, per_host: 99, per_account: 99 });
        let until = UnixMillis(now.0 + 1_000_000);
        let mut jobs = self.billed.store.claim_deliveries(now, until, 99, caps).await.unwrap();
        jobs.sort_by_key(|job| job.delivery.0);
        jobs.into_iter().map(|job| serde_json::from_slice(&job.body).unwrap()).collect()
    }
}

#[tokio::test]
async fn each_outcome_is_sent_once_with_its_data() {
    let rig = Rig::new(0).await;
    rig.webhook(&[EventType::RecordingReady, EventType::RecordingFailed]).await;
    rig.known("a.mp4", RecordingState::Recording).await;
    rig.deliver(testing::change("a.mp4", |recording| recording.state = RecordingState::Uploading)).await;
    let ready = testing::finish("a.mp4");
    rig.deliver(ready.clone()).await;
    rig.deliver(ready).await;
    rig.archive.compare_all().await;
    rig.known("b.mp4", RecordingState::Failed).await;
    rig.archive.compare_all().await;
    let sent = rig.waiting().await;
    let about = json!({
        "streamKeyId": rig.billed.stream.0, "label": "test", "sessionId": rig.session.as_str(),
        "startedAt": START.0 + 7_654, "destinationId": rig.billed.destinations[0].0,
    });
    let with = |more: Value| {
        let mut data = about.clone();
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        data
    };
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert_eq!(sent[0]["type"], "recording.ready");
    assert_eq!(
        sent[0]["data"],
        with(
            json!({"fileName": "a.mp4", "sizeBytes": 5_000_000, "durationSeconds": 61.5, "url": "s3://bucket/a.mp4"})
        )
    );
    assert_eq!(sent[1]["type"], "recording.failed");
    assert_eq!(sent[1]["data"], with(json!({"fileName": "b.mp4", "error": "the store is down"})));
}

#[tokio::test]
async fn a_failed_retry_sends_an_event_only_if_it_began() {
    let rig = Rig::new(1_000).await;
    rig.webhook(&[EventType::RecordingFailed]).await;
    let refused = rig.known("refused-a.mp4", RecordingState::Failed).await;
    rig.archive.recover(&rig.owner(), &refused, Msat(0)).await.unwrap_err();
    rig.archive.compare_all().await;
    assert_eq!(rig.waiting().await.len(), 1, "only the first failure");
    let failed = rig.known("b.mp4", RecordingState::Failed).await;
    rig.archive.recover(&rig.owner(), &failed, Msat(0)).await.unwrap();
    // The report of the upload in between is lost.
    reports().take();
    rig.deliver(testing::fail("b.mp4", Class::Network)).await;
    let sent = rig.waiting().await;
    let names: Vec<_> = sent.iter().map(|event| event["data"]["fileName"].as_str().unwrap()).collect();
    assert_eq!(names, ["b.mp4", "b.mp4"], "earlier deliveries were claimed");
}

#[tokio::test]
async fn a_lost_recording_sends_an_event_and_watchers_see_every_transition() {
    let rig = Rig::new(0).await;
    rig.webhook(&[EventType::RecordingFailed]).await;
    let mut watch = rig.billed.store.feed().watch(rig.billed.account, None).unwrap();
    let known = rig.known("a.mp4", RecordingState::Recording).await;
    testing::lose("a.mp4");
    rig.archive.compare_all().await;
    rig.archive.compare_all().await;
    let sent = rig.waiting().await;
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0]["data"]["error"], LOST);
    for (state, error) in [("recording", Value::Null), ("failed", json!(LOST))] {
        let Some(Seen::Event(event)) = watch.next().await else { panic!("an event") };
        assert_eq!(event.name, "recording.state");
        assert_eq!(event.data["archiveId"], known.id);
        assert_eq!((&event.data["state"], &event.data["error"]), (&json!(state), &error));
    }
}
