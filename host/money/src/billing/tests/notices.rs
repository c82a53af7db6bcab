//! Webhook events about limits and balances.

use std::time::Duration;

use serde_json::{Value, json};

use crate::billing::overage::GB_BYTES;
use crate::billing::testing::{Rig, START, TRIES_MAX};
use satcast_core::ids::{EndReason, Msat, UnixMillis};
use satcast_core::secret::Redacted;
use satcast_store::{Actor, EventType, NewWebhook, SendingCaps, SingleCharge, StreamLimits};

/// Each credit needs its own time.
const SECOND: Duration = Duration::from_secs(1);
const TOLD: [EventType; 3] = [EventType::LimitWarning, EventType::LimitReached, EventType::BalanceLow];

impl Rig {
    async fn webhook(&self) {
        let new = NewWebhook {
            stream_id: None,
            url: Redacted::new("https://a.example/in".into()),
            host: "a.example".into(),
            events: TOLD.to_vec(),
            secret: None,
            cap: 9,
        };
        self.store.create_webhook(&Actor::command(self.account, START), new).await.unwrap();
    }

    /// Name and data of each pending event, as soon as there are this many.
    async fn events(&self, count: usize) -> Vec<(String, Value)> {
        let caps = SendingCaps { per_webhook: 99, per_host: 99, per_account: 99 };
        let mut events = Vec::new();
        for _ in 0..TRIES_MAX {
            let now = self.clock.now();
            let until = UnixMillis(now.0 + 3_600_000);
            for job in self.store.claim_deliveries(now, until, 99, caps).await.unwrap() {
                let mut body: Value = serde_json::from_slice(&job.body).unwrap();
                events.push((body["type"].as_str().unwrap().to_owned(), body["data"].take()));
            }
            if events.len() >= count {
                return events;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("only {events:?} were emitted");
    }
}

#[tokio::test]
async fn webhooks_get_low_balance_budget_warning_and_used_up_budget() {
    let rig = Rig::new(24).await;
    rig.webhook().await;
    let session = rig.begin(Some(10)).await;
    session.on(0).await;
    session.on(1).await;
    let started = rig.clock.now().0;
    let mut about = json!({"streamKeyId": rig.stream.0, "label": "test", "sessionId": session.id.as_str(),
                           "startedAt": started});
    for secs in [61, 121, 150] {
        session.at(secs).await;
    }
    assert_eq!(rig.events(1).await, [("balance.low".to_owned(), json!({"balance": 18}))]);
    session.at(181).await;
    about["limit"] = json!("maxSats");
    assert_eq!(rig.events(1).await, [("limit.warning".to_owned(), about.clone())]);
    session.at(241).await;
    session.at(301).await;
    assert_eq!((session.end(), session.sats().await), (Some(EndReason::MaxSats), 10));
    session.usage.ends(session.now());
    session.usage.settled().await;
    for _ in 0..2 {
        rig.store.end_session(&session.id, rig.clock.now(), EndReason::MaxSats).await.unwrap();
    }
    assert_eq!(rig.events(1).await, [("limit.reached".to_owned(), about)], "each event is emitted once");
}

#[tokio::test]
async fn a_fall_below_the_threshold_is_reported_once_and_again_after_a_refill() {
    let rig = Rig::new(25).await;
    rig.webhook().await;
    let low = |balance: i64| [("balance.low".to_owned(), json!({ "balance": balance }))];
    let session = rig.serving(&[0], None).await;
    // Five sats for each of the three: the second charge leaves fifteen; the third crosses no threshold.
    for gigabytes in [11, 1, 1] {
        rig.sent(0, gigabytes * GB_BYTES, 0).await;
        rig.billing.bill_playback().await;
    }
    assert_eq!((rig.events(1).await, rig.balance().await), (low(15).into(), 10_000));
    rig.clock.advance(SECOND);
    rig.credit(9).await;
    rig.sent(0, GB_BYTES, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!(rig.events(0).await, [], "the balance was never above the threshold");
    rig.clock.advance(SECOND);
    rig.credit(10).await;
    // All at once, and more than the balance.
    rig.sent(0, 100 * GB_BYTES, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!((rig.events(1).await, rig.balance().await), (low(0).into(), 0));
    assert_eq!(session.end(), Some(EndReason::InsufficientFunds));
    let fee = SingleCharge {
        account: rig.account,
        amount: Msat(6_000),
        kind: "recovery",
        idem: "recovery:1:1".into(),
        destination: None,
        now: rig.clock.now(),
    };
    rig.clock.advance(SECOND);
    rig.credit(25).await;
    rig.store.charge_once(&fee).await.unwrap();
    assert_eq!(rig.events(1).await, low(19));
}

#[tokio::test]
async fn only_sessions_that_end_at_a_limit_report_limit_reached() {
    let rig = Rig::new(100).await;
    rig.webhook().await;
    for (reason, limit) in [
        (EndReason::InsufficientFunds, None),
        (EndReason::Stopped, None),
        (EndReason::MaxDuration, Some("maxDurationMinutes")),
    ] {
        let session = rig.begin_of(rig.stream, StreamLimits::default()).await;
        session.usage.ends(session.now());
        session.usage.settled().await;
        rig.store.end_session(&session.id, rig.clock.now(), reason).await.unwrap();
        let events = rig.events(usize::from(limit.is_some())).await;
        let limits: Vec<_> = events.iter().map(|(_, data)| data["limit"].as_str()).collect();
        assert_eq!(limits, limit.map(Some).into_iter().collect::<Vec<_>>(), "{reason}");
    }
}
