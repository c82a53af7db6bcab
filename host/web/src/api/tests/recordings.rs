//! Recordings for viewers: who may watch, ranges, metering, recordings of one session, limits.

use std::time::Duration;

use bytes::Bytes;
use poem::Request;
use poem::http::{Method, StatusCode};
use serde_json::json;

use satcast_media::Codec;
use satcast_media::fmp4::{Sample, TrackConfig, TrackRun, VIDEO_TRACK_ID, init_segment, write_fragment};
use satcast_media::fuzz::RECORDS;
use satcast_plugin_api::recording::{Recording, RecordingState};

use super::archives::{recording, tell};
use super::{Answer, Rig, contract};
use crate::base::{Code, RequestContext};
use crate::playback::{Playback, RECORDING_RESPONSES_PER_ACCOUNT_MAX, RECORDING_RESPONSES_PER_NETWORK_MAX};
use satcast_archive::testing::{self, FRAGMENT_BYTES, INIT_BYTES, byte_at};
use satcast_core::ids::{EndReason, SessionId};
use satcast_core::secret::KeyKind;
use satcast_store::Scopes;

/// An answer of playback.
pub(super) struct Played {
    pub(super) answer: Answer,
    pub(super) bytes: Vec<u8>,
}

impl Played {
    fn ok(&self) -> &str {
        assert_eq!(self.answer.status, StatusCode::OK, "{}", self.answer.text);
        &self.answer.text
    }
}

pub(super) async fn ask(rig: &Rig, method: Method, target: &str, headers: &[(&str, &str)]) -> Played {
    ask_at(&rig.app.playback, method, target, headers).await
}

/// The same at a node.
pub(super) async fn ask_at(
    playback: &Playback,
    method: Method,
    target: &str,
    headers: &[(&str, &str)],
) -> Played {
    let path = target.split('?').next().unwrap().to_owned();
    let mut request = Request::builder().method(method.clone()).uri_str(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = playback.answer(request.finish()).await;
    let bytes = response.take_body().into_vec().await.unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    contract::check(&method, &path, response.status(), response.headers(), &text);
    Played { answer: Answer { status: response.status(), headers: response.headers().clone(), text }, bytes }
}

async fn play(rig: &Rig, target: &str) -> Played {
    ask(rig, Method::GET, target, &[]).await
}

/// Path and query of the address in the list.
pub(super) async fn address(rig: &Rig, id: i64) -> String {
    let url = rig.get(&format!("/api/archives/{id}")).await.ok()["playbackUrl"].as_str().unwrap().to_owned();
    let at = url.find("/vod/").unwrap();
    url[at..].to_owned()
}

/// A recording of so many seconds whose session has ended.
pub(super) async fn made(rig: &Rig, name: &str, state: RecordingState, secs: u64) -> (Recording, i64) {
    let (report, id) = begun(rig, name, state, secs).await;
    end(rig, &report).await;
    (report, id)
}

async fn end(rig: &Rig, report: &Recording) {
    let (session, now) = (SessionId(report.session_id.clone()), rig.app.clock.now());
    rig.app.store.end_session(&session, now, EndReason::Stopped).await.unwrap();
}

/// The same while the session goes on.
async fn begun(rig: &Rig, name: &str, state: RecordingState, secs: u64) -> (Recording, i64) {
    let mut report = recording(rig, name, state).await;
    report.size_bytes = INIT_BYTES + secs * FRAGMENT_BYTES;
    testing::put(report.clone());
    let id = tell(rig, report.clone()).await;
    (report, id)
}

/// Another one of the same session and destination.
async fn next(rig: &Rig, before: &Recording, name: &str, state: RecordingState, secs: u64) -> i64 {
    let report = Recording {
        file_name: name.into(),
        state,
        size_bytes: INIT_BYTES + secs * FRAGMENT_BYTES,
        started_at_ms: before.started_at_ms + 60_000,
        ..before.clone()
    };
    testing::put(report.clone());
    tell(rig, report).await
}

/// A public key of a new self-hosted destination of the stream.
pub(super) async fn public_key(rig: &Rig, stream: i64) -> String {
    let target = json!({"type": "self-hosted", "config": {}});
    let made = rig.post(&format!("/api/streams/{stream}/destinations"), &target).await.ok();
    rig.key(rig.account, KeyKind::Public, Scopes::ALL, made["id"].as_i64()).await
}

/// A recording of three frames, the second of which is the only keyframe.
pub(super) async fn filmed(rig: &Rig, name: &str) -> (Recording, i64) {
    let (_, record) = RECORDS.into_iter().find(|(codec, _)| *codec == Codec::H264).unwrap();
    let track = TrackConfig::parse(Codec::H264, &Bytes::from_static(record)).unwrap();
    let frame = |sync, byte: u8| {
        let payload = Bytes::from(vec![byte; 1_000]);
        Sample { duration: 3_000, composition: 0, sync, payload }
    };
    let samples = vec![frame(false, 1), frame(true, 2), frame(false, 3)];
    let mut fragment = Vec::new();
    write_fragment(&mut fragment, 1, &[TrackRun { track_id: VIDEO_TRACK_ID, decode_time: 0, samples }])
        .unwrap();
    testing::fill(name, &init_segment(&[&track]).unwrap(), &fragment);
    made(rig, name, RecordingState::Ready, 9).await
}

#[tokio::test]
async fn a_poster_is_the_first_keyframe_with_the_access_of_the_playlist() {
    let rig = Rig::new().await;
    let (_, id) = filmed(&rig, "filmed.mp4").await;
    let url = rig.get(&format!("/api/archives/{id}")).await.ok()["posterUrl"].as_str().unwrap().to_owned();
    let address = &url[url.find("/vod/").unwrap()..];
    let poster = play(&rig, address).await;
    assert_eq!((poster.answer.status, poster.answer.header("content-type")), (StatusCode::OK, "video/mp4"));
    assert!(poster.bytes.ends_with(&[2; 1_000]) && poster.bytes.len() < 3_000, "one frame");
    assert_eq!(poster.answer.header("cache-control"), "private, no-store");
    assert_eq!(used(&rig).await, poster.bytes.len() as u64);
    let part = ask(&rig, Method::GET, address, &[("Range", "bytes=0-9")]).await;
    assert_eq!((part.answer.status, &part.bytes[..]), (StatusCode::PARTIAL_CONTENT, &poster.bytes[..10]));
    // It is kept: the driver is not asked again.
    testing::fill("filmed.mp4", &[], &[]);
    assert_eq!(play(&rig, address).await.bytes, poster.bytes);
    let path = format!("/vod/{id}/poster.mp4");
    play(&rig, &path).await.answer.error(400, "key_required");
    play(&rig, &format!("{path}?token=x")).await.answer.error(401, "invalid_key");
    let key = public_key(&rig, stream_of(&rig, id).await).await;
    play(&rig, &format!("{path}?apiKey={key}")).await.answer.error(404, "not_found");
    rig.ask(Method::PATCH, &format!("/api/archives/{id}"), Some(r#"{"public":true}"#)).await.ok();
    rig.app.clock.advance(Duration::from_secs(2));
    let public = play(&rig, &format!("{path}?apiKey={key}")).await;
    assert_eq!((public.answer.status, &public.bytes), (StatusCode::OK, &poster.bytes));
    // One without video has no poster to offer.
    let song = recording(&rig, "song.mp4", RecordingState::Ready).await;
    let song = tell(&rig, Recording { audio_only: true, ..song }).await;
    let shown = rig.get(&format!("/api/archives/{song}")).await.ok();
    assert!(shown["playbackUrl"].is_string() && shown["posterUrl"].is_null(), "{shown}");
    // Bytes that are no video.
    let (_, other) = made(&rig, "a.mp4", RecordingState::Ready, 9).await;
    let index = self::address(&rig, other).await;
    play(&rig, &index.replace("index.m3u8", "poster.mp4")).await.answer.error(404, "not_found");
}

pub(super) async fn stream_of(rig: &Rig, id: i64) -> i64 {
    rig.app.store.archives_together(id).await.unwrap()[0].stream.0
}

pub(super) fn media(playlist: &str, id: i64) -> String {
    let line = playlist.lines().find(|line| line.starts_with(&format!("../{id}/"))).unwrap();
    line.replacen("..", "/vod", 1)
}

async fn used(rig: &Rig) -> u64 {
    rig.app.playback.this_hour(rig.account).await.unwrap().bytes
}

#[tokio::test]
async fn the_owner_watches_ranges_that_are_metered() {
    let rig = Rig::new().await;
    let (report, id) = made(&rig, "a.mp4", RecordingState::Ready, 9).await;
    let index = address(&rig, id).await;
    let playlist = play(&rig, &index).await;
    let text = playlist.ok().to_owned();
    assert_eq!(playlist.answer.header("content-type"), "application/vnd.apple.mpegurl");
    assert_eq!(playlist.answer.header("cache-control"), "private, no-store");
    assert_eq!(playlist.answer.header("access-control-allow-origin"), "*");
    assert!(text.contains("#EXT-X-PLAYLIST-TYPE:VOD\n") && text.ends_with("#EXT-X-ENDLIST\n"), "{text}");
    assert!(text.contains("BYTERANGE=\"700@0\"\n"), "{text}");
    let ranges: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#EXT-X-BYTERANGE:")).collect();
    assert_eq!(ranges, ["4000@700", "4000@4700", "1000@8700"]);
    let file = media(&text, id);
    let whole: Vec<u8> = (0..report.size_bytes).map(byte_at).collect();
    let mut received = used(&rig).await;
    assert_eq!(received, playlist.bytes.len() as u64);
    let all = play(&rig, &file).await;
    assert_eq!((all.answer.status, &all.bytes), (StatusCode::OK, &whole));
    assert_eq!(all.answer.header("accept-ranges"), "bytes");
    let etag = all.answer.header("etag").to_owned();
    received += all.bytes.len() as u64;
    for (range, expected) in
        [("bytes=0-699", 0..700), ("bytes=4700-8699", 4700..8700), ("bytes=-10", 9690..9700)]
    {
        let part = ask(&rig, Method::GET, &file, &[("Range", range)]).await;
        assert_eq!(
            (part.answer.status, &part.bytes[..]),
            (StatusCode::PARTIAL_CONTENT, &whole[expected.clone()])
        );
        let said = format!("bytes {}-{}/{}", expected.start, expected.end - 1, whole.len());
        assert_eq!(part.answer.header("content-range"), said);
        received += part.bytes.len() as u64;
    }
    for (validator, status) in [(etag.as_str(), 206), ("\"other\"", 200)] {
        let part = ask(&rig, Method::GET, &file, &[("Range", "bytes=0-9"), ("If-Range", validator)]).await;
        assert_eq!(part.answer.status.as_u16(), status, "{validator}");
        received += part.bytes.len() as u64;
    }
    assert_eq!(used(&rig).await, received, "each byte, for the account");
    let beyond = ask(&rig, Method::GET, &file, &[("Range", "bytes=9700-")]).await.answer;
    beyond.error(416, "range_not_satisfiable");
    assert_eq!(beyond.header("content-range"), "bytes */9700");
    let head = ask(&rig, Method::HEAD, &file, &[]).await;
    assert_eq!((head.answer.header("content-length"), head.bytes.len()), ("9700", 0));
    assert_eq!(ask(&rig, Method::OPTIONS, &file, &[]).await.answer.status, StatusCode::NO_CONTENT);
    ask(&rig, Method::POST, &file, &[]).await.answer.error(405, "method_not_allowed");
    assert_eq!(used(&rig).await, received);
    let packed = ask(&rig, Method::GET, &index, &[("Accept-Encoding", "gzip")]).await;
    assert_eq!(packed.answer.header("content-encoding"), "gzip");
}

#[tokio::test]
async fn only_the_owner_and_keys_of_the_stream_open_a_recording() {
    let rig = Rig::new().await;
    let (_, id) = made(&rig, "a.mp4", RecordingState::Ready, 9).await;
    let (_, other) = made(&rig, "b.mp4", RecordingState::Ready, 9).await;
    let key = public_key(&rig, stream_of(&rig, id).await).await;
    let elsewhere = public_key(&rig, stream_of(&rig, other).await).await;
    let foreign_key = rig.account("stranger").await.1;
    let index = format!("/vod/{id}/index.m3u8");
    let with = |key: &str| format!("{index}?apiKey={key}");
    play(&rig, &index).await.answer.error(400, "key_required");
    for (key, status, code) in [
        (key.as_str(), 404, "not_found"),
        (elsewhere.as_str(), 404, "not_found"),
        (rig.key.as_str(), 401, "invalid_key"),
        (foreign_key.as_str(), 401, "invalid_key"),
        ("pk_unknown", 401, "invalid_key"),
    ] {
        play(&rig, &with(key)).await.answer.error(status, code);
    }
    rig.ask(Method::PATCH, &format!("/api/archives/{id}"), Some("{\"public\": true}")).await.ok();
    rig.app.clock.advance(crate::playback::FRESH);
    let playlist = play(&rig, &with(&key)).await;
    let file = media(playlist.ok(), id);
    assert!(!playlist.answer.text.contains("pk_"));
    assert_eq!(play(&rig, &file).await.answer.header("cache-control"), "max-age=3600, immutable");
    play(&rig, &with(&elsewhere)).await.answer.error(404, "not_found");
    play(&rig, &format!("/vod/{other}/index.m3u8?apiKey={key}")).await.answer.error(404, "not_found");
    play(&rig, &format!("/vod/999/index.m3u8?apiKey={key}")).await.answer.error(404, "not_found");
    play(&rig, &file.replace(&format!("/vod/{id}/"), &format!("/vod/{other}/")))
        .await
        .answer
        .error(401, "invalid_key");

    let own = address(&rig, id).await;
    play(&rig, &own).await.ok();
    let token = own.split("token=").nth(1).unwrap().to_owned();
    play(&rig, &format!("/vod/{other}/index.m3u8?token={token}")).await.answer.error(401, "invalid_key");
    play(&rig, &format!("{index}?token={token}x")).await.answer.error(401, "invalid_key");
    play(&rig, &format!("{index}?token=nonsense")).await.answer.error(401, "invalid_key");
    play(&rig, &format!("/vod/{id}/t/{token}/media.mp4")).await.ok();

    // Private again, revoked, disabled, deleted, too old.
    rig.ask(Method::PATCH, &format!("/api/archives/{id}"), Some("{\"public\": false}")).await.ok();
    rig.app.clock.advance(crate::playback::FRESH);
    play(&rig, &with(&key)).await.answer.error(404, "not_found");
    play(&rig, &file).await.answer.error(404, "not_found");
    rig.ask(Method::PATCH, &format!("/api/archives/{id}"), Some("{\"public\": true}")).await.ok();
    rig.intruder().await.revoke_public_keys().await;
    rig.app.clock.advance(crate::playback::FRESH);
    play(&rig, &with(&key)).await.answer.error(401, "invalid_key");
    play(&rig, &file).await.answer.error(401, "invalid_key");
    play(&rig, &own).await.ok();
    rig.app.clock.advance(std::time::Duration::from_secs(25 * 3_600));
    play(&rig, &own).await.answer.error(401, "invalid_key");
    let own = address(&rig, id).await;
    rig.delete(&format!("/api/archives/{id}")).await.ok();
    rig.app.clock.advance(crate::playback::FRESH);
    play(&rig, &own).await.answer.error(404, "not_found");
}

#[tokio::test]
async fn recordings_of_a_session_play_as_one_and_grow() {
    let rig = Rig::new().await;
    let (first, one) = begun(&rig, "a.mp4", RecordingState::Ready, 6).await;
    let two = next(&rig, &first, "b.mp4", RecordingState::Recording, 5).await;
    let text = play(&rig, &address(&rig, one).await).await.ok().to_owned();
    assert!(text.contains("#EXT-X-PLAYLIST-TYPE:EVENT\n") && !text.contains("#EXT-X-ENDLIST"), "{text}");
    assert_eq!(text.matches("#EXT-X-DISCONTINUITY\n").count(), 1);
    // The last segment of the one that grows is not there yet.
    assert_eq!(
        (text.matches(&format!("\n../{one}/")).count(), text.matches(&format!("\n../{two}/")).count()),
        (2, 1)
    );
    let later = play(&rig, &address(&rig, two).await).await.ok().to_owned();
    assert!(later.contains("#EXT-X-START:TIME-OFFSET=6.000,"), "{later}");
    testing::change("b.mp4", |recording| recording.size_bytes += 4 * FRAGMENT_BYTES);
    rig.app.clock.advance(crate::playback::FRESH);
    let grown = play(&rig, &address(&rig, one).await).await.ok().to_owned();
    assert!(grown.starts_with(text.trim_end()), "an event only grows: {grown}");
    assert_eq!(grown.matches(&format!("\n../{two}/")).count(), 2);
    // Viewers with a key see the public ones alone.
    let key = public_key(&rig, stream_of(&rig, one).await).await;
    rig.ask(Method::PATCH, &format!("/api/archives/{two}"), Some("{\"public\": true}")).await.ok();
    rig.app.clock.advance(crate::playback::FRESH);
    let seen = play(&rig, &format!("/vod/{two}/index.m3u8?apiKey={key}")).await.ok().to_owned();
    assert!(!seen.contains(&format!("../{one}/")) && seen.contains(&format!("../{two}/")), "{seen}");
    play(&rig, &format!("/vod/{one}/index.m3u8?apiKey={key}")).await.answer.error(404, "not_found");
    end(&rig, &first).await;
    tell(&rig, testing::finish("b.mp4")).await;
    rig.app.clock.advance(crate::playback::FRESH);
    let whole = play(&rig, &address(&rig, one).await).await.ok().to_owned();
    assert!(whole.contains("#EXT-X-PLAYLIST-TYPE:VOD\n") && whole.ends_with("#EXT-X-ENDLIST\n"), "{whole}");
    // One that its driver lost does not take the others away.
    testing::lose("a.mp4");
    rig.app.clock.advance(crate::playback::FRESH);
    play(&rig, &address(&rig, two).await).await.ok();
}

#[tokio::test]
async fn failing_stores_and_too_many_viewers_are_told_to_try_again() {
    let rig = Rig::with_config("[http]\ntrusted_proxies = [\"0.0.0.0/32\"]").await;
    let (_, id) = made(&rig, "unread-a.mp4", RecordingState::Ready, 6).await;
    let text = play(&rig, &address(&rig, id).await).await.ok().to_owned();
    play(&rig, &media(&text, id)).await.answer.error(503, Code::AssetUnreadable.as_str());
    let (_, id) = made(&rig, "b.mp4", RecordingState::Ready, 6).await;
    let file = media(play(&rig, &address(&rig, id).await).await.ok(), id);
    let mut held = Vec::new();
    let from = |network: u64| {
        let address = format!("198.51.100.{network}");
        Request::builder().uri_str(&file).header("X-Forwarded-For", address).finish()
    };
    let networks = RECORDING_RESPONSES_PER_ACCOUNT_MAX / RECORDING_RESPONSES_PER_NETWORK_MAX;
    for network in 0..networks {
        for _ in 0..RECORDING_RESPONSES_PER_NETWORK_MAX {
            held.push(rig.app.playback.answer(from(network)).await);
        }
        let over = rig.app.playback.answer(from(network)).await;
        assert_eq!(over.status(), StatusCode::SERVICE_UNAVAILABLE, "one network takes no more");
    }
    assert!(held.iter().all(|response| response.status() == StatusCode::OK));
    play(&rig, &file).await.answer.error(503, "too_many_readers");
    held.pop();
    play(&rig, &file).await.ok();
}

#[tokio::test]
async fn a_range_is_in_memory_from_the_second_viewer_on_and_metered_for_each() {
    let rig = Rig::new().await;
    let (_, id) = made(&rig, "wanted.mp4", RecordingState::Ready, 60).await;
    let file = media(play(&rig, &address(&rig, id).await).await.ok(), id);
    let part = async |range: &str| ask(&rig, Method::GET, &file, &[("Range", range)]).await;
    let first = part("bytes=700-40699").await;
    assert_eq!(first.answer.status, StatusCode::PARTIAL_CONTENT);
    // A read that fails is not repeated by the request that began it.
    testing::fail_reads("wanted.mp4", 1);
    part("bytes=700-40699").await.answer.error(503, Code::AssetUnreadable.as_str());
    assert_eq!(part("bytes=700-40699").await.bytes, first.bytes);
    testing::fail_reads("wanted.mp4", u32::MAX);
    let used_before = used(&rig).await;
    assert_eq!(part("bytes=700-40699").await.bytes, first.bytes, "from memory");
    assert_eq!(used(&rig).await - used_before, 40_000);
    for other in ["bytes=700-40700", "bytes=701-40699"] {
        part(other).await.answer.error(503, Code::AssetUnreadable.as_str());
    }
    // The driver hears once a minute that the recording is watched. Bytes in memory outlast a store that is down.
    testing::fail_reads("wanted.mp4", 1);
    part("bytes=701-40699").await.answer.error(503, Code::AssetUnreadable.as_str());
    assert_eq!(part("bytes=701-40699").await.bytes, first.bytes[1..]);
    testing::fail_reads("wanted.mp4", 1);
    rig.app.clock.advance(Duration::from_secs(60));
    for _ in 0..2 {
        assert_eq!(part("bytes=700-40699").await.bytes, first.bytes);
    }
    assert_eq!(part("bytes=702-40699").await.bytes, first.bytes[2..], "the failing read was made");
    // Bytes in memory need the same access.
    let intruder = file.replace("/t/", "/t/x");
    ask(&rig, Method::GET, &intruder, &[("Range", "bytes=700-40699")]).await.answer.error(401, "invalid_key");
    rig.delete(&format!("/api/archives/{id}")).await.ok();
    rig.app.clock.advance(crate::playback::FRESH);
    part("bytes=700-40699").await.answer.error(404, "not_found");
}

#[tokio::test]
async fn uploaded_recordings_come_from_the_store_if_the_operator_wants() {
    let rig = Rig::with_config("[archive]\nplayback = \"signed\"").await;
    let (_, ready) = made(&rig, "a.mp4", RecordingState::Ready, 6).await;
    let (_, unsigned) = made(&rig, "unsigned-b.mp4", RecordingState::Ready, 6).await;
    let (_, uploading) = made(&rig, "c.mp4", RecordingState::Uploading, 6).await;
    for (id, target) in
        [(ready, Some("https://store.example/a.mp4?valid=3600")), (unsigned, None), (uploading, None)]
    {
        let text = play(&rig, &address(&rig, id).await).await.ok().to_owned();
        let answer = play(&rig, &media(&text, id)).await.answer;
        let status = if target.is_some() { StatusCode::TEMPORARY_REDIRECT } else { StatusCode::OK };
        assert_eq!((answer.status, answer.header("location")), (status, target.unwrap_or_default()));
        assert_eq!(answer.header("access-control-allow-origin"), "*");
    }
    assert_eq!(stores_of(&rig, ready).await, ["https://store.example"]);
    let rig = Rig::new().await;
    let (_, ready) = made(&rig, "d.mp4", RecordingState::Ready, 6).await;
    assert!(stores_of(&rig, ready).await.is_empty(), "media from the service");
}

/// Origins that the player page of a recording allows for its owner.
async fn stores_of(rig: &Rig, id: i64) -> Vec<String> {
    let request = Request::builder().uri_str(address(rig, id).await).finish();
    let admitted = rig.app.playback.admit_recording(&request, &RequestContext::of(&request), id).await;
    admitted.unwrap().stores
}
