//! Active cost and the balance.

use std::time::Duration;

use serde_json::json;

use super::Rig;
use crate::base::error::INVALID_PUBLIC_KEY_TEXT;
use satcast_core::ids::{EndReason, Sats, StreamId};
use satcast_core::secret::{KeyKind, new_api_key};
use satcast_store::{Actor, Scopes};

const COST: &str = "/api/public/streams/active/cost";

#[tokio::test]
async fn without_live_streams_the_cost_is_zero() {
    let rig = Rig::new().await;
    let idle = json!({"hasActiveStream": false, "totalCost": 0, "streams": []});
    assert_eq!(rig.get(COST).await.ok(), idle);
    let hosted = rig.hosted().await;
    assert_eq!(rig.open(&format!("{COST}?{}", hosted.query())).await.ok(), idle, "with a public key too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_stream_is_shown_only_to_its_account() {
    let mut rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let (_publisher, _opening) = rig.go_live(&hosted).await;
    rig.app.clock.advance(Duration::from_secs(125));
    let cost = rig.open(&format!("{COST}?{}", hosted.query())).await.ok();
    assert_eq!((&cost["hasActiveStream"], &cost["totalCost"]), (&json!(true), &json!(0)));
    let stream = &cost["streams"][0];
    assert_eq!((&stream["streamKeyId"], &stream["label"]), (&json!(hosted.stream), &json!("test")));
    assert_eq!(stream["streamKeyLabel"], stream["label"]);
    assert_eq!((&stream["durationMinutes"], &stream["durationSeconds"]), (&json!(2), &json!(5)));
    assert_eq!(
        (&stream["totalCharged"], &stream["ratePerMinute"]),
        (&json!(0), &json!(0)),
        "the first one is free"
    );
    let owner = std::mem::take(&mut rig.key);
    rig.key = rig.account("stranger").await.1;
    assert_eq!(rig.get(COST).await.ok()["hasActiveStream"], false);
    rig.key = owner;
    assert!(rig.app.live.stop(StreamId(hosted.stream), EndReason::Stopped).await);
    assert_eq!(rig.get(COST).await.ok()["hasActiveStream"], false);
    let history = rig.get("/api/stream-history").await.ok();
    assert_eq!(
        (&history[0]["platform"], &history[0]["durationMinutes"]),
        (&json!("self-hosted"), &json!(2.08))
    );
}

#[tokio::test]
async fn keys_without_scope_are_refused_and_each_key_has_sixty_requests_a_minute() {
    let mut rig = Rig::new().await;
    assert!(rig.open(COST).await.error(400, "key_required").contains("X-API-Key"));
    let unknown = new_api_key(KeyKind::Public);
    let text = rig.open(&format!("{COST}?apiKey={}", unknown.expose())).await.error(401, "invalid_key");
    assert_eq!(text, INVALID_PUBLIC_KEY_TEXT);
    for _ in 0..60 {
        rig.get(COST).await.ok();
    }
    rig.get(COST).await.error(429, "rate_limited");
    rig.key = rig.key(rig.account, KeyKind::Permanent, Scopes { read: false, ..Scopes::ALL }, None).await;
    rig.get(COST).await.error(403, "scope_not_allowed");
}

#[tokio::test]
async fn the_balance_is_what_was_credited() {
    let rig = Rig::new().await;
    let now = rig.app.clock.now();
    rig.app.store.credit(&Actor::command(rig.account, now), Sats(321), "test:1".into()).await.unwrap();
    let balance = rig.get("/api/wallet/balance").await.ok();
    assert_eq!(balance, json!({"balance": 321, "cached": false, "walletSats": null, "asOf": now.0}));
}
