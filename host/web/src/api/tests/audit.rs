//! The audit log over HTTP: visibility and content of entries.

use std::time::Duration;

use poem::http::Method;
use serde_json::{Value, json};

use super::Rig;
use satcast_core::secret::KeyKind;
use satcast_store::{AuditFilter, Page, Scopes};

/// Polls a condition every 10 ms.
const WAIT_TRIES_MAX: usize = 6_000;

impl Rig {
    async fn audit(&self, query: &str) -> Vec<Value> {
        self.get(&format!("/api/audit{query}")).await.ok().as_array().unwrap().clone()
    }

    pub(super) async fn until(&self, condition: &str, mut look: impl AsyncFnMut() -> bool) {
        for _ in 0..WAIT_TRIES_MAX {
            if look().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("timed out waiting for {condition}");
    }
}

fn actions(log: &[Value]) -> Vec<&str> {
    log.iter().map(|entry| entry["action"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn entries_have_actor_action_and_target_without_secrets() {
    const SECRET: &str = "hunter2hunter2";
    let rig = Rig::new().await;
    let keys = rig.get("/api/keys").await.ok();
    let key_id = keys[0]["id"].as_i64().unwrap();
    let target = json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live", "key": SECRET}});
    let body = json!({"label": "show", "destinations": [target]});
    let stream = rig.post("/api/streams", &body).await.ok();
    let id = stream["id"].as_i64().unwrap();
    rig.post(&format!("/api/streams/{id}/destinations"), &target).await.ok();
    rig.post(&format!("/api/streams/{id}/stop"), &json!({})).await.ok();
    rig.delete(&format!("/api/streams/{id}")).await.ok();
    let answer = rig.get("/api/audit").await;
    let log = answer.ok().as_array().unwrap().clone();
    assert_eq!(
        actions(&log),
        ["stream.deleted", "destination.added", "stream.created", "key.created", "account.created"],
        "nothing was live, so nothing was stopped"
    );
    let now = rig.app.clock.now().0;
    let destinations = &log[2]["detail"]["destinationIds"];
    assert_eq!(
        log[2],
        json!({"id": log[2]["id"], "at": now, "accountId": rig.account.0,
            "actor": {"type": "key", "id": key_id}, "action": "stream.created",
            "target": {"type": "stream", "id": id},
            "detail": {"label": "show", "destinationIds": destinations}, "address": "0.0.0.0"})
    );
    assert_eq!(log[4]["actor"], json!({"type": "command", "id": null}));
    assert_eq!(log[4]["address"], Value::Null);
    for secret in [SECRET, stream["streamKey"].as_str().unwrap(), &rig.key] {
        assert!(!answer.text.contains(secret));
    }
}

#[tokio::test]
async fn accounts_see_their_own_log_and_operators_all() {
    let mut rig = Rig::new().await;
    rig.stream().await;
    let (other, key) = rig.account("other").await;
    let owner = std::mem::replace(&mut rig.key, key);
    let log = rig.audit("").await;
    assert_eq!(actions(&log), ["key.created", "account.created"]);
    assert!(log.iter().all(|entry| entry["accountId"] == other.0));
    rig.key = rig.operator().await;
    let log = rig.audit("").await;
    assert_eq!(log.len(), 7, "two of each account and the stream");
    assert!(log.iter().any(|entry| entry["accountId"] == rig.account.0));
    rig.key = owner;
    let blind = Scopes { read: false, ..Scopes::ALL };
    rig.key = rig.key(rig.account, KeyKind::Permanent, blind, None).await;
    rig.get("/api/audit").await.error(403, "scope_not_allowed");
    rig.key = String::new();
    rig.get("/api/audit").await.error(401, "key_required");
}

#[tokio::test]
async fn the_log_has_pages_and_filters() {
    let rig = Rig::new().await;
    for _ in 0..3 {
        rig.app.clock.advance(Duration::from_secs(1));
        rig.stream().await;
    }
    let now = rig.app.clock.now().0;
    let first = rig.get("/api/audit?limit=2&action=stream.created").await;
    let log = first.ok();
    assert_eq!((log[0]["at"].as_i64(), log[1]["at"].as_i64()), (Some(now), Some(now - 1_000)));
    let next = first.header("link").strip_prefix("<http://127.0.0.1:8080").unwrap();
    let rest = rig.get(next.split_once('>').unwrap().0).await;
    assert_eq!((rest.ok()[0]["at"].as_i64(), rest.header("link")), (Some(now - 2_000), ""));
    assert_eq!(rest.json().as_array().unwrap().len(), 1);
    let times = format!("?since={}&until={now}", now - 1_000);
    assert_eq!(actions(&rig.audit(&times).await), ["stream.created"]);
    for bad in ["since=5&until=4".to_owned(), format!("action={}", "x".repeat(65)), "limit=0".to_owned()] {
        rig.get(&format!("/api/audit?{bad}")).await.error(400, "malformed_parameter");
    }
}

#[tokio::test]
async fn failed_logins_are_in_the_audit_log_of_the_account() {
    let mut rig = Rig::new().await;
    rig.person("ann").await;
    let login = |name: &str, password: &str| json!({"name": name, "password": password});
    for (name, password) in [("ann", "not it at all"), ("nobody", "hunter2hunter2")] {
        rig.anyone("/api/auth/login", &login(name, password)).await.error(401, "invalid_login");
    }
    let all = AuditFilter { action: Some("login.failed".into()), ..AuditFilter::default() };
    rig.until("both entries", async || rig.app.store.audit(all.clone(), Page::ALL).await.unwrap().len() == 2)
        .await;
    let token = rig.log_in("ann").await;
    let log = rig.bearer(Method::GET, "/api/audit", &token, &json!({})).await.ok();
    assert_eq!(actions(log.as_array().unwrap()), ["login.began", "login.failed", "account.created"]);
    let session = &log[0]["target"]["id"];
    assert_eq!(log[0]["actor"], json!({"type": "session", "id": session}));
    assert_eq!((&log[1]["actor"]["type"], &log[1]["detail"]), (&json!("visitor"), &json!({})));
    rig.bearer(Method::POST, "/api/auth/logout", &token, &json!({})).await.ok();
    rig.key = rig.operator().await;
    let failed = rig.audit("?action=login.failed").await;
    assert_eq!((&failed[0]["accountId"], &failed[0]["target"]["id"]), (&Value::Null, &Value::Null));
    assert_eq!(rig.audit("?action=login.ended").await[0]["target"]["id"], *session);
}
