//! The ledger by the API, and the same entries in cost, statistics, history and balance.

use poem::Request;
use serde_json::{Value, json};

use super::Rig;
use satcast_core::ids::{DestinationId, EndReason, Msat, Sats, SessionId, StreamId};
use satcast_store::{Actor, MinuteCharge, Slot};

const LEDGER: &str = "/api/wallet/ledger";

impl Rig {
    async fn charge(&self, session: &SessionId, minute: u64, destination: i64) {
        let charge = MinuteCharge {
            session: session.clone(),
            minute,
            slots: vec![Slot { slot: 1, destination: DestinationId(destination) }],
            price: Msat(2_000),
            budget: None,
            now: self.app.clock.now(),
        };
        self.app.store.charge_minute(&charge).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_statistics_history_and_balance_come_from_the_same_entries() {
    let rig = Rig::new().await;
    let now = rig.app.clock.now();
    rig.app.store.credit(&Actor::command(rig.account, now), Sats(100), "test:1".into()).await.unwrap();
    let hosted = rig.hosted().await;
    let (_publisher, _opening) = rig.go_live(&hosted).await;
    let session = rig.app.live.session(StreamId(hosted.stream)).unwrap().session_id;
    for minute in 0..3 {
        rig.charge(&session, minute, hosted.destination).await;
    }
    let cost = rig.get("/api/public/streams/active/cost").await.ok();
    assert_eq!((&cost["totalCost"], &cost["streams"][0]["totalCharged"]), (&json!(6), &json!(6)));
    assert_eq!(cost["streams"][0]["budgetEndsAt"], Value::Null, "one destination is free");
    assert_eq!(rig.get("/api/dashboard/stats").await.ok()["totalSatsSpent"], 6);
    let before = format!("/api/dashboard/stats?endDate={now}");
    assert_eq!(rig.get(&before).await.ok()["totalSatsSpent"], 0, "posted after the range");
    assert_eq!(rig.get("/api/wallet/balance").await.ok()["balance"], 94);
    rig.app.live.stop(StreamId(hosted.stream), EndReason::Stopped).await;
    let history = rig.get("/api/stream-history").await.ok();
    assert_eq!(history[0]["totalCostSats"], 6);

    let entries = rig.get(LEDGER).await.ok();
    assert_eq!(entries.as_array().unwrap().len(), 4);
    let newest = json!({
        "id": 4, "createdAt": now.0, "kind": "minute", "amountMsat": -2_000, "sessionId": session.as_str(),
        "destinationId": hosted.destination, "minute": 2, "hourStart": null, "fileName": null,
        "streamKeyId": hosted.stream
    });
    assert_eq!(entries[0], newest);
    let oldest = json!({
        "id": 1, "createdAt": now.0, "kind": "prepaid", "amountMsat": 100_000, "sessionId": null,
        "destinationId": null, "minute": null, "hourStart": null, "fileName": null, "streamKeyId": null
    });
    assert_eq!(entries[3], oldest);
}

#[tokio::test]
async fn the_ledger_is_paged_available_as_csv_and_private() {
    let mut rig = Rig::new().await;
    let now = rig.app.clock.now();
    for index in 1..=3 {
        rig.app
            .store
            .credit(&Actor::command(rig.account, now), Sats(index), format!("test:{index}"))
            .await
            .unwrap();
    }
    let first = rig.get(&format!("{LEDGER}?limit=2&format=csv")).await;
    assert!(first.header("content-type").starts_with("text/csv"), "{}", first.header("content-type"));
    assert_eq!(first.text.lines().count(), 3, "{}", first.text);
    assert!(first.text.contains(",prepaid,3000,3.000,,,,,,"), "{}", first.text);
    let link = first.header("link").to_owned();
    let next = link.split(['<', '>']).nth(1).unwrap().split_once("/api").unwrap().1;
    assert!(next.contains("format=csv"), "{next}");
    let second = rig.get(&format!("/api{next}")).await;
    assert_eq!((second.text.lines().count(), second.header("link")), (2, ""));
    let request =
        Request::builder().uri_str(LEDGER).header("X-API-Key", &rig.key).header("Accept", "text/csv");
    assert!(rig.send(request.finish()).await.text.starts_with("id,createdAt,"));
    let plain = rig.get(&format!("{LEDGER}?format=json")).await;
    assert_eq!(
        (plain.header("content-type"), plain.ok()[0]["amountMsat"].clone()),
        ("application/json; charset=utf-8", json!(3_000))
    );
    for bad in ["limit=0", "cursor=x", "format=xml"] {
        rig.get(&format!("{LEDGER}?{bad}")).await.error(400, "malformed_parameter");
    }
    rig.key = rig.account("stranger").await.1;
    assert_eq!(rig.get(LEDGER).await.ok(), json!([]));
}
