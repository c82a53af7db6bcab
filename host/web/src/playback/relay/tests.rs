//! Sessions that a relay remembers, and the node that it asks.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::Full;

use super::*;

/// Nodes that never answer.
#[derive(Debug, Default)]
struct Nobody {
    asked: AtomicU64,
}

impl Owners for Nobody {
    fn name(&self) -> &str {
        "b"
    }

    fn admits(&self, _: &HeaderMap) -> bool {
        false
    }

    fn located(&self, _: StreamId) -> BoxFuture<'_, Located> {
        Box::pin(async { Located::default() })
    }

    fn get<'a>(&'a self, _: &'a Peer, _: &'a str, _: Duration) -> BoxFuture<'a, Option<Answered>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_one_account_leave_places_for_others() {
    let owners = Arc::new(Nobody::default());
    let relay = Relay::new(owners.clone(), Clock::manual(UnixMillis(0)), PathBuf::new());
    let ask = |account: i64| {
        let (relay, peer) = (relay.clone(), Peer { name: "a".into(), address: "".into() });
        tokio::spawn(async move {
            relay.load(&peer, DestinationId(1), "/", Report::default(), AccountId(account)).await
        })
    };
    let first: Vec<_> = (0..=ACCOUNT_REQUESTS_MAX).map(|_| ask(1)).collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(owners.asked.load(Ordering::Relaxed), ACCOUNT_REQUESTS_MAX);
    let _other = ask(2);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(owners.asked.load(Ordering::Relaxed), ACCOUNT_REQUESTS_MAX + 1);
    first[0].abort();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(owners.asked.load(Ordering::Relaxed), ACCOUNT_REQUESTS_MAX + 2, "the one that waited");
}

#[tokio::test(start_paused = true)]
async fn parts_of_recordings_leave_places_for_other_accounts_and_for_live_streams() {
    let owners = Arc::new(Nobody::default());
    let relay = Relay::new(owners.clone(), Clock::manual(UnixMillis(0)), PathBuf::new());
    let ask = |account: i64| {
        let (relay, peer) = (relay.clone(), Peer { name: "a".into(), address: "".into() });
        tokio::spawn(async move { relay.part(&peer, AccountId(account), 1, Part::Signed).await })
    };
    let mut all = Vec::new();
    for (account, most) in [(1, PARTS_PER_ACCOUNT_MAX), (2, PARTS_MAX), (3, PARTS_MAX)] {
        all.extend((0..=PARTS_PER_ACCOUNT_MAX).map(|_| ask(account)));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(owners.asked.load(Ordering::Relaxed), most);
    }
    let refused = ask(3).await.unwrap().unwrap_err();
    assert_eq!(refused.to_string(), ApiError::relay_full().to_string());
    let (live, peer) = (relay.clone(), Peer { name: "a".into(), address: "".into() });
    let _live = tokio::spawn(async move {
        live.load(&peer, DestinationId(1), "/", Report::default(), AccountId(1)).await
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(owners.asked.load(Ordering::Relaxed), PARTS_MAX + 1);
}

#[tokio::test]
async fn media_without_room_in_memory_is_copied_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::new(Arc::new(Nobody::default()), Clock::manual(UnixMillis(0)), folder.path().into());
    let mut relay = Arc::try_unwrap(relay).unwrap();
    relay.copies = Copies::new(8, 8, 20);
    let copy = async |content_type: &'static str| {
        let body = Full::new(Bytes::from_static(b"media")).map_err(|never| match never {});
        let answer = Response::builder().header(CONTENT_TYPE, content_type).header(CONTENT_LENGTH, 5);
        relay.asset(answer.body(UnsyncBoxBody::new(body)).unwrap(), AccountId(1)).await
    };
    let (first, second) = (copy("video/mp4").await.unwrap(), copy("video/mp4").await.unwrap());
    for asset in [&first, &second] {
        let AssetBody::Open { file: Some(file), offset: 0, len: 5 } = &asset.body else {
            panic!("not in a file: {asset:?}")
        };
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"media");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the files have no names");
    for content_type in ["video/mp4", PLAYLIST_TYPE] {
        assert!(matches!(copy(content_type).await, Err(Failure::Refused(_))), "{content_type}");
    }
    drop(first);
    let _third = copy("video/mp4").await.unwrap();
}

#[test]
fn sessions_are_bounded_and_forgotten_after_a_while() {
    let clock = Clock::manual(UnixMillis(0));
    let relay = Relay::new(Arc::new(Nobody::default()), clock.clone(), PathBuf::new());
    let peer = Peer { name: "a".into(), address: "".into() };
    let take = |session: &str, begun: bool| {
        let mut headers = HeaderMap::from_iter([(SESSION, HeaderValue::from_str(session).unwrap())]);
        if begun {
            headers.insert(BEGUN, HeaderValue::from_static("1"));
        }
        relay.opening(&peer, DestinationId(1), &headers, true).unwrap()
    };
    for number in 0..SESSIONS_MAX {
        take(&number.to_string(), number == 0);
    }
    assert!(relay.has_begun(DestinationId(1), "0") && !relay.has_begun(DestinationId(1), "1"));
    assert!(Arc::ptr_eq(&take("0", false), &take("0", false)), "one opening for all answers of a session");
    take("one more", true);
    assert_eq!(relay.sessions.lock().len(), SESSIONS_MAX);
    assert!(!relay.has_begun(DestinationId(1), "one more"), "it is served and not remembered");
    clock.advance(KEPT_AFTER_END);
    take("later", true);
    assert_eq!(relay.sessions.lock().len(), 1);
    assert!(relay.opening(&peer, DestinationId(1), &HeaderMap::new(), true).is_err(), "no answer of a node");
}

#[test]
fn the_age_of_an_answer_is_read_from_its_headers() {
    for (text, secs) in [("max-age=3600, immutable", 3600), ("max-age=1", 1), ("no-store", 0), ("", 0)] {
        assert_eq!(max_age_secs(text), secs, "{text}");
    }
}

/// A session that is at `b` now and was at `a`, which alone has its playlist.
#[derive(Debug)]
struct Moved(Option<Peer>);

fn peer(name: &str) -> Peer {
    Peer { name: name.into(), address: "".into() }
}

fn answer(status: StatusCode, session: Option<&'static str>, body: &'static str) -> Answered {
    let body = http_body_util::Full::from(body).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = status;
    let len = session.map(|_| (CONTENT_LENGTH, HeaderValue::from_static("7")));
    let session = session.map(|session| (SESSION, HeaderValue::from_static(session)));
    let own = [(OF_NODE, HeaderValue::from_static("1"))];
    answer.headers_mut().extend(own.into_iter().chain(session).chain(len));
    answer
}

impl Owners for Moved {
    fn name(&self) -> &str {
        "c"
    }

    fn admits(&self, _: &HeaderMap) -> bool {
        false
    }

    fn located(&self, _: StreamId) -> BoxFuture<'_, Located> {
        let session = Some(SessionId("moved".into()));
        Box::pin(async { Located { session, owner: Some(peer("b")), former: self.0.clone() } })
    }

    fn get<'a>(&'a self, peer: &'a Peer, address: &'a str, _: Duration) -> BoxFuture<'a, Option<Answered>> {
        let answer = match &*peer.name {
            "a" => answer(StatusCode::OK, Some("moved"), "#EXTM3U"),
            _ if address.contains("/moved/") => answer(NOT_PUBLISHED, Some("moved"), ""),
            _ => answer(StatusCode::NOT_FOUND, None, r#"{"code":"offline","error":"The stream is offline"}"#),
        };
        Box::pin(async { Some(answer) })
    }
}

#[tokio::test]
async fn while_the_next_owner_has_nothing_of_a_session_the_one_before_is_asked() {
    let clock = Clock::manual(UnixMillis(0));
    let relay = Relay::new(Arc::new(Moved(None)), clock.clone(), PathBuf::new());
    let what = What::Asset { name: "media.m3u8", query: "", player: false };
    let resource = |session| Resource {
        stream: StreamId(1),
        destination: DestinationId(1),
        session: Some(session),
        audience: Audience::Hosted,
        what,
    };
    let headers = HeaderMap::from_iter([(SESSION, HeaderValue::from_static("moved"))]);
    relay.opening(&peer("a"), DestinationId(1), &headers, true).unwrap();
    for _ in 0..2 {
        let content = relay.fetch(&resource("moved"), AccountId(1), 0).await.unwrap().unwrap();
        let asset = content.asset.unwrap();
        assert!(matches!(&asset.body, AssetBody::Memory(bytes) if &bytes[..] == b"#EXTM3U"));
    }
    let unknown = relay.fetch(&resource("other"), AccountId(1), 0).await.unwrap_err();
    assert_eq!(unknown.http_status(), StatusCode::NOT_FOUND);
    clock.advance(KEPT_AFTER_END);
    let forgotten = relay.fetch(&resource("moved"), AccountId(1), 0).await.unwrap().unwrap();
    assert!(forgotten.asset.is_none(), "the next owner decides");
    // A node that has started meanwhile remembers nothing: the database names the node before.
    let relay = Relay::new(Arc::new(Moved(Some(peer("a")))), clock, PathBuf::new());
    let content = relay.fetch(&resource("moved"), AccountId(1), 0).await.unwrap().unwrap();
    assert!(content.asset.is_some());
    let unknown = relay.fetch(&resource("other"), AccountId(1), 0).await.unwrap_err();
    assert_eq!(unknown.http_status(), StatusCode::NOT_FOUND, "it is not asked for other sessions");
}
