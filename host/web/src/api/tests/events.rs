//! Events over real connections: separation of accounts, resuming, and the end of a stream.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use poem::http::Method;
use poem::{Request, Route};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::Rig;
use crate::api::events::{Proof, body};
use crate::api::{Caller, endpoint};
use satcast_core::config;
use satcast_core::feed::{EVENTS_KEPT_MAX, WATCHERS_MAX, WATCHERS_PER_ACCOUNT_MAX};
use satcast_core::ids::AccountId;
use satcast_core::secret::KeyKind;
use satcast_net::http::{Server, ServerLimits};
use satcast_store::Scopes;

const WAIT_MAX: Duration = Duration::from_secs(60);
const SECRET: &str = "hunter2hunter2";

/// The service on a port.
struct Port {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Port {
    async fn open(rig: &Rig, limits: ServerLimits) -> Self {
        let listen = "127.0.0.1:0".parse().unwrap();
        let http = config::Http { listen, tls_cert: None, tls_key: None, trusted_proxies: Vec::new() };
        let server = Server::bind(&http, limits).await.unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.serve(endpoint(rig.app.clone(), Route::new()), async {
            let _ = stopped.await;
        }));
        Self { address, stop, task }
    }

    /// Follows the events with a key or session token, after a given event.
    async fn follow(&self, key: &str, after: Option<&str>) -> Follower {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        let after = after.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        // HTTP/1.0 has no chunk framing.
        let head =
            format!("GET /api/events HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{after}\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut follower = Follower { socket, text: String::new(), head: String::new() };
        follower.head = follower.until("\r\n\r\n").await.unwrap().to_ascii_lowercase();
        follower
    }
}

/// A client that follows events.
struct Follower {
    socket: TcpStream,
    text: String,
    head: String,
}

impl Follower {
    /// Everything up to `end`, without it; `None` when the other side has closed.
    async fn until(&mut self, end: &str) -> Option<String> {
        let mut part = [0; 4_096];
        loop {
            if let Some((text, rest)) = self.text.split_once(end) {
                let (text, rest) = (text.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(text);
            }
            let read = tokio::time::timeout(WAIT_MAX, self.socket.read(&mut part)).await;
            let count = read.expect("an event in time").unwrap();
            if count == 0 {
                assert_eq!(self.text, "", "no half message");
                return None;
            }
            self.text.push_str(std::str::from_utf8(&part[..count]).unwrap());
        }
    }

    /// Id, name and data of the next message.
    async fn next(&mut self) -> Option<(String, String, Value)> {
        let text = self.until("\n\n").await?;
        let field = |name: &str| {
            let lines = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            lines.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
        };
        assert!(!text.contains(SECRET), "{text}");
        Some((field("id"), field("event"), serde_json::from_str(&field("data")).unwrap()))
    }

    /// The next message, asserting its name.
    async fn expect(&mut self, name: &str) -> (String, Value) {
        let (id, found, data) = self.next().await.unwrap();
        assert_eq!(found, name, "{data}");
        (id, data)
    }
}

#[tokio::test]
async fn an_account_sees_its_own_events_and_resumes() {
    let mut rig = Rig::new().await;
    let port = Port::open(&rig, ServerLimits::default()).await;
    let mut follower = port.follow(&rig.key, None).await;
    for line in
        ["200 ok", "content-type: text/event-stream", "cache-control: no-store", "x-accel-buffering: no"]
    {
        assert!(follower.head.contains(line), "{}", follower.head);
    }
    assert!(!follower.head.contains("access-control-allow-origin"));
    assert!(follower.until("\n").await.unwrap() == "retry: 3000");
    let (ready, data) = follower.expect("ready").await;
    assert_eq!(data, json!({"at": rig.app.clock.now().0}));

    let owner = rig.key.clone();
    rig.key = rig.account("other").await.1;
    let foreign = rig.stream().await;
    rig.key = owner;
    rig.delete(&format!("/api/streams/{foreign}")).await.error(404, "not_found");
    let target = json!({"type": "rtmp", "config": {"url": "rtmp://a.example/live", "key": SECRET}});
    let made = rig.post("/api/streams", &json!({"label": "show", "destinations": [target]})).await.ok();
    let (created, data) = follower.expect("stream.created").await;
    let log = rig.get("/api/audit").await.ok();
    let expected = json!({"at": rig.app.clock.now().0, "auditId": log[0]["id"], "actor": log[0]["actor"],
        "target": {"type": "stream", "id": made["id"]}, "detail": log[0]["detail"]});
    assert_eq!(data, expected, "the first own event after another account's event and a refused request");
    rig.delete(&format!("/api/streams/{}", made["id"])).await.ok();
    let (deleted, _) = follower.expect("stream.deleted").await;
    drop(follower);

    let mut again = port.follow(&rig.key, Some(&created)).await;
    again.expect("ready").await;
    assert_eq!(again.expect("stream.deleted").await.0, deleted);
    let mut all = port.follow(&rig.key, Some(&ready)).await;
    assert_eq!(all.expect("ready").await.0, ready);
    assert_eq!(all.expect("stream.created").await.0, created);
    let mut restarted = port.follow(&rig.key, Some("another-1")).await;
    let (position, _) = restarted.expect("reset").await;
    assert_eq!(position, deleted);
    for _ in 0..EVENTS_KEPT_MAX {
        rig.app.store.feed().send(AccountId(99), "x.y", rig.app.clock.now(), json!({}));
    }
    port.follow(&rig.key, Some(&created)).await.expect("reset").await;
}

#[tokio::test]
async fn event_streams_are_limited_and_head_opens_none() {
    let rig = Rig::new().await;
    let feed = rig.app.store.feed().clone();
    let mut held: Vec<_> =
        (0..WATCHERS_PER_ACCOUNT_MAX).map(|_| feed.watch(rig.account, None).unwrap()).collect();
    rig.get("/api/events").await.error(429, "too_many_streams");
    assert_eq!(rig.ask(Method::HEAD, "/api/events", None).await.status, 200);
    held.pop();
    for number in held.len()..WATCHERS_MAX {
        held.push(feed.watch(AccountId(1_000 + (number / 2) as i64), None).unwrap());
    }
    rig.get("/api/events").await.error(503, "too_many_streams");
    drop(held);
    let port = Port::open(&rig, ServerLimits::default()).await;
    let mut follower = port.follow(&rig.key, None).await;
    follower.expect("ready").await;
    drop(follower);
    let free = async || {
        let all: Vec<_> = (0..WATCHERS_PER_ACCOUNT_MAX).map(|_| feed.watch(rig.account, None)).collect();
        all.iter().all(Result::is_ok)
    };
    rig.until("the slot of a disconnected client", free).await;
}

#[tokio::test]
async fn following_events_needs_the_scope_read() {
    let mut rig = Rig::new().await;
    let blind = Scopes { read: false, ..Scopes::ALL };
    rig.key = rig.key(rig.account, KeyKind::Permanent, blind, None).await;
    rig.get("/api/events").await.error(403, "scope_not_allowed");
    rig.key = String::new();
    rig.get("/api/events").await.error(401, "key_required");
}

#[tokio::test]
async fn an_event_stream_ends_when_key_session_or_password_ends() {
    let rig = Rig::new().await;
    let port = Port::open(&rig, ServerLimits::default()).await;
    let key = rig.key(rig.account, KeyKind::Permanent, Scopes::ALL, None).await;
    let (mut revoked, mut other) = (port.follow(&key, None).await, port.follow(&rig.key, None).await);
    revoked.expect("ready").await;
    other.expect("ready").await;
    let id = rig.get("/api/keys").await.ok()[0]["id"].clone();
    rig.delete(&format!("/api/keys/{id}")).await.ok();
    revoked.expect("key.revoked").await;
    assert_eq!(revoked.next().await, None);
    other.expect("key.revoked").await;
    rig.stream().await;
    other.expect("stream.created").await;

    rig.person("ann").await;
    let (first, second) = (rig.log_in("ann").await, rig.log_in("ann").await);
    let (mut left, mut changed) = (port.follow(&first, None).await, port.follow(&second, None).await);
    left.expect("ready").await;
    changed.expect("ready").await;
    rig.bearer(Method::POST, "/api/auth/logout", &first, &json!({})).await.ok();
    left.expect("login.ended").await;
    assert_eq!(left.next().await, None);
    changed.expect("login.ended").await;
    let password = json!({"currentPassword": super::login::PASSWORD, "newPassword": SECRET});
    rig.bearer(Method::POST, "/api/auth/password", &second, &password).await.ok();
    changed.expect("account.password_changed").await;
    assert_eq!(changed.next().await, None);
}

#[tokio::test]
async fn an_idle_event_stream_has_comments_until_another_process_revokes_its_key() {
    let rig = Rig::new().await;
    let request = Request::builder().uri_str("/api/events").header("X-API-Key", &rig.key).finish();
    let caller = Caller::of(&rig.app, &request).await.unwrap();
    let watch = rig.app.store.feed().watch(caller.account, None).unwrap();
    let proof = Proof::of(&caller, &request).unwrap();
    let text = body(Arc::clone(&rig.app), watch, proof, Duration::from_millis(20));
    let mut messages = text.into_bytes_stream();
    let mut next = async || {
        let message = tokio::time::timeout(WAIT_MAX, messages.next()).await.expect("a message in time")?;
        Some(String::from_utf8(message.unwrap().to_vec()).unwrap())
    };
    assert!(next().await.unwrap().starts_with("retry: 3000\nid: "));
    assert_eq!(next().await.unwrap(), ":\n\n");
    rig.intruder().await.revoke_permanent_keys().await;
    let mut comments = 0;
    while let Some(message) = next().await {
        assert_eq!(message, ":\n\n");
        comments += 1;
        assert!(comments < 100, "it ends");
    }
}

#[tokio::test]
async fn an_idle_event_stream_outlives_request_deadlines_and_ends_at_shutdown() {
    const DEADLINE: Duration = Duration::from_millis(100);
    let rig = Rig::new().await;
    let limits = ServerLimits {
        head_timeout: DEADLINE,
        write_stall_timeout: DEADLINE,
        write_rate_window: DEADLINE,
        shutdown_grace: Duration::from_secs(600),
        ..ServerLimits::default()
    };
    let port = Port::open(&rig, limits).await;
    let mut follower = port.follow(&rig.key, None).await;
    follower.expect("ready").await;
    tokio::time::sleep(5 * DEADLINE).await;
    rig.stream().await;
    follower.expect("stream.created").await;
    rig.app.store.feed().close();
    port.stop.send(()).unwrap();
    assert_eq!(follower.next().await, None);
    tokio::time::timeout(WAIT_MAX, port.task).await.expect("no stream holds up the end").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_followed_from_its_start_to_its_end() {
    let rig = Rig::new().await;
    let port = Port::open(&rig, ServerLimits::default()).await;
    let hosted = rig.hosted().await;
    let mut follower = port.follow(&rig.key, None).await;
    follower.expect("ready").await;
    let (_publisher, opening) = rig.go_live(&hosted).await;
    let now = rig.app.clock.now().0;
    let (stream, session) = (hosted.stream, opening.session.as_str());
    let (_, started) = follower.expect("stream.started").await;
    assert_eq!(started, json!({"at": now, "streamId": stream, "sessionId": session}));
    let (_, state) = follower.expect("destination.state").await;
    let destination = hosted.destination;
    assert_eq!(
        state,
        json!({"at": now, "streamId": stream, "destinationId": destination, "state": "connecting",
            "error": null, "attempt": 1, "nextRetryAt": null, "liveSince": null, "stateSince": now})
    );
    rig.post(&format!("/api/streams/{stream}/stop"), &json!({})).await.ok();
    let (_, state) = follower.expect("destination.state").await;
    assert_eq!(state["state"], "stopped");
    let (_, ended) = follower.expect("stream.ended").await;
    assert_eq!(ended, json!({"at": now, "streamId": stream, "sessionId": session, "reason": "stopped"}));
    let (_, stopped) = follower.expect("stream.stopped").await;
    assert_eq!(stopped["target"], json!({"type": "stream", "id": stream}));
    assert_eq!(stopped["actor"]["type"], "key");
}
