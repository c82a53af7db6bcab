//! What webhooks are told of limits and balances.

use std::time::Duration;

use serde_json::{Value, json};

use crate::billing::overage::GB_BYTES;
use crate::billing::testing::{Rig, START, TRIES_MAX};
use satcast_core::ids::{EndReason, Msat, UnixMillis};
use satcast_core::secret::Redacted;
use satcast_store::{Actor, EventType, NewWebhook, SendingCaps, SingleCharge, StreamLimits};

/// Credit is told apart by its time.
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

    /// Name and data of each event that is to be sent, as soon as there are so many.
    async fn told(&self, count: usize) -> Vec<(String, Value)> {
        let caps = SendingCaps { per_webhook: 99, per_host: 99, per_account: 99 };
        let mut told = Vec::new();
        for _ in 0..TRIES_MAX {
            let now = self.clock.now();
            let until = UnixMillis(now.0 + 3_600_000);
            for job in self.store.claim_deliveries(now, until, 99, caps).await.unwrap() {
                let mut body: Value = serde_json::from_slice(&job.body).unwrap();
                told.push((body["type"].as_str().unwrap().to_owned(), body["data"].take()));
            }
            if told.len() >= count {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("{told:?} is all that is told");
    }
}

#[tokio::test]
async fn webhooks_hear_of_a_low_balance_and_of_a_budget_that_is_nearly_and_wholly_used() {
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
    assert_eq!(rig.told(1).await, [("balance.low".to_owned(), json!({"balance": 18}))]);
    session.at(181).await;
    about["limit"] = json!("maxSats");
    assert_eq!(rig.told(1).await, [("limit.warning".to_owned(), about.clone())]);
    session.at(241).await;
    session.at(301).await;
    assert_eq!((session.end(), session.sats().await), (Some(EndReason::MaxSats), 10));
    session.usage.ends(session.now());
    session.usage.settled().await;
    for _ in 0..2 {
        rig.store.end_session(&session.id, rig.clock.now(), EndReason::MaxSats).await.unwrap();
    }
    assert_eq!(rig.told(1).await, [("limit.reached".to_owned(), about)], "each is told once");
}

#[tokio::test]
async fn whatever_takes_the_balance_below_the_threshold_is_told_once_and_again_after_it_was_above() {
    let rig = Rig::new(25).await;
    rig.webhook().await;
    let told = |balance: i64| [("balance.low".to_owned(), json!({ "balance": balance }))];
    let session = rig.serving(&[0], None).await;
    // Five sats for each of the three: the second leaves fifteen, and the third is no news.
    for gigabytes in [11, 1, 1] {
        rig.sent(0, gigabytes * GB_BYTES, 0).await;
        rig.billing.bill_playback().await;
    }
    assert_eq!((rig.told(1).await, rig.balance().await), (told(15).into(), 10_000));
    rig.clock.advance(SECOND);
    rig.credit(9).await;
    rig.sent(0, GB_BYTES, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!(rig.told(0).await, [], "it never was above");
    rig.clock.advance(SECOND);
    rig.credit(10).await;
    // All at once, and more than there is.
    rig.sent(0, 100 * GB_BYTES, 0).await;
    rig.billing.bill_playback().await;
    assert_eq!((rig.told(1).await, rig.balance().await), (told(0).into(), 0));
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
    assert_eq!(rig.told(1).await, told(19));
}

#[tokio::test]
async fn only_a_session_that_ends_at_a_limit_is_told_to_have_reached_it() {
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
        let told = rig.told(usize::from(limit.is_some())).await;
        let limits: Vec<_> = told.iter().map(|(_, data)| data["limit"].as_str()).collect();
        assert_eq!(limits, limit.map(Some).into_iter().collect::<Vec<_>>(), "{reason}");
    }
}
