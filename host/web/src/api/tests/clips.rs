//! Clips: from the DVR window of a live stream or a recording to a ready file, and the requests that are refused.

use std::time::Duration;

use poem::http::Method;
use satcast_plugin_api::recording::{Recording, RecordingState};
use serde_json::{Value, json};

use super::archives::{recording, tell};
use super::recordings::ask;
use super::{LINKED_DRIVER, Rig};
use satcast_archive::testing::{self, WINDOW_SECS, fill_restarted_window, fill_window, reports};
use satcast_core::ids::{DestinationId, Msat, SessionId, StreamId};
use satcast_core::secret::KeyKind;
use satcast_live::Publisher;
use satcast_store::{ArchiveReport, ArchiveState, ClipBegun, ClipCaps, NewClip, NewSession, Scopes, Terms};

/// Looks for a clip that is cut soon.
const LOOKS_MAX: usize = 500;

/// A clip in the making that nobody makes.
pub(super) async fn clip(rig: &Rig) -> i64 {
    let hosted = rig.hosted().await;
    let (stream, now) = (StreamId(hosted.stream), rig.app.clock.now());
    let session = SessionId(format!("ses_clip{}", hosted.stream));
    let new = NewSession { id: session.clone(), stream_id: stream, started_at: now, terms: Terms::default() };
    rig.app.store.begin_session(new).await.unwrap();
    let new = NewClip {
        stream,
        session,
        destination: DestinationId(hosted.destination),
        driver: LINKED_DRIVER.into(),
        file_name: format!("clips/of-{}.mp4", hosted.stream),
        title: String::new(),
        price: Msat(0),
        caps: ClipCaps { clips: 1_000, making: 1_000 },
    };
    let actor = satcast_store::Actor::command(rig.account, now);
    let begun = rig.app.store.begin_clip(&actor, &new).await.unwrap();
    let ClipBegun::Begun(id) = begun else { panic!("{begun:?}") };
    id
}

/// Two clips: one is ready, one has failed.
pub(super) async fn ready_and_failed(rig: &Rig) {
    let (store, now) = (&rig.app.store, rig.app.clock.now());
    store.fail_clip(clip(rig).await, "it broke", now).await.unwrap();
    let ready = store.clip(rig.account, clip(rig).await).await.unwrap().unwrap();
    let file_name = format!("clips/of-{}.mp4", ready.stream.unwrap());
    let report = ArchiveReport {
        driver: LINKED_DRIVER.into(),
        destination_id: ready.destination,
        session_id: ready.session,
        url: Some(format!("s3://bucket/{file_name}")),
        file_name,
        state: ArchiveState::Ready,
        size_bytes: 5,
        uploaded_bytes: 5,
        duration_ms: 1_500,
        error: None,
        error_class: None,
        started_at: now,
        changed_at: now,
        attempt: 0,
        attempt_opened: false,
        expires_at: None,
        notice: None,
        audio_only: false,
    };
    store.record_archive(report, &|_| true, now).await.unwrap();
}

/// A live stream with a DVR window that begins now.
pub(super) async fn live_with_window(rig: &Rig) -> (i64, Publisher) {
    let hosted = rig.hosted().await;
    let (publisher, opening) = rig.go_live(&hosted).await;
    fill_window(&opening, rig.app.clock.now().0, rig.folder.path());
    (hosted.stream, publisher)
}

impl Rig {
    async fn until_cut(&self, id: i64) -> Value {
        for _ in 0..LOOKS_MAX {
            let clip = self.get(&format!("/api/clips/{id}")).await.ok();
            if clip["sizeBytes"].is_number() || clip["state"] == "failed" {
                return clip;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the clip is not cut");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clip_of_a_live_stream_is_made_shown_changed_and_deleted() {
    let mut rig = Rig::new().await;
    assert_eq!(rig.get("/api/clips").await.ok(), json!([]));
    let (stream, _publisher) = live_with_window(&rig).await;
    let path = format!("/api/streams/{stream}/clips");
    let begin = rig.app.clock.now().0;
    let wanted = json!({"from": begin + 2_500, "to": begin + 4_000, "title": " Goal "});
    let made = rig.post(&path, &wanted).await.ok();
    let id = made["id"].as_i64().unwrap();
    assert_eq!(made, json!({"success": true, "id": id, "state": "making", "costSats": 0}));
    let clip = rig.until_cut(id).await;
    assert_eq!(
        (&clip["state"], &clip["title"], &clip["error"]),
        (&json!("making"), &json!("Goal"), &Value::Null)
    );
    assert_eq!((&clip["startedAt"], &clip["streamKeyId"]), (&json!(begin + 2_000), &json!(stream)));
    assert!(clip["playbackUrl"].is_null() && clip["posterUrl"].is_null(), "{clip}");
    let name = testing::files().pop().unwrap();
    reports().put(LINKED_DRIVER, testing::finish(&name));
    rig.app.archive.save_reports().await;
    let clips = rig.get("/api/clips?sign=true").await.ok();
    assert_eq!((&clips[0]["state"], &clips[0]["id"]), (&json!("ready"), &json!(id)));
    assert!(clips[0]["url"].as_str().unwrap().starts_with("https://store.example/clips/"), "{clips}");
    let plain = rig.get(&format!("/api/clips/{id}")).await.ok();
    assert_eq!(plain["url"], format!("s3://bucket/{name}"));
    assert_eq!(rig.get("/api/archives").await.ok(), json!([]), "it is no recording");
    watch(&rig, stream, &plain, &name).await;
    let change = json!({"public": true, "title": "Save"}).to_string();
    rig.ask(Method::PATCH, &format!("/api/clips/{id}"), Some(&change)).await.ok();
    let changed = rig.get(&format!("/api/clips/{id}")).await.ok();
    assert_eq!((&changed["public"], &changed["title"]), (&json!(true), &json!("Save")));
    let owner = std::mem::take(&mut rig.key);
    rig.key = rig.account("stranger").await.1;
    assert_eq!(rig.get("/api/clips").await.ok(), json!([]));
    rig.key = owner;
    rig.delete(&format!("/api/clips/{id}")).await.ok();
    rig.get(&format!("/api/clips/{id}")).await.error(404, "not_found");
    assert!(testing::journal(&name).is_none());
}

/// A recording with the media of a window, which begins at this time; returns it and its stream.
async fn filmed(rig: &Rig, name: &str, state: RecordingState, started_at_ms: i64) -> (Recording, i64) {
    testing::fill_recording(name);
    let duration_ms = WINDOW_SECS.unsigned_abs() * 1_000;
    let report = Recording { started_at_ms, duration_ms, ..recording(rig, name, state).await };
    testing::put(report.clone());
    let id = tell(rig, report.clone()).await;
    (report, rig.app.store.archives_together(id).await.unwrap()[0].stream.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clip_of_a_recording_is_made_when_the_stream_has_ended() {
    let rig = Rig::new().await;
    let begin = rig.app.clock.now().0;
    let (report, stream) = filmed(&rig, "filmed-1.mp4", RecordingState::Ready, begin).await;
    let path = format!("/api/streams/{stream}/clips");
    let made = rig.post(&path, &json!({"from": begin + 2_500, "to": begin + 4_000})).await.ok();
    let clip = rig.until_cut(made["id"].as_i64().unwrap()).await;
    assert_eq!((&clip["state"], &clip["startedAt"]), (&json!("making"), &json!(begin + 2_000)));
    assert_eq!((&clip["sessionId"], &clip["streamKeyId"]), (&json!(report.session_id), &json!(stream)));
    let end = begin + WINDOW_SECS * 1_000;
    for (from, to) in [(begin - 9_000, begin), (end, end + 5_000)] {
        rig.post(&path, &json!({"from": from, "to": to})).await.error(409, "clip_no_media");
    }
    // Last seconds are those of a live stream.
    rig.post(&path, &json!({"lastSeconds": 5})).await.error(409, "clip_no_media");
    let (_, stream) = filmed(&rig, "filmed-2.mp4", RecordingState::Failed, begin).await;
    let path = format!("/api/streams/{stream}/clips");
    let wanted = json!({"from": begin, "to": begin + 4_000});
    rig.post(&path, &wanted).await.error(409, "clip_no_media");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_before_the_window_comes_from_the_recording() {
    let rig = Rig::new().await;
    let begin = rig.app.clock.now().0;
    let hosted = rig.hosted().await;
    let (_publisher, opening) = rig.go_live(&hosted).await;
    fill_window(&opening, begin, rig.folder.path());
    testing::fill_recording("longer.mp4");
    let report = Recording {
        destination_id: hosted.destination,
        session_id: opening.session.to_string(),
        started_at_ms: begin - 18_000,
        duration_ms: 23_000,
        ..recording(&rig, "longer.mp4", RecordingState::Recording).await
    };
    testing::put(report.clone());
    let _ = tell(&rig, report).await;
    let path = format!("/api/streams/{}/clips", hosted.stream);
    for ((from, to), started) in [
        // The window reaches the start; the recording has more; the window has more.
        ((2_500, 60_000), 2_000),
        ((-4_500, 3_000), -5_000),
        ((-10_000, 12_000), -10_000),
        ((-500, 19_000), 0),
        // The part that is not there yet is no part of the window.
        ((-18_000, 60_000), -18_000),
    ] {
        let wanted = json!({"from": begin + from, "to": begin + to});
        let made = rig.post(&path, &wanted).await.ok();
        let clip = rig.until_cut(made["id"].as_i64().unwrap()).await;
        assert_eq!(clip["startedAt"], begin + started, "{from} to {to}: {clip}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_over_a_restart_comes_from_the_recording() {
    let rig = Rig::new().await;
    let begin = rig.app.clock.now().0;
    let hosted = rig.hosted().await;
    let (_publisher, opening) = rig.go_live(&hosted).await;
    fill_restarted_window(&opening, begin, begin + 14_000, rig.folder.path());
    let path = format!("/api/streams/{}/clips", hosted.stream);
    let started = async |wanted: Value| {
        let made = rig.post(&path, &wanted).await.ok();
        rig.until_cut(made["id"].as_i64().unwrap()).await["startedAt"].as_i64().unwrap() - begin
    };
    let (range, last) =
        (json!({"from": begin + 4_000, "to": begin + WINDOW_SECS * 1_000}), json!({"lastSeconds": 16}));
    // Only the window is there.
    assert_eq!((started(range.clone()).await, started(last.clone()).await), (14_000, 14_000));
    // Last seconds are of one session.
    let record = async |name: &str, session_id: String| {
        testing::fill_recording(name);
        let report = Recording {
            destination_id: hosted.destination,
            session_id,
            started_at_ms: begin,
            duration_ms: WINDOW_SECS.unsigned_abs() * 1_000,
            ..recording(&rig, name, RecordingState::Recording).await
        };
        testing::put(report.clone());
        let _ = tell(&rig, report).await;
    };
    let other = SessionId("ses_earlier".into());
    let new = NewSession {
        id: other.clone(),
        stream_id: StreamId(hosted.stream),
        started_at: rig.app.clock.now(),
        terms: Terms::default(),
    };
    rig.app.store.begin_session(new).await.unwrap();
    record("earlier.mp4", other.0).await;
    assert_eq!((started(range.clone()).await, started(last.clone()).await), (4_000, 14_000));
    record("restarted.mp4", opening.session.to_string()).await;
    assert_eq!((started(range).await, started(last).await), (4_000, 4_000));
}

/// The owner's address gives the file and its ranges; a key of the stream does when the clip is public, no other key ever.
async fn watch(rig: &Rig, stream: i64, clip: &Value, name: &str) {
    let (file, url) = (testing::file(name).unwrap(), clip["playbackUrl"].as_str().unwrap());
    let target = &url[url.find("/vod/").unwrap()..];
    let whole = ask(rig, Method::GET, target, &[]).await;
    assert_eq!((whole.answer.status.as_u16(), whole.answer.header("content-type")), (200, "video/mp4"));
    assert!(whole.bytes == file, "{} of {} bytes", whole.bytes.len(), file.len());
    let part = ask(rig, Method::GET, target, &[("range", "bytes=4-7")]).await;
    assert_eq!((part.answer.status.as_u16(), &part.bytes[..]), (206, &b"ftyp"[..]));
    let head = ask(rig, Method::HEAD, target, &[]).await;
    assert_eq!(head.answer.header("content-length"), file.len().to_string());
    let path = target.split('?').next().unwrap();
    let destinations = rig.get(&format!("/api/streams/{stream}/destinations")).await.ok();
    let own = destinations[0]["id"].as_i64();
    let own = rig.key(rig.account, KeyKind::Public, Scopes::NONE, own).await;
    let other = rig.hosted().await.key;
    let status = async |query: &str| {
        ask(rig, Method::GET, &format!("{path}?{query}"), &[]).await.answer.status.as_u16()
    };
    let (own, other) = (format!("apiKey={own}"), format!("apiKey={other}"));
    let poster = clip["posterUrl"].as_str().unwrap();
    let poster = ask(rig, Method::GET, &poster[poster.find("/vod/").unwrap()..], &[]).await;
    assert_eq!((poster.answer.status.as_u16(), poster.answer.header("content-type")), (200, "video/mp4"));
    assert!(poster.bytes.ends_with(&[7; 900]) && poster.bytes.len() < 3_000, "one frame");
    let poster_of = format!("{}?{own}", path.replace("clip.mp4", "poster.mp4"));
    let hidden = ask(rig, Method::GET, &poster_of, &[]).await;
    assert_eq!(hidden.answer.status.as_u16(), 404, "private");
    assert_eq!((status(&own).await, status(&other).await), (404, 404), "private");
    assert_eq!((status("").await, status("token=x").await), (400, 401));
    let id = clip["id"].as_i64().unwrap();
    let set = async |public: bool| {
        let change = json!({"public": public}).to_string();
        rig.ask(Method::PATCH, &format!("/api/clips/{id}"), Some(&change)).await.ok();
        // The answer of the store is used for a second.
        rig.app.clock.advance(Duration::from_secs(2));
    };
    set(true).await;
    assert_eq!((status(&own).await, status(&other).await), (200, 404), "public");
    let shown = ask(rig, Method::GET, &poster_of, &[]).await;
    assert!(shown.bytes == poster.bytes, "the poster is as public as the clip");
    let playlist = format!("{}?{own}", path.replace("clip.mp4", "index.m3u8"));
    assert_eq!(
        ask(rig, Method::GET, &playlist, &[]).await.answer.status.as_u16(),
        404,
        "a clip has no playlist"
    );
    set(false).await;
    assert_eq!(status(&own).await, 404);
}

#[tokio::test]
async fn ranges_that_no_clip_can_have_are_refused() {
    let rig = Rig::new().await;
    let (stream, _publisher) = live_with_window(&rig).await;
    let path = format!("/api/streams/{stream}/clips");
    let begin = rig.app.clock.now().0;
    for body in [
        json!({}),
        json!({"title": "x"}),
        json!({"lastSeconds": 0}),
        json!({"lastSeconds": 601}),
        json!({"lastSeconds": 5, "from": begin}),
        json!({"from": begin}),
        json!({"from": begin, "to": begin}),
        json!({"from": begin, "to": begin + 600_001}),
        json!({"from": -1, "to": 5}),
        json!({"from": i64::MIN, "to": i64::MAX}),
    ] {
        rig.post(&path, &body).await.error(422, "clip_range_refused");
    }
    rig.post(&path, &json!({"lastSeconds": 1.5})).await.error(400, "malformed_field");
    rig.post(&path, &json!({"lastSeconds": 5, "title": "x".repeat(129)})).await.error(422, "label_refused");
    let behind = begin + WINDOW_SECS * 1_000;
    for (from, to) in [(begin - 5_000, begin - 1), (behind, behind + 5_000)] {
        rig.post(&path, &json!({"from": from, "to": to})).await.error(409, "clip_no_media");
    }
    let idle = rig.hosted().await.stream;
    let path = format!("/api/streams/{idle}/clips");
    rig.post(&path, &json!({"lastSeconds": 5})).await.error(409, "clip_no_media");
    let hosted = rig.hosted().await;
    let (_publisher, _opening) = rig.go_live(&hosted).await;
    let path = format!("/api/streams/{}/clips", hosted.stream);
    rig.post(&path, &json!({"lastSeconds": 5})).await.error(409, "clip_no_media");
}
