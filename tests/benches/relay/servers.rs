//! The servers, each set to relay every stream to the same name at each sink.

use satcast_tests::api::stream_of;
use satcast_tests::load::publishers::Ingest;
use satcast_tests::load::sinks::Sinks;
use satcast_tests::nginx::Nginx;
use satcast_tests::node_media_server::NodeMediaServer;
use satcast_tests::process::Process;
use satcast_tests::service::{ACCOUNT, Service, Setup};
use serde_json::{Value, json};

use crate::cases::Case;

/// Streams made with one API key: each may write 60 times a minute.
const STREAMS_PER_KEY: usize = 50;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Satcast,
    Nginx,
    NodeMediaServer,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Satcast, Self::Nginx, Self::NodeMediaServer];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Satcast => "satcast",
            Self::Nginx => "nginx-rtmp",
            Self::NodeMediaServer => "node-media-server",
        }
    }
}

/// A running server.
pub(crate) struct Running {
    server: Server,
    /// The ingests of the streams, in their order.
    pub(crate) ingests: Vec<Ingest>,
}

enum Server {
    Satcast(Box<Service>),
    Nginx(Nginx),
    NodeMediaServer(NodeMediaServer),
}

impl Running {
    pub(crate) fn start(kind: Kind, case: &Case, sinks: &Sinks) -> Self {
        match kind {
            Kind::Satcast => satcast(case, sinks),
            Kind::Nginx => {
                let nginx = Nginx::relaying(&sinks.urls());
                let ingests = named(case, nginx.address());
                Self { server: Server::Nginx(nginx), ingests }
            }
            Kind::NodeMediaServer => {
                let server = NodeMediaServer::relaying(&sinks.urls());
                let ingests = named(case, server.address());
                Self { server: Server::NodeMediaServer(server), ingests }
            }
        }
    }

    pub(crate) fn process(&self) -> &Process {
        match &self.server {
            Server::Satcast(service) => service.process(),
            Server::Nginx(nginx) => nginx.process(),
            Server::NodeMediaServer(server) => server.process(),
        }
    }
}

/// For servers that keep the name of a stream.
fn named(case: &Case, address: std::net::SocketAddr) -> Vec<Ingest> {
    let ingest = |stream| Ingest { address, app: "live".into(), name: Sinks::name(stream) };
    (0..case.streams).map(ingest).collect()
}

fn satcast(case: &Case, sinks: &Sinks) -> Running {
    let mut setup = Setup::default();
    if let Some(wait) = case.read_batch_ms {
        setup = setup.set("SATCAST_INGEST__READ_BATCH_MS", &wait.to_string());
    }
    let service = setup.start();
    let mut api = service.api();
    let mut ingests = Vec::new();
    for stream in 0..case.streams {
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
