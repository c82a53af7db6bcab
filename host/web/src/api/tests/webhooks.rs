//! Webhooks as a resource: authorization, validation and display.

use poem::Request;
use poem::http::Method;
use serde_json::{Value, json};

use super::{Answer, Rig, keys};
use crate::api::caller::NO_SESSION;
use satcast_core::secret::{KeyKind, new_api_key};
use satcast_store::Scopes;

const HOOKS: &str = "/api/webhooks";
const URL: &str = "https://hooks.example.com/in?token=hunter2hunter2";
const ONLY_WEBHOOKS: Scopes = Scopes { webhooks: true, ..Scopes::NONE };

impl Rig {
    /// A new webhook's id.
    async fn webhook(&self, body: &Value) -> i64 {
        self.post(HOOKS, body).await.ok()["id"].as_i64().unwrap()
    }
}

fn started() -> Value {
    json!({"url": URL, "events": ["stream.started"]})
}

#[tokio::test]
async fn a_webhook_is_created_listed_and_deleted() {
    let rig = Rig::new().await;
    let stream = rig.stream().await;
    assert_eq!(rig.get(HOOKS).await.ok(), json!([]));
    let all = json!({"url": URL, "events": ["stream.ended", "stream.started"], "stream_key_id": null});
    let first = rig.post(HOOKS, &all).await.ok();
    assert_eq!(first, json!({"success": true, "id": 1}));
    let one = json!({"url": "https://a.example", "events": ["recording.ready"], "stream_key_id": stream,
                     "secret": "sixteen letters!"});
    assert_eq!(rig.post(HOOKS, &one).await.ok(), json!({"success": true, "id": 2}));
    assert_eq!(
        rig.get(HOOKS).await.ok(),
        json!([
            {"id": 2, "url": "https://a.example", "events": ["recording.ready"], "stream_key_id": stream,
             "hasSecret": true, "enabled": true, "createdAt": 1_800_000_000_000_i64, "lastDelivery": null,
             "disabledReason": null},
            {"id": 1, "url": URL, "events": ["stream.ended", "stream.started"], "stream_key_id": null,
             "hasSecret": false, "enabled": true, "createdAt": 1_800_000_000_000_i64, "lastDelivery": null,
             "disabledReason": null},
        ])
    );
    let page = rig.get("/api/webhooks?limit=1").await;
    assert_eq!(
        page.header("link"),
        "<http://127.0.0.1:8080/api/webhooks?cursor=2&limit=1>; rel=\"next\"",
        "{}",
        page.text
    );
    assert_eq!(rig.delete("/api/webhooks/1").await.ok(), json!({"success": true}));
    rig.delete("/api/webhooks/1").await.error(404, "not_found");
    assert_eq!(rig.get(HOOKS).await.ok().as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn only_permanent_keys_with_the_scope_manage_webhooks() {
    let mut rig = Rig::new().await;
    let id = rig.webhook(&started()).await;
    let stream = rig.stream().await;
    let target = json!({"type": "self-hosted", "config": {}});
    let path = format!("/api/streams/{stream}/destinations");
    let destination = rig.post(&path, &target).await.ok()["id"].as_i64();
    let owner = rig.key.clone();
    let without = Scopes { webhooks: false, ..Scopes::ALL };
    let keys = [
        (rig.key(rig.account, KeyKind::Public, Scopes::NONE, destination).await, 403, "key_type_not_allowed"),
        (rig.key(rig.account, KeyKind::Permanent, without, None).await, 403, "scope_not_allowed"),
        (new_api_key(KeyKind::Permanent).into_inner(), 401, "invalid_key"),
    ];
    let requests = [
        (Method::GET, HOOKS.to_owned()),
        (Method::POST, HOOKS.to_owned()),
        (Method::DELETE, format!("{HOOKS}/{id}")),
        (Method::POST, format!("{HOOKS}/{id}/enable")),
        (Method::POST, format!("{HOOKS}/{id}/rotate-secret")),
        (Method::GET, format!("{HOOKS}/{id}/deliveries")),
    ];
    for (key, status, code) in keys {
        rig.key = key;
        for (method, path) in &requests {
            rig.ask(method.clone(), path, Some(&started().to_string())).await.error(status, code);
        }
    }
    rig.key = String::new();
    rig.get(HOOKS).await.error(401, "key_required");
    rig.key = rig.account("other").await.1;
    assert_eq!(rig.get(HOOKS).await.ok(), json!([]), "another account sees nothing");
    for (method, path) in requests.iter().skip(2) {
        rig.ask(method.clone(), path, None).await.error(404, "not_found");
    }
    let mine = json!({"url": URL, "events": ["stream.ended"], "stream_key_id": stream});
    rig.post(HOOKS, &mine).await.error(404, "not_found");
    rig.key = owner;
    rig.key = rig.key(rig.account, KeyKind::Permanent, ONLY_WEBHOOKS, None).await;
    rig.get("/api/streams").await.error(403, "scope_not_allowed");
    for (method, path) in requests {
        if method == Method::DELETE {
            continue;
        }
        let text = started().to_string();
        rig.ask(method, &path, (path == HOOKS).then_some(text.as_str())).await.ok();
    }
    rig.delete(&format!("{HOOKS}/{id}")).await.ok();
}

#[tokio::test]
async fn login_sessions_do_not_manage_webhooks() {
    let rig = Rig::new().await;
    rig.person("ann").await;
    let token = rig.log_in("ann").await;
    for header in
        [("Authorization", format!("Bearer {token}")), ("Cookie", format!("satcast_session={token}"))]
    {
        for method in [Method::GET, Method::POST] {
            let request = Request::builder().method(method).uri_str(HOOKS).header(header.0, &header.1);
            let answer = rig.send(request.content_type("application/json").body(started().to_string())).await;
            let text = answer.error(403, "key_type_not_allowed");
            assert_eq!(text, NO_SESSION);
        }
    }
    let request = Request::builder().uri_str(HOOKS).header("Cookie", "satcast_session=st_unknown").finish();
    rig.send(request).await.error(401, "invalid_session");
}

#[tokio::test]
async fn unreadable_bodies_are_400_and_refused_values_422_naming_the_field() {
    let rig = Rig::new().await;
    for (body, field) in [
        (json!({"events": ["stream.started"]}), "`url`"),
        (json!({"url": 1, "events": ["stream.started"]}), "`url`"),
        (json!({"url": URL}), "`events`"),
        (json!({"url": URL, "events": "stream.started"}), "`events`"),
        (json!({"url": URL, "events": [1]}), "`events`"),
        (json!({"url": URL, "events": ["stream.started"], "secret": 1}), "`secret`"),
        (json!({"url": URL, "events": ["stream.started"], "stream_key_id": "1"}), "`stream_key_id`"),
        (json!({"url": URL, "events": ["stream.started"], "streamKeyId": 1}), "`streamKeyId`"),
    ] {
        let answer = rig.post(HOOKS, &body).await;
        assert_eq!(answer.status.as_u16(), 400, "{body}: {}", answer.text);
        assert!(answer.text.contains(field), "{body}: {}", answer.text);
    }
    let url = |url: &str| json!({"url": url, "events": ["stream.started"]});
    let secret = |secret: &str| json!({"url": URL, "events": ["stream.started"], "secret": secret});
    for (body, code) in [
        (json!({"url": URL, "events": []}), "event_refused"),
        (json!({"url": URL, "events": ["stream.paused"]}), "event_refused"),
        (json!({"url": URL, "events": ["test.ping", "test.ping"]}), "event_refused"),
        (url("http://hooks.example.com/hunter2"), "url_refused"),
        (url("https://me:hunter2@hooks.example.com"), "url_refused"),
        (url("https://10.0.0.1/hunter2"), "url_refused"),
        (url("https://[::ffff:127.0.0.1]/hunter2"), "url_refused"),
        (url("https://localhost/hunter2"), "url_refused"),
        (url("hunter2"), "url_refused"),
        (url(&format!("https://a.example/{}", "hunter2".repeat(300))), "url_refused"),
        (secret("hunter2hunter2"), "secret_refused"),
        (secret("whsec_hunter2hunter2"), "secret_refused"),
    ] {
        let text = rig.post(HOOKS, &body).await.error(422, code);
        let field = format!("Field `{}`", code.split('_').next().unwrap().replace("event", "events"));
        assert!(text.starts_with(&field) && !text.contains("hunter2"), "{body}: {text}");
    }
    assert_eq!(rig.get(HOOKS).await.ok(), json!([]));
}

#[tokio::test]
async fn the_operator_allows_targets_and_caps_their_number() {
    let rig = Rig::with_config(
        "[webhooks]\nallow_targets = [\"127.0.0.0/8\", \"nas.lan\"]\n[limits]\nwebhooks_per_account = 2",
    )
    .await;
    let hook = |url: &str| json!({"url": url, "events": ["test.ping"]});
    rig.post(HOOKS, &hook("http://10.0.0.1/")).await.error(422, "url_refused");
    let id = rig.webhook(&hook("http://127.0.0.1:9/a")).await;
    rig.webhook(&hook("http://nas.lan/b")).await;
    rig.post(HOOKS, &hook("https://a.example")).await.error(409, "cap_reached");
    rig.delete(&format!("{HOOKS}/{id}")).await.ok();
    rig.webhook(&hook("https://a.example")).await;
}

#[tokio::test]
async fn a_generated_secret_is_shown_once_and_stays_valid_a_day_after_rotation() {
    let rig = Rig::new().await;
    let auto = json!({"url": URL, "events": ["stream.started"], "secret": "auto"});
    let made = rig.post(HOOKS, &auto).await.ok();
    let first = made["secret"].as_str().unwrap().to_owned();
    assert!(first.starts_with("whsec_") && first.len() == 6 + 44, "{made}");
    let list = rig.get(HOOKS).await;
    assert_eq!(list.ok()[0]["hasSecret"], true);
    assert!(!list.text.contains(&first));
    let rotated = rig.post(&format!("{HOOKS}/1/rotate-secret"), &json!({})).await.ok();
    let second = rotated["secret"].as_str().unwrap();
    assert!(second.starts_with("whsec_") && second != first);
    let day = 24 * 60 * 60 * 1_000;
    assert_eq!(rotated["oldSecretUntil"], 1_800_000_000_000_i64 + day);
    rig.webhook(&started()).await;
    let rotated = rig.post(&format!("{HOOKS}/2/rotate-secret"), &json!({})).await.ok();
    assert_eq!(rotated["oldSecretUntil"], Value::Null, "there was none");
    assert_eq!(rig.get(HOOKS).await.ok()[0]["hasSecret"], true);
    for entry in std::fs::read_dir(rig.folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for secret in [first.as_str(), second, "hunter2hunter2"] {
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{secret}");
        }
    }
}

#[tokio::test]
async fn a_disabled_webhook_shows_the_reason_until_it_is_enabled() {
    let rig = Rig::new().await;
    let id = rig.webhook(&started()).await;
    rig.intruder().await.disable_webhook(id, "it is gone").await;
    let shown = rig.get(HOOKS).await.ok();
    assert_eq!((&shown[0]["enabled"], &shown[0]["disabledReason"]), (&json!(false), &json!("it is gone")));
    let path = format!("{HOOKS}/{id}/enable");
    assert_eq!(rig.ask(Method::POST, &path, None).await.ok(), json!({"success": true}));
    let shown = rig.get(HOOKS).await.ok();
    assert_eq!((&shown[0]["enabled"], &shown[0]["disabledReason"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn the_delivery_log_starts_empty_and_filters_by_state() {
    let rig = Rig::new().await;
    let path = format!("{HOOKS}/{}/deliveries", rig.webhook(&started()).await);
    for state in ["", "?state=pending", "?state=delivered", "?state=failed", "?state=cancelled"] {
        assert_eq!(rig.get(&format!("{path}{state}")).await.ok(), json!([]));
    }
    rig.get(&format!("{path}?state=lost")).await.error(400, "malformed_parameter");
    rig.get(&format!("{HOOKS}/99/deliveries")).await.error(404, "not_found");
}

async fn post_once(rig: &Rig, path: &str, key: &str) -> Answer {
    let body = json!({"url": URL, "events": ["stream.started"], "secret": "auto"});
    let request = Request::builder()
        .method(Method::POST)
        .uri_str(path)
        .header("X-API-Key", &rig.key)
        .header("Idempotency-Key", key)
        .content_type("application/json");
    rig.send(request.body(body.to_string())).await
}

#[tokio::test]
async fn idempotency_keys_need_the_scope_of_the_operation() {
    let mut rig = Rig::new().await;
    let owner = std::mem::take(&mut rig.key);
    rig.key = rig.key(rig.account, KeyKind::Permanent, ONLY_WEBHOOKS, None).await;
    let first = post_once(&rig, HOOKS, "k").await;
    let again = post_once(&rig, HOOKS, "k").await;
    assert_eq!(first.ok(), again.ok());
    assert_eq!(again.header("idempotent-replayed"), "true");
    post_once(&rig, "/api/streams", "k").await.error(403, "scope_not_allowed");
    let without = Scopes { webhooks: false, ..Scopes::ALL };
    rig.key = rig.key(rig.account, KeyKind::Permanent, without, None).await;
    post_once(&rig, HOOKS, "other").await.error(403, "scope_not_allowed");
    rig.key = owner;
    assert_eq!(rig.get(HOOKS).await.ok().as_array().unwrap().len(), 1, "done once");
}

#[tokio::test]
async fn urls_and_secrets_are_never_logged() {
    keys::collect_log();
    let rig = Rig::new().await;
    let body = json!({"url": "https://a.example/hush-in-url", "events": ["test.ping"],
                      "secret": "hush-in-secret-16"});
    let made = rig.post(HOOKS, &body).await;
    made.ok();
    rig.post(HOOKS, &json!({"url": "http://a.example/hush-in-url", "events": ["test.ping"]})).await;
    rig.get(HOOKS).await.ok();
    let text = keys::logged();
    assert!(text.contains(made.header("x-request-id")), "the log is collected");
    assert!(!text.contains("hush-in-"), "a secret is in the log");
}
