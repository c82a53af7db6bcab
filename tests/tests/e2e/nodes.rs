//! Several nodes on one PostgreSQL: both take encoders, one is killed, one loses its database, one is drained.

use std::time::{SystemTime, UNIX_EPOCH};

use satcast_tests::api::{Api, Stream};
use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::player::Player;
use satcast_tests::postgres::Postgres;
use satcast_tests::receiver::Receiver;
use satcast_tests::said;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::wait::{until, until_api};
use serde_json::{Value, json};

pub(super) const DATABASE: &str = "satcast";
/// A role whose connections can be cut and refused while another node keeps its own.
const CUT_ROLE: &str = "cut";
/// The shortest lease.
const LEASE_SECS: u64 = 15;

/// A server with a database for nodes.
fn server() -> Postgres {
    let server = Postgres::start();
    server.make_database(DATABASE);
    let password = satcast_tests::postgres::PASSWORD;
    let role = format!("CREATE ROLE {CUT_ROLE} SUPERUSER LOGIN PASSWORD '{password}'");
    let _ = server.ask(DATABASE, &role);
    server
}

fn node(name: &str, url: &str) -> Setup {
    Setup::default()
        .node(name, url)
        .srt()
        .whip()
        .set("SATCAST_BILLING__INITIAL_CREDIT_SATS", "1000")
        .set("SATCAST_CLUSTER__LEASE_SECS", &LEASE_SECS.to_string())
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
}

/// Nodes `a` and `b`, the API of each with the same key. The connections of `a` are those of [`CUT_ROLE`].
pub(super) struct Nodes {
    pub(super) server: Postgres,
    pub(super) a: Service,
    pub(super) b: Service,
    pub(super) api_a: Api,
    pub(super) api_b: Api,
    receiver: Receiver,
    source: Source,
    sink: Sink,
}

impl Nodes {
    pub(super) fn start() -> Self {
        let (server, receiver, source, sink) =
            (server(), Receiver::start(None), Source::shared(), Sink::recording());
        let url = server.url(DATABASE);
        let a = node("a", &url.replacen("//satcast:", &format!("//{CUT_ROLE}:"), 1)).start();
        let mut b = node("b", &url).stopped();
        b.start();
        let (api_a, api_b) = (a.api(), Api::new(&b.base(), Some(a.key())));
        let nodes = Self { server, a, b, api_a, api_b, receiver, source, sink };
        nodes.announce(&["stream.started", "stream.ended"]);
        nodes
    }

    /// Has webhooks tell of further events.
    pub(super) fn announce(&self, events: &[&str]) {
        let body = json!({ "url": self.receiver.url(), "events": events });
        let _ = self.api_a.post("/api/webhooks", &body).ok();
    }

    fn stream(&self, label: &str) -> Stream {
        let stream = self.api_a.create_stream(label);
        for key in ["one", "two"] {
            self.api_a.add_destination(&stream, &self.sink.url(), key);
        }
        stream
    }

    pub(super) fn publish(&self, node: &Service, stream: &Stream) -> Encoder {
        Publish::of(&self.source).endless().to(&node.ingest_url(&stream.key))
    }

    /// The reason of each end of a session that webhooks heard of.
    fn ends(&self) -> Vec<Value> {
        self.told("stream.ended").iter().map(|body| body["data"]["endReason"].clone()).collect()
    }

    /// The events of one type that webhooks heard of.
    pub(super) fn told(&self, event: &str) -> Vec<Value> {
        let received = self.receiver.received();
        received.iter().map(|one| one.json()).filter(|body| body["type"] == event).collect()
    }

    /// Waits until the stream is live at a node with both destinations, and returns the start of its session.
    fn wait_for_all(&self, api: &Api, stream: &Stream) -> i64 {
        let detail = api.wait_for_stream(stream, "live");
        for destination in detail["destinations"].as_array().expect("destinations") {
            let id = destination["id"].as_i64().expect("an id");
            let _ = api.wait_for_destination(stream, id, "live");
        }
        detail["startedAt"].as_i64().expect("a start")
    }

    /// Waits until the last session of the stream has ended for this reason, and its event has arrived.
    pub(super) fn wait_for_end(&self, stream: &Stream, reason: &str) {
        until_api("the end of the session", || {
            let detail = self.api_b.stream(stream);
            let known = detail["lastEndReason"] == reason && self.ends().iter().any(|end| end == reason);
            if known { Ok(()) } else { Err(format!("{detail}, received {:?}", self.ends())) }
        });
    }

    fn wait_for_refusal(api: &Api, stream: &Stream, code: &str) {
        until_api("the refusal of the encoder", || {
            let detail = api.stream(stream);
            let refused =
                detail["refusals"].as_array().is_some_and(|all| all.iter().any(|one| one["code"] == code));
            if refused { Ok(()) } else { Err(detail.to_string()) }
        });
    }

    pub(super) fn assert_listed(&self, name: &str, state: &str) {
        let list = self.b.run(&["node", "list"]);
        let line = list.lines().find(|line| line.split('\t').next() == Some(name));
        assert_eq!(line.and_then(|line| line.split('\t').nth(1)), Some(state), "{list}");
    }
}

/// Waits until a node shows the health of a connection that another node has.
fn wait_for_health(api: &Api, stream: &Stream, protocol: &str) {
    until_api("the health of the connection", || {
        let health = api.stream(stream)["health"].clone();
        if health[protocol].is_object() { Ok(()) } else { Err(health.to_string()) }
    });
}

fn wait_for_readiness(api: &Api, status: u16, code: Option<&str>) {
    until("the readiness", || {
        let answer = api.try_get("/readyz")?;
        let is_it = answer.status == status && code.is_none_or(|code| answer.body["code"] == code);
        if is_it { Ok(()) } else { Err(format!("/readyz answers {} {}", answer.status, answer.body)) }
    });
}

#[test]
fn a_killed_node_is_settled_once_and_its_stream_goes_on_at_another_node() {
    let mut nodes = Nodes::start();
    let (first, second) = (nodes.stream("first"), nodes.stream("second"));
    let mut at_a = nodes.publish(&nodes.a, &first);
    let mut at_b = nodes.publish(&nodes.b, &second);
    let _ = nodes.api_a.wait_for_stream(&first, "live");
    let _ = nodes.api_b.wait_for_stream(&second, "live");
    let mut twice = nodes.publish(&nodes.b, &first);
    Nodes::wait_for_refusal(&nodes.api_b, &first, "NetStream.Publish.BadName");
    twice.cut();
    nodes.assert_listed("a", "live");
    // A third one with a name that is taken.
    let other = node("b", &nodes.server.url(DATABASE)).stopped();
    let taken = other.command(&["run"]);
    assert!(String::from_utf8_lossy(&taken.stderr).contains(said::NODE_TAKEN), "{taken:?}");
    // A service that is no node must not end the sessions of the nodes.
    let alone = Setup::default()
        .set("SATCAST_DATABASE__URL", &nodes.server.url(DATABASE))
        .set("SATCAST_SECRET_KEY", &"0a".repeat(32))
        .stopped();
    let refused = alone.command(&["run"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains(said::DATABASE_IN_USE), "{refused:?}");

    nodes.a.kill();
    at_a.cut();
    nodes.wait_for_end(&first, "interrupted");
    nodes.assert_listed("a", "lost");
    let mut moved = nodes.publish(&nodes.b, &first);
    let _ = nodes.api_b.wait_for_stream(&first, "live");
    nodes.a.start();
    nodes.assert_listed("a", "live");
    assert_eq!(nodes.ends(), ["interrupted"], "announced once");
    let _ = nodes.b.run(&["ledger", "check"]);

    let _ = nodes.a.run(&["node", "drain", "b", "--deadline", "600"]);
    wait_for_readiness(&nodes.api_b, 503, Some("not_ready"));
    let third = nodes.stream("third");
    let mut refused = nodes.publish(&nodes.b, &third);
    Nodes::wait_for_refusal(&nodes.api_b, &third, "NetStream.Failed");
    refused.cut();
    assert_eq!(nodes.api_b.stream(&second)["state"], "live", "running streams go on");
    let mut third_at_a = nodes.publish(&nodes.a, &third);
    let _ = nodes.api_a.wait_for_stream(&third, "live");
    let _ = nodes.b.stop();
    nodes.assert_listed("b", "stopped");
    for encoder in [&mut at_b, &mut moved, &mut third_at_a] {
        encoder.cut();
    }
}

#[test]
fn changes_at_one_node_reach_the_session_at_another() {
    let nodes = Nodes::start();
    let stream = nodes.api_a.create_stream("far");
    let mut encoder = nodes.publish(&nodes.a, &stream);
    let _ = nodes.api_a.wait_for_stream(&stream, "live");
    let destination = nodes.api_b.add_destination(&stream, &nodes.sink.url(), "one");
    let _ = nodes.api_a.wait_for_destination(&stream, destination, "live");
    let path = format!("/api/streams/{}/destinations/{destination}", stream.id);
    let _ = nodes.api_b.patch(&path, &json!({ "enabled": false })).ok();
    let _ = nodes.api_a.wait_for_destination(&stream, destination, "stopped");
    let _ = nodes.api_b.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    nodes.wait_for_end(&stream, "stopped");
    assert_eq!(nodes.ends(), ["stopped"]);
    encoder.cut();
}

#[test]
fn a_node_without_its_database_ends_its_sessions_before_its_lease_is_over() {
    let nodes = Nodes::start();
    let stream = nodes.stream("cut off");
    let mut encoder = nodes.publish(&nodes.a, &stream);
    let _ = nodes.api_a.wait_for_stream(&stream, "live");
    nodes.sink.wait_for_media(60);
    // Each in its own transaction: new connections must be refused before the old ones end.
    let _ = nodes.server.ask(DATABASE, &format!("ALTER ROLE {CUT_ROLE} NOLOGIN"));
    let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{CUT_ROLE}'");
    let _ = nodes.server.ask(DATABASE, &cut);
    nodes.sink.wait_until_left();
    let left = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_millis();
    let until = nodes.server.ask(DATABASE, "SELECT lease_until_ms FROM nodes WHERE name = 'a'");
    let until: u128 = until.parse().expect("the end of the lease");
    assert!(left < until, "media went on until {left}, and the lease ended at {until}");
    encoder.cut();
    nodes.wait_for_end(&stream, "interrupted");

    let _ = nodes.server.ask(DATABASE, &format!("ALTER ROLE {CUT_ROLE} LOGIN"));
    wait_for_readiness(&nodes.api_a, 200, None);
    let mut back = nodes.publish(&nodes.a, &stream);
    let _ = nodes.api_a.wait_for_stream(&stream, "live");
    let _ = nodes.a.wait_for_log("the lost lease", |line| line.contains(said::LEASE_LOST));
    assert_eq!(nodes.ends(), ["interrupted"], "announced once");
    let _ = nodes.b.run(&["ledger", "check"]);
    back.cut();
}

#[test]
fn a_session_goes_on_at_the_node_that_its_encoder_comes_to() {
    let mut nodes = Nodes::start();
    let stream = nodes.stream("moves");
    let mut encoder = nodes.publish(&nodes.a, &stream);
    let started = nodes.wait_for_all(&nodes.api_a, &stream);
    // The encoder is away.
    encoder.cut();
    let mut encoder = nodes.publish(&nodes.b, &stream);
    assert_eq!(nodes.wait_for_all(&nodes.api_b, &stream), started, "the same session");
    assert_eq!(nodes.sink.publishes(), 4, "each destination is opened again");

    // A drained node closes its encoders.
    let _ = nodes.a.run(&["node", "drain", "b"]);
    until("the end of the encoder", || if encoder.running() { Err("it runs".to_owned()) } else { Ok(()) });
    nodes.assert_listed("b", "draining");
    let mut encoder = nodes.publish(&nodes.a, &stream);
    assert_eq!(nodes.wait_for_all(&nodes.api_a, &stream), started, "the same session");
    let _ = nodes.a.run(&["node", "drain", "b", "--undo"]);
    wait_for_readiness(&nodes.api_b, 200, None);

    // So does one that stops.
    let _ = nodes.a.stop();
    encoder.cut();
    let mut encoder = nodes.publish(&nodes.b, &stream);
    assert_eq!(nodes.wait_for_all(&nodes.api_b, &stream), started, "the same session");
    let _ = nodes.api_b.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    nodes.wait_for_end(&stream, "stopped");
    assert_eq!(nodes.ends(), ["stopped"]);
    assert_eq!(nodes.told("stream.started").len(), 1);
    encoder.cut();

    // One of two destinations is free. A minute at two nodes is charged once.
    let history = nodes.api_b.get("/api/stream-history").ok();
    let entries = history.as_array().expect("a list");
    assert_eq!(entries.len(), 2, "one entry for each destination: {history}");
    assert_eq!(entries[0]["sessionId"], entries[1]["sessionId"]);
    let ended = entries.iter().filter_map(|entry| entry["endedAt"].as_i64()).max().expect("an end");
    let cost: i64 = entries.iter().filter_map(|entry| entry["totalCostSats"].as_i64()).sum();
    let minutes = (ended - started) / 60_000 + 1;
    assert!((2..=2 * minutes).contains(&cost) && cost % 2 == 0, "{cost} sats for {minutes} minutes");
    let _ = nodes.b.run(&["ledger", "check"]);
}

#[test]
fn a_session_goes_on_by_srt_and_by_whip_at_other_nodes() {
    let mut browser = Player::launch_for_publishing();
    let nodes = Nodes::start();
    let stream = nodes.stream("moves");
    let mut encoder = nodes.publish(&nodes.a, &stream);
    let started = nodes.wait_for_all(&nodes.api_a, &stream);
    encoder.cut();
    let url = format!("srt://{}?streamid={}", nodes.b.srt_address(), stream.key);
    let mut encoder = Publish::of(&nodes.source).endless().to(&url);
    assert_eq!(nodes.wait_for_all(&nodes.api_b, &stream), started, "the same session");
    wait_for_health(&nodes.api_a, &stream, "srt");

    let _ = nodes.a.run(&["node", "drain", "b"]);
    until("the end of the encoder", || if encoder.running() { Err("it runs".to_owned()) } else { Ok(()) });
    let mut publish = |node: &Service| {
        browser.step(&format!("publish {}", json!({ "url": node.whip_url(), "key": stream.key })))
    };
    let refused = publish(&nodes.b);
    assert_eq!(
        (&refused["status"], &refused["code"]),
        (&json!(503), &json!("publish_unavailable")),
        "{refused}"
    );
    assert_eq!(publish(&nodes.a)["status"], 201);
    assert_eq!(nodes.wait_for_all(&nodes.api_a, &stream), started, "the same session");
    wait_for_health(&nodes.api_b, &stream, "whip");
    let _ = nodes.api_b.post(&format!("/api/streams/{}/stop", stream.id), &json!({})).ok();
    nodes.wait_for_end(&stream, "stopped");
    assert_eq!((nodes.ends(), nodes.told("stream.started").len()), (vec![json!("stopped")], 1));
    let _ = nodes.b.run(&["ledger", "check"]);
}

#[test]
fn a_session_that_is_given_up_and_not_taken_ends_once() {
    let mut nodes = Nodes::start();
    let (first, second) = (nodes.stream("first"), nodes.stream("second"));
    let mut encoders = [nodes.publish(&nodes.a, &first), nodes.publish(&nodes.a, &second)];
    let _ = nodes.wait_for_all(&nodes.api_a, &first);
    let _ = nodes.wait_for_all(&nodes.api_a, &second);
    let _ = nodes.a.stop();
    encoders.iter_mut().for_each(Encoder::cut);
    // The node that takes one of them over dies.
    let mut moved = nodes.publish(&nodes.b, &first);
    let _ = nodes.wait_for_all(&nodes.api_b, &first);
    nodes.b.kill();
    moved.cut();
    nodes.b.start();
    nodes.wait_for_end(&first, "interrupted");
    nodes.wait_for_end(&second, "unpublished");
    nodes.a.start();
    assert_eq!(nodes.ends().len(), 2, "each once");
    let _ = nodes.a.run(&["ledger", "check"]);
}

#[test]
fn a_node_that_dies_while_it_gives_sessions_up_leaves_each_of_them_to_one_end() {
    let mut nodes = Nodes::start();
    let streams = ["one", "two", "three", "four"].map(|label| nodes.stream(label));
    let mut encoders: Vec<Encoder> = streams.iter().map(|stream| nodes.publish(&nodes.a, stream)).collect();
    for stream in &streams {
        let _ = nodes.wait_for_all(&nodes.api_a, stream);
    }
    let _ = nodes.b.run(&["node", "drain", "a"]);
    let given_up = "SELECT COUNT(*) FROM sessions WHERE returns_until_ms IS NOT NULL";
    until("the first session that is given up", || {
        let count = nodes.server.ask(DATABASE, given_up);
        if count == "0" { Err(count) } else { Ok(()) }
    });
    nodes.a.kill();
    encoders.iter_mut().for_each(Encoder::cut);
    until("the end of every session", || {
        let ends = nodes.ends();
        if ends.len() >= streams.len() { Ok(()) } else { Err(format!("{ends:?}")) }
    });
    let ends = nodes.ends();
    assert_eq!(ends.len(), streams.len(), "each once: {ends:?}");
    assert!(ends.iter().all(|end| end == "interrupted" || end == "unpublished"), "{ends:?}");
    assert!(ends.iter().any(|end| end == "unpublished"), "{ends:?}");
    let _ = nodes.b.run(&["ledger", "check"]);
}
