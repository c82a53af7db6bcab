//! The servers, each set to relay every stream to the same name at each sink.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::publishers::Ingest;
use super::sinks::Sinks;
use crate::api::stream_of;
use crate::figures::results::OURS;
use crate::nginx::Nginx;
use crate::node_media_server::NodeMediaServer;
use crate::process::Process;
use crate::service::{ACCOUNT, Service, Setup};

/// Streams made with one API key: each may write 60 times a minute.
const STREAMS_PER_KEY: usize = 50;

/// How many streams go to how many destinations each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Streams.
    pub streams: usize,
    /// Destinations of each.
    pub destinations: usize,
    /// Time between reads of an encoder in milliseconds, where it is not Satcast's default.
    pub read_batch_ms: Option<u64>,
}

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The service under test.
    Satcast,
    /// nginx with its RTMP module.
    Nginx,
    /// node-media-server.
    NodeMediaServer,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Satcast, Self::Nginx, Self::NodeMediaServer];

    /// Its name in the results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Satcast => OURS,
            Self::Nginx => "nginx-rtmp",
            Self::NodeMediaServer => "node-media-server",
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
    Satcast(Box<Service>),
    Nginx(Nginx),
    NodeMediaServer(NodeMediaServer),
}

impl Running {
    /// Starts a server that relays every stream of the load to every sink.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(kind: Kind, load: Load, sinks: &Sinks) -> Self {
        match kind {
            Kind::Satcast => satcast(load, sinks),
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
        }
    }

    /// The process, to measure it.
    #[must_use]
    pub fn process(&self) -> &Process {
        match &self.server {
            Server::Satcast(service) => service.process(),
            Server::Nginx(nginx) => nginx.process(),
            Server::NodeMediaServer(server) => server.process(),
        }
    }
}

/// For servers that keep the name of a stream.
fn named(load: Load, address: SocketAddr) -> Vec<Ingest> {
    let ingest = |stream| Ingest { address, app: "live".into(), name: Sinks::name(stream) };
    (0..load.streams).map(ingest).collect()
}

fn satcast(load: Load, sinks: &Sinks) -> Running {
    let mut setup = Setup::default();
    if let Some(wait) = load.read_batch_ms {
        setup = setup.set("SATCAST_INGEST__READ_BATCH_MS", &wait.to_string());
    }
    let service = setup.start();
    let mut api = service.api();
    let mut ingests = Vec::new();
    for stream in 0..load.streams {
        if stream > 0 && stream.is_multiple_of(STREAMS_PER_KEY) {
            let key = service.run(&["key", "create", "--account", ACCOUNT, "--type", "permanent"]);
            api = api.with_key(Some(key.trim()));
        }
        let name = Sinks::name(stream);
        let destinations: Vec<Value> = sinks
            .urls()
            .iter()
            .map(|url| json!({ "type": "rtmp", "config": { "url": url, "key": name } }))
            .collect();
        let body = api.post("/api/streams", &json!({ "label": name, "destinations": destinations })).ok();
        ingests.push(Ingest {
            address: service.rtmp_address(),
            app: "live".into(),
            name: stream_of(&body).key,
        });
    }
    Running { server: Server::Satcast(Box::new(service)), ingests }
}
