//! Requests to a node that does not answer, over a real socket, and the secret.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt as _;
use satcast_core::ids::{Msat, UnixMillis};
use satcast_core::secret::Vault;
use satcast_store::OpenOptions;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::*;
use crate::auth::{RATE_INVALID_KEYS, RATE_STATUS};
use satcast_core::config::Durability;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const ADDRESS: &str = "/node/hls/1/1/-/hosted/entry?";
const LIMIT: Duration = Duration::from_millis(300);

async fn nodes(folder: &TempDir, clock: &Clock) -> Nodes {
    let url = satcast_store::testing::url(&folder.path().join("t.db")).await;
    let (durability, vault, low_balance) = (Durability::Normal, Vault::new(&[7; 32]), Msat(0));
    let store = satcast_store::open(OpenOptions { url, durability, vault, low_balance }).await.unwrap();
    let guard = Guard::new(&ANY_ADDRESS.map(str::to_owned)).unwrap();
    let cluster = Cluster {
        node: Some("b".into()),
        advertise: None,
        secret: Some(Redacted::new(SECRET.to_owned())),
        lease_secs: 30,
    };
    Nodes::of(&cluster, store, clock.clone(), guard).unwrap().unwrap()
}

/// A node that takes connections and says nothing, with their number.
async fn silent() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            held.push(socket);
        }
    });
    (address, count)
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_left_alone_for_a_moment() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(UnixMillis(0)));
    let nodes = nodes(&folder, &clock).await;
    let (address, connections) = silent().await;
    let peer = Peer { name: "a".into(), address: format!("http://{address}/").into() };
    for _ in 0..3 {
        assert!(nodes.get(&peer, ADDRESS, LIMIT).await.is_none());
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    clock.advance(RESTS);
    assert!(nodes.get(&peer, ADDRESS, LIMIT).await.is_none());
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    assert_eq!(nodes.requests.taken(), 0);
}

#[tokio::test]
async fn an_address_that_leads_elsewhere_is_not_asked_for() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(UnixMillis(0)));
    let nodes = nodes(&folder, &clock).await;
    let (address, connections) = silent().await;
    let peer = Peer { name: "a".into(), address: format!("http://{address}/").into() };
    for name in ["../../7/preview/entry", "%2e%2e/%2E./7", "..\\..\\7", "x/./7", "x#y", "\t7"] {
        let asked = format!("/node/hls/1/1/-/hosted/asset/{name}?");
        assert!(nodes.get(&peer, &asked, LIMIT).await.is_none(), "{name}");
    }
    assert!(nodes.get(&peer, "//127.0.0.1:1/x", LIMIT).await.is_none());
    assert_eq!(connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn requests_to_one_node_are_limited() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(UnixMillis(0)));
    let nodes = nodes(&folder, &clock).await;
    let (address, _) = silent().await;
    let peer = Peer { name: "a".into(), address: format!("http://{address}/").into() };
    let mut all: Vec<_> = (0..REQUESTS_MAX + 10).map(|_| nodes.get(&peer, ADDRESS, LIMIT)).collect();
    for one in &mut all {
        assert!(one.now_or_never().is_none());
    }
    assert_eq!(nodes.requests.taken(), REQUESTS_MAX as u64);
    drop(all);
    assert_eq!(nodes.requests.taken(), 0);
}

#[tokio::test]
async fn the_remembered_owners_are_bounded() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(UnixMillis(0)));
    let nodes = nodes(&folder, &clock).await;
    for stream in 0..=OWNERS_MAX as i64 {
        assert!(nodes.located(StreamId(stream)).await.owner.is_none());
    }
    assert_eq!(nodes.owners.lock().len(), OWNERS_MAX);
    clock.advance(FRESH);
    assert!(nodes.located(StreamId(-1)).await.owner.is_none());
    assert_eq!(nodes.owners.lock().len(), 1);
}

#[tokio::test]
async fn only_the_secret_of_the_nodes_is_admitted() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = nodes(&folder, &Clock::manual(UnixMillis(0))).await;
    let admits = |text: &str| {
        let value = HeaderValue::from_str(text).unwrap();
        nodes.admits(&HeaderMap::from_iter([(NODE, value)]))
    };
    assert!(admits(SECRET));
    for other in ["", "0123456789abcdef0123456789abcdeF", "Bearer 0123456789abcdef0123456789abcdef"] {
        assert!(!admits(other), "{other}");
    }
    assert!(!nodes.admits(&HeaderMap::new()));
    assert_eq!(nodes.located(StreamId(1)).await.owner.map(|peer| peer.name), None, "a service that is alone");
}

/// A subject that the other node counts.
fn counted_by(name: &str, peers: &[Peer]) -> String {
    let is_its = |subject: &String| {
        counts::counter("b", peers, RATE_STATUS.name, subject).map_or("b", |peer| &peer.name) == name
    };
    (0..100).map(|number| number.to_string()).find(is_its).unwrap()
}

#[tokio::test]
async fn this_node_counts_what_is_its_own_and_what_a_silent_node_does_not_count() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::manual(UnixMillis(0)));
    let nodes = nodes(&folder, &clock).await;
    let (address, connections) = silent().await;
    let peers: Arc<[Peer]> = [Peer { name: "a".into(), address: format!("http://{address}/").into() }].into();
    *nodes.living.lock() = Some(Living { peers: peers.clone(), asked_at: clock.monotonic() });
    let (own, other) = (counted_by("b", &peers), counted_by("a", &peers));
    for left in (0..RATE_STATUS.max).rev() {
        let verdict = nodes.hit(RATE_STATUS, own.clone()).await.unwrap();
        assert_eq!((verdict.allowed, verdict.remaining), (true, left));
    }
    assert!(!nodes.hit(RATE_STATUS, own.clone()).await.unwrap().allowed);
    assert_eq!(connections.load(Ordering::Relaxed), 0, "nothing was asked");
    for left in (RATE_STATUS.max - 3..RATE_STATUS.max).rev() {
        assert_eq!(nodes.hit(RATE_STATUS, other.clone()).await.unwrap().remaining, left);
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1, "it is left alone for a while");
    clock.advance(counts::SILENCE);
    *nodes.living.lock() = Some(Living { peers, asked_at: clock.monotonic() });
    assert_eq!(nodes.hit(RATE_STATUS, other).await.unwrap().remaining, RATE_STATUS.max - 4);
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    assert_eq!(nodes.hit(RATE_INVALID_KEYS, own).await, None, "each node counts these for itself");
}

#[tokio::test]
async fn a_node_counts_for_others_what_it_counts_itself() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(UnixMillis(0));
    let nodes = nodes(&folder, &clock).await;
    let give = |method: Method, path: &str| {
        let request = poem::Request::builder().method(method).uri_str(path).finish();
        nodes.give_count(&request)
    };
    let body = give(Method::POST, "/node/count/status/7").into_body().into_vec().await.unwrap();
    assert_eq!(counts::read(RATE_STATUS, &body).unwrap().remaining, RATE_STATUS.max - 1);
    assert_eq!(nodes.hit(RATE_STATUS, "7".to_owned()).await.unwrap().remaining, RATE_STATUS.max - 2);
    for (method, path) in [
        (Method::GET, "/node/count/status/7"),
        (Method::POST, "/node/count/invalid-keys/7"),
        (Method::POST, "/node/count/status/"),
    ] {
        assert_eq!(give(method, path).status(), StatusCode::NOT_FOUND, "{path}");
    }
}
