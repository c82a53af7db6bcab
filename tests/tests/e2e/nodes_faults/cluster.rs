//! The nodes, their database, publishers that come back, and clients that count answers.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use satcast_tests::api::{Api, Stream};
use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::hosted::Hosted;
use satcast_tests::moved::MovedClock;
use satcast_tests::network::{HERE, Host, NETWORK, Network};
use satcast_tests::nginx::{Nginx, shipped};
use satcast_tests::postgres::Postgres;
use satcast_tests::receiver::Receiver;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{seconds, until};
use serde_json::json;

use super::accounts::Seen;

/// Nodes, and streams: one begins at each node.
pub(super) const NODES: usize = 3;
/// RTMP destinations of a stream, beside its self-hosted one. One of the three is free.
pub(super) const COPIES: usize = 2;
/// The shortest lease.
pub(super) const LEASE_SECS: u64 = 10;
/// Initial credit, which no run uses up.
const CREDIT_SATS: &str = "1000000";
const DATABASE: &str = "satcast";
/// Last part of the addresses of the database and of the first node.
const DATABASE_HOST: u8 = 2;
const FIRST_HOST: u8 = 11;
/// Pause between two looks at the encoders, and between two requests of a client to each node: below the rate limit of its key.
pub(super) const LOOK: Duration = Duration::from_millis(500);
/// Longest time until all streams are live after a fault: the server ends a transaction of a silent node after 60 s.
const BACK_LIMIT: Duration = seconds(150);
/// Longest time until all sessions have ended and all events have arrived.
pub(super) const END_LIMIT: Duration = seconds(120);
/// Streams that live nodes own.
const OWNED: &str = "SELECT COUNT(DISTINCT e.stream_id) FROM sessions e
    JOIN nodes n ON n.name = e.node AND n.epoch = e.epoch
    WHERE e.ended_ms IS NULL AND n.lease_until_ms > EXTRACT(EPOCH FROM clock_timestamp()) * 1000";
const OPEN: &str = "SELECT COUNT(*) FROM sessions WHERE ended_ms IS NULL";
/// Notes when rows of sessions are written, by the clock of the database, and how often they end.
const WATCH: &str = "CREATE SCHEMA watch;
    CREATE TABLE watch.sessions (id TEXT PRIMARY KEY, begun_ms BIGINT NOT NULL, ended_ms BIGINT, ends INT NOT NULL DEFAULT 0);
    CREATE FUNCTION watch.note() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE now_ms BIGINT := EXTRACT(EPOCH FROM clock_timestamp()) * 1000;
    BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO watch.sessions (id, begun_ms) VALUES (NEW.id, now_ms);
        ELSIF NEW.ended_ms IS DISTINCT FROM OLD.ended_ms THEN
            UPDATE watch.sessions SET ended_ms = now_ms, ends = ends + 1 WHERE id = NEW.id;
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER note AFTER INSERT OR UPDATE OF ended_ms ON sessions FOR EACH ROW EXECUTE FUNCTION watch.note()";

pub(super) struct Node {
    pub(super) service: Service,
    pub(super) api: Api,
    pub(super) host: Host,
    /// Its wall clock.
    pub(super) clock: MovedClock,
}

/// An encoder that comes back, to the next node each time.
pub(super) struct Publisher {
    pub(super) stream: Stream,
    pub(super) sinks: Vec<Sink>,
    /// Path and key of its index playlist.
    pub(super) playlist: String,
    encoder: Encoder,
    node: usize,
    /// Starts of an encoder.
    starts: usize,
    away_until: Instant,
}

pub(super) struct Cluster {
    pub(super) publishers: Vec<Publisher>,
    pub(super) nodes: Vec<Node>,
    pub(super) receiver: Receiver,
    pub(super) seen: Seen,
    pub(super) database: Host,
    server: Postgres,
    source: Source,
    /// No encoder comes back.
    over: bool,
    _network: Network,
}

fn node(host: &Host, clock: &MovedClock, number: usize, url: &str, reconnect_secs: u64) -> Service {
    let allowed = format!("[\"{NETWORK}\"]");
    clock
        .set_wall(Setup::default())
        .at(host)
        .node(&name(number), url)
        .set("SATCAST_OUTBOUND__ALLOW", &allowed)
        .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", &allowed)
        .set("SATCAST_BILLING__INITIAL_CREDIT_SATS", CREDIT_SATS)
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", &reconnect_secs.to_string())
        .set("SATCAST_CLUSTER__LEASE_SECS", &LEASE_SECS.to_string())
        .stopped()
}

impl Cluster {
    /// Starts everything, with a stream at each node; a short `reconnect_secs` makes many sessions.
    pub(super) fn start(reconnect_secs: u64) -> Self {
        let source = Source::of(Recipe::SMALL);
        let network = Network::enter();
        let database = network.host(DATABASE_HOST);
        let server = Postgres::start_at(&database);
        server.make_database(DATABASE);
        let url = format!("{}/{DATABASE}", server.server());
        let receiver = Receiver::start(Some(SocketAddr::from((HERE, 0))));
        let mut nodes: Vec<Node> = Vec::new();
        for number in 0..NODES {
            let host = network.host(FIRST_HOST + u8::try_from(number).unwrap_or_default());
            let clock = MovedClock::new();
            let mut service = node(&host, &clock, number, &url, reconnect_secs);
            service.start();
            if number == 0 {
                service.make_account();
                let _ = server.ask(DATABASE, WATCH);
            }
            let key =
                nodes.first().map_or_else(|| service.key().to_owned(), |node| node.service.key().to_owned());
            let api = Api::new(&service.base(), Some(&key));
            nodes.push(Node { service, api, host, clock });
        }
        let body = json!({ "url": receiver.url(), "events": ["stream.started", "stream.ended"] });
        let _ = nodes[0].api.post("/api/webhooks", &body).ok();
        let publishers = (0..NODES).map(|number| publisher(&nodes, &source, number)).collect();
        let seen = Seen::new(NODES * COPIES);
        Self { publishers, nodes, receiver, seen, database, server, source, over: false, _network: network }
    }

    pub(super) fn ask(&self, sql: &str) -> String {
        self.server.ask(DATABASE, sql)
    }

    /// The node where the encoder of a stream is.
    pub(super) fn node_of(&self, stream: usize) -> usize {
        self.publishers[stream].node
    }

    /// nginx before all nodes, as packages configure it.
    pub(super) fn front(&self) -> Nginx {
        let servers: Vec<String> =
            self.nodes.iter().map(|node| format!("server {};", node.service.http_address())).collect();
        let config = shipped("nodes.conf", "").replace("listen 80;", "listen LISTEN;");
        Nginx::before(&config.replace("server a:8080;", &servers.join(" ")).replace("server b:8080;", ""))
    }

    /// Ends the encoders at a node, which come back to it after this time.
    pub(super) fn leave(&mut self, node: usize, time: Duration) {
        for publisher in self.publishers.iter_mut().filter(|publisher| publisher.node == node) {
            publisher.encoder.cut();
            publisher.away_until = Instant::now() + time;
            publisher.node = (node + NODES - 1) % NODES;
        }
    }

    /// Has a node give its sessions up, and waits until it has none.
    pub(super) fn drain(&mut self, node: usize) {
        let name = name(node);
        let _ = self.nodes[(node + 1) % NODES].service.run(&["node", "drain", &name]);
        let left = format!("SELECT COUNT(*) FROM sessions WHERE ended_ms IS NULL AND node = '{name}'");
        until("the sessions to leave the node", || {
            self.tend_for(LOOK, &[]);
            let left = self.ask(&left);
            if left == "0" { Ok(()) } else { Err(format!("{left} sessions")) }
        });
    }

    /// Stops a node in order and starts it again.
    pub(super) fn restart(&mut self, node: usize) {
        let _ = self.nodes[node].service.stop();
        self.tend(&[]);
        self.nodes[node].service.start();
        until("the node to be ready", || {
            self.tend_for(LOOK, &[]);
            let answer = self.nodes[node].api.try_get("/readyz")?;
            if answer.status == 200 { Ok(()) } else { Err(answer.text) }
        });
    }

    /// Starts encoders that have ended, at the next node each, and those that wait for a node of `given_up`.
    fn tend(&mut self, given_up: &[usize]) {
        for publisher in &mut self.publishers {
            if given_up.contains(&publisher.node) {
                publisher.encoder.cut();
            }
            if self.over || publisher.encoder.running() || Instant::now() < publisher.away_until {
                continue;
            }
            publisher.node = (publisher.node + 1) % NODES;
            let url = self.nodes[publisher.node].service.ingest_url(&publisher.stream.key);
            publisher.encoder = Publish::of(&self.source).endless().to(&url);
            publisher.starts += 1;
        }
        self.tend_sinks();
    }

    /// Takes what came to the sinks.
    fn tend_sinks(&mut self) {
        let sinks = self.publishers.iter().flat_map(|publisher| &publisher.sinks);
        sinks.enumerate().for_each(|(number, sink)| self.seen.take(number, sink));
    }

    pub(super) fn tend_for(&mut self, time: Duration, given_up: &[usize]) {
        let began = Instant::now();
        loop {
            self.tend(given_up);
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Waits until a live node owns each stream, and every sink gets media.
    pub(super) fn wait_until_live(&mut self) {
        let began = Instant::now();
        loop {
            let before = self.bytes();
            self.tend_for(2 * LOOK, &[]);
            let flows = self.bytes().iter().zip(&before).filter(|(after, before)| after > before).count();
            let owned = self.ask(OWNED);
            if owned == NODES.to_string() && flows == before.len() {
                return;
            }
            assert!(
                began.elapsed() < BACK_LIMIT,
                "{owned} streams have an owner, media flows to {flows} of {} sinks; {}",
                before.len(),
                self.ask("SELECT name, epoch, lease_until_ms FROM nodes ORDER BY name")
            );
        }
    }

    /// Ends all encoders and waits until all sessions have ended.
    pub(super) fn end(&mut self) {
        self.over = true;
        self.publishers.iter_mut().for_each(|publisher| publisher.encoder.cut());
        let began = Instant::now();
        while self.ask(OPEN) != "0" {
            assert!(began.elapsed() < END_LIMIT, "{} sessions are open", self.ask(OPEN));
            std::thread::sleep(LOOK);
        }
        self.tend_sinks();
        let starts: usize = self.publishers.iter().map(|publisher| publisher.starts).sum();
        println!("encoders were started {starts} times");
    }

    fn bytes(&self) -> Vec<u64> {
        self.publishers.iter().flat_map(|publisher| &publisher.sinks).map(Sink::bytes).collect()
    }

    /// Counts the answers of all nodes but these from now on.
    pub(super) fn watch_all_but(&self, nodes: &[usize]) -> Watcher {
        let others = self.nodes.iter().enumerate().filter(|(number, _)| !nodes.contains(number));
        self.watch(others.map(|(_, node)| node.api.clone()).collect())
    }

    /// Counts the answers of these nodes from now on.
    pub(super) fn watch(&self, apis: Vec<Api>) -> Watcher {
        let playlists = self.publishers.iter().map(|publisher| publisher.playlist.clone()).collect();
        Watcher::start(apis, playlists)
    }
}

fn name(node: usize) -> String {
    format!("n{node}")
}

fn publisher(nodes: &[Node], source: &Source, number: usize) -> Publisher {
    let first = &nodes[0];
    let hosted = Hosted::new(&first.service, &format!("stream {number}"));
    let sinks: Vec<Sink> = (0..COPIES).map(|_| Sink::recording_at(HERE)).collect();
    for sink in &sinks {
        let _ = first.api.add_destination(&hosted.stream, &sink.url(), "copy");
    }
    let detail = first.api.stream(&hosted.stream);
    let url = detail["playback"][0]["url"].as_str().expect("the address of the stream");
    let path = url.strip_prefix(&first.service.base()).expect("an address of the service");
    let playlist = format!("{path}?apiKey={}", hosted.key);
    let encoder = Publish::of(source).endless().to(&nodes[number].service.ingest_url(&hosted.stream.key));
    let away_until = Instant::now();
    Publisher { stream: hosted.stream, sinks, playlist, encoder, node: number, starts: 1, away_until }
}

/// Answers of nodes to their clients.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Answers of the API.
    pub(super) good: usize,
    /// Its errors.
    pub(super) bad: Vec<String>,
    /// Playlists that were there.
    played: usize,
    /// Playlists that were not: the stream is at another node, or nowhere.
    unplayed: usize,
}

impl fmt::Display for Answers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { good, bad, played, unplayed } = self;
        write!(
            formatter,
            "API {good} good, {} bad {bad:?}; playlists {played} there, {unplayed} not",
            bad.len()
        )
    }
}

/// A client and a viewer of each node that was named, until they are stopped.
pub(super) struct Watcher {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Answers>>,
}

impl Watcher {
    fn start(apis: Vec<Api>, playlists: Vec<String>) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let its_over = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut answers = Answers::default();
            for turn in 0.. {
                if its_over.load(Ordering::SeqCst) {
                    break;
                }
                apis.iter().for_each(|api| answers.ask(api, &playlists[turn % playlists.len()]));
                std::thread::sleep(LOOK);
            }
            answers
        });
        Self { over, thread: Some(thread) }
    }

    pub(super) fn stop(mut self) -> Answers {
        self.over.store(true, Ordering::SeqCst);
        self.thread.take().expect("a running client").join().expect("a client that did not panic")
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

impl Answers {
    fn ask(&mut self, api: &Api, playlist: &str) {
        match api.try_get("/api/streams") {
            Ok(answer) if answer.status == 200 => self.good += 1,
            Ok(answer) => self.bad.push(format!("{} {}", answer.status, answer.text)),
            Err(error) => self.bad.push(error),
        }
        match api.with_key(None).try_get(playlist) {
            Ok(answer) if answer.status == 200 => self.played += 1,
            _ => self.unplayed += 1,
        }
    }
}
