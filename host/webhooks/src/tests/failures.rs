//! Receivers with every kind of failure: the log, the retries, and when the service gives up.

use std::time::Duration;

use super::Rig;
use super::receiver::{Receiver, Reply};
use satcast_core::ids::{DeliveryId, WebhookId};
use satcast_core::secret::Redacted;
use satcast_net::outbound::GuardError;
use satcast_store::{ATTEMPTS_KEPT_MAX, DELIVERY_TRIES_MAX, DeliveryState, EventType, Page, StoreError};

const OK: Reply = Reply::Status(200, "", "thanks");
const BROKEN: Reply = Reply::Status(500, "", "");

/// Bounds of a wait of the schedule with its jitter, in milliseconds.
fn jittered(secs: i64) -> std::ops::RangeInclusive<i64> {
    secs * 800..=secs * 1_200
}

#[tokio::test]
async fn every_failure_is_logged_and_tried_again() {
    let asking = "retry-after: 1800\r\n";
    for (reply, status, words, wait) in [
        (Reply::Silent, None, "no answer within 0.4 s", jittered(5)),
        (Reply::Reset, None, "the connection broke", jittered(5)),
        (
            Reply::Status(302, "location: http://127.0.0.1:1/\r\n", ""),
            Some(302),
            "redirects are not followed",
            jittered(5),
        ),
        (Reply::Status(404, "", "who?"), Some(404), "the receiver answered 404", jittered(5)),
        (Reply::Status(500, "", "oh"), Some(500), "the receiver answered 500", jittered(5)),
        (Reply::Status(429, asking, ""), Some(429), "the receiver answered 429", 1_800_000..=1_800_000),
        (
            Reply::Status(503, "retry-after: 99999\r\n", ""),
            Some(503),
            "answered 503",
            86_400_000..=86_400_000,
        ),
    ] {
        let (rig, receiver) = (Rig::new().await, Receiver::new(reply.clone()).await);
        let webhook = rig.started_webhook(&receiver).await;
        rig.begin().await;
        assert_eq!(rig.round().await, 1);
        let delivery = rig.log(webhook).await.remove(0);
        let attempt = &delivery.attempts[0];
        assert_eq!(
            (delivery.state, attempt.status, attempt.ok),
            (DeliveryState::Pending, status, false),
            "{reply:?}"
        );
        let error = attempt.error.clone().unwrap();
        assert!(error.contains(words), "{reply:?}: {error}");
        if let Reply::Status(_, _, body) = reply {
            assert_eq!(attempt.answer, body);
        }
        let due = delivery.due_at.unwrap().0 - rig.clock.now().0;
        assert!(wait.contains(&due), "{reply:?}: due in {due} ms");
        let last = rig.view(webhook).await.last_delivery.unwrap();
        assert_eq!((last.status, last.ok), (status, false));
        receiver.answer(OK);
        rig.clock.advance(Duration::from_millis(due as u64 - 1));
        assert_eq!(rig.round().await, 0, "not before it is due");
        rig.clock.advance(Duration::from_millis(1));
        assert_eq!(rig.round().await, 1);
        let delivery = rig.log(webhook).await.remove(0);
        assert_eq!((delivery.state, delivery.due_at), (DeliveryState::Delivered, None));
        let ok: Vec<bool> = delivery.attempts.iter().map(|attempt| attempt.ok).collect();
        assert_eq!(ok, [false, true]);
        assert_eq!(delivery.attempts[1].answer, "thanks");
    }
}

#[tokio::test]
async fn a_receiver_that_is_down_is_tried_again() {
    let rig = Rig::new().await;
    let receiver = Receiver::new(OK).await;
    let webhook = rig.started_webhook(&receiver).await;
    let address = receiver.address;
    drop(receiver);
    // The port is closed when its task has ended.
    super::until(async || tokio::net::TcpListener::bind(address).await.is_ok()).await;
    rig.begin().await;
    rig.round().await;
    let delivery = rig.log(webhook).await.remove(0);
    let refused = GuardError::connection_refused(address).to_string();
    assert_eq!(delivery.attempts[0].error, Some(refused));
    assert_eq!(delivery.state, DeliveryState::Pending);
}

#[tokio::test]
async fn an_endless_body_is_cut_and_a_stalled_one_changes_nothing() {
    for (reply, kept) in [(Reply::Endless, "x".repeat(1_024)), (Reply::Stalled, "abc".to_owned())] {
        let (rig, receiver) = (Rig::new().await, Receiver::new(reply).await);
        let webhook = rig.started_webhook(&receiver).await;
        rig.begin().await;
        rig.round().await;
        let delivery = rig.log(webhook).await.remove(0);
        assert_eq!((delivery.state, &delivery.attempts[0].answer), (DeliveryState::Delivered, &kept));
    }
}

/// Advances the clock until the newest delivery is due.
async fn to_next(rig: &Rig, webhook: WebhookId) -> bool {
    let Some(due) = rig.log(webhook).await[0].due_at else { return false };
    let wait = due.0.saturating_sub(rig.clock.now().0);
    rig.clock.advance(Duration::from_millis(wait.max(0) as u64));
    true
}

#[tokio::test]
async fn a_delivery_is_given_up_after_ten_tries_with_one_event_id() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(BROKEN).await);
    let webhook = rig.started_webhook(&receiver).await;
    rig.begin().await;
    let mut tries = 0;
    while to_next(&rig, webhook).await {
        tries += rig.round().await;
        assert!(tries <= 10);
    }
    assert_eq!(tries as i64, DELIVERY_TRIES_MAX);
    assert_eq!(rig.states(webhook).await, [DeliveryState::Failed]);
    let hours = (rig.clock.now().0 - super::START.0) / 3_600_000;
    assert!((60..=91).contains(&hours), "{hours} hours, 75.6 in the middle");
    let header = |name: &str| -> Vec<String> {
        receiver.received().iter().map(|request| request.headers[name].clone()).collect()
    };
    let mut ids = header("webhook-id");
    ids.dedup();
    assert_eq!(ids.len(), 1);
    let mut times = header("webhook-timestamp");
    times.dedup();
    assert_eq!(times.len(), 10);
    assert!(rig.view(webhook).await.enabled, "one event is not enough to disable it");
}

#[tokio::test]
async fn a_410_disables_the_webhook_and_cancels_pending_deliveries() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(BROKEN).await);
    let webhook = rig.started_webhook(&receiver).await;
    rig.begin().await;
    rig.round().await;
    receiver.answer(Reply::Status(410, "", ""));
    rig.begin().await;
    rig.round().await;
    assert_eq!(rig.states(webhook).await, [DeliveryState::Failed, DeliveryState::Cancelled]);
    let view = rig.view(webhook).await;
    assert!(!view.enabled && view.disabled_reason.unwrap().contains("410"));
    rig.begin().await;
    assert_eq!(rig.log(webhook).await.len(), 2, "a disabled webhook gets no events");
    let newest = rig.log(webhook).await[0].id;
    let again = async |delivery| rig.store.redeliver(&rig.actor(), webhook, delivery).await;
    assert!(matches!(again(newest).await, Err(StoreError::WebhookDisabled)));
    rig.store.enable_webhook(&rig.actor(), webhook).await.unwrap();
    assert!(matches!(again(DeliveryId(99)).await, Err(StoreError::NotFound("delivery"))));
    receiver.answer(OK);
    for delivery in rig.log(webhook).await {
        again(delivery.id).await.unwrap();
    }
    assert_eq!(rig.round().await, 2);
    assert_eq!(rig.states(webhook).await, [DeliveryState::Delivered; 2]);
    let ids: Vec<_> =
        receiver.received().iter().map(|request| request.headers["webhook-id"].clone()).collect();
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 2, "the same ids again: {ids:?}");
    assert_eq!(rig.view(webhook).await.disabled_reason, None);
}

#[tokio::test]
async fn days_of_failures_disable_a_webhook_unless_one_succeeds() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(BROKEN).await);
    let webhook = rig.started_webhook(&receiver).await;
    let hour = Duration::from_secs(60 * 60);
    let fail_for = async |hours: usize| {
        for _ in 0..hours {
            rig.begin().await;
            rig.round().await;
            rig.clock.advance(hour);
        }
    };
    fail_for(5 * 24).await;
    assert!(rig.view(webhook).await.enabled, "not quite five days");
    receiver.answer(OK);
    rig.begin().await;
    rig.round().await;
    receiver.answer(BROKEN);
    fail_for(5 * 24).await;
    assert!(rig.view(webhook).await.enabled, "the success counts");
    fail_for(2).await;
    let view = rig.view(webhook).await;
    assert!(!view.enabled && view.disabled_reason.unwrap().contains("5 days"));
}

#[tokio::test]
async fn a_repeated_delivery_is_tried_once_and_keeps_its_newest_attempts() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let webhook = rig.started_webhook(&receiver).await;
    rig.begin().await;
    rig.round().await;
    let delivery = rig.log(webhook).await[0].id;
    receiver.answer(BROKEN);
    for _ in 0..ATTEMPTS_KEPT_MAX {
        rig.store.redeliver(&rig.actor(), webhook, delivery).await.unwrap();
        assert_eq!(rig.round().await, 1);
    }
    let log = rig.log(webhook).await.remove(0);
    assert_eq!(log.state, DeliveryState::Failed, "once more, without a schedule");
    assert_eq!(log.attempts.len() as i64, ATTEMPTS_KEPT_MAX);
    assert!(log.attempts.iter().all(|attempt| !attempt.ok), "the oldest attempts were dropped");
}

#[tokio::test]
async fn a_pending_delivery_is_tried_earlier_on_request() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(BROKEN).await);
    let webhook = rig.started_webhook(&receiver).await;
    rig.begin().await;
    rig.round().await;
    assert_eq!(rig.round().await, 0);
    let delivery = rig.log(webhook).await[0].id;
    rig.store.redeliver(&rig.actor(), webhook, delivery).await.unwrap();
    assert_eq!(rig.round().await, 1);
    let due = rig.log(webhook).await[0].due_at.unwrap().0 - rig.clock.now().0;
    assert!(jittered(300).contains(&due), "it was the second try of the schedule: {due}");
}

#[tokio::test]
async fn the_log_is_kept_for_thirty_days() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let webhook = rig.started_webhook(&receiver).await;
    rig.begin().await;
    rig.round().await;
    let waiting = rig.webhook(&receiver.url(), &[EventType::StreamEnded], None).await;
    let session = rig.begin().await;
    rig.end(&session).await;
    rig.clock.advance(Duration::from_secs(30 * 24 * 60 * 60));
    rig.webhooks.prune().await;
    assert_eq!(rig.log(webhook).await.len(), 2, "not yet");
    rig.clock.advance(Duration::from_millis(1));
    rig.webhooks.prune().await;
    assert_eq!(rig.states(webhook).await, [DeliveryState::Pending], "a pending delivery stays");
    assert_eq!(rig.states(waiting).await, [DeliveryState::Pending]);
    rig.round().await;
    rig.webhooks.prune().await;
    assert!(rig.log(webhook).await.is_empty() && rig.log(waiting).await.is_empty());
    assert!(rig.view(webhook).await.last_delivery.is_some());
}

#[tokio::test]
async fn a_deleted_webhook_is_hidden_at_once_and_its_log_is_deleted_in_parts() {
    const LOG: i64 = 450;
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let webhook = rig.webhook(&receiver.url(), &[EventType::StreamStarted], Some("sixteen letters!")).await;
    let kept = rig.webhook(&receiver.url(), &[EventType::StreamStarted], None).await;
    let mut intruder = rig.intruder().await;
    rig.begin().await;
    intruder.repeat_deliveries(LOG - 1).await;
    assert_eq!(rig.round().await, 8);
    rig.store.delete_webhook(&rig.actor(), webhook).await.unwrap();
    assert_eq!(intruder.deliveries_of(webhook).await, LOG, "the log is not deleted at once");
    let views = rig.store.webhooks_of(rig.account, Page::ALL).await.unwrap();
    assert_eq!(views.iter().map(|view| view.id).collect::<Vec<_>>(), [kept]);
    let (account, actor) = (rig.account, rig.actor());
    let again = Redacted::new("another sixteen letters".to_owned());
    let log = rig.store.deliveries_of(account, webhook, None, Page::ALL).await;
    assert!(matches!(log, Err(StoreError::NotFound("webhook"))));
    assert!(rig.store.enable_webhook(&actor, webhook).await.is_err());
    assert!(rig.store.rotate_webhook_secret(&actor, webhook, &again).await.is_err());
    assert!(rig.store.delete_webhook(&actor, webhook).await.is_err(), "once");
    assert!(rig.webhooks.test(account, webhook).await.is_err());
    assert!(rig.webhooks.claim(64).await.unwrap().iter().all(|job| job.webhook == kept));
    rig.begin().await;
    assert_eq!(intruder.deliveries_of(webhook).await, LOG, "a deleted webhook gets no events");
    for left in [LOG - 200, LOG - 400, 0] {
        assert!(rig.store.prune_webhooks().await.unwrap());
        assert_eq!(intruder.deliveries_of(webhook).await, left);
    }
    assert!(!rig.store.prune_webhooks().await.unwrap());
    assert_eq!(intruder.deliveries_of(kept).await, LOG + 1);
}
