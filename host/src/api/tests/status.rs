//! The stream status, and playback in the stream's detail.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use poem::Request;
use poem::http::Method;
use satcast_media::packet::{Codec, Packet, Role, TrackKind};
use satcast_plugin_api::Audience;
use satcast_plugin_api::host::{Asset, AssetBody, Playback};
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use serde_json::{Value, json};

use super::{Answer, Rig};
use crate::ids::{DestinationId, EndReason, HOUR_MS, StreamId, UnixMillis};
use crate::live::{Publisher, SessionState, Shelf};
use crate::secret::{KeyKind, key_hash, new_api_key, new_session_id};
use crate::store::{Bandwidth, Scopes};

const STATUS: &str = "/api/public/stream/status";
const REFUSED: &str = "Invalid API key or destination disabled";
/// The rig's clock at the start: the beginning of an hour.
const START_MS: i64 = 1_800_000_000_000;

/// A stream with one self-hosted destination and its public key.
pub(super) struct Hosted {
    pub(super) stream: i64,
    pub(super) destination: i64,
    pub(super) key: String,
    /// Playback URL without the key.
    url: String,
}

impl Hosted {
    pub(super) fn query(&self) -> String {
        format!("apiKey={}", self.key)
    }

    fn path(&self) -> &str {
        self.url.split('/').nth_back(1).unwrap()
    }
}

impl Rig {
    pub(super) async fn hosted(&self) -> Hosted {
        self.hosted_with(json!({"dvrSeconds": 60})).await
    }

    async fn hosted_with(&self, config: Value) -> Hosted {
        let stream = self.stream().await;
        let path = format!("/api/streams/{stream}/destinations");
        let made = self.post(&path, &json!({"type": "self-hosted", "config": config})).await.ok();
        let destination = made["id"].as_i64().unwrap();
        let key = self.key(self.account, KeyKind::Public, Scopes::NONE, Some(destination)).await;
        let url = self.get(&path).await.ok()[0]["url"].as_str().unwrap().to_owned();
        Hosted { stream, destination, key, url }
    }

    /// A GET with nothing but the address.
    pub(super) async fn open(&self, uri: &str) -> Answer {
        self.send(Request::builder().uri_str(uri).finish()).await
    }

    async fn status(&self, key: &str) -> Answer {
        self.send(Request::builder().uri_str(STATUS).header("X-API-Key", key).finish()).await
    }

    /// Publishes to the stream until its destination has a shelf.
    pub(super) async fn go_live(&self, hosted: &Hosted) -> (Publisher, Arc<Shelf>) {
        const TRIES_MAX: usize = 250;
        let record = self.app.store.stream(StreamId(hosted.stream)).await.unwrap().unwrap();
        let mut publisher = self.app.live.publish(record).await.unwrap();
        publisher.push(&mut vec![keyframe()]);
        for _ in 0..TRIES_MAX {
            if let Some(shelf) = self.app.live.shelf(DestinationId(hosted.destination)) {
                return (publisher, shelf);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the destination got no shelf");
    }

    async fn add_bandwidth(&self, hosted: &Hosted, bytes: u64) {
        let (account, destination) = (self.account, DestinationId(hosted.destination));
        let hour_start = self.app.clock.now().hour_start();
        let sent = Bandwidth { account, destination, hour_start, bytes };
        self.app.store.add_bandwidth(&[sent]).await.unwrap();
    }

    /// What the driver of a playable stream has told.
    fn make_playable(&self, shelf: &Shelf, window_ms: u64, window_max_ms: u64) {
        let playlist = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:1\n\
            #EXT-X-MAP:URI=\"i1-v.mp4\"\n#EXTINF:2.00000,\ns1.m4s\n";
        let pieces = [
            ("i1-v.mp4", "video/mp4", "init"),
            ("s1.m4s", "video/mp4", "segment"),
            ("v.m3u8", PLAYLIST_TYPE, playlist),
            ("index.m3u8", PLAYLIST_TYPE, "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\nv.m3u8\n"),
        ];
        for (name, content_type, body) in pieces {
            let asset = Asset {
                name: name.to_owned(),
                content_type: content_type.to_owned(),
                max_age_secs: 60,
                audience: Audience::Both,
                body: AssetBody::Memory(Bytes::from_static(body.as_bytes()).into()),
            };
            shelf.assets().publish(asset, self.folder.path()).unwrap();
        }
        let facts = Playback {
            entry: "index.m3u8".to_owned(),
            preview: None,
            first_ms: START_MS + 1_999,
            window_ms,
            window_max_ms,
            fresh_ms: 5_000,
            ended: false,
        };
        shelf.assets().set_playback(facts, self.app.clock.monotonic());
    }
}

fn keyframe() -> Packet {
    Packet {
        kind: TrackKind::Video,
        codec: Codec::H264,
        role: Role::Data,
        keyframe: true,
        dts_ns: 0,
        pts_ns: 0,
        payload: Bytes::from_static(&[9; 100]),
    }
}

fn offline(hour_start: i64) -> Value {
    json!({
        "isLive": false, "hlsReady": false, "hlsUrl": null, "label": "test", "streamKeyLabel": "test",
        "startedAt": null, "startedAtMs": null, "playbackToken": null,
        "dvr": {"enabled": false, "windowSeconds": 0, "maxWindowSeconds": 3600, "availableFrom": null},
        "bandwidth": {"usedGB": "0.00", "limitGB": 10, "remainingGB": "10.00", "overageGB": "0.00",
                      "overageSats": 0, "hourStart": hour_start},
    })
}

#[tokio::test]
async fn offline_has_exactly_the_specified_values_whatever_was_used() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    rig.app.clock.advance(Duration::from_millis(HOUR_MS.unsigned_abs() + 59_999));
    rig.add_bandwidth(&hosted, 12_000_000_000).await;
    assert_eq!(rig.status(&hosted.key).await.ok(), offline(1_800_003_600));
}

#[tokio::test]
async fn live_begins_unready_becomes_playable_and_ends_as_it_began() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    rig.app.clock.advance(Duration::from_millis(1_500));
    let (publisher, shelf) = rig.go_live(&hosted).await;
    let token = rig.app.playback.preview_token(&shelf, hosted.path());
    let mut expected = offline(1_800_000_000);
    expected["isLive"] = json!(true);
    expected["hlsUrl"] = json!(format!("{}?apiKey={}", hosted.url, hosted.key));
    expected["startedAt"] = json!(1_800_000_001);
    expected["startedAtMs"] = json!(1_800_000_001_500_i64);
    expected["playbackToken"] = json!(token);
    assert_eq!(rig.status(&hosted.key).await.ok(), expected, "before the first segment");

    rig.make_playable(&shelf, 42_999, 3_600_000);
    rig.add_bandwidth(&hosted, 11_234_567_890).await;
    expected["hlsReady"] = json!(true);
    expected["dvr"] = json!({"enabled": true, "windowSeconds": 42, "maxWindowSeconds": 3600,
                             "availableFrom": 1_800_000_001});
    expected["bandwidth"] = json!({"usedGB": "11.23", "limitGB": 10, "remainingGB": "0.00", "overageGB": "1.23",
                                   "overageSats": 6, "hourStart": 1_800_000_000});
    assert_eq!(rig.status(&hosted.key).await.ok(), expected);

    drop(publisher);
    rig.app.clock.advance(Duration::from_secs(5));
    expected["hlsReady"] = json!(false);
    assert_eq!(rig.status(&hosted.key).await.ok(), expected, "the encoder may return");
    rig.app.live.stop(StreamId(hosted.stream), EndReason::Stopped).await;
    assert_eq!(rig.status(&hosted.key).await.ok(), offline(1_800_000_000));
}

#[tokio::test]
async fn without_rewind_there_is_no_buffer() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let (_publisher, shelf) = rig.go_live(&hosted).await;
    rig.make_playable(&shelf, 12_000, 0);
    let status = rig.status(&hosted.key).await.ok();
    assert_eq!((&status["isLive"], &status["hlsReady"]), (&json!(true), &json!(true)));
    assert_eq!(status["dvr"], offline(0)["dvr"]);
}

#[tokio::test]
async fn what_is_left_of_another_session_is_not_shown() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let _live = rig.go_live(&hosted).await;
    let other = rig.app.live.begin_shelf(DestinationId(hosted.destination), new_session_id());
    rig.make_playable(&other, 12_000, 60_000);
    let status = rig.status(&hosted.key).await.ok();
    assert_eq!((&status["isLive"], &status["hlsReady"]), (&json!(true), &json!(false)));
    assert_eq!((&status["playbackToken"], &status["dvr"]), (&json!(null), &offline(0)["dvr"]));
    let path = format!("/api/streams/{}", hosted.stream);
    assert_eq!(rig.get(&path).await.ok()["playback"][0]["previewToken"], json!(null));
    rig.app.live.end_shelf(&other);
    assert!(rig.status(&hosted.key).await.ok()["playbackToken"].is_string());
}

#[tokio::test]
async fn a_stream_that_is_being_stopped_is_offline_for_viewers() {
    let rig = Rig::new().await;
    let hosted = rig.hosted_with(json!({"deaf": true})).await;
    let (_publisher, shelf) = rig.go_live(&hosted).await;
    rig.make_playable(&shelf, 12_000, 60_000);
    let (live, stream) = (rig.app.live.clone(), StreamId(hosted.stream));
    let stopping = tokio::spawn(async move { live.stop(stream, EndReason::Stopped).await });
    let is_stopping =
        || rig.app.live.session(stream).is_some_and(|session| session.state == SessionState::Stopping);
    for _ in 0..100 {
        if is_stopping() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let status = rig.status(&hosted.key).await.ok();
    assert!(is_stopping() && !shelf.ended(), "its driver takes its time");
    assert_eq!(status, offline(1_800_000_000));
    assert!(stopping.await.unwrap());
}

#[tokio::test]
async fn every_form_of_a_key_is_taken_and_comes_back_in_the_url() {
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
async fn a_missing_key_is_400_and_every_other_than_a_good_public_one_401() {
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
    intruder.enable_destination(hosted.destination, false).await;
    refused().await;
    intruder.enable_destination(hosted.destination, true).await;
    rig.status(&hosted.key).await.ok();
    intruder.revoke_public_keys().await;
    refused().await;
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
        json!({"error": "Rate limit exceeded. Maximum 60 requests per minute.", "retryAfter": 30,
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
    let text = rig.status("wrong").await.error(429, "rate_limited");
    assert_eq!(text, "Rate limit exceeded. Maximum 60 requests per minute.");
    rig.status(&hosted.key).await.ok();
}

#[tokio::test]
async fn a_store_that_fails_is_502() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    rig.intruder().await.damage_destination(hosted.destination).await;
    rig.status(&hosted.key).await.error(502, "store_failed");
}

#[tokio::test]
async fn the_use_of_a_public_key_is_noted() {
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

#[tokio::test]
async fn owners_see_the_playback_url_and_the_preview_of_a_live_stream() {
    let rig = Rig::with_config("public_url = \"https://live.example.com\"").await;
    let hosted = rig.hosted().await;
    let rtmp = json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live"}});
    rig.post(&format!("/api/streams/{}/destinations", hosted.stream), &rtmp).await.ok();
    assert_eq!(hosted.path().len(), 22);
    assert_eq!(hosted.url, format!("https://live.example.com/hls/{}/index.m3u8", hosted.path()));
    let path = format!("/api/streams/{}", hosted.stream);
    let detail = rig.get(&path).await.ok();
    assert_eq!(detail["destinations"][1]["url"], hosted.url);
    let idle = json!([{"destinationId": hosted.destination, "url": hosted.url, "previewUrl": null,
                       "previewToken": null, "hlsReady": false}]);
    assert_eq!(detail["playback"], idle);

    let (_publisher, shelf) = rig.go_live(&hosted).await;
    rig.make_playable(&shelf, 12_000, 60_000);
    let token = rig.app.playback.preview_token(&shelf, hosted.path());
    let live = json!([{"destinationId": hosted.destination, "url": hosted.url,
                       "previewUrl": format!("{}?token={token}", hosted.url), "previewToken": token,
                       "hlsReady": true}]);
    assert_eq!(rig.get(&path).await.ok()["playback"], live);
    rig.intruder().await.damage_destination(hosted.destination).await;
    assert_eq!(rig.get(&path).await.ok()["destinations"][1]["url"], hosted.url, "still its address");
    rig.post(&format!("{path}/stop"), &json!({})).await.ok();
    assert_eq!(rig.get(&path).await.ok()["playback"], idle);
}
