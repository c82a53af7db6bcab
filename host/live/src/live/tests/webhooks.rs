//! Webhook events of destinations and of the duration limit.

use super::*;
use satcast_drivers::testing::{NO_ROUTE, POISON_BYTES};
use satcast_store::{EventType, NewWebhook, SendingCaps};

const EVENTS: [EventType; 4] = [
    EventType::DestinationConnected,
    EventType::DestinationFailed,
    EventType::DestinationRecovered,
    EventType::LimitWarning,
];

impl Rig {
    async fn webhook(&self) {
        self.webhook_for(EVENTS.to_vec()).await;
    }

    /// A webhook for these events.
    pub(super) async fn webhook_for(&self, events: Vec<EventType>) {
        let new = NewWebhook {
            stream_id: Some(self.stream.id),
            url: Redacted::new("https://a.example/in".into()),
            host: "a.example".into(),
            events,
            secret: None,
            cap: 9,
        };
        self.store.create_webhook(&self.owner(), new).await.unwrap();
    }

    /// Name and data of the next event that is due.
    pub(super) async fn next_delivery(&self) -> (String, Value) {
        let caps = SendingCaps { per_webhook: 99, per_host: 99, per_account: 99 };
        let end = tokio::time::Instant::now() + WAIT_MAX;
        while tokio::time::Instant::now() < end {
            let now = self.clock.now();
            let until = UnixMillis(now.0 + 3_600_000);
            if let Some(job) = self.store.claim_deliveries(now, until, 1, caps).await.unwrap().pop() {
                let mut body: Value = serde_json::from_slice(&job.body).unwrap();
                return (body["type"].as_str().unwrap().to_owned(), body["data"].take());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no further event is due");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_report_a_destination_that_connects_fails_and_recovers() {
    let rig = Rig::new(&["flaky"], Duration::from_secs(30)).await;
    rig.webhook().await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let mut about = json!({
        "streamKeyId": rig.stream.id.0, "label": "test", "sessionId": publisher.session_id().as_str(),
        "startedAt": rig.clock.now().0, "destinationId": rig.destinations[0].0, "platform": "script",
    });
    assert_eq!(rig.next_delivery().await, ("destination.connected".to_owned(), about.clone()));
    publisher.push(&mut vec![Packet { payload: Bytes::from_static(&[9; POISON_BYTES]), ..video(99, false) }]);
    let (name, failed) = rig.next_delivery().await;
    about["error"] = json!("the line broke");
    assert_eq!((name.as_str(), &failed), ("destination.failed", &about));
    // The new GOP does not hold the poison packet.
    publisher.push(&mut vec![video(133, true), video(166, false)]);
    about.as_object_mut().unwrap().remove("error");
    // An attempt in between may have failed on it, which is not reported again.
    let next = rig.clock.passing(Duration::from_millis(100), rig.next_delivery()).await;
    assert_eq!(next, ("destination.recovered".to_owned(), about));
    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
    rig.until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_report_a_destination_that_never_connects_once() {
    let rig = Rig::new(&["network"], Duration::from_secs(30)).await;
    rig.webhook().await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    let (name, data) = rig.next_delivery().await;
    assert_eq!((name.as_str(), &data["platform"]), ("destination.failed", &json!("script")));
    assert!(data["error"].as_str().unwrap().starts_with(NO_ROUTE), "{data}");
    let tried = || rig.live.destination(rig.stream.id, rig.destinations[0]).filter(|seen| seen.attempt > 2);
    rig.until_later("more tries", tried).await;
    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
    rig.until_idle().await;
    assert!(!rig.store.has_due_delivery(rig.clock.now()).await.unwrap(), "not for every attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_report_the_duration_warning_once() {
    let rig = Rig::new(&[], Duration::from_secs(30)).await;
    rig.webhook().await;
    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut group());
    rig.until_session(SessionState::Live).await;
    let started = rig.clock.now().0;
    let limits = StreamLimits { max_duration_minutes: Some(10), ..StreamLimits::default() };
    rig.live.limits_changed(rig.stream.id, limits).await;
    rig.clock.advance(Duration::from_secs(480));
    let about = json!({
        "streamKeyId": rig.stream.id.0, "label": "test", "sessionId": publisher.session_id().as_str(),
        "startedAt": started, "limit": "maxDurationMinutes",
    });
    assert_eq!(rig.next_delivery().await, ("limit.warning".to_owned(), about));
    rig.clock.advance(Duration::from_secs(119));
    rig.live.limits_changed(rig.stream.id, limits).await;
    rig.clock.advance(Duration::from_secs(1));
    rig.until_idle().await;
    assert!(!rig.store.has_due_delivery(rig.clock.now()).await.unwrap(), "once");
}
