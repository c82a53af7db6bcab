//! Recordings whose file is at another node: the node of the viewer checks access and meters, the other one only reads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use poem::Request;
use poem::http::{HeaderMap, Method, Response as HttpResponse, StatusCode};
use satcast_plugin_api::recording::RecordingState;

use super::Rig;
use super::recordings::{Played, address, ask, ask_at, filmed, made, media, public_key, stream_of};
use crate::base::Code;
use crate::playback::{Answered, Located, Owners, Peer, Playback, PlaybackSecret};
use satcast_archive::testing;
use satcast_core::config::{Config, Durability};
use satcast_core::ids::{Msat, StreamId, UnixMillis};
use satcast_core::secret::Vault;
use satcast_store::{NewNode, OpenOptions};

/// The way from a node to the one with the files.
struct Link {
    keeper: Arc<Playback>,
    asked: Mutex<Vec<String>>,
    /// The other node does not answer.
    silent: AtomicBool,
    /// It does not run.
    gone: AtomicBool,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

impl Owners for Link {
    fn name(&self) -> &str {
        "b"
    }

    fn admits(&self, _: &HeaderMap) -> bool {
        false
    }

    fn located(&self, _: StreamId) -> BoxFuture<'_, Located> {
        Box::pin(async { Located::default() })
    }

    fn keeper<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Option<Peer>> {
        let is_there = folder == "folder-a" && !self.gone.load(Ordering::Relaxed);
        let peer = is_there.then(|| Peer { name: "a".into(), address: "".into() });
        Box::pin(async move { peer })
    }

    fn get<'a>(&'a self, _: &'a Peer, address: &'a str, _: Duration) -> BoxFuture<'a, Option<Answered>> {
        Box::pin(async move {
            self.asked.lock().push(address.to_owned());
            if self.silent.load(Ordering::Relaxed) {
                return None;
            }
            Some(give(&self.keeper, address).await)
        })
    }
}

/// The answer of a node to another one.
async fn give(playback: &Playback, address: &str) -> Answered {
    let (head, body) =
        playback.give(&Request::builder().uri(address.parse().unwrap()).finish()).await.into_parts();
    let bytes: Bytes = body.into_bytes().await.unwrap();
    let body: UnsyncBoxBody<Bytes, io::Error> =
        UnsyncBoxBody::new(Full::new(bytes).map_err(|never| match never {}));
    let mut answer = HttpResponse::new(body);
    (*answer.status_mut(), *answer.headers_mut()) = (head.status, head.headers);
    answer
}

fn node(name: &str) -> NewNode {
    NewNode {
        name: name.into(),
        holder: format!("folder-{name}"),
        advertise: format!("http://{name}:8080"),
        version: "1.2.3",
        lease: Duration::from_secs(600),
        started_at: UnixMillis(1_800_000_000_000),
    }
}

/// The service as node `a`, and playback of a node `b` on the same server; `None` without a server.
async fn two_nodes(toml: &str) -> Option<(Rig, Arc<Playback>, Arc<Link>)> {
    satcast_store::testing::server()?;
    let rig = Rig::with_config(toml).await;
    let url = satcast_store::testing::url(&rig.folder.path().join("t.db")).await;
    let (durability, vault, low_balance) = (Durability::Normal, Vault::new(&[7; 32]), Msat(0));
    let store = satcast_store::open(OpenOptions { url, durability, vault, low_balance }).await.unwrap();
    rig.app.store.take_node(&node("a")).await.unwrap();
    store.take_node(&node("b")).await.unwrap();
    let keeper = rig.app.playback.clone();
    let (asked, silent, gone) = Default::default();
    let link = Arc::new(Link { keeper, asked, silent, gone });
    let (live, clock) = (rig.app.live.clone(), rig.app.clock.clone());
    let config = Arc::new(Config::clone(&rig.app.current.get()));
    let secret = PlaybackSecret::of(&Vault::new(&[7; 32]));
    let guesses = rig.app.limits.invalid_keys.clone();
    let b = Playback::new(store, live, clock, config, &secret, guesses, Some(link.clone()));
    Some((rig, b, link))
}

async fn used(rig: &Rig, playback: &Playback) -> u64 {
    playback.this_hour(rig.account).await.unwrap().bytes
}

async fn play(playback: &Playback, target: &str) -> Played {
    ask_at(playback, Method::GET, target, &[]).await
}

#[tokio::test]
async fn recordings_are_the_same_at_every_node_and_metered_at_that_of_the_viewer() {
    let Some((rig, b, link)) = two_nodes("").await else { return };
    let (_, id) = made(&rig, "a.mp4", RecordingState::Ready, 1_500).await;
    let index = address(&rig, id).await;
    let file = media(&ask(&rig, Method::GET, &index, &[]).await.answer.text, id);
    let (_, film) = filmed(&rig, "filmed.mp4").await;
    let poster = address(&rig, film).await.replace("index.m3u8", "poster.mp4");
    let mut received = 0;
    for target in [&index, &file, &poster] {
        for headers in [
            &[][..],
            &[("Accept-Encoding", "gzip")],
            &[("Range", "bytes=100-599")],
            &[("Range", "bytes=0-9"), ("If-Range", "\"other\"")],
            &[("Range", "bytes=-10")],
            &[("Range", "bytes=99999999-")],
        ] {
            let before = used(&rig, &rig.app.playback).await;
            let at_b = ask_at(&b, Method::GET, target, headers).await;
            assert_eq!(used(&rig, &rig.app.playback).await, before, "the node with the file meters nothing");
            let at_a = ask(&rig, Method::GET, target, headers).await;
            assert_eq!((at_a.answer.status, at_a.bytes.len()), (at_b.answer.status, at_b.bytes.len()));
            if at_b.answer.status.is_success() {
                assert!(at_a.bytes == at_b.bytes, "{target} {headers:?}");
                received += at_b.bytes.len() as u64;
            }
            for name in [
                "content-type",
                "content-range",
                "content-encoding",
                "etag",
                "accept-ranges",
                "cache-control",
                "vary",
                "access-control-allow-origin",
            ] {
                assert_eq!(at_a.answer.header(name), at_b.answer.header(name), "{target} {name}");
            }
        }
        let head = ask_at(&b, Method::HEAD, target, &[]).await;
        assert_eq!((head.answer.status, head.bytes.len()), (StatusCode::OK, 0));
    }
    assert_eq!(used(&rig, &b).await, received, "each byte, once");
    let asked = link.asked.lock();
    // The whole file is longer than one part.
    let whole = |address: &&String| address.contains("/bytes/0/524288");
    assert!(asked.iter().any(|it| it.contains("/bytes/524288/")));
    assert_eq!(asked.iter().filter(whole).count(), 2, "the third viewer gets it from memory");
    let pages = asked.iter().filter(|address| address.contains(&format!("/{id}/index/"))).count();
    assert_eq!(pages, 1, "the index of a finished recording is asked for once");
}

#[tokio::test]
async fn access_is_checked_at_the_node_of_the_viewer() {
    let Some((rig, b, link)) = two_nodes("").await else { return };
    let (_, id) = made(&rig, "a.mp4", RecordingState::Ready, 9).await;
    let (_, other) = made(&rig, "b.mp4", RecordingState::Ready, 9).await;
    let key = public_key(&rig, stream_of(&rig, id).await).await;
    let elsewhere = public_key(&rig, stream_of(&rig, other).await).await;
    let index = format!("/vod/{id}/index.m3u8");
    for (query, status, code) in [
        (String::new(), 400, "key_required"),
        (format!("?apiKey={key}"), 404, "not_found"),
        (format!("?apiKey={elsewhere}"), 404, "not_found"),
        (format!("?apiKey={}", rig.key), 401, "invalid_key"),
        ("?token=nonsense".to_owned(), 401, "invalid_key"),
    ] {
        play(&b, &format!("{index}{query}")).await.answer.error(status, code);
        let poster = index.replace("index.m3u8", "poster.mp4");
        play(&b, &format!("{poster}{query}")).await.answer.error(status, code);
    }
    play(&b, &format!("/vod/{id}/t/nonsense/media.mp4")).await.answer.error(401, "invalid_key");
    assert!(link.asked.lock().is_empty(), "nothing of it reaches the other node");
    rig.ask(Method::PATCH, &format!("/api/archives/{id}"), Some("{\"public\": true}")).await.ok();
    rig.app.clock.advance(crate::playback::FRESH);
    let playlist = play(&b, &format!("{index}?apiKey={key}")).await;
    let file = media(&playlist.answer.text, id);
    assert_eq!(play(&b, &file).await.bytes.len(), 9_700);
    play(&b, &format!("{index}?apiKey={elsewhere}")).await.answer.error(404, "not_found");
}

#[tokio::test]
async fn a_node_that_fails_or_is_gone_is_told() {
    let Some((rig, b, link)) = two_nodes("").await else { return };
    let (_, id) = made(&rig, "unread-a.mp4", RecordingState::Ready, 9).await;
    let index = address(&rig, id).await;
    let file = media(&play(&b, &index).await.answer.text, id);
    play(&b, &file).await.answer.error(503, Code::AssetUnreadable.as_str());
    link.silent.store(true, Ordering::Relaxed);
    play(&b, &file).await.answer.error(503, "node_silent");
    link.gone.store(true, Ordering::Relaxed);
    for target in [&index, &file, &index.replace("index.m3u8", "poster.mp4")] {
        play(&b, target).await.answer.error(503, "recording_elsewhere");
    }
    link.silent.store(false, Ordering::Relaxed);
    link.gone.store(false, Ordering::Relaxed);
    play(&b, &file).await.answer.error(503, Code::AssetUnreadable.as_str());
    let (_, lost) = made(&rig, "b.mp4", RecordingState::Ready, 9).await;
    let lost_index = address(&rig, lost).await;
    testing::lose("b.mp4");
    play(&b, &lost_index).await.answer.error(404, "not_found");
    // A node gives its own files alone, so nothing is asked in a circle.
    link.asked.lock().clear();
    for part in ["bytes/0/10", "index/0", "signed"] {
        let answer = give(&b, &format!("/node/vod/{id}/{part}")).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE, "{part}");
    }
    assert_eq!(give(&b, "/node/vod/999999/signed").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(give(&rig.app.playback, &format!("/node/vod/{id}/bytes/0/0")).await.status().as_u16(), 404);
    assert!(link.asked.lock().is_empty());
}

#[tokio::test]
async fn signed_addresses_come_from_the_node_with_the_recording() {
    let Some((rig, b, _)) = two_nodes("[archive]\nplayback = \"signed\"").await else { return };
    for name in ["a.mp4", "unsigned-b.mp4"] {
        let (_, id) = made(&rig, name, RecordingState::Ready, 6).await;
        let file = media(&play(&b, &address(&rig, id).await).await.answer.text, id);
        let (at_a, at_b) = (ask(&rig, Method::GET, &file, &[]).await, play(&b, &file).await);
        assert_eq!(at_a.answer.status, at_b.answer.status);
        assert_eq!(at_a.answer.header("location"), at_b.answer.header("location"));
        let is_signed = at_b.answer.status == StatusCode::TEMPORARY_REDIRECT;
        assert_eq!(is_signed, name == "a.mp4");
    }
}
