//! The notice before a deletion by a rule of the destination: once, early enough, and confirmed to the driver.

use std::time::Duration;

use satcast_plugin_api::recording::EXPIRY_NOTICE_MS;
use serde_json::json;

use super::*;
use satcast_store::EventType;

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: i64 = 3600 * 1000;

impl Rig {
    /// An uploaded recording.
    async fn ready(&self, file_name: &str) {
        self.known(file_name, RecordingState::Uploading).await;
        self.deliver(testing::finish(file_name)).await;
    }

    /// The driver wants to delete a recording at that time, and asks for the notice.
    async fn asks(&self, file_name: &str, expires_at_ms: i64) {
        let asks = |recording: &mut Recording| {
            (recording.expires_at_ms, recording.asks_notice) = (Some(expires_at_ms), true);
        };
        self.deliver(testing::change(file_name, asks)).await;
    }

    async fn expires(&self, file_name: &str) -> Option<i64> {
        self.record(file_name).await.report.expires_at.map(|at| at.0)
    }

    fn now(&self) -> i64 {
        self.billed.clock.now().0
    }
}

#[tokio::test]
async fn the_owner_is_told_once_with_the_time() {
    let rig = Rig::new(0).await;
    rig.webhook(&[EventType::RecordingExpiring]).await;
    rig.ready("a.mp4").await;
    // Planned, and far away: nothing is told yet.
    let at_ms = rig.now() + 40 * HOUR_MS;
    rig.deliver(testing::change("a.mp4", |recording| recording.expires_at_ms = Some(at_ms))).await;
    assert_eq!(rig.expires("a.mp4").await, Some(at_ms));
    assert_eq!((rig.waiting().await, testing::announced("a.mp4")), (vec![], vec![]));
    rig.asks("a.mp4", at_ms).await;
    let sent = rig.waiting().await;
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0]["type"], "recording.expiring");
    let expected = json!({
        "streamKeyId": rig.billed.stream.0, "label": "test", "sessionId": rig.session.as_str(),
        "startedAt": START.0 + 7_654, "destinationId": rig.billed.destinations[0].0, "fileName": "a.mp4",
        "sizeBytes": 5_000_000, "durationSeconds": 61.5, "url": "s3://bucket/a.mp4", "expiresAt": at_ms,
    });
    assert_eq!(sent[0]["data"], expected);
    assert_eq!(testing::announced("a.mp4"), [at_ms]);
    // The driver forgets it with its process, and asks again later.
    rig.billed.clock.advance(30 * HOUR);
    testing::change("a.mp4", |recording| recording.asks_notice = true);
    rig.archive.compare_all().await;
    // The claim of the delivery is over.
    let again: Vec<_> = rig.waiting().await.iter().map(|event| event["id"].clone()).collect();
    assert_eq!((again, testing::announced("a.mp4")), (vec![sent[0]["id"].clone()], vec![at_ms, at_ms]));
    rig.archive.compare_all().await;
    assert_eq!(testing::announced("a.mp4").len(), 2, "it does not ask any more");
    rig.asks("a.mp4", at_ms + HOUR_MS).await;
    assert_eq!((rig.waiting().await.len(), rig.expires("a.mp4").await), (0, Some(at_ms + HOUR_MS)));
    assert_eq!(testing::announced("a.mp4")[2], at_ms, "it may be deleted later than said, never earlier");
}

#[tokio::test]
async fn a_deletion_that_is_planned_again_is_told_again() {
    let rig = Rig::new(0).await;
    rig.webhook(&[EventType::RecordingExpiring]).await;
    rig.ready("a.mp4").await;
    let first_ms = rig.now() + 40 * HOUR_MS;
    rig.asks("a.mp4", first_ms).await;
    assert_eq!(rig.waiting().await.len(), 1);
    // It stays after all, and later it goes after all.
    rig.deliver(testing::change("a.mp4", |recording| recording.expires_at_ms = None)).await;
    assert_eq!(rig.expires("a.mp4").await, None);
    let second_ms = first_ms + HOUR_MS;
    rig.asks("a.mp4", second_ms).await;
    let expected = |at_ms: i64| (json!(at_ms), Some(at_ms));
    let told = async || (rig.waiting().await[0]["data"]["expiresAt"].clone(), rig.expires("a.mp4").await);
    assert_eq!(told().await, expected(second_ms));
    // It is moved.
    let third_ms = second_ms + 49 * HOUR_MS;
    rig.asks("a.mp4", third_ms).await;
    assert_eq!(told().await, expected(third_ms));
    assert_eq!(testing::announced("a.mp4"), [first_ms, second_ms, third_ms]);
}

#[tokio::test]
async fn a_late_notice_postpones_the_deletion() {
    let rig = Rig::new(0).await;
    rig.webhook(&[EventType::RecordingExpiring]).await;
    rig.ready("a.mp4").await;
    // Nobody was there at the time.
    let over = rig.now() - 99 * HOUR_MS;
    testing::change("a.mp4", |recording| {
        (recording.expires_at_ms, recording.asks_notice) = (Some(over), true);
    });
    let soonest = rig.now() + EXPIRY_NOTICE_MS;
    rig.archive.compare_all().await;
    assert_eq!(rig.waiting().await[0]["data"]["expiresAt"], soonest);
    assert_eq!((testing::announced("a.mp4"), rig.expires("a.mp4").await), (vec![soonest], Some(soonest)));
    // Later reports of the driver, which has its own time, do not bring it forward.
    rig.deliver(testing::change("a.mp4", |_| ())).await;
    assert_eq!(rig.expires("a.mp4").await, Some(soonest));
}

/// The process ends between the row and the driver.
#[tokio::test]
async fn a_lost_confirmation_is_repeated_without_a_second_event() {
    let rig = Rig::new(0).await;
    rig.webhook(&[EventType::RecordingExpiring]).await;
    rig.ready("a.mp4").await;
    let asks = testing::change("a.mp4", |recording| {
        (recording.expires_at_ms, recording.asks_notice) = (Some(0), true);
    });
    rig.reported_by("keeper", asks).await;
    assert_eq!(testing::announced("a.mp4"), Vec::<i64>::new());
    let told = rig.expires("a.mp4").await.unwrap();
    rig.billed.clock.advance(HOUR);
    rig.archive.compare_all().await;
    assert_eq!(testing::announced("a.mp4"), [told]);
    // A driver that does not take it is told again.
    rig.ready("deaf-b.mp4").await;
    rig.asks("deaf-b.mp4", 0).await;
    rig.archive.compare_all().await;
    let told = rig.expires("deaf-b.mp4").await.unwrap();
    assert_eq!(testing::announced("deaf-b.mp4"), [told, told]);
    let names: Vec<_> = rig.waiting().await.iter().map(|event| event["data"]["fileName"].clone()).collect();
    assert_eq!(names, [json!("a.mp4"), json!("deaf-b.mp4")]);
    // Without its row nobody can be told, so nothing is confirmed.
    let nobodys = rig.recording("c.mp4", RecordingState::Ready);
    put(Recording { session_id: "ses_nobody".into(), ..nobodys });
    testing::change("c.mp4", |recording| (recording.expires_at_ms, recording.asks_notice) = (Some(0), true));
    rig.archive.compare_all().await;
    assert_eq!(testing::announced("c.mp4"), Vec::<i64>::new());
}
