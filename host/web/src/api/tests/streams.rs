//! Stream keys: response shapes, labels, life cycle.

use bytes::Bytes;
use satcast_media::{Codec, Packet};
use serde_json::{Value, json};

use super::Rig;
use satcast_core::ids::{EndReason, StreamId};
use satcast_core::secret::key_hash;
use satcast_live::EncoderRole;

const TARGET: &str = "rtmp://a.example/live";

#[tokio::test]
async fn a_new_stream_has_the_limits_shape_and_is_found_by_its_key() {
    let rig = Rig::new().await;
    for body in [json!({"label": " first "}), json!({"label": "first", "destinations": []})] {
        let made = rig.post("/api/streams", &body).await.ok();
        let key = made["streamKey"].as_str().unwrap();
        assert!(key.starts_with("live_"));
        let id = made["id"].as_i64().unwrap();
        assert_eq!(
            made,
            json!({"id": id, "streamKey": key, "label": "first", "status": "idle", "limits": {}})
        );
        let found = rig.app.store.stream_by_key_hash(&key_hash(key)).await.unwrap().unwrap();
        assert_eq!(found.id, StreamId(id));
    }
}

#[tokio::test]
async fn destinations_given_at_creation_change_the_shape() {
    let rig = Rig::new().await;
    let one = json!({"type": "rtmp", "config": {"url": TARGET, "key": "secret-key-0123"}});
    let made = rig.post("/api/streams", &json!({"label": "x", "destinations": [one, one]})).await.ok();
    let (id, key) = (made["id"].clone(), made["streamKey"].clone());
    assert_eq!(made, json!({"id": id, "streamKey": key, "label": "x", "destinationsCount": 2}));
    assert_eq!(
        rig.get(&format!("/api/streams/{id}")).await.ok()["destinations"].as_array().unwrap().len(),
        2
    );
}

#[tokio::test]
async fn one_bad_destination_creates_nothing_and_is_named() {
    let rig = Rig::new().await;
    let good = json!({"type": "rtmp", "config": {"url": TARGET}});
    for (bad, status, code, place) in [
        (
            json!({"type": "rtmp", "config": {"url": "http://a/hunter2"}}),
            422,
            "config_refused",
            "destinations[1].config.url",
        ),
        (
            json!({"type": "rtmp", "config": {"ur": "hunter2"}}),
            422,
            "config_refused",
            "destinations[1].config",
        ),
        (json!({"type": "hunter2"}), 422, "unknown_destination_type", "destinations[1].type"),
        (
            json!({"type": "rtmp", "config": {"url": "rtmp://127.0.0.1/hunter2"}}),
            422,
            "address_refused",
            "destinations[1].config.url",
        ),
        (
            json!({"type": "rtmp", "config": {"url": "rtmp://2130706433/x"}}),
            422,
            "address_refused",
            "destinations[1].config.url",
        ),
        (
            json!({"type": "rtmp", "config": {"url": "rtmp://[::ffff:10.0.0.1]:1/x"}}),
            422,
            "address_refused",
            "destinations[1].config.url",
        ),
        (json!({"config": {}}), 400, "malformed_field", "destinations[1].type"),
        (json!({"type": 5}), 400, "malformed_field", "destinations[1].type"),
        (json!({"type": "rtmp", "config": "hunter2"}), 400, "malformed_field", "destinations[1].config"),
        (json!({"type": "rtmp", "url": "hunter2"}), 400, "unknown_field", "destinations[1].url"),
        (json!("hunter2"), 400, "malformed_body", "destinations[1]"),
    ] {
        let answer = rig.post("/api/streams", &json!({"label": "x", "destinations": [good, bad]})).await;
        let text = answer.error(status, code);
        assert!(text.contains(place), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert_eq!(rig.get("/api/streams").await.ok(), json!([]));
}

#[tokio::test]
async fn labels_have_1_to_128_printable_characters() {
    let rig = Rig::new().await;
    rig.post("/api/streams", &json!({"label": "ä".repeat(128)})).await.ok();
    for label in ["", "   ", &"ä".repeat(129), "a\nb"] {
        let text = rig.post("/api/streams", &json!({"label": label})).await.error(422, "label_refused");
        assert!(text.contains("`label`"), "{text}");
    }
    for body in [json!({}), json!({"label": 5}), json!({"label": null})] {
        rig.post("/api/streams", &body).await.error(400, "malformed_field");
    }
    let text = rig.post("/api/streams", &json!({"label": "x", "lable": 1})).await.error(400, "unknown_field");
    assert!(text.contains("`lable`"), "{text}");
}

#[tokio::test]
async fn an_idle_stream_reads_as_documented() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let listed = rig.get("/api/streams").await.ok();
    let key = listed[0]["streamKey"].clone();
    let backup = key.as_str().unwrap().replace("live_", "backup_");
    assert_eq!(
        listed,
        json!([{"id": id, "streamKey": key, "backupKey": backup, "label": "test", "status": "idle", "state": "idle",
                "lastEndReason": null, "createdAt": 1_800_000_000_000_i64}])
    );
    let detail = rig.get(&format!("/api/streams/{id}")).await.ok();
    assert_eq!(
        detail,
        json!({"id": id, "streamKey": key, "backupKey": backup, "label": "test", "status": "idle", "state": "idle",
               "lastEndReason": null, "createdAt": 1_800_000_000_000_i64, "limits": {}, "destinations": [],
               "playback": [], "health": null, "encoders": [], "slate": null, "slateSince": null, "allowedAddresses": [], "hasSrtPassphrase": false,
               "refusals": []})
    );
}

#[tokio::test]
async fn refusals_of_encoders_are_shown_newest_first() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    for (code, reason) in [("NetStream.Publish.Denied", "one"), ("NetStream.Publish.BadName", "two")] {
        rig.app.live.note_refusal(StreamId(id), code, reason);
    }
    let at = 1_800_000_000_000_i64;
    assert_eq!(
        rig.get(&format!("/api/streams/{id}")).await.ok()["refusals"],
        json!([{"at": at, "code": "NetStream.Publish.BadName", "error": "two"},
               {"at": at, "code": "NetStream.Publish.Denied", "error": "one"}])
    );
}

fn keyframe() -> Packet {
    Packet::media(Codec::H264, true, 0, 0, Bytes::from_static(&[9; 100]))
}

/// Reads the stream until it is as wanted.
async fn until(rig: &Rig, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    const TRIES_MAX: usize = 3_000;
    for _ in 0..TRIES_MAX {
        let detail = rig.get(path).await.ok();
        if wanted(&detail) {
            return detail;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{path} did not become as wanted");
}

#[tokio::test]
async fn a_live_stream_is_active_until_it_is_stopped() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let path = format!("/api/streams/{id}");
    let target = json!({"type": "rtmp", "config": {"url": TARGET, "key": ""}});
    rig.post(&format!("{path}/destinations"), &target).await.ok();
    let record = rig.app.store.stream(StreamId(id)).await.unwrap().unwrap();
    let mut publisher = rig.app.live.publish(record).await.unwrap();
    publisher.push(&mut vec![keyframe()]);
    let forwarding =
        |detail: &Value| detail["status"] == "active" && detail["destinations"][0]["state"] != "stopped";
    let detail = until(&rig, &path, forwarding).await;
    assert_eq!((&detail["state"], &detail["startedAt"]), (&json!("live"), &json!(1_800_000_000_000_i64)));
    assert_eq!(rig.get("/api/streams").await.ok()[0]["startedAt"], detail["startedAt"]);
    let stopped = rig.post(&format!("{path}/stop"), &json!({})).await.ok();
    assert_eq!(stopped, json!({"success": true, "message": "Stop signal sent"}));
    assert_eq!(publisher.closed().await.code, "NetStream.Unpublish.Success");
    let detail = until(&rig, &path, |detail| !detail["lastEndReason"].is_null()).await;
    assert_eq!((&detail["lastEndReason"], &detail["status"]), (&json!("stopped"), &json!("idle")));
    assert!(detail.get("startedAt").is_none());
}

/// The end is read while it happens, again and again, so that some reads fall between its parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_idle_stream_has_the_reason_of_its_last_end() {
    const ENDS: usize = 40;
    const READS_MAX: usize = 100_000;
    let rig = Rig::new().await;
    for end in 0..ENDS {
        let id = rig.stream().await;
        let path = format!("/api/streams/{id}");
        let record = rig.app.store.stream(StreamId(id)).await.unwrap().unwrap();
        let mut publisher = rig.app.live.publish(record).await.unwrap();
        publisher.push(&mut vec![keyframe()]);
        until(&rig, &path, |detail| detail["status"] == "active").await;
        let live = rig.app.live.clone();
        let stop = tokio::spawn(async move { live.stop(StreamId(id), EndReason::Stopped).await });
        let mut shown = Value::Null;
        for _ in 0..READS_MAX {
            shown = match end % 2 {
                0 => rig.get(&path).await.ok(),
                _ => rig.get("/api/streams?limit=1").await.ok()[0].take(),
            };
            if shown["status"] == "idle" {
                break;
            }
        }
        let status = (&shown["status"], &shown["lastEndReason"]);
        assert_eq!(status, (&json!("idle"), &json!("stopped")), "end {end}");
        assert!(stop.await.unwrap());
    }
}

#[tokio::test]
async fn stopping_an_idle_stream_succeeds_and_an_unknown_one_is_404() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let stopped = rig.ask(poem::http::Method::POST, &format!("/api/streams/{id}/stop"), None).await.ok();
    assert_eq!(stopped, json!({"success": true, "message": "No active session"}));
    rig.post("/api/streams/99/stop", &json!({})).await.error(404, "not_found");
}

#[tokio::test]
async fn an_encoder_without_media_is_stopped_with_an_audit_entry() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let stop = format!("/api/streams/{id}/stop");
    let record = rig.app.store.stream(StreamId(id)).await.unwrap().unwrap();
    let publisher = rig.app.live.publish(record.clone()).await.unwrap();
    let stopped = rig.post(&stop, &json!({})).await.ok();
    assert_eq!(stopped, json!({"success": true, "message": "Stop signal sent"}));
    assert_eq!(publisher.closed().await.code, "NetStream.Unpublish.Success");
    assert!(rig.app.live.publish(record).await.is_err(), "it has to be quiet first");
    let stopped = rig.post(&stop, &json!({})).await.ok();
    assert_eq!(stopped, json!({"success": true, "message": "No active session"}));
    let log = rig.get("/api/audit?action=stream.stopped").await.ok();
    assert_eq!(log.as_array().map(Vec::len), Some(1), "{log}");
}

#[tokio::test]
async fn after_an_encoder_without_media_left_there_is_nothing_to_stop() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let record = rig.app.store.stream(StreamId(id)).await.unwrap().unwrap();
    drop(rig.app.live.publish(record).await.unwrap());
    let stopped = rig.post(&format!("/api/streams/{id}/stop"), &json!({})).await.ok();
    assert_eq!(stopped, json!({"success": true, "message": "No active session"}));
}

#[tokio::test]
async fn a_deleted_stream_is_gone_and_its_session_ends() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let record = rig.app.store.stream(StreamId(id)).await.unwrap().unwrap();
    let mut publisher = rig.app.live.publish(record).await.unwrap();
    publisher.push(&mut vec![keyframe()]);
    let path = format!("/api/streams/{id}");
    assert_eq!(rig.delete(&path).await.ok(), json!({"success": true}));
    assert_eq!(publisher.closed().await.code, "NetStream.Unpublish.Success");
    rig.get(&path).await.error(404, "not_found");
    rig.delete(&path).await.error(404, "not_found");
    assert_eq!(rig.get("/api/streams").await.ok(), json!([]));
    let last = rig.app.store.last_session(StreamId(id)).await.unwrap().unwrap();
    assert_eq!(last.end_reason, Some(EndReason::KeyRevoked));
}

#[tokio::test]
async fn removing_the_encoders_address_ends_its_session() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let record = rig.app.store.stream(StreamId(id)).await.unwrap().unwrap();
    let address = Some("203.0.113.7".parse().unwrap());
    let mut publisher =
        rig.app.live.publish_from(record, EncoderRole::Primary, Default::default(), address).await.unwrap();
    publisher.push(&mut vec![keyframe()]);
    let change = async |list| {
        let body = json!({"allowedAddresses": list});
        let path = format!("/api/streams/{id}");
        rig.ask(poem::http::Method::PATCH, &path, Some(&body.to_string())).await.ok();
    };
    change(json!(["203.0.113.0/24"])).await;
    for _ in 0..1_000 {
        if rig.app.live.session(StreamId(id)).is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(rig.app.live.session(StreamId(id)).is_some(), "its address is among them");
    change(json!(["203.0.113.8"])).await;
    assert_eq!(publisher.closed().await.code, "NetStream.Publish.Denied");
    let shown = rig.get(&format!("/api/streams/{id}")).await.ok();
    assert_eq!((&shown["status"], &shown["lastEndReason"]), (&json!("idle"), &json!("key_revoked")));
}

#[tokio::test]
async fn both_encoders_are_shown_and_leave_with_a_new_key() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let record = rig.app.store.stream(StreamId(id)).await.unwrap().unwrap();
    let mut primary = rig.app.live.publish(record.clone()).await.unwrap();
    primary.push(&mut vec![keyframe()]);
    let backup = rig.app.live.publish_from(record, EncoderRole::Backup, Default::default(), None);
    let backup = backup.await.unwrap();
    let encoder = |role: &str, state: &str| json!({"role": role, "state": state, "connectedAt": 1_800_000_000_000_i64, "bitrate": null});
    let shown = rig.get(&format!("/api/streams/{id}")).await.ok();
    assert_eq!(shown["encoders"], json!([encoder("primary", "active"), encoder("backup", "standby")]));
    let rotated = rig.post(&format!("/api/streams/{id}/rotate"), &json!({})).await.ok();
    assert_eq!(rotated["backupKey"], rotated["streamKey"].as_str().unwrap().replace("live_", "backup_"));
    for publisher in [primary, backup] {
        assert_eq!(publisher.closed().await.code, "NetStream.Unpublish.Success");
    }
}

#[tokio::test]
async fn replacing_the_stream_key_ends_its_session() {
    let rig = Rig::new().await;
    let id = rig.stream().await;
    let record = rig.app.store.stream(StreamId(id)).await.unwrap().unwrap();
    let mut publisher = rig.app.live.publish(record).await.unwrap();
    publisher.push(&mut vec![keyframe()]);
    rig.post(&format!("/api/streams/{id}/rotate"), &json!({})).await.ok();
    assert_eq!(publisher.closed().await.code, "NetStream.Unpublish.Success");
    let last = rig.app.store.last_session(StreamId(id)).await.unwrap().unwrap();
    assert_eq!(last.end_reason, Some(EndReason::KeyRevoked));
}
