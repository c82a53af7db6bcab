//! Ingest: the RTMP, RTMPS, SRT and WHIP listeners, with common caps and deadlines.
//!
//! A connection is one task: socket (-> `tls`) -> [`satcast_media::rtmp::server`] -> packets -> the stream's publisher. Before the stream
//! key is accepted, a client is limited in time and bytes. A client can break only its own connection. [`srt`] and [`whip`] have the ports of
//! these.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use satcast_core::clock::Clock;
use satcast_core::config;
use satcast_core::ids::UnixMillis;
use satcast_core::log_limit::LogLimit;
use satcast_net::certificates::{CertificateError, Certificates, Section};
use satcast_net::http::{self, remedy};
use satcast_store::Store;

mod admit;
mod conn;
mod connections;
mod end;
mod keys;
mod limits;
mod proxy;
mod srt;
mod threads;
mod timer;
mod tls;
mod udp;
mod usable;
mod whip;
mod wire;

pub use admit::{Admission, PacketSink, Status};
pub use limits::*;
#[cfg(feature = "fuzzing")]
pub use whip::fuzz;
pub use whip::{Whip, WhipAccepted, WhipRefusal, WhipRefused};

use conn::{Shared, Subject};
use connections::{Acceptor, ConnectionLimiter};
use keys::KeyAttempts;
use threads::{Threads, report};
use wire::Pace;

/// Settings of the listeners.
#[derive(Debug)]
pub struct Settings {
    listen: SocketAddr,
    secure: Option<(SocketAddr, Certificates)>,
    srt: Option<SocketAddr>,
    /// The port of WHIP, and the addresses for its answers.
    whip: Option<(SocketAddr, Vec<IpAddr>)>,
    read_wait: Duration,
    proxies: Vec<IpNet>,
    limits: Limits,
    handed: Handed,
}

/// Listening sockets that the service manager has handed over, for the ports that it opens itself.
#[derive(Debug, Default)]
pub struct Handed {
    pub rtmp: Option<std::net::TcpListener>,
    pub rtmps: Option<std::net::TcpListener>,
}

impl Settings {
    /// `listen` as `[ingest] rtmp_listen`, `read_batch_ms` as the key of that name: the time between two reads of a
    /// publishing connection, 0 to read at once.
    #[must_use]
    pub fn new(listen: SocketAddr, read_batch_ms: u64) -> Self {
        let read_wait = Duration::from_millis(read_batch_ms);
        let (proxies, limits, handed) = (Vec::new(), Limits::default(), Handed::default());
        Self { listen, secure: None, srt: None, whip: None, read_wait, proxies, limits, handed }
    }

    /// Uses these sockets instead of opening the ports.
    #[must_use]
    pub fn on(self, handed: Handed) -> Self {
        Self { handed, ..self }
    }

    /// Reduces the connection limits to fit the process's limit of open files.
    #[must_use]
    pub fn within(self, open_files: u64) -> Self {
        Self { limits: self.limits.within(open_files), ..self }
    }

    /// Settings of `[ingest]`. Reads the certificate if one is set, and warns if it is not valid at `now`.
    ///
    /// # Errors
    /// A file of the certificate cannot be used; the error names it.
    pub fn of(config: &config::Ingest, now: UnixMillis) -> Result<Self, CertificateError> {
        let settings =
            Self::new(config.rtmp_listen, config.read_batch_ms).behind(config.proxy_protocol_from.clone());
        let whip = config.webrtc_listen.map(|listen| (listen, config.webrtc_addresses.clone()));
        let settings = Self { srt: config.srt_listen, whip, ..settings };
        let Some((listen, cert, key)) = config.rtmps() else { return Ok(settings) };
        if let Some(objection) = Certificates::objection(Section::Ingest, cert, key, now)? {
            let file = cert.display();
            warn!(%file, "the RTMPS certificate {objection}; encoders that check certificates will not connect");
        }
        Ok(settings.with_tls(listen, Certificates::load(Section::Ingest, cert, key)?))
    }

    /// Connections from these networks must send a PROXY protocol header, and the address in it is trusted: `[ingest]
    /// proxy_protocol_from`.
    #[must_use]
    pub fn behind(self, proxies: Vec<IpNet>) -> Self {
        Self { proxies, ..self }
    }

    /// Listens for SRT too, on this UDP port: `[ingest] srt_listen`.
    #[must_use]
    pub fn with_srt(self, listen: SocketAddr) -> Self {
        Self { srt: Some(listen), ..self }
    }

    /// Takes senders of WHIP too, with their media on this UDP port: `[ingest] webrtc_listen`.
    #[must_use]
    pub fn with_whip(self, listen: SocketAddr) -> Self {
        Self { whip: Some((listen, Vec::new())), ..self }
    }

    /// Listens for RTMPS too, on `listen` (`[ingest] rtmps_listen`) with this certificate.
    #[must_use]
    pub fn with_tls(self, listen: SocketAddr, certificates: Certificates) -> Self {
        Self { secure: Some((listen, certificates)), ..self }
    }
}

/// A port cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen for encoders on {address} ({source}); {}", remedy(source, &format!("[ingest] {setting}"))
)]
pub struct BindError {
    /// `rtmp_listen`, `rtmps_listen`, `srt_listen` or `webrtc_listen`.
    pub setting: &'static str,
    pub address: SocketAddr,
    /// Error of the system.
    pub source: io::Error,
}

/// The bound ports. Encoders can connect, and are served by [`Listener::run`].
#[derive(Debug)]
pub struct Listener<A> {
    socket: TcpListener,
    secure: Option<Secure>,
    srt: Option<std::net::UdpSocket>,
    whip: Option<whip::Bound>,
    shared: Arc<Shared<A>>,
    limiter: ConnectionLimiter,
    threads: Threads,
    proxies: Vec<IpNet>,
    drained: CancellationToken,
}

/// The port with TLS.
#[derive(Debug)]
struct Secure {
    socket: TcpListener,
    certificates: Arc<Certificates>,
}

impl Secure {
    /// The next connection to `secure`, with the current certificate. Never resolves when `secure` is `None`.
    async fn accept(secure: &Option<Self>) -> io::Result<(TcpStream, SocketAddr, Arc<ServerConfig>)> {
        let Some(secure) = secure else { return std::future::pending().await };
        let (socket, peer) = secure.socket.accept().await?;
        Ok((socket, peer, secure.certificates.current()))
    }
}

impl<A: Admission> Listener<A> {
    /// # Errors
    /// The port is in use, or the address is not local.
    pub async fn bind(
        settings: Settings,
        store: Store,
        admission: A,
        clock: Clock,
    ) -> Result<Self, BindError> {
        let (address, handed) = (settings.listen, settings.handed);
        let socket = bind("rtmp_listen", address, handed.rtmp).await?;
        let secure = match settings.secure {
            Some((address, certificates)) => Some(Secure {
                socket: bind("rtmps_listen", address, handed.rtmps).await?,
                certificates: Arc::new(certificates),
            }),
            None => None,
        };
        let srt = settings.srt.map(|address| {
            let failed = |source| BindError { setting: "srt_listen", address, source };
            udp::bind(address).map_err(failed)
        });
        let srt = srt.transpose()?;
        let whip = settings.whip.map(|(address, public)| {
            let failed = |source| BindError { setting: "webrtc_listen", address, source };
            whip::Bound::open(address, public).map_err(failed)
        });
        let whip = whip.transpose()?;
        let threads =
            Threads::start().map_err(|source| BindError { setting: "rtmp_listen", address, source })?;
        let limits = settings.limits;
        let limiter = ConnectionLimiter::new(&limits);
        let shared = Arc::new(Shared {
            store,
            admission,
            clock,
            pace: Pace::new(settings.read_wait),
            started: Instant::now(),
            keys: KeyAttempts::new(limits.failed_keys_max),
            warnings: LogLimit::new(limits.warnings_max, keys::WINDOW),
            limits,
        });
        let (proxies, drained) = (settings.proxies, CancellationToken::new());
        Ok(Self { socket, secure, srt, whip, shared, limiter, threads, proxies, drained })
    }

    /// Once it is cancelled, no further encoder is accepted; those that are connected go on until the end.
    pub fn drain(&self) -> CancellationToken {
        self.drained.clone()
    }

    /// The certificate of RTMPS; `None` when RTMPS is not served.
    pub fn certificates(&self) -> Option<Arc<Certificates>> {
        self.secure.as_ref().map(|secure| secure.certificates.clone())
    }

    /// With the port that the system chose if the configured port is 0.
    ///
    /// # Errors
    /// The system call failed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Most connections from one network at the same time.
    pub fn per_network(&self) -> usize {
        self.shared.limits.connections_per_network_max
    }

    /// The address of the RTMPS port, if there is one.
    ///
    /// # Errors
    /// The system call failed.
    pub fn secure_addr(&self) -> io::Result<Option<SocketAddr>> {
        self.secure.as_ref().map(|secure| secure.socket.local_addr()).transpose()
    }

    /// The address of the SRT port, if there is one.
    ///
    /// # Errors
    /// The system call failed.
    pub fn srt_addr(&self) -> io::Result<Option<SocketAddr>> {
        self.srt.as_ref().map(std::net::UdpSocket::local_addr).transpose()
    }

    /// The HTTP side of WHIP, if it is served.
    pub fn whip(&self) -> Option<Whip> {
        self.whip.as_ref().map(whip::Bound::whip)
    }

    /// The address of the UDP port of WHIP, if there is one.
    ///
    /// # Errors
    /// The system call failed.
    pub fn whip_addr(&self) -> io::Result<Option<SocketAddr>> {
        self.whip.as_ref().map(whip::Bound::local_addr).transpose()
    }

    /// Serves encoders until `shutdown` resolves. Then stops accepting, sends a status to every publisher, and returns when all
    /// connections have ended, at the latest after [`SHUTDOWN_TIMEOUT_MS`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { socket, secure, srt, whip, shared, limiter, threads, proxies, drained } = self;
        let stopped = CancellationToken::new();
        let acceptor = Acceptor {
            shared: Arc::clone(&shared),
            limiter: Arc::new(limiter),
            stopped: stopped.clone(),
            threads: Arc::new(threads),
            proxies,
        };
        let mut tasks = JoinSet::new();
        if let Some(socket) = srt {
            let thread = acceptor.threads.slot().0;
            let callers = srt::Callers::new(socket, &acceptor, drained.clone());
            tasks.spawn_on(callers.serve(), &thread);
        }
        if let Some(bound) = whip {
            let thread = acceptor.threads.slot().0;
            tasks.spawn_on(whip::Senders::new(bound, &acceptor, drained.clone()).serve(), &thread);
        }
        let mut shutdown = std::pin::pin!(shutdown);
        let mut renewing =
            std::pin::pin!(keep_fresh(secure.as_ref().map(|secure| Arc::clone(&secure.certificates))));
        let is_over = loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break true,
                () = drained.cancelled() => break false,
                Some(ended) = tasks.join_next() => report(ended),
                accepted = socket.accept() => match accepted {
                    Ok((socket, peer)) => acceptor.accept(socket, None, peer, &mut tasks),
                    Err(failure) => pause_after(failure, &shared, socket.local_addr().ok()).await,
                },
                accepted = Secure::accept(&secure) => match accepted {
                    Ok((socket, peer, tls)) => acceptor.accept(socket, Some(tls), peer, &mut tasks),
                    Err(failure) => pause_after(failure, &shared, None).await,
                },
                never = &mut renewing => match never {},
            }
        };
        drop((socket, secure));
        if !is_over {
            loop {
                tokio::select! {
                    biased;
                    () = &mut shutdown => break,
                    Some(ended) = tasks.join_next() => report(ended),
                }
            }
        }
        let limit = shared.limits.shutdown;
        stopped.cancel();
        let all_ended = timeout(limit, async {
            while let Some(ended) = tasks.join_next().await {
                report(ended);
            }
        });
        if all_ended.await.is_err() {
            warn!("{} connections of encoders were cut off at shutdown", tasks.len());
        }
        info!("listeners for encoders closed");
    }
}

async fn bind(
    setting: &'static str,
    address: SocketAddr,
    handed: Option<std::net::TcpListener>,
) -> Result<TcpListener, BindError> {
    // The receive buffer is left to the kernel, so that it grows with the stream. A fixed size is cut by `net.core.rmem_max`, and would
    // hold less than a fast stream sends between two reads.
    http::listener(address, handed).await.map_err(|source| BindError { setting, address, source })
}

/// Renews the certificate; waits for ever if there is none.
async fn keep_fresh(certificates: Option<Arc<Certificates>>) -> Infallible {
    match certificates {
        Some(certificates) => certificates.keep_fresh().await,
        None => std::future::pending().await,
    }
}

/// A connection that failed before it was accepted needs no pause. A lack of file handles does.
async fn pause_after<A>(failure: io::Error, shared: &Shared<A>, local: Option<SocketAddr>) {
    if matches!(failure.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
        return;
    }
    let local = local.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    shared.warn(local, Subject::Unknown, &not_accepted(&failure));
    sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
}

fn not_accepted(failure: &io::Error) -> String {
    format!("cannot accept connections: {failure}; raise the limit of open files")
}

#[cfg(test)]
mod tests;
