//! Accepts a connection: finds the client's address, takes slots of the connection limiter, and picks a thread.

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
use super::conn::{self, Shared, Subject};
use super::limits::{Limits, PROXY_HEADERS_MAX, STRANGERS_PART};
use super::proxy::{self, Fault};
use super::threads::{ConnectionSlot, Threads};
use satcast_core::networks::Network;

pub(super) type Slot = Permit<Network>;

/// Limits connections in all and per network.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    /// For all connections.
    all: Quota<Network>,
    /// A part of `all` for strangers: connections whose publish is not accepted (yet).
    strangers: Quota<Network>,
    /// For connections of trusted proxies before their PROXY protocol header.
    unnamed: Quota<Network>,
}

impl ConnectionLimiter {
    pub(super) fn new(limits: &Limits) -> Self {
        let (all, per_network) = (limits.connections_max, limits.connections_per_network_max);
        let part = |slots: usize| slots.div_ceil(STRANGERS_PART);
        let quota = |all: usize, per_network: usize| Quota::new(all as u64, per_network as u64);
        Self {
            all: quota(all, per_network),
            strangers: quota(part(all), part(per_network)),
            unnamed: quota(PROXY_HEADERS_MAX, PROXY_HEADERS_MAX),
        }
    }

    /// A slot of all connections and one of strangers, or the reason of the refusal.
    pub(super) fn take(&self, network: Network) -> Result<(Slot, Slot), &'static str> {
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

/// Accepts connections.
pub(super) struct Acceptor<A> {
    pub(super) shared: Arc<Shared<A>>,
    pub(super) limiter: Arc<ConnectionLimiter>,
    pub(super) stopped: CancellationToken,
    pub(super) threads: Arc<Threads>,
    /// Networks of trusted proxies, which send a PROXY protocol header.
    pub(super) proxies: Vec<IpNet>,
}

impl<A: Admission> Acceptor<A> {
    /// Starts the task of a connection, or closes the socket if a limit is reached.
    pub(super) fn accept(
        &self,
        socket: TcpStream,
        tls: Option<Arc<ServerConfig>>,
        peer: SocketAddr,
        tasks: &mut JoinSet<()>,
    ) {
        let peer = canonical(peer);
        let is_proxy = self.proxies.iter().any(|proxies| proxies.contains(&peer.ip()));
        let refused = |text: &str| self.shared.warn(peer, Subject::Unknown, &format!("refused: {text}"));
        let entry = if is_proxy {
            self.limiter
                .unnamed
                .try_take(Network::from(peer.ip()), 1)
                .map(Entry::Unnamed)
                .map_err(|_| UNNAMED_FULL)
        } else {
            self.shared.take_slots(&self.limiter, peer).map(Entry::Known)
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(full) => return refused(full),
        };
        if let Err(failure) = socket.set_nodelay(true) {
            return refused(&format!("cannot set TCP_NODELAY: {failure}"));
        }
        // The socket's events must go to the thread that reads it.
        let socket = match socket.into_std() {
            Ok(socket) => socket,
            Err(failure) => return refused(&failure.to_string()),
        };
        let (thread, slot) = self.threads.slot();
        let (shared, limiter, stopped) =
            (Arc::clone(&self.shared), Arc::clone(&self.limiter), self.stopped.clone());
        let work = async move {
            match TcpStream::from_std(socket) {
                Ok(socket) => enter(socket, tls, peer, entry, &limiter, shared, stopped, slot).await,
                Err(failure) => shared.warn(peer, Subject::Unknown, &format!("refused: {failure}")),
            }
        };
        tasks.spawn_on(work, &thread);
    }
}

/// Slots of a new connection.
enum Entry {
    /// The client's address is known.
    Known((Slot, Slot)),
    /// The connection of a proxy that has not sent its header.
    Unnamed(Slot),
}

const UNNAMED_FULL: &str = "too many proxy connections without a PROXY protocol header";

/// Reads the PROXY protocol header if required, and serves the connection.
async fn enter<A: Admission>(
    mut socket: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    peer: SocketAddr,
    entry: Entry,
    limiter: &ConnectionLimiter,
    shared: Arc<Shared<A>>,
    stopped: CancellationToken,
    slot: ConnectionSlot,
) {
    let (peer, slots) = match entry {
        Entry::Known(slots) => (peer, Ok(slots)),
        Entry::Unnamed(slot_of_proxy) => {
            let limit = shared.limits.proxy_header;
            let header = tokio::select! {
                biased;
                () = stopped.cancelled() => return,
                header = timeout(limit, proxy::read(&mut socket)) => header,
            };
            drop(slot_of_proxy);
            let client = match header {
                Ok(Ok(client)) => client.map_or(peer, canonical),
                // Usually a health check of the proxy, every few seconds: no warning.
                Ok(Err(fault @ Fault::Nothing)) => return debug!(%peer, "RTMP connection: {fault}"),
                Ok(Err(fault)) => return shared.warn(peer, Subject::Unknown, &format!("refused: {fault}")),
                Err(_) => {
                    return shared.warn(
                        peer,
                        Subject::Unknown,
                        "refused: the proxy sent no PROXY protocol header in time",
                    );
                }
            };
            (client, shared.take_slots(limiter, client))
        }
    };
    match slots {
        Ok((_slot, stranger)) => conn::serve(socket, tls, peer, shared, stranger, stopped, slot).await,
        Err(full) => shared.warn(peer, Subject::Unknown, &format!("refused: {full}")),
    }
}

impl<A> Shared<A> {
    /// Slots for a connection of `peer`, or the reason of the refusal.
    pub(super) fn take_slots(
        &self,
        limiter: &ConnectionLimiter,
        peer: SocketAddr,
    ) -> Result<(Slot, Slot), &'static str> {
        let network = Network::from(peer.ip());
        if self.keys.is_blocked(network, self.clock.monotonic()) {
            return Err("too many wrong stream keys from this address in the last minute");
        }
        limiter.take(network)
    }
}

/// Turns an IPv4-mapped IPv6 address into IPv4.
pub(super) fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}
