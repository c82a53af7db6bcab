//! Changes to streams, destinations and keys.

use poem::http::Method;
use serde_json::{Value, json};

use super::{Answer, Rig};
use satcast_core::secret::{KeyKind, key_hash};
use satcast_store::Scopes;

async fn patch(rig: &Rig, path: &str, body: &Value) -> Answer {
    rig.ask(Method::PATCH, path, Some(&body.to_string())).await
}

#[tokio::test]
async fn limits_are_set_kept_and_removed_one_by_one() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let (limits, stream) = (format!("/api/streams/{id}/limits"), format!("/api/streams/{id}"));
    assert_eq!(rig.post(&limits, &json!({"maxSats": 500})).await.ok(), json!({"success": true}));
    rig.post(&limits, &json!({"maxDurationMinutes": 525_600})).await.ok();
    assert_eq!(rig.get(&stream).await.ok()["limits"], json!({"maxSats": 500, "maxDurationMinutes": 525_600}));
    rig.post(&limits, &json!({"maxSats": null, "maxDurationMinutes": 1})).await.ok();
    assert_eq!(rig.get(&stream).await.ok()["limits"], json!({"maxDurationMinutes": 1}));
    rig.post(&limits, &json!({"maxDurationMinutes": null})).await.ok();
    assert_eq!(rig.get(&stream).await.ok()["limits"], json!({}));
}

#[tokio::test]
async fn every_limit_out_of_range_is_refused_and_changes_nothing() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let limits = format!("/api/streams/{id}/limits");
    rig.post(&limits, &json!({"maxSats": 2_100_000_000_000_000_i64})).await.ok();
    for bad in [
        json!({}),
        json!({"maxSats": 0}),
        json!({"maxSats": -1}),
        json!({"maxSats": 2_100_000_000_000_001_i64}),
        json!({"maxSats": 1.5}),
        json!({"maxSats": "5"}),
        json!({"maxDurationMinutes": 525_601}),
        json!({"maxSats": 5, "maxDurationMinutes": 0}),
    ] {
        let text = rig.post(&limits, &bad).await.error(422, "limit_refused");
        assert!(text.contains("max"), "{text}");
    }
    rig.post(&limits, &json!({"maxSat": 5})).await.error(400, "unknown_field");
    let kept = rig.get(&format!("/api/streams/{id}")).await.ok();
    assert_eq!(kept["limits"], json!({"maxSats": 2_100_000_000_000_000_i64}));
    rig.post("/api/streams/999/limits", &json!({"maxSats": 5})).await.error(404, "not_found");
}

#[tokio::test]
async fn a_stream_gets_a_new_label_and_a_new_key() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let stream = format!("/api/streams/{id}");
    let before = rig.get(&stream).await.ok()["streamKey"].as_str().unwrap().to_owned();
    patch(&rig, &stream, &json!({"label": "  evening show "})).await.ok();
    patch(&rig, &stream, &json!({"label": " "})).await.error(422, "label_refused");
    patch(&rig, &stream, &json!({})).await.error(422, "nothing_to_change");
    let rotated = rig.post(&format!("{stream}/rotate"), &json!({})).await.ok();
    let now = rig.get(&stream).await.ok();
    assert_eq!((&now["label"], &now["streamKey"]), (&json!("evening show"), &rotated["streamKey"]));
    let (old, new) = (key_hash(&before), key_hash(rotated["streamKey"].as_str().unwrap()));
    assert!(rig.app.store.stream_by_key_hash(&old).await.unwrap().is_none(), "the old key is unknown");
    assert!(rig.app.store.stream_by_key_hash(&new).await.unwrap().is_some());
}

#[tokio::test]
async fn a_destination_is_disabled_and_reconfigured() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let list = format!("/api/streams/{id}/destinations");
    let target = json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live"}});
    let destination = rig.post(&list, &target).await.ok()["id"].as_i64().unwrap();
    let path = format!("{list}/{destination}");
    patch(&rig, &path, &json!({"enabled": false})).await.ok();
    let shown = rig.get(&list).await.ok();
    assert_eq!((&shown[0]["enabled"], &shown[0]["url"]), (&json!(false), &json!("rtmp://a.example/live")));
    patch(&rig, &path, &json!({"enabled": true, "config": {"url": "rtmp://b.example/live"}})).await.ok();
    let shown = rig.get(&list).await.ok();
    assert_eq!((&shown[0]["enabled"], &shown[0]["url"]), (&json!(true), &json!("rtmp://b.example/live")));
    patch(&rig, &path, &json!({})).await.error(422, "nothing_to_change");
    patch(&rig, &path, &json!({"enabled": "yes"})).await.error(400, "malformed_field");
    let private = json!({"config": {"url": "rtmp://127.0.0.1/live"}});
    patch(&rig, &path, &private).await.error(422, "address_refused");
    patch(&rig, &path, &json!({"config": {"host": "x"}})).await.error(422, "config_refused");
    patch(&rig, &format!("{list}/{}", destination + 1), &json!({"enabled": true}))
        .await
        .error(404, "not_found");
    let other = rig.stream().await;
    let foreign = format!("/api/streams/{other}/destinations/{destination}");
    patch(&rig, &foreign, &json!({"enabled": true})).await.error(404, "not_found");
}

#[tokio::test]
async fn keys_are_created_listed_and_revoked() {
    let mut rig = Rig::new().await;
    let made =
        rig.post("/api/keys", &json!({"type": "permanent", "label": "robot", "scopes": ["read"]})).await.ok();
    let (id, key) = (made["id"].as_i64().unwrap(), made["key"].as_str().unwrap().to_owned());
    let listed = rig.get("/api/keys").await.ok();
    let shown = &listed[0];
    assert_eq!(
        (shown["id"].as_i64(), &shown["label"], &shown["key"]),
        (Some(id), &json!("robot"), &Value::Null)
    );
    assert_eq!((&shown["scopes"], &shown["type"]), (&json!(["read"]), &json!("permanent")));
    assert!(!listed.to_string().contains(&key), "a permanent key is shown once");
    let owner = std::mem::replace(&mut rig.key, key);
    rig.get("/api/streams").await.ok();
    let reader = rig.post("/api/keys", &json!({"type": "permanent"})).await;
    reader.error(403, "scope_not_allowed");
    let robot = std::mem::replace(&mut rig.key, owner);
    rig.delete(&format!("/api/keys/{id}")).await.ok();
    rig.delete(&format!("/api/keys/{id}")).await.error(404, "not_found");
    let owner = std::mem::replace(&mut rig.key, robot);
    rig.get("/api/streams").await.error(401, "invalid_key");
    rig.key = owner;
    assert_eq!(rig.get("/api/keys").await.ok().as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_cannot_create_a_key_with_more_scopes() {
    let mut rig = Rig::new().await;
    let limited = Scopes { webhooks: false, ..Scopes::ALL };
    rig.key = rig.key(rig.account, KeyKind::Permanent, limited, None).await;
    rig.post("/api/keys", &json!({"type": "permanent", "scopes": ["webhooks"]}))
        .await
        .error(403, "scope_not_allowed");
    rig.post("/api/keys", &json!({"type": "permanent"})).await.ok();
    let scopes = rig.get("/api/keys").await.ok()[0]["scopes"].clone();
    assert_eq!(scopes, json!(["read", "manage"]), "no more than its maker by default");
    for bad in [
        json!({"type": "permanent", "scopes": []}),
        json!({"type": "permanent", "scopes": ["admin"]}),
        json!({"type": "permanent", "destinationId": 1}),
        json!({"type": "public"}),
        json!({"type": "public", "destinationId": 1, "scopes": ["read"]}),
        json!({"type": "other"}),
    ] {
        rig.post("/api/keys", &bad).await.error(422, "key_refused");
    }
    rig.post("/api/keys", &json!({"type": "public", "destinationId": 77})).await.error(404, "not_found");
    let long = "l".repeat(129);
    rig.post("/api/keys", &json!({"type": "permanent", "label": long})).await.error(422, "label_refused");
}

#[tokio::test]
async fn nothing_of_another_account_can_be_changed() {
    let mut rig = Rig::new().await;
    let id = rig.stream().await;
    let key = rig.get("/api/keys").await.ok()[0]["id"].as_i64().unwrap();
    rig.key = rig.account("stranger").await.1;
    rig.post(&format!("/api/streams/{id}/limits"), &json!({"maxSats": 5})).await.error(404, "not_found");
    rig.post(&format!("/api/streams/{id}/rotate"), &json!({})).await.error(404, "not_found");
    patch(&rig, &format!("/api/streams/{id}"), &json!({"label": "mine"})).await.error(404, "not_found");
    rig.delete(&format!("/api/keys/{key}")).await.error(404, "not_found");
    assert_eq!(rig.get("/api/keys").await.ok().as_array().unwrap().len(), 1, "its own alone");
}

#[tokio::test]
async fn a_replaced_key_keeps_its_scopes() {
    let mut rig = Rig::new().await;
    let made =
        rig.post("/api/keys", &json!({"type": "permanent", "label": "robot", "scopes": ["read"]})).await.ok();
    let new = rig.post(&format!("/api/keys/{}/rotate", made["id"]), &json!({})).await.ok();
    assert!(new["key"].as_str().unwrap().starts_with("sk_") && new["id"] != made["id"], "{new}");
    rig.post(&format!("/api/keys/{}/rotate", made["id"]), &json!({})).await.error(404, "not_found");
    let listed = rig.get("/api/keys").await.ok();
    assert_eq!(listed.as_array().unwrap().len(), 2, "the old one is gone: {listed}");
    assert_eq!((&listed[0]["label"], &listed[0]["scopes"]), (&json!("robot"), &json!(["read"])));
    let owner = std::mem::replace(&mut rig.key, made["key"].as_str().unwrap().to_owned());
    rig.get("/api/streams").await.error(401, "invalid_key");
    rig.key = new["key"].as_str().unwrap().to_owned();
    rig.get("/api/streams").await.ok();
    rig.post(&format!("/api/keys/{}/rotate", new["id"]), &json!({})).await.error(403, "scope_not_allowed");
    rig.key = rig.key(rig.account, KeyKind::Permanent, Scopes { webhooks: false, ..Scopes::ALL }, None).await;
    let full = listed[1]["id"].as_i64().unwrap();
    rig.post(&format!("/api/keys/{full}/rotate"), &json!({})).await.error(403, "scope_not_allowed");
    rig.key = rig.account("stranger").await.1;
    rig.post(&format!("/api/keys/{full}/rotate"), &json!({})).await.error(404, "not_found");
    rig.key = owner;
    rig.get("/api/streams").await.ok();
}

#[tokio::test]
async fn a_replaced_public_key_is_refused() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let listed = rig.get("/api/keys").await.ok();
    let old = &listed[0];
    assert_eq!(old["type"], "public");
    let new = rig.post(&format!("/api/keys/{}/rotate", old["id"]), &json!({})).await.ok();
    let status = |key: &Value| format!("/api/public/stream/status?apiKey={}", key.as_str().unwrap());
    rig.open(&status(&old["key"])).await.error(401, "invalid_key");
    rig.open(&status(&new["key"])).await.ok();
    let listed = rig.get("/api/keys").await.ok();
    assert_eq!(listed[0]["destinationId"], hosted.destination, "{listed}");
}

#[tokio::test]
async fn delays_of_a_destination_are_set_shown_and_bounded() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let list = format!("/api/streams/{id}/destinations");
    let target = |more: Value| {
        let mut target = json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live"}});
        target.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        target
    };
    let made = rig.post(&list, &target(json!({"startDelaySeconds": 300}))).await.ok();
    let path = format!("{list}/{}", made["id"]);
    let shown = async || {
        let shown = rig.get(&list).await.ok();
        ["startDelaySeconds", "stopDelaySeconds", "startsAt", "stopsAt"].map(|name| shown[0][name].clone())
    };
    assert_eq!(shown().await, [json!(300), json!(0), Value::Null, Value::Null]);
    patch(&rig, &path, &json!({"stopDelaySeconds": 7})).await.ok();
    patch(&rig, &path, &json!({"startDelaySeconds": 0})).await.ok();
    assert_eq!(shown().await, [json!(0), json!(7), Value::Null, Value::Null]);
    for bad in [json!(301), json!(-1), json!(1.5), json!("5"), Value::Null] {
        let text = patch(&rig, &path, &json!({"stopDelaySeconds": bad})).await.error(422, "delay_refused");
        assert_eq!(text, "Field `stopDelaySeconds` must be a whole number of seconds from 0 to 300");
        rig.post(&list, &target(json!({"startDelaySeconds": bad}))).await.error(422, "delay_refused");
    }
    let both = json!({"label": "x", "destinations": [target(json!({"stopDelaySeconds": 999}))]});
    let text = rig.post("/api/streams", &both).await.error(422, "delay_refused");
    let place = "destinations[0].stopDelaySeconds";
    assert_eq!(text, format!("Field `{place}` must be a whole number of seconds from 0 to 300"));
    assert_eq!(shown().await, [json!(0), json!(7), Value::Null, Value::Null]);
}

#[tokio::test]
async fn the_addresses_of_a_stream_key_are_set_shown_and_checked() {
    let rig = Rig::new().await;
    let new = json!({"label": "x", "allowedAddresses": ["203.0.113.7"]});
    let id = rig.post("/api/streams", &new).await.ok()["id"].as_i64().unwrap();
    let stream = format!("/api/streams/{id}");
    let shown = async || rig.get(&stream).await.ok()["allowedAddresses"].clone();
    assert_eq!(shown().await, json!(["203.0.113.7/32"]));
    let list = json!({"allowedAddresses": ["198.51.100.77/24", "2001:db8::/32"]});
    patch(&rig, &stream, &list).await.ok();
    assert_eq!(shown().await, json!(["198.51.100.0/24", "2001:db8::/32"]));
    patch(&rig, &stream, &json!({"label": "y"})).await.ok();
    assert_eq!(shown().await, json!(["198.51.100.0/24", "2001:db8::/32"]), "an absent field stays unchanged");
    let text = patch(&rig, &stream, &json!({"allowedAddresses": ["::1", "hunter2"]})).await;
    let text = text.error(422, "addresses_refused");
    assert!(text.contains("`allowedAddresses`: entry 2 ") && !text.contains("hunter2"), "{text}");
    let many: Vec<String> = (0..33).map(|n| format!("10.0.0.{n}")).collect();
    patch(&rig, &stream, &json!({"allowedAddresses": many})).await.error(422, "addresses_refused");
    for bad in [json!("::1"), json!([7]), Value::Null, json!({})] {
        patch(&rig, &stream, &json!({"allowedAddresses": bad})).await.error(400, "malformed_field");
    }
    patch(&rig, &stream, &json!({"allowedAddresses": []})).await.ok();
    assert_eq!(shown().await, json!([]));
}

#[tokio::test]
async fn a_passphrase_of_srt_is_set_removed_and_never_shown() {
    let rig = Rig::new().await;
    let secret = "correct horse battery";
    let made = rig.post("/api/streams", &json!({"label": "x", "srtPassphrase": secret})).await.ok();
    let id = made["id"].as_i64().unwrap();
    let stream = format!("/api/streams/{id}");
    let shown = async || {
        let shown = rig.get(&stream).await.ok();
        assert!(!shown.to_string().contains("horse"), "{shown}");
        shown["hasSrtPassphrase"].clone()
    };
    let stored = async || {
        let record = rig.app.store.stream(satcast_core::ids::StreamId(id)).await.unwrap().unwrap();
        record.srt_passphrase.map(satcast_core::secret::Redacted::into_inner)
    };
    assert_eq!((shown().await, stored().await), (json!(true), Some(secret.to_owned())));
    patch(&rig, &stream, &json!({"label": "y"})).await.ok();
    assert_eq!(shown().await, json!(true), "an absent field stays unchanged");
    patch(&rig, &stream, &json!({"srtPassphrase": null})).await.ok();
    assert_eq!((shown().await, stored().await), (json!(false), None));
    for (text, is_taken) in [
        ("x".repeat(9), false),
        ("x".repeat(10), true),
        ("x".repeat(79), true),
        ("x".repeat(80), false),
        ("ä".repeat(10), false),
    ] {
        let answer = patch(&rig, &stream, &json!({"srtPassphrase": text})).await;
        if is_taken {
            answer.ok();
        } else {
            answer.error(422, "passphrase_refused");
        }
    }
    patch(&rig, &stream, &json!({"srtPassphrase": 7})).await.error(422, "passphrase_refused");
    patch(&rig, &stream, &json!({"srtPassphrase": "another passphrase"})).await.ok();
    assert_eq!(stored().await.as_deref(), Some("another passphrase"));
    let audit = rig.get("/api/audit").await.ok();
    assert_eq!(audit[0]["detail"]["after"], json!({"srtPassphrase": "set"}));
}
