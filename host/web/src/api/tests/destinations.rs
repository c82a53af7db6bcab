//! Destinations: display, creation, deletion and authorization.

use poem::http::Method;
use serde_json::{Value, json};

use super::Rig;
use crate::api::destinations::UNREADABLE;
use satcast_store::Page;

fn target(key: &str) -> serde_json::Value {
    json!({"type": "rtmp", "config": {"url": "rtmp://a.example:1936/live", "key": key}})
}

#[tokio::test]
async fn a_destination_is_shown_masked_with_every_nullable_field() {
    let rig = Rig::new().await;
    let path = format!("/api/streams/{}/destinations", rig.stream().await);
    let id = rig.post(&path, &target("abcdefghijklmnop")).await.ok()["id"].clone();
    assert_eq!(
        rig.get(&path).await.ok(),
        json!([{"id": id, "type": "rtmp", "platform": "rtmp", "enabled": true,
                "url": "rtmp://a.example:1936/live/abc...nop",
                "config": {"url": "rtmp://a.example:1936/live", "key": "abc...nop"}, "state": "stopped", "error": null, "lastError": null, "attempt": 0,
                "nextRetryAt": null, "bytesSent": 0, "bitrate": 0, "droppedPackets": 0, "liveSince": null, "stateSince": null, "server": null,
                "startDelaySeconds": 0, "stopDelaySeconds": 0, "startsAt": null, "stopsAt": null}])
    );
}

#[tokio::test]
async fn both_forms_of_delete_work_once() {
    let rig = Rig::new().await;
    let stream = rig.stream().await;
    let other = rig.stream().await;
    let path = format!("/api/streams/{stream}/destinations");
    let first = rig.post(&path, &target("")).await.ok()["id"].clone();
    let second = rig.post(&path, &target("")).await.ok()["id"].clone();
    rig.delete(&format!("/api/streams/{other}/destinations/{first}")).await.error(404, "not_found");
    assert_eq!(rig.delete(&format!("{path}/{first}")).await.ok(), json!({"success": true}));
    rig.delete(&format!("{path}/{first}")).await.error(404, "not_found");
    assert_eq!(rig.delete(&format!("/api/destinations/{second}")).await.ok(), json!({"success": true}));
    rig.delete(&format!("/api/destinations/{second}")).await.error(404, "not_found");
    assert_eq!(rig.get(&path).await.ok(), json!([]));
}

#[tokio::test]
async fn resources_of_another_account_are_404() {
    let mut rig = Rig::new().await;
    let stream = rig.stream().await;
    let path = format!("/api/streams/{stream}/destinations");
    let destination = rig.post(&path, &target("")).await.ok()["id"].clone();
    let owner = std::mem::take(&mut rig.key);
    (_, rig.key) = rig.account("stranger").await;
    rig.get(&format!("/api/streams/{stream}")).await.error(404, "not_found");
    rig.get(&path).await.error(404, "not_found");
    rig.post(&path, &target("")).await.error(404, "not_found");
    rig.post(&format!("/api/streams/{stream}/stop"), &json!({})).await.error(404, "not_found");
    rig.delete(&format!("/api/destinations/{destination}")).await.error(404, "not_found");
    rig.delete(&format!("{path}/{destination}")).await.error(404, "not_found");
    rig.delete(&format!("/api/streams/{stream}")).await.error(404, "not_found");
    assert_eq!(rig.get("/api/streams").await.ok(), json!([]));
    rig.key = owner;
    assert_eq!(rig.get(&path).await.ok().as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_allowed_private_address_is_accepted() {
    let rig = Rig::with_config("[outbound]\nallow = [\"127.0.0.0/8\"]").await;
    let path = format!("/api/streams/{}/destinations", rig.stream().await);
    rig.post(&path, &json!({"type": "rtmp", "config": {"url": "rtmp://127.0.0.1:1936/live"}})).await.ok();
    let other = json!({"type": "rtmp", "config": {"url": "rtmp://10.0.0.1/live"}});
    rig.post(&path, &other).await.error(422, "address_refused");
}

#[tokio::test]
async fn a_destination_without_config_is_checked_against_its_schema() {
    let rig = Rig::new().await;
    let path = format!("/api/streams/{}/destinations", rig.stream().await);
    let text = rig.post(&path, &json!({"type": "rtmp"})).await.error(422, "config_refused");
    assert!(text.contains("config"), "{text}");
}

#[tokio::test]
async fn a_damaged_destination_is_shown_as_failed_and_can_be_deleted() {
    let rig = Rig::new().await;
    let stream = rig.stream().await;
    let path = format!("/api/streams/{stream}/destinations");
    let damaged = rig.post(&path, &target("")).await.ok()["id"].clone();
    let intact = rig.post(&path, &target("")).await.ok()["id"].clone();
    rig.intruder().await.damage_destination(damaged.as_i64().unwrap()).await;
    let list = rig.get(&path).await.ok();
    assert_eq!((&list[0]["id"], &list[0]["state"]), (&intact, &json!("stopped")));
    assert_eq!(
        (&list[1]["id"], &list[1]["state"], &list[1]["url"]),
        (&damaged, &json!("failed"), &json!(""))
    );
    assert_eq!(list[1]["error"], UNREADABLE);
    assert_eq!(rig.get(&format!("/api/streams/{stream}")).await.ok()["destinations"], list);
    rig.delete(&format!("{path}/{damaged}")).await.ok();
    assert_eq!(rig.get(&path).await.ok().as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn masked_secrets_that_are_sent_back_keep_their_values() {
    let rig = Rig::new().await;
    let list = format!("/api/streams/{}/destinations", rig.stream().await);
    let config = json!({"url": "rtmp://a.example/live", "key": "hunter2hunter2"});
    let target = json!({"type": "rtmp", "config": config});
    let path = format!("{list}/{}", rig.post(&list, &target).await.ok()["id"]);
    let listed = rig.get(&list).await;
    assert!(!listed.text.contains("hunter2hunter2"), "{}", listed.text);
    let shown = listed.ok()[0]["config"].clone();
    assert_eq!(shown, json!({"url": "rtmp://a.example/live", "key": "hun...er2"}));
    let patch = |config: &Value| json!({"config": config}).to_string();
    let stored = async || {
        let streams = rig.app.store.streams_of(rig.account, Page::ALL).await.unwrap();
        rig.app.store.destinations_of(streams[0].stream.id).await.unwrap().remove(0).config
    };
    rig.ask(Method::PATCH, &path, Some(&patch(&shown))).await.ok();
    assert_eq!(stored().await, config);
    let elsewhere = json!({"url": "rtmp://evil.example/live", "key": "hun...er2"});
    let text = rig.ask(Method::PATCH, &path, Some(&patch(&elsewhere))).await.error(422, "config_refused");
    assert!(text.contains("`config.key`"), "{text}");
    assert_eq!(stored().await, config, "a refused change changes nothing");
    let moved = json!({"url": "rtmp://b.example/live", "key": "another-key-77"});
    rig.ask(Method::PATCH, &path, Some(&patch(&moved))).await.ok();
    assert_eq!(stored().await, moved);
}
