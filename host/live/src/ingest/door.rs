//! How a connection comes in: whose it is, whether there is room for it, and on which thread it runs.

use std::net::SocketAddr;
use std::sync::Arc;

use ipnet::IpNet;
use satcast_quota::{Full, Permit, Quota};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::admit::Admission;
use super::conn;
use super::limits::{Limits, PROXY_HEADERS_MAX, STRANGERS_PART};
use super::proxy::{self, Fault};
use super::shared::{Shared, Whose};
use super::threads::{Seat, Threads};
use satcast_core::networks::Network;

type Place = Permit<Network>;

/// The places there are.
#[derive(Debug)]
pub(super) struct Room {
    /// For all connections.
    all: Quota<Network>,
    /// For those whose publish is not accepted (yet), out of the same.
    strangers: Quota<Network>,
    /// For those of trusted proxies that have not said whom they are for; no others.
    unnamed: Quota<Network>,
}

impl Room {
    pub(super) fn new(limits: &Limits) -> Self {
        let (all, per_network) = (limits.connections_max, limits.connections_per_network_max);
        let part = |places: usize| places.div_ceil(STRANGERS_PART);
        let quota = |all: usize, per_network: usize| Quota::new(all as u64, per_network as u64);
        Self {
            all: quota(all, per_network),
            strangers: quota(part(all), part(per_network)),
            unnamed: quota(PROXY_HEADERS_MAX, PROXY_HEADERS_MAX),
        }
    }

    /// A place, and a stranger's place; or which of them are taken.
    pub(super) fn take(&self, network: Network) -> Result<(Place, Place), &'static str> {
        let all = self.all.try_take(network, 1).map_err(|full| match full {
            Full::Total => "too many connections",
            Full::Share => "too many connections from this address",
        })?;
        let stranger = self.strangers.try_take(network, 1).map_err(|full| match full {
            Full::Total => "too many connections that do not publish",
            Full::Share => "too many connections from this address that do not publish",
        })?;
        Ok((all, stranger))
    }
}

/// Where connections come in.
pub(super) struct Door<A> {
    pub(super) shared: Arc<Shared<A>>,
    pub(super) room: Arc<Room>,
    pub(super) stopped: CancellationToken,
    pub(super) threads: Threads,
    /// Proxies that say whom they connect for.
    pub(super) proxies: Vec<IpNet>,
}

impl<A: Admission> Door<A> {
    /// Starts a connection's task, or closes the socket where a cap is reached.
    pub(super) fn accept(
        &self,
        socket: TcpStream,
        tls: Option<Arc<ServerConfig>>,
        peer: SocketAddr,
        tasks: &mut JoinSet<()>,
    ) {
        let peer = canonical(peer);
        let is_proxy = self.proxies.iter().any(|proxies| proxies.contains(&peer.ip()));
        let refused = |text: &str| self.shared.warn(peer, Whose::Unknown, &format!("refused: {text}"));
        let entry = if is_proxy {
            self.room
                .unnamed
                .try_take(Network::from(peer.ip()), 1)
                .map(Entry::Unnamed)
                .map_err(|_| UNNAMED_FULL)
        } else {
            self.shared.places(&self.room, peer).map(Entry::Known)
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(full) => return refused(full),
        };
        if let Err(failure) = socket.set_nodelay(true) {
            return refused(&format!("cannot set TCP_NODELAY: {failure}"));
        }
        // Events of the socket must come to the thread that reads it.
        let socket = match socket.into_std() {
            Ok(socket) => socket,
            Err(failure) => return refused(&failure.to_string()),
        };
        let (thread, seat) = self.threads.seat();
        let (shared, room, stopped) =
            (Arc::clone(&self.shared), Arc::clone(&self.room), self.stopped.clone());
        let work = async move {
            match TcpStream::from_std(socket) {
                Ok(socket) => enter(socket, tls, peer, entry, &room, shared, stopped, seat).await,
                Err(failure) => shared.warn(peer, Whose::Unknown, &format!("refused: {failure}")),
            }
        };
        tasks.spawn_on(work, &thread);
    }
}

/// What a connection holds while it comes in.
enum Entry {
    /// It is its own.
    Known((Place, Place)),
    /// It is that of a proxy, which will say whose.
    Unnamed(Place),
}

const UNNAMED_FULL: &str = "too many connections of proxies that have not said whom they are for";

/// Learns whose connection it is, and serves it.
async fn enter<A: Admission>(
    mut socket: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    peer: SocketAddr,
    entry: Entry,
    room: &Room,
    shared: Arc<Shared<A>>,
    stopped: CancellationToken,
    seat: Seat,
) {
    let (peer, places) = match entry {
        Entry::Known(places) => (peer, Ok(places)),
        Entry::Unnamed(place) => {
            let limit = shared.limits.proxy_header;
            let header = tokio::select! {
                biased;
                () = stopped.cancelled() => return,
                header = timeout(limit, proxy::read(&mut socket)) => header,
            };
            drop(place);
            let client = match header {
                Ok(Ok(client)) => client.map_or(peer, canonical),
                // Health checks of a proxy are no trouble, and come every few seconds.
                Ok(Err(fault @ Fault::Nothing)) => return debug!(%peer, "RTMP connection: {fault}"),
                Ok(Err(fault)) => return shared.warn(peer, Whose::Unknown, &format!("refused: {fault}")),
                Err(_) => {
                    return shared.warn(
                        peer,
                        Whose::Unknown,
                        "refused: no PROXY protocol header came in time",
                    );
                }
            };
            (client, shared.places(room, client))
        }
    };
    match places {
        Ok((_place, stranger)) => conn::serve(socket, tls, peer, shared, stranger, stopped, seat).await,
        Err(full) => shared.warn(peer, Whose::Unknown, &format!("refused: {full}")),
    }
}

impl<A> Shared<A> {
    /// Places for a connection of `peer`, or why it is not let in.
    fn places(&self, room: &Room, peer: SocketAddr) -> Result<(Place, Place), &'static str> {
        let network = Network::from(peer.ip());
        if self.keys.is_blocked(network, self.clock.monotonic()) {
            return Err("too many wrong stream keys from this address in the last minute");
        }
        room.take(network)
    }
}

/// An IPv4 address in whichever form it came.
fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}
