//! Keys: every form, every refusal.

use std::sync::Once;

use parking_lot::Mutex;
use poem::Request;
use poem::http::Method;
use serde_json::json;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::Rig;
use satcast_core::secret::{KeyKind, new_api_key};
use satcast_store::Scopes;

async fn with(rig: &Rig, uri: &str, headers: &[(&str, &str)]) -> super::Answer {
    let mut request = Request::builder().uri_str(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    rig.send(request.finish()).await
}

#[tokio::test]
async fn every_form_of_a_key_is_accepted_and_only_the_first_counts() {
    let rig = Rig::new().await;
    let key = rig.key.as_str();
    let bearer = format!("Bearer {key}");
    with(&rig, "/api/streams", &[("X-API-Key", key)]).await.ok();
    with(&rig, "/api/streams", &[("Authorization", &bearer)]).await.ok();
    with(&rig, &format!("/api/streams?apiKey={key}"), &[]).await.ok();
    with(&rig, &format!("/api/streams?key={key}"), &[]).await.ok();
    with(&rig, &format!("/api/streams?apiKey={key}&key=bad"), &[("X-API-Key", "")]).await.ok();
    let loser = with(&rig, &format!("/api/streams?apiKey={key}"), &[("X-API-Key", "bad")]).await;
    assert_eq!(loser.error(401, "invalid_key"), "Invalid API key");
    let text = with(&rig, "/api/streams", &[]).await.error(401, "key_required");
    assert!(text.contains("X-API-Key") && text.contains("Bearer") && text.contains("apiKey"), "{text}");
}

#[tokio::test]
async fn unknown_mistyped_and_public_keys_get_different_errors() {
    let rig = Rig::new().await;
    let unknown = new_api_key(KeyKind::Permanent);
    with(&rig, "/api/streams", &[("X-API-Key", unknown.expose())]).await.error(401, "invalid_key");
    let mut typo = rig.key.clone();
    typo.pop();
    with(&rig, "/api/streams", &[("X-API-Key", &typo)]).await.error(401, "invalid_key");
    let path = format!("/api/streams/{}/destinations", rig.stream().await);
    let target = json!({"type": "self-hosted", "config": {}});
    let destination = rig.post(&path, &target).await.ok()["id"].as_i64().unwrap();
    let public = rig.key(rig.account, KeyKind::Public, Scopes::NONE, Some(destination)).await;
    with(&rig, "/api/streams", &[("X-API-Key", &public)]).await.error(403, "key_type_not_allowed");
    rig.delete(&format!("/api/destinations/{destination}")).await.ok();
    with(&rig, "/api/streams", &[("X-API-Key", &public)]).await.error(401, "invalid_key");
}

#[tokio::test]
async fn a_key_is_limited_to_its_scopes() {
    let mut rig = Rig::new().await;
    rig.key = rig.key(rig.account, KeyKind::Permanent, Scopes { manage: false, ..Scopes::ALL }, None).await;
    rig.get("/api/streams").await.ok();
    rig.post("/api/streams", &json!({"label": "x"})).await.error(403, "scope_not_allowed");
    rig.key = rig.key(rig.account, KeyKind::Permanent, Scopes { read: false, ..Scopes::ALL }, None).await;
    rig.get("/api/streams").await.error(403, "scope_not_allowed");
    rig.post("/api/streams", &json!({"label": "x"})).await.ok();
}

#[tokio::test]
async fn the_use_of_a_key_is_recorded() {
    let rig = Rig::new().await;
    let hash = satcast_core::secret::key_hash(&rig.key);
    rig.get("/api/streams").await.ok();
    let used = loop {
        let record = rig.app.store.key_by_hash(&hash).await.unwrap().unwrap();
        if let Some(used) = record.last_used_at {
            break used;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!(used, rig.app.clock.now());
}

#[tokio::test]
async fn the_public_configuration_needs_no_key_and_ignores_a_wrong_one() {
    let rig = Rig::with_config("pricing.cost_per_platform = 7\nlimits.keys_per_account = 70").await;
    for headers in [&[][..], &[("X-API-Key", "bad")][..]] {
        let answer = with(&rig, "/api/public/config", headers).await;
        assert_eq!(answer.header("cache-control"), "max-age=60");
        assert_eq!(
            answer.ok(),
            json!({"pricing": {"BANDWIDTH_LIMIT_GB_PER_HOUR": 10, "BANDWIDTH_OVERAGE_SATS_PER_GB": 5,
                               "COST_PER_PLATFORM": 7, "FREE_PLATFORMS": 1},
                   "fees": {"archiveRecoverySats": 360, "clipSats": 0},
                   "ingest": {"rtmp": "rtmp://127.0.0.1:1935/live", "rtmps": null, "srt": null, "whip": null},
                   "limits": {"destinationsPerStream": 50, "streamsPerAccount": 1000, "webhooksPerAccount": 20,
                              "keysPerAccount": 70, "readsPerMinute": 300, "writesPerMinute": 60, "statusPerMinute": 60,
                              "loginsPerMinute": 20, "ingestConnectionsPerNetwork": 1024,
                              "httpConnectionsPerNetwork": 512, "lowBalanceSats": 100, "clipsPerAccount": 1_000},
                   "version": crate::api::VERSION, "timestamp": 1_800_000_000_000_i64})
        );
    }
}

#[tokio::test]
async fn the_public_configuration_has_the_public_servers_for_encoders_and_no_fees_of_a_free_service() {
    let rig = Rig::with_config(
        "public_url = \"https://live.example.com\"\nbilling.mode = \"off\"\n[ingest]\nrtmp_listen = \"0.0.0.0:1940\"",
    )
    .await;
    let answer = rig.get("/api/public/config").await.ok();
    assert_eq!(
        answer["ingest"],
        json!({"rtmp": "rtmp://live.example.com:1940/live", "rtmps": null, "srt": null, "whip": null})
    );
    assert_eq!(answer["fees"]["archiveRecoverySats"], 0);
}

#[tokio::test]
async fn head_is_like_get_without_a_body() {
    let rig = Rig::new().await;
    let answer = rig.ask(Method::HEAD, "/api/streams", None).await;
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (200, ""));
}

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Writes to [`LINES`].
struct ToLines;

impl std::io::Write for ToLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LINES.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Collects the log lines of requests and of the database in this test process. One subscriber for all threads: one
/// per thread would race for the callsites' cached interest. Not every line: other tests measure time.
pub(super) fn collect_log() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let targets = ["satcast::request", "satcast::access", "satcast::api", "satcast::store", "sqlx"];
        let filter = Targets::new().with_targets(targets.map(|target| (target, Level::DEBUG)));
        let lines = fmt::layer().with_ansi(false).with_writer(|| ToLines);
        tracing_subscriber::registry().with(lines).with(filter).init();
    });
}

/// What was collected so far.
pub(super) fn logged() -> String {
    String::from_utf8(LINES.lock().clone()).unwrap()
}

#[tokio::test]
async fn the_access_log_has_the_path_and_never_a_key() {
    collect_log();
    let rig = Rig::new().await;
    let target = json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live", "key": "hunter2hunter2"}});
    let path = format!("/api/streams?apiKey={}&x=hunter2", rig.key);
    let bearer = format!("Bearer {}", rig.key);
    let answers = [
        with(&rig, &path, &[]).await,
        with(&rig, "/api/streams", &[("Authorization", &bearer)]).await,
        rig.post("/api/streams", &json!({"label": "x", "destinations": [target]})).await,
        rig.get(&format!("/{}", "y".repeat(1_000))).await,
    ];
    let text = logged();
    for answer in answers {
        let mut lines = text.lines().filter(|line| line.contains("satcast::access"));
        let line = lines.find(|line| line.contains(answer.header("x-request-id"))).unwrap();
        assert!(
            line.contains(&format!("status={}", answer.status.as_u16())) && line.contains("path="),
            "{line}"
        );
        assert!(!line.contains(&"y".repeat(200)), "long paths are cut: {line}");
    }
    assert!(!text.contains(&rig.key) && !text.contains("hunter2hunter2"), "a secret is in the log");
}
