//! Sessions that a relay remembers, and the node that it asks.

use super::*;

#[derive(Debug)]
struct Nobody;

impl Owners for Nobody {
    fn name(&self) -> &str {
        "b"
    }

    fn admits(&self, _: &HeaderMap) -> bool {
        false
    }

    fn owner(&self, _: StreamId) -> BoxFuture<'_, Option<Peer>> {
        Box::pin(async { None })
    }

    fn get<'a>(&'a self, _: &'a Peer, _: &'a str, _: Duration) -> BoxFuture<'a, Option<Answered>> {
        Box::pin(async { None })
    }
}

#[test]
fn sessions_are_bounded_and_forgotten_after_a_while() {
    let clock = Clock::manual(UnixMillis(0));
    let relay = Relay::new(Arc::new(Nobody), clock.clone());
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
struct Moved;

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

    fn owner(&self, _: StreamId) -> BoxFuture<'_, Option<Peer>> {
        Box::pin(async { Some(peer("b")) })
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
    let relay = Relay::new(Arc::new(Moved), clock.clone());
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
}
