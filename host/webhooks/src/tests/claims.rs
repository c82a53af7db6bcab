//! Claims: a delivery has one sender at a time, none is lost with its sender, and slow receivers delay nobody else.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::oneshot;

use super::receiver::{Receiver, Reply};
use super::{BOTH, Rig, until};
use crate::{CAPS, LEASE, SENDING_MAX};
use satcast_core::config::Durability;
use satcast_core::ids::Msat;
use satcast_core::secret::Vault;
use satcast_store::{DeliveryState, EventType, Health, OpenOptions, Settled, StoreError};

const OK: Reply = Reply::Status(204, "", "");

#[tokio::test]
async fn a_delivery_has_one_sender_at_a_time() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    for _ in 0..4 {
        rig.started_webhook(&receiver).await;
    }
    rig.begin().await;
    rig.begin().await;
    let claims = futures_util::future::join_all((0..8).map(|_| rig.webhooks.claim(3))).await;
    let ids: Vec<i64> = claims.into_iter().flat_map(Result::unwrap).map(|job| job.delivery.0).collect();
    assert_eq!(ids.len(), 8, "all of them");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 8, "each once: {ids:?}");
}

#[tokio::test]
async fn a_claim_without_capacity_does_not_wait_for_the_writer() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    rig.started_webhook(&receiver).await;
    for _ in 0..=CAPS.per_webhook {
        rig.begin().await;
    }
    assert_eq!(rig.webhooks.claim(9).await.unwrap().len(), CAPS.per_webhook);
    let mut intruder = rig.intruder().await;
    intruder.keep_from_writing().await;
    assert!(rig.webhooks.claim(9).await.unwrap().is_empty(), "all its slots are taken");
    intruder.let_write().await;
}

/// The due deliveries of one host or one account could fill all that a claim considers.
#[tokio::test]
async fn a_dead_host_and_an_account_with_many_webhooks_do_not_delay_others() {
    for (is_one_host, taken) in [(true, CAPS.per_host), (false, CAPS.per_account)] {
        let rig = Rig::new().await;
        for number in 0..260 {
            let host = if is_one_host { "dead".to_owned() } else { format!("dead-{number}") };
            rig.webhook(&format!("https://{host}.example/in"), &[EventType::StreamStarted], None).await;
        }
        for _ in 0..CAPS.per_webhook {
            rig.begin().await;
        }
        let (other, stream) = rig.other().await;
        let url = "https://lively.example/in";
        let lively = rig.webhook_of(other, None, url, &[EventType::StreamStarted], None).await;
        rig.clock.advance(Duration::from_secs(1));
        rig.begin_of(stream).await;
        let jobs = rig.webhooks.claim(SENDING_MAX).await.unwrap();
        assert_eq!(jobs.len(), taken + 1);
        assert_eq!(jobs.last().map(|job| job.webhook), Some(lively), "it was due last");
        rig.begin_of(stream).await;
        assert_eq!(rig.webhooks.claim(SENDING_MAX).await.unwrap().len(), 1, "beside those in flight too");
    }
}

#[tokio::test]
async fn failing_receivers_delay_only_each_other() {
    let rig = Rig::new().await;
    for number in 0..20 {
        let url = format!("https://dead-{}.example/in", number % 2);
        rig.webhook(&url, &[EventType::StreamStarted], None).await;
    }
    satcast_store::testing::Intruder::open(&rig.folder.path().join("t.db")).await.fail_webhooks().await;
    for _ in 0..CAPS.per_webhook {
        rig.begin().await;
    }
    assert_eq!(rig.webhooks.claim(SENDING_MAX).await.unwrap().len(), CAPS.per_account);
    let mut working = Vec::new();
    for url in ["https://lively.example/in", "https://dead-0.example/other-port"] {
        working.push(rig.webhook(url, &[EventType::StreamStarted], None).await);
    }
    rig.begin().await;
    let jobs = rig.webhooks.claim(SENDING_MAX).await.unwrap();
    assert_eq!(jobs.iter().map(|job| job.webhook).collect::<Vec<_>>(), working, "nobody else has a slot");
}

#[tokio::test]
async fn deliveries_of_a_dead_sender_are_sent_by_another() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let webhook = rig.started_webhook(&receiver).await;
    rig.begin().await;
    let dead = rig.webhooks.claim(9).await.unwrap().remove(0);
    rig.begin().await;
    let alive = rig.webhooks.claim(9).await.unwrap().remove(0);
    assert_eq!(rig.round().await, 0);
    rig.clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(rig.round().await, 0, "it may still be sending");
    rig.clock.advance(Duration::from_millis(1));
    assert_eq!(rig.round().await, 2);
    let both = [DeliveryState::Delivered, DeliveryState::Delivered];
    assert_eq!(rig.states(webhook).await, both);
    rig.begin().await;
    let own = rig.webhooks.claim(9).await.unwrap().remove(0);
    let late = Settled {
        at: rig.clock.now(),
        duration_ms: 1,
        status: None,
        answer: String::new(),
        error: Some("late".into()),
        retry_at: None,
        health: Health::Unknown,
    };
    let done = [(dead, late.clone()), (own, Settled { error: None, ..late.clone() }), (alive, late)];
    let ours = rig.store.finish_deliveries(&done).await.unwrap();
    assert_eq!(ours, [false, true, false], "two claims are lost, and do not affect the third");
    let log = rig.log(webhook).await;
    assert!(
        log.iter().all(|one| one.state == DeliveryState::Delivered && one.attempts.len() == 1),
        "{log:?}"
    );
    assert_eq!(log.len(), 3);
}

#[tokio::test]
async fn claims_of_an_earlier_process_are_sent_at_once() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let webhook = rig.started_webhook(&receiver).await;
    rig.begin().await;
    rig.begin().await;
    let held = rig.webhooks.claim(1).await.unwrap().remove(0);
    assert_eq!(rig.store.release_deliveries().await.unwrap(), 1);
    assert_eq!(rig.round().await, 2);
    assert_eq!(rig.states(webhook).await, [DeliveryState::Delivered; 2]);
    rig.webhooks.deliver(held).await.unwrap();
    assert!(
        rig.log(webhook).await.iter().all(|one| one.attempts.len() == 1),
        "a late result is not recorded"
    );
    assert_eq!(rig.store.release_deliveries().await.unwrap(), 0);
}

#[tokio::test]
async fn a_deleted_webhook_gets_nothing_and_a_late_result_changes_nothing() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let webhook = rig.started_webhook(&receiver).await;
    rig.begin().await;
    rig.begin().await;
    let job = rig.webhooks.claim(1).await.unwrap().remove(0);
    rig.store.delete_webhook(&rig.actor(), webhook).await.unwrap();
    rig.webhooks.deliver(job).await.unwrap();
    assert_eq!(rig.round().await, 0, "the pending delivery is gone");
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn an_unreadable_delivery_is_given_up_and_delays_nothing() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let damaged = rig.started_webhook(&receiver).await;
    rig.started_webhook(&receiver).await;
    rig.begin().await;
    let file = rig.folder.path().join("t.db");
    satcast_store::testing::Intruder::open(&file).await.damage_webhook(damaged.0).await;
    assert_eq!(rig.round().await, 1);
    assert_eq!(rig.states(damaged).await, [DeliveryState::Failed]);
}

#[tokio::test]
async fn slow_receivers_do_not_delay_others_and_the_worker_stops_in_order() {
    // If others waited for the slow ones, it would take longer than this test waits.
    let rig = Rig::with_limit(Duration::from_secs(3)).await;
    let (slow, fast) = (Receiver::at("127.0.0.2", Reply::Silent, None).await, Receiver::new(OK).await);
    for _ in 0..2 {
        rig.webhook(&slow.url(), BOTH, None).await;
    }
    let webhook = rig.webhook(&fast.url(), BOTH, None).await;
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(rig.begin().await);
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = tokio::spawn(rig.webhooks.clone().keep_sending(async {
        let _ = stopped.await;
    }));
    until(async || fast.received().len() >= 20).await;
    // An event of now wakes the worker.
    rig.end(&sessions[0]).await;
    until(async || fast.received().len() >= 21).await;
    stop.send(()).unwrap();
    worker.await.unwrap();
    assert_eq!(rig.states(webhook).await, [DeliveryState::Delivered; 21]);
    assert!(slow.received().len() >= 8, "they were tried, too");
    assert!(rig.webhooks.claim(9).await.unwrap().iter().all(|job| job.webhook != webhook));
}

#[tokio::test]
async fn a_key_that_cannot_read_the_webhooks_is_refused_at_the_start() {
    let rig = Rig::new().await;
    rig.webhook("https://a.example", BOTH, None).await;
    let file = rig.folder.path().join("t.db");
    let open = async |key| {
        let url = satcast_store::testing::url(&file).await;
        satcast_store::open(OpenOptions {
            url,
            durability: Durability::Normal,
            vault: Vault::new(&[key; 32]),
            low_balance: Msat(0),
        })
        .await
    };
    satcast_store::testing::Intruder::open(&file).await.forget_streams().await;
    assert!(matches!(open(8).await, Err(StoreError::Vault(_))));
    assert!(open(7).await.is_ok());
}
