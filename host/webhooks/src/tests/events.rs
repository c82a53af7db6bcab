//! The events that receivers get, their causes, and their signatures.

use std::time::Duration;

use serde_json::json;

use super::receiver::{Receiver, Reply};
use super::{BOTH, Rig, START, json};
use crate::sign;
use satcast_core::ids::{DestinationId, EndReason, Msat, UnixMillis};
use satcast_core::secret::Redacted;
use satcast_store::{
    Actor, Bandwidth, Caps, DeliveryState, EventType, NewAccount, NewDestination, Origin,
    WAITING_PER_WEBHOOK_MAX,
};

const OK: Reply = Reply::Status(204, "", "");
const SECRET: &str = "sixteen letters!";

impl Rig {
    async fn destination(&self) -> DestinationId {
        let new = NewDestination {
            kind: "self-hosted".into(),
            platform: "self-hosted".into(),
            config: json!({}),
            has_playback: true,
            delays: Default::default(),
        };
        let caps = Caps { destinations_per_stream: 9, streams_per_account: 9, keys_per_account: 9 };
        self.store
            .add_destination(&Actor::command(self.account, START), self.stream, new, caps)
            .await
            .unwrap()
    }

    async fn watched(&self, destination: DestinationId, bytes: u64) {
        let hour_start = self.clock.now().hour_start();
        let sent = Bandwidth { destination, account: self.account, hour_start, bytes };
        self.store.add_bandwidth(&[sent]).await.unwrap();
    }
}

#[tokio::test]
async fn session_events_have_data_and_cost_of_the_session() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let webhook = rig.webhook(&receiver.url(), BOTH, Some(SECRET)).await;
    let destination = rig.destination().await;
    rig.watched(destination, 5_000_000_000).await;
    let session = rig.begin().await;
    rig.store.begin_forwarding(&session, &[destination], rig.clock.now()).await.unwrap();
    assert_eq!(rig.round().await, 1);
    rig.watched(destination, 1_234_567_890).await;
    rig.clock.advance(Duration::from_millis(127_500));
    rig.end(&session).await;
    rig.end(&session).await;
    assert_eq!(rig.round().await, 1, "the first end stays and emits one event");
    let [started, ended] = &receiver.received()[..] else { panic!("two requests") };
    let about = json!({"streamKeyId": rig.stream.0, "label": "gala", "sessionId": session.as_str(),
                       "startedAt": START.0});
    let body = json(&started.body);
    assert_eq!(
        body,
        json!({"id": started.headers["webhook-id"], "type": "stream.started",
               "timestamp": "2027-01-15T08:00:00.000Z", "data": about})
    );
    let mut expected = about;
    let end = START.0 + 127_500;
    expected["endedAt"] = json!(end);
    expected["durationMinutes"] = json!(2);
    expected["durationSeconds"] = json!(7);
    expected["totalCostSats"] = json!(0);
    expected["bandwidthGB"] = json!(1.23456789);
    expected["endReason"] = json!("stopped");
    expected["destinations"] = json!([{"destinationId": destination.0, "platform": "self-hosted",
        "startedAt": START.0, "endedAt": end, "totalCostSats": 0}]);
    let body = json(&ended.body);
    assert_eq!(body["data"], expected);
    assert_eq!(
        (&body["type"], &body["timestamp"]),
        (&json!("stream.ended"), &json!("2027-01-15T08:02:07.500Z"))
    );
    for (request, now) in [(started, START), (ended, UnixMillis(end))] {
        let headers = &request.headers;
        assert_eq!(request.line, "POST /in?token=t HTTP/1.1");
        assert_eq!(headers["host"], receiver.address.to_string());
        assert_eq!(headers["content-type"], "application/json");
        assert!(headers["user-agent"].starts_with("Satcast/"));
        assert!(headers["webhook-id"].starts_with("evt_") && headers["webhook-id"].len() == 26);
        assert_eq!(headers["webhook-timestamp"], now.to_secs_floor().to_string());
        let secrets = [Redacted::new(SECRET.to_owned())];
        let signed = sign::signatures(&secrets, &headers["webhook-id"], now.to_secs_floor(), &request.body);
        assert_eq!(Some(&headers["webhook-signature"]), signed.as_ref());
    }
    assert_eq!(rig.states(webhook).await, [DeliveryState::Delivered; 2]);
    let last = rig.view(webhook).await.last_delivery.unwrap();
    assert_eq!((last.at, last.status, last.ok), (UnixMillis(end), Some(204), true));
    let log = rig.log(webhook).await;
    let attempt = &log[0].attempts[0];
    assert_eq!((attempt.status, attempt.ok, attempt.error.as_deref()), (Some(204), true, None));
    let bodies: Vec<&[u8]> = log.iter().map(|delivery| delivery.body.as_bytes()).collect();
    assert_eq!(bodies, [&ended.body[..], &started.body[..]], "the bytes that were signed");
}

#[tokio::test]
async fn only_subscribed_webhooks_get_an_event() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let url = receiver.url();
    let started = &[EventType::StreamStarted];
    let new =
        NewAccount { name: "other".into(), password_hash: None, operator: false, initial_credit: Msat(0) };
    let other = rig.store.create_account(&Origin::command(START), new).await.unwrap();
    let elsewhere = rig.stream_of(rig.account, "elsewhere").await;
    rig.webhook_of(other, None, &url, started, None).await;
    rig.webhook_of(rig.account, Some(elsewhere), &url, started, None).await;
    rig.webhook(&url, &[EventType::StreamEnded, EventType::TestPing], None).await;
    let disabled = rig.webhook(&url, started, None).await;
    let file = rig.folder.path().join("t.db");
    satcast_store::testing::Intruder::open(&file).await.disable_webhook(disabled.0, "x").await;
    let deleted = rig.webhook(&url, started, None).await;
    rig.store.delete_webhook(&rig.actor(), deleted).await.unwrap();
    rig.begin().await;
    assert_eq!(rig.round().await, 0);
    let here = rig.webhook_of(rig.account, Some(rig.stream), &url, started, None).await;
    let all = rig.webhook(&url, started, None).await;
    rig.begin().await;
    assert_eq!(rig.round().await, 2);
    let ids: Vec<_> =
        receiver.received().iter().map(|request| request.headers["webhook-id"].clone()).collect();
    assert_eq!(ids[0], ids[1], "one event, two deliveries");
    assert!(!receiver.received()[0].headers.contains_key("webhook-signature"), "no secret, no signature");
    for webhook in [here, all] {
        assert_eq!(rig.log(webhook).await[0].event_id, ids[0]);
    }
}

#[tokio::test]
async fn a_session_ended_by_a_crash_emits_its_event() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    rig.webhook(&receiver.url(), &[EventType::StreamEnded], None).await;
    let session = rig.begin().await;
    let alive = UnixMillis(START.0 + 61_000);
    rig.store.heartbeat_sessions(std::slice::from_ref(&session), alive).await.unwrap();
    rig.clock.advance(Duration::from_secs(3_600));
    assert_eq!(rig.store.close_interrupted_sessions(rig.clock.now()).await.unwrap(), [session]);
    rig.round().await;
    let body = json(&receiver.received()[0].body);
    assert_eq!(body["timestamp"], "2027-01-15T08:01:01.000Z");
    let data = &body["data"];
    assert_eq!(
        (&data["endedAt"], &data["endReason"]),
        (&json!(alive.0), &json!(EndReason::Interrupted.as_str()))
    );
    assert_eq!((&data["durationMinutes"], &data["durationSeconds"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn while_a_secret_is_rotated_both_sign() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let webhook = rig.webhook(&receiver.url(), &[EventType::StreamStarted], Some(SECRET)).await;
    let new = Redacted::new("another sixteen letters".to_owned());
    rig.store.rotate_webhook_secret(&rig.actor(), webhook, &new).await.unwrap();
    let old = Redacted::new(SECRET.to_owned());
    let day = Duration::from_secs(24 * 60 * 60);
    for (wait, secrets) in
        [(day - Duration::from_secs(1), vec![new.clone(), old]), (Duration::from_secs(1), vec![new])]
    {
        rig.clock.advance(wait);
        rig.begin().await;
        assert_eq!(rig.round().await, 1);
        let request = receiver.received().pop().unwrap();
        let (id, at) = (&request.headers["webhook-id"], rig.clock.now().to_secs_floor());
        let expected = sign::signatures(&secrets, id, at, &request.body);
        assert_eq!(Some(&request.headers["webhook-signature"]), expected.as_ref());
    }
}

#[tokio::test]
async fn a_test_is_sent_at_once_and_once_even_to_a_disabled_webhook() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(Reply::Status(500, "", "mend me")).await);
    let webhook = rig.started_webhook(&receiver).await;
    let file = rig.folder.path().join("t.db");
    satcast_store::testing::Intruder::open(&file).await.disable_webhook(webhook.0, "x").await;
    let (delivery, settled) = rig.webhooks.test(rig.account, webhook).await.unwrap();
    assert_eq!((settled.status, settled.answer.as_str()), (Some(500), "mend me"));
    let request = receiver.received().pop().unwrap();
    let body = json(&request.body);
    assert_eq!((&body["type"], &body["data"]), (&json!("test.ping"), &json!({"webhookId": webhook.0})));
    let log = rig.log(webhook).await;
    assert_eq!((log[0].id, log[0].state, log[0].attempts.len()), (delivery, DeliveryState::Failed, 1));
    rig.clock.advance(Duration::from_secs(60));
    assert_eq!(rig.round().await, 0, "it is not tried again");
    let stranger = satcast_core::ids::AccountId(99);
    assert!(rig.webhooks.test(stranger, webhook).await.is_err());
}

#[tokio::test]
async fn a_webhook_without_a_receiver_does_not_fill_the_database() {
    let (rig, receiver) = (Rig::new().await, Receiver::new(OK).await);
    let webhook = rig.started_webhook(&receiver).await;
    rig.begin().await;
    rig.intruder().await.repeat_deliveries(WAITING_PER_WEBHOOK_MAX - 2).await;
    let mut newest = Vec::new();
    for _ in 0..2 {
        rig.begin().await;
        newest.push(rig.states(webhook).await[0]);
    }
    assert_eq!(newest, [DeliveryState::Pending, DeliveryState::Cancelled], "a thousand wait");
    assert_eq!(rig.round().await, 4, "four of one webhook at a time");
    rig.begin().await;
    assert_eq!(rig.states(webhook).await[0], DeliveryState::Pending, "there is capacity again");
}
