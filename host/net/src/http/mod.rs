//! The HTTP listener: hyper's HTTP/1.1 and HTTP/2 around a poem endpoint, on an accept loop of our own.
//!
//! poem's own server is not used, because it costs memory per connection and loses vectored writes. Every
//! connection has a deadline for its request head, which also closes idle ones, and one for taking its answers. There
//! is a cap on all connections, and one per network, so that no client takes every slot.
//! With a certificate the port accepts TLS only.

mod flow;
mod serving;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use poem::Endpoint;
use satcast_quota::{Full, Permit, Quota};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::serving::{Held, Peers, Serving};
use crate::certificates::{CertificateError, Certificates, Section};
use satcast_core::config;
use satcast_core::networks::Network;

/// Connections open at one time; further ones wait in the kernel's queue.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Share of the process's open files for connections: a fourth. The rest is for files they fetch, encoders,
/// destinations, drivers and the database.
pub const OPEN_FILES_PART: u64 = 4;
/// Share of the connections for one network when few are allowed: a half.
const NETWORK_PART: usize = 2;
/// Connections open at one time from one network (an IPv4 address or an IPv6 /64); further ones are closed at once.
/// Trusted proxies serve many clients and are exempt. Enough for the players of a household or a small company.
pub const CONNECTIONS_PER_NETWORK_MAX: usize = 512;
/// Longest time a write may wait for the peer to take any of it. The socket takes more when half of
/// [`UNSENT_BYTES_MAX`] has gone, so this alone requires about 2 KiB per second where the system supports that option.
pub const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Fewest bytes a peer must take per [`WRITE_RATE_WINDOW`] of waiting: no media plays at 1 KiB per second.
/// Without it a peer could keep its slot for hours by reading single bytes.
pub const WRITE_RATE_BYTES_MIN: u64 = 60 * 1024;
/// Time spent waiting for a peer after which its rate is checked.
pub const WRITE_RATE_WINDOW: Duration = Duration::from_secs(60);
/// Bytes that may wait unsent in a socket before writes to it wait. Few, so that an answer that is broken off has cost
/// little, and that written bytes are nearly the sent ones; enough for the wake-ups between.
pub const UNSENT_BYTES_MAX: u32 = 128 * 1024;
/// Longest time for the head of a request, counted from the end of the one before: the life of an idle connection.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for running requests when the service stops.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// Largest request head in bytes; also the read buffer's limit.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most header lines of a request.
pub const HEADERS_MAX: usize = 64;
/// Requests of one HTTP/2 connection that may run at one time. A player has a handful; a proxy opens more connections.
pub const STREAMS_MAX: u32 = 100;
/// Bytes of requests' bodies that an HTTP/2 peer may send before they are read. Bodies here are small.
pub const RECEIVE_WINDOW_BYTES: u32 = 256 * 1024;
/// Wait after a failed accept (no file descriptors left, for one) before the next try.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A listener on `address`, or on the socket that the service manager has handed over instead.
///
/// # Errors
/// The address is in use or not ours, or the socket does not listen.
pub async fn listener(address: SocketAddr, handed: Option<std::net::TcpListener>) -> io::Result<TcpListener> {
    let Some(handed) = handed else { return TcpListener::bind(address).await };
    handed.set_nonblocking(true)?;
    TcpListener::from_std(handed)
}

/// What to do when a listener cannot be opened; `setting` has its address.
pub fn remedy(error: &io::Error, setting: &str) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "only root and processes with CAP_NET_BIND_SERVICE may use ports below 1024; set a higher port in {setting}, or \
             start the service by the unit of the release"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("no network of this machine has the address; change {setting}")
        }
        _ => format!("stop the other server or set {setting}"),
    }
}

/// Why the listener cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} ({source}); {}", remedy(source, "[http] listen"))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("{0}")]
    Certificate(#[from] CertificateError),
}

/// Limits of a server, each with its default above.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// See [`CONNECTIONS_MAX`].
    pub connections_max: usize,
    /// See [`CONNECTIONS_PER_NETWORK_MAX`].
    pub per_network_max: usize,
    /// See [`WRITE_STALL_TIMEOUT`].
    pub write_stall_timeout: Duration,
    /// See [`WRITE_RATE_BYTES_MIN`].
    pub write_rate_bytes_min: u64,
    /// See [`WRITE_RATE_WINDOW`].
    pub write_rate_window: Duration,
    /// See [`HEAD_TIMEOUT`].
    pub head_timeout: Duration,
    /// See [`SHUTDOWN_GRACE`].
    pub shutdown_grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            per_network_max: CONNECTIONS_PER_NETWORK_MAX,
            write_stall_timeout: WRITE_STALL_TIMEOUT,
            write_rate_bytes_min: WRITE_RATE_BYTES_MIN,
            write_rate_window: WRITE_RATE_WINDOW,
            head_timeout: HEAD_TIMEOUT,
            shutdown_grace: SHUTDOWN_GRACE,
        }
    }
}

impl ServerLimits {
    /// The defaults, with fewer connections when the limit of open files is low.
    pub fn within(open_files: u64) -> Self {
        let files = usize::try_from(open_files / OPEN_FILES_PART).unwrap_or(usize::MAX);
        let connections_max = CONNECTIONS_MAX.min(files).max(NETWORK_PART);
        let per_network_max = CONNECTIONS_PER_NETWORK_MAX.min(connections_max / NETWORK_PART);
        Self { connections_max, per_network_max, ..Self::default() }
    }
}

/// Bytes a connection has handed to its socket since it began, heads of answers included. Every request carries it in
/// its extensions, for metering.
#[derive(Clone, Debug, Default)]
pub struct Sent(Arc<AtomicU64>);

impl Sent {
    /// The bytes so far; never falls.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// An open listener.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    trusted_proxies: Vec<IpNet>,
    certificates: Option<Arc<Certificates>>,
    limits: ServerLimits,
}

impl Server {
    /// Opens the configured listener.
    ///
    /// # Errors
    /// The address is in use or not ours, or the certificate cannot be used.
    pub async fn bind(config: &config::Http, limits: ServerLimits) -> Result<Self, HttpError> {
        Self::open(config, limits, None).await
    }

    /// As [`Server::bind`], on the listening socket `handed` if the service manager has handed one over.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub async fn open(
        config: &config::Http,
        limits: ServerLimits,
        handed: Option<std::net::TcpListener>,
    ) -> Result<Self, HttpError> {
        let certificates = match config.https() {
            Some((cert, key)) => Some(Arc::new(Certificates::load(Section::Http, cert, key)?)),
            None => None,
        };
        let failed = |source| HttpError::Listen { address: config.listen, source };
        let listener = listener(config.listen, handed).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let trusted_proxies = config.trusted_proxies.clone();
        Ok(Self { listener, address, trusted_proxies, certificates, limits })
    }

    /// The certificate of https; `None` when https is not served.
    pub fn certificates(&self) -> Option<Arc<Certificates>> {
        self.certificates.clone()
    }

    /// Connections accepted at one time from one network.
    pub fn per_network(&self) -> usize {
        self.limits.per_network_max
    }

    /// The address listened on, with the port the system chose for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The permit of a connection from `peer` among those of its network; a trusted proxy needs none.
    fn permit(&self, permits: &Quota<Network>, peer: SocketAddr) -> Result<Option<Permit<Network>>, Full> {
        let address = peer.ip().to_canonical();
        if self.trusted_proxies.iter().any(|proxies| proxies.contains(&address)) {
            return Ok(None);
        }
        permits.try_take(Network::from(address), 1).map(Some)
    }

    /// Serves `endpoint` until `shutdown` completes, then lets running requests finish for the grace time.
    pub async fn serve<E>(self, endpoint: E, shutdown: impl Future<Output = ()>)
    where
        E: Endpoint + 'static,
    {
        let endpoint = Arc::new(endpoint);
        let slots = Arc::new(Semaphore::new(self.limits.connections_max));
        let permits = Quota::new(u64::MAX, self.limits.per_network_max as u64);
        let stopped = CancellationToken::new();
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        let mut fresh = pin!(keep_fresh(self.certificates.clone()));
        loop {
            let next = async {
                // The semaphore is never closed, so a slot always comes.
                let slot = slots.clone().acquire_owned().await.ok()?;
                Some((self.listener.accept().await, slot))
            };
            tokio::select! {
                () = &mut shutdown => break,
                never = &mut fresh => match never {},
                Some(ended) = connections.join_next() => report(ended),
                Some((accepted, slot)) = next => match accepted {
                    Ok((socket, peer)) => {
                        let Ok(permit) = self.permit(&permits, peer) else {
                            tracing::debug!(%peer, "an http connection above its network's cap was closed");
                            continue;
                        };
                        let serving = Serving {
                            endpoint: endpoint.clone(),
                            peers: Peers { local: self.address, remote: peer },
                            limits: self.limits,
                            stopped: stopped.clone(),
                            tls: self.certificates.as_ref().map(|certificates| certificates.current()),
                            _held: Held { _slot: slot, _permit: permit },
                        };
                        connections.spawn(serving.run(socket));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept an http connection");
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                },
            }
        }
        drop(self.listener);
        stopped.cancel();
        let finish = async {
            while let Some(ended) = connections.join_next().await {
                report(ended)
            }
        };
        if tokio::time::timeout(self.limits.shutdown_grace, finish).await.is_err() {
            tracing::warn!("http requests were cut off at shutdown");
        }
    }
}

/// Keeps the certificate current, if there is one.
async fn keep_fresh(certificates: Option<Arc<Certificates>>) -> Infallible {
    match certificates {
        Some(certificates) => certificates.keep_fresh().await,
        None => std::future::pending().await,
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "an http connection panicked");
    }
}
