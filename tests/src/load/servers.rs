//! The servers, each set to relay every stream to the same name at each sink.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::publishers::Ingest;
use super::sinks::Sinks;
use super::srt::LATENCY_MS;
use crate::api::stream_of;
use crate::figures::results::OURS;
use crate::nginx::Nginx;
use crate::node_media_server::NodeMediaServer;
use crate::ports::Port;
use crate::postgres::Postgres;
use crate::process::{Process, guarded};
use crate::service::{ACCOUNT, Service, Setup};

/// Streams made with one API key: each may write 60 times a minute.
const STREAMS_PER_KEY: usize = 50;
const DATABASE: &str = "satcast";

/// How many streams go to how many destinations each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Streams.
    pub streams: usize,
    /// Destinations of each.
    pub destinations: usize,
    /// Time between reads of an encoder in milliseconds, where it is not Satcast's default.
    pub read_batch_ms: Option<u64>,
    /// Encoders and destinations use SRT, not RTMP.
    pub srt: bool,
}

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The service under test.
    Satcast,
    /// So many nodes of it on one PostgreSQL, which take turns in the list of streams.
    Nodes(usize),
    /// nginx with its RTMP module.
    Nginx,
    /// node-media-server.
    NodeMediaServer,
    /// A process of libsrt's `srt-live-transmit` for each stream.
    SrtLiveTransmit,
}

impl Kind {
    /// Single servers of RTMP.
    pub const ALL: [Self; 3] = [Self::Satcast, Self::Nginx, Self::NodeMediaServer];
    /// Servers of SRT.
    pub const SRT: [Self; 2] = [Self::Satcast, Self::SrtLiveTransmit];

    /// Its name in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Satcast | Self::Nodes(_) => OURS,
            Self::Nginx => "nginx-rtmp",
            Self::NodeMediaServer => "node-media-server",
            Self::SrtLiveTransmit => "srt-live-transmit",
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Running {
    server: Server,
    /// The ingests of the streams, in their order.
    pub ingests: Vec<Ingest>,
}

#[derive(Debug)]
enum Server {
    /// With the database of nodes.
    Satcast(Vec<Service>, Option<Postgres>),
    Nginx(Nginx),
    NodeMediaServer(NodeMediaServer),
    SrtLiveTransmit(Vec<Transmit>),
}

impl Running {
    /// Starts a server that relays every stream of the load to every sink.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(kind: Kind, load: Load, sinks: &Sinks) -> Self {
        match kind {
            Kind::Satcast => satcast(vec![setup(load).start()], None, load, sinks),
            Kind::Nodes(count) => {
                let database = Postgres::start();
                database.make_database(DATABASE);
                satcast(nodes(count, load, &database), Some(database), load, sinks)
            }
            Kind::Nginx => {
                let nginx = Nginx::relaying(&sinks.urls());
                let ingests = named(load, nginx.address());
                Self { server: Server::Nginx(nginx), ingests }
            }
            Kind::NodeMediaServer => {
                let server = NodeMediaServer::relaying(&sinks.urls());
                let ingests = named(load, server.address());
                Self { server: Server::NodeMediaServer(server), ingests }
            }
            Kind::SrtLiveTransmit => {
                let all: Vec<Transmit> =
                    (0..load.streams).map(|stream| Transmit::start(stream, sinks)).collect();
                let ingest = |one: &Transmit| Ingest {
                    address: one.port.address(),
                    app: String::new(),
                    name: String::new(),
                };
                let ingests = all.iter().map(ingest).collect();
                Self { server: Server::SrtLiveTransmit(all), ingests }
            }
        }
    }

    /// The processes, to measure them.
    #[must_use]
    pub fn processes(&self) -> Vec<&Process> {
        match &self.server {
            Server::Satcast(services, _) => services.iter().map(Service::process).collect(),
            Server::Nginx(nginx) => vec![nginx.process()],
            Server::NodeMediaServer(server) => vec![server.process()],
            Server::SrtLiveTransmit(all) => all.iter().map(|one| &one.process).collect(),
        }
    }

    /// CPU time of the database of nodes.
    #[must_use]
    pub fn database_cpu(&self) -> Duration {
        match &self.server {
            Server::Satcast(_, Some(database)) => database.cpu(),
            _ => Duration::ZERO,
        }
    }
}

/// One stream from a caller to the sinks.
#[derive(Debug)]
struct Transmit {
    process: Process,
    port: Port,
    _folder: TempDir,
}

impl Transmit {
    fn start(stream: usize, sinks: &Sinks) -> Self {
        let (folder, port) = (tempfile::tempdir().expect("a folder for srt-live-transmit"), Port::lease());
        let mut command = guarded(Path::new("srt-live-transmit"));
        command.arg(format!("srt://{}?mode=listener&latency={LATENCY_MS}", port.address()));
        let (to, name) = (sinks.address(), Sinks::name(stream));
        command.arg(format!("srt://{to}?mode=caller&latency={LATENCY_MS}&streamid={name}"));
        let process = Process::start("srt-live-transmit", command, &folder.path().join("transmit.log"));
        Self { process, port, _folder: folder }
    }
}

/// For servers that keep the name of a stream.
fn named(load: Load, address: SocketAddr) -> Vec<Ingest> {
    let ingest = |stream| Ingest { address, app: "live".into(), name: Sinks::name(stream) };
    (0..load.streams).map(ingest).collect()
}

fn setup(load: Load) -> Setup {
    let setup = if load.srt { Setup::default().srt() } else { Setup::default() };
    match load.read_batch_ms {
        Some(wait) => setup.set("SATCAST_INGEST__READ_BATCH_MS", &wait.to_string()),
        None => setup,
    }
}

/// The first one has the account.
fn nodes(count: usize, load: Load, database: &Postgres) -> Vec<Service> {
    let node = |number| {
        let mut service = setup(load).node(&format!("n{number}"), &database.url(DATABASE)).stopped();
        service.start();
        if number == 0 {
            service.make_account();
        }
        service
    };
    (0..count).map(node).collect()
}

fn satcast(services: Vec<Service>, database: Option<Postgres>, load: Load, sinks: &Sinks) -> Running {
    let service = &services[0];
    let mut api = service.api();
    let mut ingests = Vec::new();
    for stream in 0..load.streams {
        if stream > 0 && stream.is_multiple_of(STREAMS_PER_KEY) {
            let key = service.run(&["key", "create", "--account", ACCOUNT, "--type", "permanent"]);
            api = api.with_key(Some(key.trim()));
        }
        let name = Sinks::name(stream);
        let destinations: Vec<Value> = if load.srt {
            let config = json!({ "url": format!("srt://{}", sinks.address()), "streamid": name, "latency": LATENCY_MS });
            vec![json!({ "type": "srt", "config": config })]
        } else {
            let rtmp = |url: &String| json!({ "type": "rtmp", "config": { "url": url, "key": name } });
            sinks.urls().iter().map(rtmp).collect()
        };
        let body = api.post("/api/streams", &json!({ "label": name, "destinations": destinations })).ok();
        let service = &services[stream % services.len()];
        ingests.push(Ingest {
            address: if load.srt { service.srt_address() } else { service.rtmp_address() },
            app: "live".into(),
            name: stream_of(&body).key,
        });
    }
    Running { server: Server::Satcast(services, database), ingests }
}
