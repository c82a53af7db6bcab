//! Caps and rate limits.

use std::time::Duration;

use poem::Request;
use poem::http::Method;
use serde_json::{Value, json};

use super::Rig;
use crate::api::destinations::NOT_ASKED;
use satcast_core::ids::AccountId;

const TARGET: &str = "rtmp://a.example/live";

#[tokio::test]
async fn caps_of_streams_and_destinations_are_409() {
    let rig = Rig::with_config("[limits]\nstreams_per_account = 2\ndestinations_per_stream = 2").await;
    let one = json!({"type": "rtmp", "config": {"url": TARGET}});
    let three = json!({"label": "x", "destinations": [one, one, one]});
    rig.post("/api/streams", &three).await.error(409, "cap_reached");
    let first = rig.stream().await;
    let second = rig.stream().await;
    rig.post("/api/streams", &json!({"label": "x"})).await.error(409, "cap_reached");
    rig.delete(&format!("/api/streams/{second}")).await.ok();
    rig.stream().await;
    let path = format!("/api/streams/{first}/destinations");
    rig.post(&path, &one).await.ok();
    let id = rig.post(&path, &one).await.ok()["id"].clone();
    rig.post(&path, &one).await.error(409, "cap_reached");
    rig.delete(&format!("{path}/{id}")).await.ok();
    rig.post(&path, &one).await.ok();
}

#[tokio::test]
async fn reads_and_writes_have_their_own_limits_per_key() {
    let mut rig = Rig::new().await;
    for left in (0..300).rev() {
        let answer = rig.get("/api/streams").await;
        assert_eq!(answer.header("ratelimit"), format!("\"reads\";r={left};t=60"));
        assert_eq!(answer.header("ratelimit-policy"), "\"reads\";q=300;w=60");
        answer.ok();
    }
    let refused = rig.get("/api/streams").await;
    let text = refused.error(429, "rate_limited");
    assert_eq!(text, "Rate limit exceeded. Maximum 300 requests per minute.");
    assert_eq!((refused.header("retry-after"), &refused.json()["retryAfter"]), ("60", &json!(60)));
    for _ in 0..60 {
        rig.post("/api/streams/9/stop", &json!({})).await.error(404, "not_found");
    }
    rig.post("/api/streams/9/stop", &json!({})).await.error(429, "rate_limited");
    let owner = rig.key.clone();
    rig.key = rig.account("other").await.1;
    rig.get("/api/streams").await.ok();
    rig.key = owner;
    rig.app.clock.advance(Duration::from_secs(59));
    let refused = rig.get("/api/streams").await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "1"));
    rig.app.clock.advance(Duration::from_secs(1));
    rig.get("/api/streams").await.ok();
}

#[tokio::test]
async fn invalid_keys_are_limited_and_valid_ones_still_pass() {
    let rig = Rig::new().await;
    let bad = |method| {
        Request::builder().method(method).uri_str("/api/streams").header("X-API-Key", "bad").finish()
    };
    for _ in 0..60 {
        rig.send(bad(Method::GET)).await.error(401, "invalid_key");
    }
    rig.send(bad(Method::GET)).await.error(429, "rate_limited");
    rig.get("/api/streams").await.ok();
}

#[tokio::test]
async fn the_public_configuration_is_limited_per_address() {
    let rig = Rig::new().await;
    for _ in 0..60 {
        rig.get("/api/public/config").await.ok();
    }
    rig.get("/api/public/config").await.error(429, "rate_limited");
}

#[tokio::test]
async fn replacing_keys_repeatedly_does_not_bypass_the_limits() {
    let mut rig = Rig::new().await;
    let mut id = rig.get("/api/keys").await.ok()[0]["id"].clone();
    for number in 0..300 {
        let new = rig.post(&format!("/api/keys/{id}/rotate"), &json!({})).await.ok();
        (id, rig.key) = (new["id"].clone(), new["key"].as_str().unwrap().to_owned());
        assert!(id.is_number(), "{number}");
    }
    rig.post(&format!("/api/keys/{id}/rotate"), &json!({})).await.error(429, "rate_limited");
    rig.post("/api/keys", &json!({"type": "permanent"})).await.error(429, "rate_limited");
    rig.get("/api/streams").await.ok();
    rig.app.clock.advance(std::time::Duration::from_secs(60));
    rig.post("/api/keys", &json!({"type": "permanent"})).await.ok();
}

#[tokio::test]
async fn silent_stores_do_not_delay_other_accounts() {
    /// The error of a newly created destination.
    async fn error_of_new(rig: &Rig) -> Value {
        let path = format!("/api/streams/{}/destinations", rig.stream().await);
        let one = json!({"type": "rtmp", "config": {"url": TARGET}});
        rig.app.clock.passing(Duration::from_secs(1), rig.post(&path, &one)).await.ok();
        rig.get(&path).await.ok()[0]["error"].take()
    }
    let mut rig = Rig::new().await;
    let checks = rig.app.limits.store_checks.clone();
    let mut held = vec![checks.take(rig.account, checks.share()).await];
    assert_eq!(error_of_new(&rig).await, NOT_ASKED);
    rig.key = rig.account("other").await.1;
    assert_eq!(error_of_new(&rig).await, Value::Null, "another account has a share of its own");
    for other in 1_000..1_000 + checks.total() / checks.share() - 1 {
        held.push(checks.take(AccountId(other as i64), checks.share()).await);
    }
    assert_eq!(checks.taken(), checks.total());
    assert_eq!(error_of_new(&rig).await, NOT_ASKED);
    drop(held);
    assert_eq!(error_of_new(&rig).await, Value::Null);
}

#[tokio::test]
async fn a_type_without_recordings_has_no_store_test() {
    assert!(super::drivers().keeps_recordings("rtmp").await);
    assert!(!satcast_drivers::testing::drivers().keeps_recordings("script").await);
}
