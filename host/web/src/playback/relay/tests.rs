//! Sessions that a relay remembers.

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
        relay.opening(&peer, DestinationId(1), &headers).unwrap()
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
    assert!(relay.opening(&peer, DestinationId(1), &HeaderMap::new()).is_err(), "no answer of a node");
}

#[test]
fn the_age_of_an_answer_is_read_from_its_headers() {
    for (text, secs) in [("max-age=3600, immutable", 3600), ("max-age=1", 1), ("no-store", 0), ("", 0)] {
        assert_eq!(max_age_secs(text), secs, "{text}");
    }
}
