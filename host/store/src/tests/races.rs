//! Concurrent transactions: the decision of one transaction holds whatever the others do.

use std::sync::Arc;

use futures_util::future::join_all;

use super::*;
use crate::ledger::check::check;
use crate::{
    AuditFilter, Bandwidth, Begun, Charged, EventType, HourDecision, HourFacts, HourTerms, IdempotentRequest,
    LimitChange, LimitsChange, MinuteCharge, NewWebhook, OveragePart, SendingCaps, Slot, StreamChange,
};
use satcast_core::ids::{HOUR_MS, Sats, WebhookId};

/// More than there are connections.
const RACERS: usize = 24;

/// Runs tasks that start together.
async fn race<T: Send + 'static, F: Future<Output = T> + Send + 'static>(run: impl Fn(usize) -> F) -> Vec<T> {
    let tasks: Vec<_> = (0..RACERS).map(|racer| tokio::spawn(run(racer))).collect();
    join_all(tasks).await.into_iter().map(|done| done.unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn caps_hold() {
    let rig = Arc::new(Rig::new().await);
    let account = rig.account("me", 0).await.unwrap();
    let capped = |made: usize, outcome: &Vec<bool>| {
        assert_eq!(outcome.iter().filter(|made| **made).count(), made, "{outcome:?}");
    };
    let racing = rig.clone();
    let streams = race(move |_| {
        let rig = racing.clone();
        async move { rig.stream(account, 1).await.is_ok() }
    });
    capped(3, &streams.await);
    let stream = rig.store.streams_of(account, ALL).await.unwrap()[0].stream.id;
    let racing = rig.clone();
    let destinations = race(move |_| {
        let rig = racing.clone();
        async move { rig.store.add_destination(&by(account), stream, target(), CAPS).await.is_ok() }
    });
    capped(2, &destinations.await);
    let racing = rig.clone();
    let keys = race(move |_| {
        let rig = racing.clone();
        let key = NewKey {
            login: None,
            kind: KeyKind::Permanent,
            key: new_api_key(KeyKind::Permanent),
            scopes: Scopes::ALL,
            destination_id: None,
            label: String::new(),
            caps: CAPS,
        };
        async move { rig.store.create_key(&by(account), key).await.is_ok() }
    });
    capped(2, &keys.await);
    let racing = rig.clone();
    let webhooks = race(move |_| {
        let rig = racing.clone();
        async move { rig.store.create_webhook(&by(account), webhook()).await.is_ok() }
    });
    capped(5, &webhooks.await);
}

fn webhook() -> NewWebhook {
    NewWebhook {
        stream_id: None,
        url: Redacted::new("https://a.example/hook".to_owned()),
        host: "a.example".into(),
        events: vec![EventType::StreamStarted],
        secret: None,
        cap: 5,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_one_key_begins_once() {
    let rig = Arc::new(Rig::new().await);
    let account_id = rig.account("me", 0).await.unwrap();
    let request = IdempotentRequest { account_id, request_hash: [1; 32], body_hash: [2; 32], now: NOW };
    let racing = rig.clone();
    let begun = race(move |_| {
        let rig = racing.clone();
        async move { rig.store.begin_request(request).await.unwrap() }
    })
    .await;
    let new = begun.iter().filter(|begun| matches!(begun, Begun::New(_))).count();
    let waiting = begun.iter().filter(|begun| matches!(begun, Begun::InProgress)).count();
    assert_eq!((new, waiting), (1, RACERS - 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_one_account_have_ids_in_their_order() {
    let rig = Arc::new(Rig::new().await);
    let account = rig.account("me", 0).await.unwrap();
    let (stream, _) = rig.stream(account, 0).await.unwrap();
    let racing = rig.clone();
    race(move |racer| {
        let rig = racing.clone();
        let max_sats = LimitChange::Set(racer as i64 + 1);
        let change = LimitsChange { max_sats, max_duration_minutes: LimitChange::Keep };
        async move { rig.store.change_limits(&by(account), stream, change).await.unwrap() }
    })
    .await;
    let filter = AuditFilter { action: Some("stream.limits_changed".into()), ..AuditFilter::default() };
    let mut log = rig.store.audit(filter, ALL).await.unwrap();
    log.reverse();
    assert_eq!(log.len(), RACERS);
    for pair in log.windows(2) {
        assert_eq!(pair[0].detail["after"], pair[1].detail["before"], "each saw the one before it");
    }
}

/// Sessions of one account that are charged while playback is billed.
struct Spending {
    rig: Rig,
    account: AccountId,
    sessions: Vec<(SessionId, Vec<DestinationId>)>,
}

const HOUR: UnixMillis = UnixMillis(500_000 * HOUR_MS);

impl Spending {
    async fn new(credit: i64) -> Self {
        let rig = Rig::new().await;
        let account = rig.account("me", credit).await.unwrap();
        let mut sessions = Vec::new();
        for _ in 0..3 {
            let (stream_id, destinations) = rig.stream(account, 2).await.unwrap();
            let (id, terms) = (new_session_id(), Terms { price: Msat(2_000), free: 0 });
            let new = NewSession { id: id.clone(), stream_id, started_at: NOW, terms };
            rig.store.begin_session(new).await.unwrap();
            sessions.push((id, destinations));
        }
        Self { rig, account, sessions }
    }

    async fn minute(&self, racer: usize, minute: u64) -> Charged {
        let (session, destinations) = &self.sessions[racer % 3];
        let slot = |slot: u32| Slot { slot, destination: destinations[slot as usize] };
        let slots = if racer.is_multiple_of(2) { vec![slot(0), slot(1)] } else { vec![slot(1), slot(0)] };
        let charge = MinuteCharge {
            session: session.clone(),
            minute,
            slots,
            price: Msat(2_000),
            budget: None,
            now: NOW,
        };
        self.rig.store.charge_minute(&charge).await.unwrap()
    }

    async fn playback(&self) {
        let served = self.sessions.iter().rev().flat_map(|(_, destinations)| destinations.clone());
        let row =
            |destination| Bandwidth { account: self.account, destination, hour_start: HOUR, bytes: 1_000 };
        let rows: Vec<Bandwidth> = served.map(row).collect();
        self.rig.store.add_bandwidth(&rows).await.unwrap();
        let terms = HourTerms { price_per_gb: Msat(1), limit_bytes: 0 };
        self.rig.store.bill_hour(self.account, HOUR, terms, NOW, &decide).await.unwrap();
    }
}

/// Charges one sat for every part while the balance lasts.
fn decide(facts: &HourFacts) -> HourDecision {
    let mut left = facts.balance.0;
    let part = |served: &crate::Served| {
        let pays = left >= 1_000;
        left -= if pays { 1_000 } else { 0 };
        OveragePart {
            session: served.session.as_ref().map(|session| session.id.clone()),
            destination: served.destination,
            charge: Msat(if pays { 1_000 } else { 0 }),
            waive: Msat(if pays { 0 } else { 1_000 }),
        }
    };
    HourDecision { parts: facts.served.iter().map(part).collect(), ..HourDecision::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balance_is_spent_once_by_minutes_and_playback_together() {
    let spending = Arc::new(Spending::new(40_000).await);
    let racing = spending.clone();
    race(move |racer| {
        let spending = racing.clone();
        async move {
            for minute in 0..6 {
                spending.minute(racer, minute).await;
                spending.playback().await;
            }
        }
    })
    .await;
    let balance = spending.rig.store.balance(spending.account).await.unwrap();
    assert!((0..4_000).contains(&balance.0), "spent down to: {balance}");
    let report = check(&spending.rig.store.0.readers).await.unwrap();
    assert_eq!(report.faults, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn due_deliveries_are_claimed_once_and_within_the_caps() {
    let rig = Arc::new(Rig::new().await);
    let account = rig.account("me", 0).await.unwrap();
    let (stream_id, _) = rig.stream(account, 0).await.unwrap();
    let id: WebhookId = rig.store.create_webhook(&by(account), webhook()).await.unwrap();
    for _ in 0..40 {
        let new = NewSession { id: new_session_id(), stream_id, started_at: NOW, terms: Terms::default() };
        rig.store.begin_session(new).await.unwrap();
    }
    let racing = rig.clone();
    let claimed = race(move |_| {
        let rig = racing.clone();
        let caps = SendingCaps { per_webhook: 10, per_host: 10, per_account: 10 };
        let until = UnixMillis(NOW.0 + 60_000);
        async move { rig.store.claim_deliveries(NOW, until, 4, caps).await.unwrap() }
    })
    .await;
    let mut claimed: Vec<_> = claimed.into_iter().flatten().map(|job| (job.webhook, job.delivery)).collect();
    assert!(claimed.iter().all(|(webhook, _)| *webhook == id));
    claimed.sort_unstable();
    claimed.dedup();
    assert_eq!(claimed.len(), 10, "at most as many as may be in flight, and none twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn credit_under_one_name_is_given_once() {
    let rig = Arc::new(Rig::new().await);
    let account = rig.account("me", 0).await.unwrap();
    let racing = rig.clone();
    race(move |racer| {
        let rig = racing.clone();
        async move { rig.store.credit(&by(account), Sats(5), format!("gift{}", racer % 2)).await.unwrap() }
    })
    .await;
    assert_eq!(rig.store.balance(account).await.unwrap(), Msat(10_000));
}

#[tokio::test]
async fn texts_with_a_nul_are_read_back() {
    let rig = Rig::new().await;
    let account = rig.account("me", 0).await.unwrap();
    let (stream, _) = rig.stream(account, 0).await.unwrap();
    let change = StreamChange { label: Some("a\0b".into()), ..Default::default() };
    rig.store.change_stream(&by(account), stream, change).await.unwrap();
    let label = rig.store.stream(stream).await.unwrap().unwrap().label;
    let expected = match rig.store.0.writer {
        Pool::Sqlite(_) => "a\0b",
        Pool::Postgres(_) => "a\u{FFFD}b",
    };
    assert_eq!(label, expected);
}
