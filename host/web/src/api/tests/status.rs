//! The stream status, and playback in the stream's detail.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use poem::Request;
use poem::http::{Method, StatusCode};
use satcast_media::{Codec, Packet};
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{Asset, AssetBody, Audience, Playback};
use serde_json::{Value, json};

use super::{Answer, Rig};
use crate::api::status::BUILT_FOR;
use crate::auth;
use satcast_core::ids::{DestinationId, EndReason, HOUR_MS, Sats, StreamId};
use satcast_core::secret::{KeyKind, new_api_key, new_session_id};
use satcast_drivers::published::Opening;
use satcast_live::{Publisher, SessionState};
use satcast_store::{Actor, Bandwidth, Scopes};

pub(super) const STATUS: &str = "/api/public/stream/status";
/// The rig's clock at the start: the beginning of an hour.
pub(super) const START_MS: i64 = 1_800_000_000_000;

/// A stream with one self-hosted destination and its public key.
pub(super) struct Hosted {
    pub(super) stream: i64,
    pub(super) destination: i64,
    pub(super) key: String,
    /// Playback URL without the key.
    pub(super) url: String,
}

impl Hosted {
    pub(super) fn query(&self) -> String {
        format!("apiKey={}", self.key)
    }

    pub(super) fn path(&self) -> &str {
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

    /// A GET without headers.
    pub(super) async fn open(&self, uri: &str) -> Answer {
        self.send(Request::builder().uri_str(uri).finish()).await
    }

    pub(super) async fn status(&self, key: &str) -> Answer {
        self.send(Request::builder().uri_str(STATUS).header("X-API-Key", key).finish()).await
    }

    /// Publishes to the stream until its destination has an opening.
    pub(super) async fn go_live(&self, hosted: &Hosted) -> (Publisher, Arc<Opening>) {
        const TRIES_MAX: usize = 3_000;
        let record = self.app.store.stream(StreamId(hosted.stream)).await.unwrap().unwrap();
        let mut publisher = self.app.live.publish(record).await.unwrap();
        publisher.push(&mut vec![keyframe()]);
        for _ in 0..TRIES_MAX {
            if let Some(opening) = self.app.live.opening(DestinationId(hosted.destination)) {
                return (publisher, opening);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the destination got no opening");
    }

    /// Loads the playlists, as a player with the key does.
    async fn play(&self, hosted: &Hosted) {
        let folder = format!("/hls/{}", hosted.path());
        let index = self.load(&format!("{folder}/index.m3u8?{}", hosted.query())).await;
        self.load(&format!("{folder}/{}", index.lines().next_back().unwrap())).await;
    }

    async fn load(&self, uri: &str) -> String {
        let mut response = self.app.playback.answer(Request::builder().uri_str(uri).finish()).await;
        assert_eq!(response.status(), StatusCode::OK, "{uri}");
        response.take_body().into_string().await.unwrap()
    }

    async fn add_bandwidth(&self, hosted: &Hosted, bytes: u64) {
        let (account, destination) = (self.account, DestinationId(hosted.destination));
        let hour_start = self.app.clock.now().hour_start();
        let sent = Bandwidth { account, destination, hour_start, bytes };
        self.app.store.add_bandwidth(&[sent]).await.unwrap();
    }

    /// The playback facts that the driver of a playable stream has reported.
    fn make_playable(&self, opening: &Opening, window_ms: u64, window_max_ms: u64) {
        let playlist = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:1\n\
            #EXT-X-MAP:URI=\"i1-v.mp4\"\n#EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:00.250Z\n#EXTINF:2.00000,\ns1.m4s\n";
        let assets = [
            ("i1-v.mp4", "video/mp4", "init"),
            ("s1.m4s", "video/mp4", "segment"),
            ("v.m3u8", PLAYLIST_TYPE, playlist),
            ("index.m3u8", PLAYLIST_TYPE, "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1000\nv.m3u8\n"),
        ];
        for (name, content_type, body) in assets {
            let asset = Asset {
                name: name.to_owned(),
                content_type: content_type.to_owned(),
                max_age_secs: 60,
                audience: Audience::Both,
                body: AssetBody::Memory(Bytes::from_static(body.as_bytes())),
                followed: Default::default(),
            };
            opening.assets().publish(asset, self.folder.path()).unwrap();
        }
        let facts = Playback {
            entry: "index.m3u8".to_owned(),
            preview: Some("preview.m3u8".to_owned()),
            first_ms: START_MS + 1_999,
            window_ms,
            window_max_ms,
            fresh_ms: 5_000,
            ended: false,
        };
        opening.assets().set_playback(facts, self.app.clock.monotonic());
    }
}

fn keyframe() -> Packet {
    Packet::media(Codec::H264, true, 0, 0, Bytes::from_static(&[9; 100]))
}

fn offline(hour_start: i64) -> Value {
    json!({
        "isLive": false, "hlsReady": false, "hlsUrl": null, "label": "test", "streamKeyLabel": "test",
        "startedAt": null, "startedAtMs": null, "playbackToken": null, "viewers": 0, "latencyMs": null,
        "dvr": {"enabled": false, "windowSeconds": 0, "maxWindowSeconds": 3600, "availableFrom": null},
        "bandwidth": {"usedGB": "0.00", "limitGB": 10, "remainingGB": "10.00", "overageGB": "0.00",
                      "overageSats": 0, "hourStart": hour_start},
    })
}

#[tokio::test]
async fn offline_has_exactly_the_specified_values() {
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
    let (publisher, opening) = rig.go_live(&hosted).await;
    let token = rig.app.playback.preview_token(&opening, hosted.path());
    let mut expected = offline(1_800_000_000);
    expected["isLive"] = json!(true);
    expected["hlsUrl"] = json!(format!("{}?apiKey={}", hosted.url, hosted.key));
    expected["startedAt"] = json!(1_800_000_001);
    expected["startedAtMs"] = json!(1_800_000_001_500_i64);
    expected["playbackToken"] = json!(token);
    assert_eq!(rig.status(&hosted.key).await.ok(), expected, "before the first segment");

    rig.make_playable(&opening, 42_999, 3_600_000);
    rig.add_bandwidth(&hosted, 11_234_567_890).await;
    rig.app
        .store
        .credit(&Actor::command(rig.account, rig.app.clock.now()), Sats(1_000), "credit".into())
        .await
        .unwrap();
    rig.app.billing.bill_playback().await;
    expected["hlsReady"] = json!(true);
    rig.app.clock.advance(Duration::from_secs(1));
    // The segment ended at 2.25 s, now it is 2.5 s, and three targets are kept.
    expected["latencyMs"] = json!(6_250);
    expected["dvr"] = json!({"enabled": true, "windowSeconds": 42, "maxWindowSeconds": 3600,
                             "availableFrom": 1_800_000_001});
    expected["bandwidth"] = json!({"usedGB": "11.23", "limitGB": 10, "remainingGB": "0.00", "overageGB": "1.23",
                                   "overageSats": 6, "hourStart": 1_800_000_000});
    assert_eq!(rig.status(&hosted.key).await.ok(), expected);

    drop(publisher);
    let is_away = || {
        rig.app
            .live
            .session(StreamId(hosted.stream))
            .is_some_and(|live| live.state == SessionState::Reconnecting)
    };
    rig.until("the encoder's leaving", async || is_away()).await;
    rig.app.clock.advance(Duration::from_secs(5));
    expected["latencyMs"] = json!(11_250);
    assert_eq!(
        rig.status(&hosted.key).await.ok(),
        expected,
        "the encoder may return, and the published media plays"
    );
    rig.app.live.stop(StreamId(hosted.stream), EndReason::Stopped).await;
    assert_eq!(rig.status(&hosted.key).await.ok(), offline(1_800_000_000));
}

#[tokio::test]
async fn an_offline_stream_shows_the_current_hour() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    rig.app.clock.advance(Duration::from_secs(3_599));
    assert_eq!(rig.status(&hosted.key).await.ok(), offline(1_800_000_000));
    rig.app.clock.advance(Duration::from_secs(2));
    assert_eq!(rig.status(&hosted.key).await.ok(), offline(1_800_003_600));
}

#[tokio::test]
async fn a_valid_key_without_a_destination_takes_nothing_from_its_network() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let permanent = rig.key(rig.account, KeyKind::Permanent, Scopes::NONE, None).await;
    for _ in 0..auth::RATE_INVALID_KEYS.max {
        assert_eq!(rig.status(&permanent).await.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(rig.status(&permanent).await.status, StatusCode::TOO_MANY_REQUESTS, "its own limit");
    let unknown = new_api_key(KeyKind::Public);
    assert_eq!(rig.status(unknown.expose()).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(rig.status(&hosted.key).await.status, StatusCode::OK);
}

#[tokio::test]
async fn keys_of_one_live_stream_share_its_answer_and_not_their_keys() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let destination = Some(hosted.destination);
    let other = rig.key(rig.account, KeyKind::Public, Scopes::NONE, destination).await;
    let (_publisher, opening) = rig.go_live(&hosted).await;
    let (own, others) = (rig.status(&hosted.key).await.ok(), rig.status(&other).await.ok());
    let expected = |key: &str| json!(format!("{}?apiKey={key}", hosted.url));
    assert_eq!((&own["hlsUrl"], &others["hlsUrl"]), (&expected(&hosted.key), &expected(&other)));
    assert_eq!(own["startedAtMs"], others["startedAtMs"]);
    // Facts of the driver and counted bytes are seen at once, viewers soon.
    rig.make_playable(&opening, 12_000, 60_000);
    assert_eq!(rig.status(&other).await.ok()["hlsReady"], true);
    rig.add_bandwidth(&hosted, 1_230_000_000).await;
    assert_eq!(rig.status(&other).await.ok()["bandwidth"]["usedGB"], "1.23");
    rig.play(&hosted).await;
    rig.app.clock.advance(BUILT_FOR);
    assert_eq!(rig.status(&other).await.ok()["viewers"], 1);
    let head = Request::builder().method(Method::HEAD).uri_str(STATUS).header("X-API-Key", &other);
    let head = rig.send(head.finish()).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));
    assert_eq!(head.header("content-type"), rig.status(&other).await.header("content-type"));
}

#[tokio::test]
async fn without_dvr_there_is_no_buffer() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let (_publisher, opening) = rig.go_live(&hosted).await;
    rig.make_playable(&opening, 12_000, 0);
    let status = rig.status(&hosted.key).await.ok();
    assert_eq!((&status["isLive"], &status["hlsReady"]), (&json!(true), &json!(true)));
    assert_eq!(status["dvr"], offline(0)["dvr"]);
}

#[tokio::test]
async fn assets_of_another_session_are_not_shown() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let _live = rig.go_live(&hosted).await;
    let other = rig.app.live.begin_opening(DestinationId(hosted.destination), new_session_id());
    rig.make_playable(&other, 12_000, 60_000);
    let status = rig.status(&hosted.key).await.ok();
    assert_eq!((&status["isLive"], &status["hlsReady"]), (&json!(true), &json!(false)));
    assert_eq!((&status["playbackToken"], &status["dvr"]), (&json!(null), &offline(0)["dvr"]));
    let path = format!("/api/streams/{}", hosted.stream);
    assert_eq!(rig.get(&path).await.ok()["playback"][0]["previewToken"], json!(null));
    rig.app.live.end_opening(&other);
    assert!(rig.status(&hosted.key).await.ok()["playbackToken"].is_string());
}

#[tokio::test]
async fn a_stream_that_is_being_stopped_is_offline_for_viewers() {
    let rig = Rig::new().await;
    let hosted = rig.hosted_with(json!({"deaf": true})).await;
    let (_publisher, opening) = rig.go_live(&hosted).await;
    rig.make_playable(&opening, 12_000, 60_000);
    let stream = StreamId(hosted.stream);
    let is_stopping =
        || rig.app.live.session(stream).is_some_and(|session| session.state == SessionState::Stopping);
    let answer = rig.post(&format!("/api/streams/{}/stop", hosted.stream), &json!({})).await.ok();
    assert_eq!(answer, json!({"success": true, "message": "Stop signal sent"}));
    assert!(is_stopping(), "the answer does not wait for a driver that takes its time");
    let status = rig.status(&hosted.key).await.ok();
    assert!(is_stopping() && !opening.ended());
    assert_eq!(status, offline(1_800_000_000));
}

#[tokio::test]
async fn a_store_that_fails_is_502() {
    let rig = Rig::new().await;
    let hosted = rig.hosted().await;
    rig.intruder().await.damage_destination(hosted.destination).await;
    rig.status(&hosted.key).await.error(502, "store_failed");
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
                       "previewToken": null, "hlsReady": false, "viewers": null}]);
    assert_eq!(detail["playback"], idle);

    let (_publisher, opening) = rig.go_live(&hosted).await;
    rig.make_playable(&opening, 12_000, 60_000);
    let token = rig.app.playback.preview_token(&opening, hosted.path());
    let mut live = json!([{"destinationId": hosted.destination, "url": hosted.url,
                       "previewUrl": format!("{}?token={token}", hosted.url), "previewToken": token,
                       "hlsReady": true, "viewers": 0}]);
    assert_eq!(rig.get(&path).await.ok()["playback"], live);
    rig.play(&hosted).await;
    live[0]["viewers"] = json!(1);
    assert_eq!(rig.get(&path).await.ok()["playback"], live);
    assert_eq!(rig.status(&hosted.key).await.ok()["viewers"], 1);
    let without = Playback { preview: None, ..opening.assets().playback().unwrap().playback.clone() };
    opening.assets().set_playback(without, rig.app.clock.monotonic());
    let shown = rig.get(&path).await.ok();
    let playback = &shown["playback"][0];
    assert_eq!((&playback["previewUrl"], &playback["previewToken"]), (&Value::Null, &Value::Null));
    assert_eq!(playback["hlsReady"], true);
    rig.intruder().await.damage_destination(hosted.destination).await;
    assert_eq!(rig.get(&path).await.ok()["destinations"][1]["url"], hosted.url, "still its address");
    rig.post(&format!("{path}/stop"), &json!({})).await.ok();
    assert_eq!(rig.get(&path).await.ok()["playback"], idle);
}
