//! Repeated POST requests: executed once, answered twice.

use std::time::Duration;

use poem::Request;
use poem::http::Method;
use serde_json::{Value, json};

use super::{Answer, Rig};
use satcast_core::secret::KeyKind;
use satcast_store::Scopes;

const STREAMS: &str = "/api/streams";

async fn post(rig: &Rig, path: &str, key: &str, body: &Value) -> Answer {
    let request = Request::builder()
        .method(Method::POST)
        .uri_str(path)
        .header("X-API-Key", &rig.key)
        .header("Idempotency-Key", key)
        .content_type("application/json");
    rig.send(request.body(body.to_string())).await
}

async fn count(rig: &Rig) -> usize {
    rig.get(STREAMS).await.ok().as_array().unwrap().len()
}

#[tokio::test]
async fn a_repeated_request_gets_the_first_response_and_is_executed_once() {
    let mut rig = Rig::new().await;
    let body = json!({"label": "a"});
    let first = post(&rig, STREAMS, "k1", &body).await;
    let again = post(&rig, STREAMS, "k1", &body).await;
    assert_eq!((first.ok(), first.header("idempotent-replayed")), (again.ok(), ""));
    assert_eq!(again.header("idempotent-replayed"), "true");
    assert_eq!(first.header("content-type"), again.header("content-type"));
    assert_ne!(first.header("x-request-id"), again.header("x-request-id"));
    assert_eq!(count(&rig).await, 1);
    post(&rig, STREAMS, "k1", &json!({"label": "b"})).await.error(409, "idempotency_key_reused");
    post(&rig, STREAMS, "k2", &body).await.ok();
    let stop = format!("{STREAMS}/{}/stop", first.ok()["id"]);
    assert_eq!(post(&rig, &stop, "k1", &json!({})).await.ok()["success"], true, "keys belong to a path");
    assert_eq!(count(&rig).await, 2);
    rig.app.clock.advance(Duration::from_secs(24 * 60 * 60));
    assert_ne!(post(&rig, STREAMS, "k1", &body).await.ok()["id"], first.ok()["id"], "kept for a day");
    (_, rig.key) = rig.account("other").await;
    post(&rig, STREAMS, "k2", &json!({"label": "mine"})).await.ok();
    assert_eq!(count(&rig).await, 1, "keys belong to an account");
}

#[tokio::test]
async fn a_refused_request_may_be_corrected_under_the_same_key() {
    let rig = Rig::new().await;
    post(&rig, STREAMS, "k", &json!({"label": ""})).await.error(422, "label_refused");
    post(&rig, STREAMS, "k", &json!({"label": "a"})).await.ok();
    assert_eq!(count(&rig).await, 1);
}

#[tokio::test]
async fn concurrent_repeats_are_executed_once() {
    let rig = Rig::new().await;
    let body = json!({"label": "a"});
    let tries = futures_util::future::join_all((0..16).map(|_| post(&rig, STREAMS, "k", &body))).await;
    let (done, refused): (Vec<_>, Vec<_>) = tries.iter().partition(|answer| answer.status == 200);
    assert!(!done.is_empty() && done.iter().all(|answer| answer.ok() == done[0].ok()));
    for answer in refused {
        answer.error(409, "idempotency_in_progress");
    }
    assert_eq!(count(&rig).await, 1);
}

#[tokio::test]
async fn a_client_that_disconnects_gets_the_response_later() {
    const TRIES_MAX: usize = 3_000;
    let rig = Rig::new().await;
    let body = json!({"label": "a"});
    rig.get(STREAMS).await.ok();
    let mut writer = rig.intruder().await;
    writer.keep_from_writing().await;
    let left = tokio::time::timeout(Duration::from_millis(300), post(&rig, STREAMS, "k", &body)).await;
    assert!(left.is_err(), "it left while its request waited for another writer");
    writer.let_write().await;
    let mut tries = 0;
    while count(&rig).await == 0 {
        tries += 1;
        assert!(tries < TRIES_MAX, "the request was not done to its end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = loop {
        let answer = post(&rig, STREAMS, "k", &body).await;
        if answer.status == 200 {
            break answer;
        }
        answer.error(409, "idempotency_in_progress");
    };
    assert_eq!(answer.header("idempotent-replayed"), "true");
    assert_eq!(rig.get(STREAMS).await.ok()[0]["id"], answer.ok()["id"]);
    assert_eq!(count(&rig).await, 1);
}

#[tokio::test]
async fn requests_of_a_crashed_process_are_taken_over_after_a_while() {
    let rig = Rig::new().await;
    let body = json!({"label": "a"});
    post(&rig, STREAMS, "k", &body).await.ok();
    rig.intruder().await.lose_answers().await;
    rig.app.clock.advance(Duration::from_millis(59_999));
    post(&rig, STREAMS, "k", &body).await.error(409, "idempotency_in_progress");
    rig.app.clock.advance(Duration::from_millis(1));
    assert_eq!(post(&rig, STREAMS, "k", &body).await.header("idempotent-replayed"), "");
    assert_eq!(post(&rig, STREAMS, "k", &body).await.header("idempotent-replayed"), "true");
}

#[tokio::test]
async fn malformed_keys_are_refused_and_reads_ignore_them() {
    let rig = Rig::new().await;
    for key in ["", "tab\tkey", "käse", &"x".repeat(256)] {
        post(&rig, STREAMS, key, &json!({"label": "a"})).await.error(400, "malformed_idempotency_key");
    }
    post(&rig, STREAMS, &"x".repeat(255), &json!({"label": "a"})).await.ok();
    assert_eq!(count(&rig).await, 1);
}

#[tokio::test]
async fn kept_requests_are_bounded_and_old_ones_expire() {
    let rig = Rig::new().await;
    rig.intruder().await.fill_requests(rig.account, rig.app.clock.now()).await;
    post(&rig, STREAMS, "k", &json!({"label": "a"})).await.error(409, "idempotency_full");
    rig.post(STREAMS, &json!({"label": "a"})).await.ok();
    rig.app.clock.advance(Duration::from_secs(24 * 60 * 60));
    post(&rig, STREAMS, "k", &json!({"label": "a"})).await.ok();
}

#[tokio::test]
async fn kept_responses_are_encrypted_on_disk() {
    let rig = Rig::new().await;
    let answer = post(&rig, STREAMS, "hunter2hunter2", &json!({"label": "a"})).await.ok();
    for entry in std::fs::read_dir(rig.folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for secret in [answer["streamKey"].as_str().unwrap(), "hunter2hunter2"] {
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
        }
    }
}

#[tokio::test]
async fn a_caller_with_fewer_rights_does_not_get_a_kept_response() {
    let mut rig = Rig::new().await;
    let send = async |rig: &Rig| {
        let request = Request::builder()
            .method(Method::POST)
            .uri_str("/api/keys")
            .header("X-API-Key", &rig.key)
            .header("Idempotency-Key", "1")
            .content_type("application/json");
        rig.send(request.body(r#"{"type":"permanent","label":"robot"}"#)).await
    };
    let first = send(&rig).await.ok();
    assert_eq!(send(&rig).await.ok(), first, "the same caller gets the same answer");
    let limited = Scopes { webhooks: false, ..Scopes::ALL };
    rig.key = rig.key(rig.account, KeyKind::Permanent, limited, None).await;
    let second = send(&rig).await.ok();
    assert_ne!(second["key"], first["key"]);
    let made = rig.get("/api/keys").await.ok();
    let made = made.as_array().unwrap().iter().find(|key| key["id"] == second["id"]).unwrap();
    assert_eq!(made["scopes"], json!(["read", "manage"]), "no more than its maker may");
}
