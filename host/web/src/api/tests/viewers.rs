//! Public keys on the stream status: every form, every refusal, their limit, and calls from websites.

use std::time::Duration;

use poem::Request;
use poem::http::Method;
use serde_json::json;

use super::Rig;
use super::status::{START_MS, STATUS};
use crate::base::error::INVALID_PUBLIC_KEY_TEXT as REFUSED;
use satcast_core::ids::UnixMillis;
use satcast_core::secret::{KeyKind, key_hash, new_api_key};

#[tokio::test]
async fn every_form_of_a_key_is_accepted_and_returned_in_the_url() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let _live = rig.go_live(&hosted).await;
    let (key, bearer) = (hosted.key.as_str(), format!("Bearer {}", hosted.key));
    let forms: [(String, &[(&str, &str)]); 5] = [
        (STATUS.to_owned(), &[("X-API-Key", key)]),
        (STATUS.to_owned(), &[("Authorization", &bearer)]),
        (format!("{STATUS}?apiKey={key}"), &[]),
        (format!("{STATUS}?key={key}"), &[]),
        (format!("{STATUS}?apiKey=wrong"), &[("X-API-Key", key)]),
    ];
    for (uri, headers) in forms {
        let mut request = Request::builder().uri_str(&uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let status = rig.send(request.finish()).await.ok();
        assert_eq!(status["hlsUrl"], format!("{}?apiKey={key}", hosted.url), "{uri}");
    }
    let loser = Request::builder().uri_str(format!("{STATUS}?apiKey={key}")).header("X-API-Key", "wrong");
    assert_eq!(rig.send(loser.finish()).await.error(401, "invalid_key"), REFUSED);
}

#[tokio::test]
async fn a_missing_key_is_400_and_an_invalid_or_permanent_one_401() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let text = rig.open(STATUS).await.error(400, "key_required");
    for part in ["API key is required", "X-API-Key", "Authorization: Bearer", "apiKey"] {
        assert!(text.contains(part), "{text}");
    }
    rig.open(&format!("{STATUS}?apiKey=")).await.error(400, "key_required");
    let unknown = new_api_key(KeyKind::Public).into_inner();
    for key in ["wrong", unknown.as_str(), rig.key.as_str()] {
        assert_eq!(rig.status(key).await.error(401, "invalid_key"), REFUSED);
    }
    rig.status(&hosted.key).await.ok();
    let mut intruder = rig.intruder().await;
    let refused = async || {
        let answer = rig.status(&hosted.key).await;
        let (text, body) = (answer.error(401, "invalid_key"), answer.json());
        assert_eq!(body, json!({"error": REFUSED, "code": "invalid_key", "requestId": body["requestId"]}));
        assert_eq!(text, REFUSED);
    };
    // Changes by another process are seen after a while.
    let a_while = || rig.app.clock.advance(crate::api::app::FRESH);
    intruder.enable_destination(hosted.destination, false).await;
    rig.status(&hosted.key).await.ok();
    a_while();
    refused().await;
    intruder.enable_destination(hosted.destination, true).await;
    a_while();
    rig.status(&hosted.key).await.ok();
    intruder.revoke_public_keys().await;
    a_while();
    refused().await;
    let disabled = rig.hosted().await;
    rig.status(&disabled.key).await.ok();
    let path = format!("/api/streams/{}/destinations/{}", disabled.stream, disabled.destination);
    rig.ask(Method::PATCH, &path, Some(r#"{"enabled": false}"#)).await.ok();
    assert_eq!(rig.status(&disabled.key).await.error(401, "invalid_key"), REFUSED, "at once by the API");
    let deleted = rig.hosted().await;
    rig.delete(&format!("/api/destinations/{}", deleted.destination)).await.ok();
    assert_eq!(rig.status(&deleted.key).await.error(401, "invalid_key"), REFUSED);
    let deleted = rig.hosted().await;
    rig.delete(&format!("/api/streams/{}", deleted.stream)).await.ok();
    assert_eq!(rig.status(&deleted.key).await.error(401, "invalid_key"), REFUSED);
}

#[tokio::test]
async fn the_61st_request_in_a_minute_is_refused_and_not_counted() {
    let rig = Rig::new().await;
    let (hosted, other) = (rig.hosted().await, rig.hosted().await);
    for left in (1..60).rev() {
        let answer = rig.status(&hosted.key).await;
        assert_eq!(answer.header("ratelimit"), format!("\"status\";r={left};t=60"));
        answer.ok();
    }
    rig.app.clock.advance(Duration::from_millis(30_500));
    rig.status(&hosted.key).await.ok();
    let refused = rig.status(&hosted.key).await;
    refused.error(429, "rate_limited");
    let body = refused.json();
    assert_eq!(
        body,
        json!({"error": body["error"], "retryAfter": 30,
               "code": "rate_limited", "requestId": body["requestId"]})
    );
    assert_eq!(refused.header("retry-after"), "30");
    rig.status(&other.key).await.ok();
    rig.app.clock.advance(Duration::from_millis(29_499));
    rig.status(&hosted.key).await.error(429, "rate_limited");
    rig.app.clock.advance(Duration::from_millis(1));
    for _ in 0..59 {
        rig.status(&hosted.key).await.ok();
    }
    rig.status(&hosted.key).await.error(429, "rate_limited");
}

#[tokio::test]
async fn invalid_keys_are_counted_by_address() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    for _ in 0..60 {
        rig.status("wrong").await.error(401, "invalid_key");
    }
    rig.status("wrong").await.error(429, "rate_limited");
    rig.status(&hosted.key).await.ok();
}

#[tokio::test]
async fn the_use_of_a_public_key_is_recorded() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    rig.status(&hosted.key).await.ok();
    let hash = key_hash(&hosted.key);
    for _ in 0..250 {
        let used = rig.app.store.key_by_hash(&hash).await.unwrap().unwrap().last_used_at;
        if used == Some(UnixMillis(START_MS)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the use was not noted");
}

#[tokio::test]
async fn scripts_of_any_website_may_call_public_operations_and_no_others() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let ask = |path: &str| {
        let request = Request::builder().method(Method::OPTIONS).uri_str(path);
        let request = request.header("Origin", "https://site.example");
        let request = request.header("Access-Control-Request-Method", "GET");
        rig.send(request.header("Access-Control-Request-Headers", "x-api-key").finish())
    };
    for path in [STATUS, "/api/public/streams/active/cost", "/api/public/config"] {
        let answer = ask(path).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (204, ""), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert_eq!(answer.header("access-control-allow-headers"), "X-API-Key, Authorization");
        assert_eq!(answer.header("access-control-allow-methods"), "GET, HEAD");
        assert!(answer.headers.get("access-control-allow-credentials").is_none());
    }
    let answers =
        [rig.status(&hosted.key).await, rig.status("wrong").await, rig.open("/api/public/config").await];
    for answer in answers {
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{}", answer.status);
        assert!(answer.header("access-control-expose-headers").contains("Retry-After"));
    }
    ask("/api/streams").await.error(405, "method_not_allowed");
    for answer in [ask("/api/streams").await, rig.get("/api/streams").await, ask("/api/publicity").await] {
        assert!(answer.headers.get("access-control-allow-origin").is_none());
    }
}
