//! Playback at a node whose viewers get the content of another node.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use poem::http::Response as HttpResponse;
use satcast_core::ids::StreamId;
use satcast_drivers::published::KEPT_AFTER_END;
use satcast_plugin_api::{Followed, Reload, SegmentPosition};

use super::*;

const SECRET: &str = "the secret of the nodes";
/// Viewers that ask at the same time.
const VIEWERS: usize = 20;

/// The way from a node to the one that has the session.
struct Link {
    owner: Arc<Playback>,
    asked: Mutex<Vec<String>>,
    /// The other node has no session.
    gone: AtomicBool,
    /// The session has not ended, while no node has it.
    open: AtomicBool,
    /// It does not answer.
    silent: AtomicBool,
    /// Its answers are those of another release.
    foreign: AtomicBool,
    /// Bytes that are left out at the end of each answer.
    cut: AtomicUsize,
    session: SessionId,
    /// How often this node looked for the session.
    looks: AtomicUsize,
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

    fn admits(&self, headers: &HeaderMap) -> bool {
        headers.get("satcast-node").is_some_and(|value| value == SECRET)
    }

    fn located(&self, _: StreamId) -> BoxFuture<'_, Located> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let is_gone = self.gone.load(Ordering::Relaxed);
        let owner = (!is_gone).then(|| Peer { name: "a".into(), address: "".into() });
        let session = (!is_gone || self.open.load(Ordering::Relaxed)).then(|| self.session.clone());
        Box::pin(async { Located { session, owner, former: None } })
    }

    fn get<'a>(&'a self, _: &'a Peer, address: &'a str, _: Duration) -> BoxFuture<'a, Option<Answered>> {
        Box::pin(async move {
            self.asked.lock().push(address.split('?').next().unwrap().to_owned());
            if self.silent.load(Ordering::Relaxed) {
                return None;
            }
            let request = Request::builder().uri(address.parse().unwrap()).finish();
            let context = RequestContext::of(&request);
            let (head, body) = self.owner.answer_node(&request, &context).await.into_parts();
            let len = head.headers.get("content-length").and_then(|len| len.to_str().ok()?.parse().ok());
            let is_large = len.is_some_and(|len: u64| len > COPIES_BYTES_MAX);
            let bytes = if is_large { Bytes::new() } else { body.into_bytes().await.unwrap() };
            let bytes = bytes.slice(..bytes.len().saturating_sub(self.cut.load(Ordering::Relaxed)));
            let body = UnsyncBoxBody::new(Full::new(bytes).map_err(|never| match never {}));
            let mut answer = HttpResponse::new(body);
            (*answer.status_mut(), *answer.headers_mut()) = (head.status, head.headers);
            if self.foreign.load(Ordering::Relaxed) {
                answer.headers_mut().remove("satcast-of-node");
            }
            Some(answer)
        })
    }
}

/// The other nodes as the owner of every session sees them.
#[derive(Debug)]
struct Alone;

impl Owners for Alone {
    fn name(&self) -> &str {
        "a"
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        headers.get("satcast-node").is_some_and(|value| value == SECRET)
    }

    fn located(&self, _: StreamId) -> BoxFuture<'_, Located> {
        Box::pin(async { Located::default() })
    }

    fn get<'a>(&'a self, _: &'a Peer, _: &'a str, _: Duration) -> BoxFuture<'a, Option<Answered>> {
        Box::pin(async { None })
    }
}

impl Link {
    /// How often this was asked for since the last call.
    fn count(&self, name: &str) -> usize {
        let mut asked = self.asked.lock();
        let before = asked.len();
        asked.retain(|address| !address.ends_with(name));
        before - asked.len()
    }
}

impl Rig {
    /// A second node on the same database, without the session.
    async fn beside(&self) -> (Rig, Arc<Link>) {
        let owner = self.playback.clone();
        let session = self.opening.session.clone();
        let (asked, gone, open, silent, foreign, cut, looks) = Default::default();
        let link = Arc::new(Link { owner, asked, gone, open, silent, foreign, cut, session, looks });
        let folder = tempfile::tempdir().unwrap();
        let app = app(self.app.store.clone(), self.app.clock.clone(), folder.path(), Some(link.clone()));
        let (address, stop) = serve(Site::new(app.clone(), crate::pages::testing::pages())).await;
        let rig = Rig {
            playback: app.playback.clone(),
            app,
            opening: self.opening.clone(),
            account: self.account,
            destination: self.destination,
            path: self.path.clone(),
            key: self.key.clone(),
            address,
            folder,
            _stop: stop,
        };
        (rig, link)
    }

    /// A media playlist that viewers wait for.
    fn list_media(&self, sequences: std::ops::Range<u32>) {
        let body = AssetBody::Memory(Bytes::from(media_playlist(sequences)));
        let followed = Followed { hold_back_ms: 2_000, ..Followed::default() };
        let asset = Asset::new("media.m3u8", PLAYLIST_TYPE, Audience::Both, body);
        self.opening.assets().publish(Asset { followed, ..asset }, self.folder.path()).unwrap();
    }

    /// Twenty answers to the same request, sent at the same time.
    async fn together(&self, target: &str) -> Vec<Answer> {
        let all = (0..VIEWERS).map(|_| self.get(target));
        futures_util::future::join_all(all).await
    }
}

#[tokio::test]
async fn every_address_gives_the_same_at_both_nodes() {
    let a = Rig::new().await;
    a.file("file.m4s", &noise(300_020));
    let (b, _) = a.beside().await;
    let mut targets = vec![a.index(), a.preview()];
    for name in ["media.m3u8", "i1-0.mp4", "1.m4s", "file.m4s", "never-there.m4s", "p1-3.m4s"] {
        targets.push(a.asset(name).await);
        targets.push(a.preview_asset(name));
    }
    for target in &targets {
        for headers in [&[][..], &[("Accept-Encoding", "gzip")], &[("Range", "bytes=100-599")]] {
            let (at_a, at_b) = (a.ask("GET", target, headers).await, b.ask("GET", target, headers).await);
            assert_eq!(at_a.status, at_b.status, "{target}");
            if at_a.status < 400 {
                assert_eq!(at_a.body, at_b.body, "{target}");
            }
            for name in ["content-type", "content-length", "content-range", "content-encoding", "vary"] {
                if at_a.status < 400 || name == "content-type" {
                    assert_eq!(at_a.header(name), at_b.header(name), "{target} {name}");
                }
            }
            assert_eq!(at_a.header("cache-control"), at_b.header("cache-control"), "{target}");
        }
        let head = b.ask("HEAD", target, &[]).await;
        assert!(head.body.is_empty() && head.status == a.ask("HEAD", target, &[]).await.status, "{target}");
        a.app.clock.advance(Duration::from_secs(20));
        a.tell(false);
    }
    let wrong = b.get(&format!("/hls/{}/index.m3u8?apiKey=pk_x", b.path)).await;
    wrong.error(401, "invalid_key");
}

#[tokio::test]
async fn many_viewers_cost_one_request_and_only_their_node_meters() {
    let a = Rig::new().await;
    let (b, link) = a.beside().await;
    let segment = b.asset("1.m4s").await;
    let before = (a.used().await, b.playback.meter.waiting());
    link.asked.lock().clear();
    for answer in b.together(&segment).await {
        assert_eq!(answer.ok(), noise(100_001));
    }
    b.get(&segment).await.ok();
    assert_eq!(link.count("/1.m4s"), 1);
    let sent = (VIEWERS as u64 + 1) * 100_001;
    assert_eq!(b.playback.meter.waiting() - before.1, sent, "at the node of the viewers");
    assert_eq!(a.used().await, before.0, "and not at the owner");
    // Both nodes store what they have sent.
    a.get(&segment).await.ok();
    a.playback.flush_meter().await;
    b.playback.flush_meter().await;
    let hour = START.hour_start();
    let stored = a.app.store.bandwidth_of_hour(a.account, hour).await.unwrap();
    assert_eq!(stored, a.used().await);
    assert!(stored > sent + 100_001, "{stored}");
}

#[tokio::test]
async fn a_playlist_is_asked_for_again_when_its_time_is_over() {
    let a = Rig::new().await;
    let (b, link) = a.beside().await;
    let media = b.asset("media.m3u8").await;
    for _ in 0..3 {
        b.get(&media).await.ok();
    }
    assert_eq!(link.count("/media.m3u8"), 1);
    a.publish("media.m3u8", PLAYLIST_TYPE, 1, Audience::Both, media_playlist(2..41).into_bytes());
    a.app.clock.advance(Duration::from_secs(1));
    assert_eq!(b.get(&media).await.text(), media_playlist(2..41));
    assert_eq!(link.count("/media.m3u8"), 1);
}

#[tokio::test]
async fn players_wait_at_the_owner_with_one_request_for_all() {
    let a = Rig::new().await;
    let version = |next, parts| {
        let reload =
            Reload { next_sequence: next, next_part: parts, target_ms: 10_000, delta: None, hint: None };
        let followed = Followed { hold_back_ms: 2000, reload: Some(reload), ..Followed::default() };
        let body = AssetBody::Memory(Bytes::from(format!("#EXTM3U\n#{next}.{parts}\n")));
        let asset = Asset::new("media.m3u8", PLAYLIST_TYPE, Audience::Hosted, body).max_age(1);
        a.opening.assets().publish(Asset { followed, ..asset }, a.folder.path()).unwrap();
    };
    version(7, 1);
    let (b, link) = a.beside().await;
    let media = b.asset("media.m3u8").await;
    link.asked.lock().clear();
    let target = format!("{media}?_HLS_msn=7&_HLS_part=1");
    let all = b.together(&target);
    let publish = async {
        // Longer than the owner lets one request wait.
        while link.asked.lock().len() < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(a.opening.assets().waiting(), 1, "one for all");
        version(7, 2);
    };
    let (answers, ()) = tokio::join!(all, tokio::time::timeout(WAIT_MAX, publish).map(Result::unwrap));
    for answer in &answers {
        assert_eq!((answer.text(), answer.header("cache-control")), ("#EXTM3U\n#7.2\n", "max-age=60"));
    }
    let count = link.count("/media.m3u8");
    assert!(count < 6, "{count} requests for {VIEWERS} viewers");
    b.get(&format!("{media}?_HLS_msn=99")).await.error(400, "malformed_directive");
}

#[tokio::test]
async fn a_viewer_that_leaves_does_not_cut_the_others_off() {
    let a = Rig::new().await;
    let (b, link) = a.beside().await;
    let segment = b.asset("2.m4s").await;
    drop(b.send("GET", &segment, &[]).await);
    b.get(&segment).await.ok();
    assert_eq!(link.count("/2.m4s"), 1);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error_and_is_not_kept() {
    let a = Rig::new().await;
    let (b, link) = a.beside().await;
    let segment = b.asset("3.m4s").await;
    link.cut.store(1, Ordering::Relaxed);
    b.get(&segment).await.error(503, "node_silent");
    link.cut.store(0, Ordering::Relaxed);
    link.foreign.store(true, Ordering::Relaxed);
    b.get(&segment).await.error(503, "node_silent");
    link.foreign.store(false, Ordering::Relaxed);
    assert_eq!(b.get(&segment).await.ok().len(), 100_003);
    link.silent.store(true, Ordering::Relaxed);
    let other = segment.replace("3.m4s", "4.m4s");
    b.get(&other).await.error(503, "node_silent");
    b.get(&segment).await.ok();
    link.gone.store(true, Ordering::Relaxed);
    b.get(&other).await.error(404, "offline");
    b.get(&b.index()).await.error(404, "offline");
}

#[tokio::test]
async fn viewers_of_a_session_between_two_nodes_wait_for_the_next_one() {
    let a = Rig::new().await;
    let (b, link) = a.beside().await;
    let media = b.asset("media.m3u8").await;
    link.gone.store(true, Ordering::Relaxed);
    // The node before is forgotten.
    a.app.clock.advance(KEPT_AFTER_END);
    b.get(&media).await.error(404, "offline");
    link.open.store(true, Ordering::Relaxed);
    let taken = async {
        while link.looks.load(Ordering::Relaxed) < 9 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        link.gone.store(false, Ordering::Relaxed);
    };
    let (answer, ()) = tokio::join!(b.get(&media), taken);
    assert_eq!(answer.text(), media_playlist(1..40));
    link.gone.store(true, Ordering::Relaxed);
    a.app.clock.advance(KEPT_AFTER_END);
    let over = async {
        let before = link.looks.load(Ordering::Relaxed);
        while link.looks.load(Ordering::Relaxed) == before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        a.app.clock.advance(Duration::from_secs(20));
    };
    let (answer, ()) = tokio::join!(b.get(&media), over);
    answer.error(503, "not_in_time");
}

#[tokio::test]
async fn nothing_larger_than_the_share_of_an_account_is_relayed() {
    let a = Rig::new().await;
    let (b, link) = a.beside().await;
    let len = COPIES_FILES_BYTES_MAX / 2 + 1;
    std::fs::File::create(a.folder.path().join("large")).unwrap().set_len(len).unwrap();
    let body = AssetBody::File { path: Path::new("large").into(), offset: 0, len, keep: None };
    a.put("large.m4s", "video/mp4", 3_600, Audience::Both, body);
    let large = b.asset("large.m4s").await;
    b.get(&large).await.error(503, "relay_full");
    assert_eq!(link.count("/large.m4s"), 1);
}

#[tokio::test]
async fn media_players_wait_for_the_first_segments_at_the_owner() {
    let a = Rig::new().await;
    a.list_media(1..2);
    let (b, _) = a.beside().await;
    let place = SegmentPosition { number: 1, offset_ns: 0, start_ms: START.0, init: "i1-0.mp4".into() };
    let followed = Followed { segment: Some(place), ..Followed::default() };
    let asset =
        Asset::new("1.m4s", "video/mp4", Audience::Both, AssetBody::Memory(Bytes::from_static(b"media")));
    a.opening.assets().publish(Asset { followed, ..asset }, a.folder.path()).unwrap();
    let segment = b.asset("1.m4s").await;
    // hls.js plays from the first segment on.
    assert_eq!(b.get(&segment).await.ok(), b"media");
    let waiting = b.ask("GET", &segment, &[("User-Agent", "VLC/3.0")]);
    let publish = async {
        while a.opening.assets().waiting() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        a.list_media(1..4);
    };
    let (answer, ()) = tokio::join!(waiting, publish);
    assert_eq!(answer.ok(), b"media");
    assert!(a.opening.has_begun());
}

#[tokio::test]
async fn after_the_end_players_get_what_they_know_for_a_while() {
    let a = Rig::new().await;
    let (b, link) = a.beside().await;
    let (media, segment) = (b.asset("media.m3u8").await, b.asset("5.m4s").await);
    b.get(&media).await.ok();
    a.app.live.end_opening(&a.opening);
    link.gone.store(true, Ordering::Relaxed);
    a.app.clock.advance(Duration::from_secs(2));
    b.get(&media).await.ok();
    b.get(&segment).await.ok();
    b.get(&b.index()).await.error(404, "offline");
    a.app.clock.advance(KEPT_AFTER_END);
    b.get(&media).await.error(404, "offline");
    b.get(&segment).await.error(404, "offline");
}

#[tokio::test]
async fn a_key_that_is_revoked_ends_playback_at_every_node() {
    let a = Rig::new().await;
    let (b, _) = a.beside().await;
    let (media, segment) = (b.asset("media.m3u8").await, b.asset("6.m4s").await);
    b.get(&segment).await.ok();
    let hash = satcast_core::secret::key_hash(&b.key);
    let key = a.app.store.key_by_hash(&hash).await.unwrap().unwrap();
    a.app.store.revoke_key(&Actor::command(a.account, START), key.id).await.unwrap();
    a.app.clock.advance(Duration::from_secs(1));
    for target in [&media, &segment, &b.index()] {
        b.get(target).await.error(401, "invalid_key");
    }
}

#[tokio::test]
async fn viewers_of_all_nodes_are_counted_at_each() {
    let a = Rig::of(json!({}), Some(Arc::new(Alone))).await;
    let (b, _) = a.beside().await;
    let media = a.asset("media.m3u8").await;
    for (rig, players) in [(&a, 2), (&b, 3)] {
        for player in 0..players {
            let session = format!("{player}");
            rig.ask("GET", &media, &[("X-Playback-Session-Id", &session)]).await.ok();
        }
    }
    a.app.clock.advance(Duration::from_secs(1));
    b.ask("GET", &media, &[("X-Playback-Session-Id", "0")]).await.ok();
    assert_eq!((a.playback.viewers(a.destination), b.playback.viewers(b.destination)), (5, 5));
    a.app.clock.advance(SEEN);
    assert_eq!((a.playback.viewers(a.destination), b.playback.viewers(b.destination)), (0, 0));
}

#[tokio::test]
async fn a_node_answers_others_from_its_own_sessions_alone() {
    let a = Rig::of(json!({}), Some(Arc::new(Alone))).await;
    let (b, link) = a.beside().await;
    let stream = b.app.store.playback_by_path(&b.path).await.unwrap().unwrap().stream_id;
    let address = format!("{NODE_PREFIX}{}/{}/-/hosted/entry", stream.0, b.destination.0);
    let authorized = [("satcast-node", SECRET)];
    let refused = b.ask("GET", &address, &authorized).await;
    let body: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!((refused.status, &body["code"]), (404, &json!("offline")));
    assert_eq!(a.ask("GET", &address, &authorized).await.ok(), ENTRY.as_bytes());
    assert!(link.asked.lock().is_empty());
    // Without the secret of the nodes, and at a service that is no node, there is no such path.
    let alone = Rig::new().await;
    for (rig, secret) in [(&a, "wrong"), (&a, ""), (&alone, SECRET)] {
        let answer = rig.ask("GET", &address, &[("satcast-node", secret)]).await;
        let unknown = rig.ask("GET", "/node/other", &[]).await;
        assert_eq!((answer.status, answer.body.len()), (404, unknown.body.len()));
    }
}
