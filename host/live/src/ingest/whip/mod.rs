//! The port of WHIP (RFC 9725): one UDP socket for the media of all senders, ICE lite. Their offers come from the HTTP side by
//! [`Whip`]; each accepted sender has a task ([`sender`]), which gets its datagrams by [`routes`].

mod clock;
mod crypto;
mod media;
mod offer;
#[cfg(test)]
pub(super) mod peer;
mod routes;
mod sender;
mod stun;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use satcast_core::secret::{Redacted, key_hash};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::admit::{Admission, CODE_BAD_NAME, CODE_FAILED, CODE_NO_CODEC, CODE_OFFER, Status};
use super::conn::{Shared, Subject};
use super::connections::{Acceptor, ConnectionLimiter, canonical};
use super::limits::{WHIP_OFFER_BYTES_MAX, WHIP_OFFERS_QUEUED_MAX};
use super::threads::{Threads, report};
use super::udp::{DATAGRAM_BYTES, read_round};
use crypto::Identity;
use routes::{NotLeft, Routes};
use sender::Sender;

/// The HTTP side of the port: gives offers to it, and ends publishes.
#[derive(Clone, Debug)]
pub struct Whip {
    asks: mpsc::Sender<Ask>,
}

/// An accepted offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhipAccepted {
    /// Names the publish in `/whip/{id}`; it cannot be guessed.
    pub id: String,
    /// SDP.
    pub answer: String,
}

/// Why an offer is not accepted, or a publish does not end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhipRefused {
    pub why: WhipRefusal,
    /// One sentence for the user of the encoder, without secrets.
    pub reason: String,
}

/// Kinds of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhipRefusal {
    /// No text with the form of a stream key was sent.
    NoKey,
    /// No stream has this key, or the publish belongs to another one.
    UnknownKey,
    /// The stream may not be published now, or not from this address.
    Denied,
    /// The stream is published already.
    Conflict,
    /// The offer cannot be read.
    Offer,
    /// The offer has no codec that is taken.
    Codec,
    /// Too many connections, or too many wrong keys from this address.
    Full,
    /// The service cannot decide now, or is being shut down.
    Unavailable,
    /// No publish has this id.
    NoPublish,
}

impl WhipRefusal {
    fn of(status: &Status) -> Self {
        match status.code {
            CODE_BAD_NAME => Self::Conflict,
            CODE_FAILED => Self::Unavailable,
            CODE_OFFER => Self::Offer,
            CODE_NO_CODEC => Self::Codec,
            _ => Self::Denied,
        }
    }
}

/// A request of the HTTP side.
#[derive(Debug)]
enum Ask {
    Publish(Offer),
    Leave {
        id: String,
        key: Option<Redacted<String>>,
        client: IpAddr,
        reply: oneshot::Sender<Result<(), WhipRefused>>,
    },
}

#[derive(Debug)]
struct Offer {
    text: String,
    key: Option<Redacted<String>>,
    client: IpAddr,
    reply: oneshot::Sender<Result<WhipAccepted, WhipRefused>>,
}

impl Offer {
    fn key_hash(&self) -> [u8; 32] {
        self.key.as_ref().map_or([0; 32], |key| key_hash(key.expose().trim()))
    }
}

impl Whip {
    /// Longest offer in bytes.
    pub const OFFER_BYTES_MAX: usize = WHIP_OFFER_BYTES_MAX;

    /// Begins a publish with this offer, for the client of a request with this key.
    ///
    /// # Errors
    /// The refusal.
    pub async fn publish(
        &self,
        client: IpAddr,
        key: Option<Redacted<String>>,
        offer: String,
    ) -> Result<WhipAccepted, WhipRefused> {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::Publish(Offer { text: offer, key, client, reply }), answer).await
    }

    /// Ends the publish of this id, with the key that began it.
    ///
    /// # Errors
    /// The refusal.
    pub async fn leave(
        &self,
        client: IpAddr,
        key: Option<Redacted<String>>,
        id: &str,
    ) -> Result<(), WhipRefused> {
        let (reply, answer) = oneshot::channel();
        self.ask(Ask::Leave { id: id.to_owned(), key, client, reply }, answer).await
    }

    async fn ask<T>(
        &self,
        ask: Ask,
        answer: oneshot::Receiver<Result<T, WhipRefused>>,
    ) -> Result<T, WhipRefused> {
        self.asks.try_send(ask).map_err(|_| unavailable())?;
        answer.await.map_err(|_| unavailable())?
    }
}

fn unavailable() -> WhipRefused {
    WhipRefused { why: WhipRefusal::Unavailable, reason: Status::unavailable().reason }
}

/// The opened port, before it is served.
#[derive(Debug)]
pub(super) struct Bound {
    socket: std::net::UdpSocket,
    public: Vec<IpAddr>,
    identity: Identity,
    whip: Whip,
    asks: mpsc::Receiver<Ask>,
}

impl Bound {
    /// Opens the port; `public`: addresses for the answers.
    pub(super) fn open(address: SocketAddr, public: Vec<IpAddr>) -> io::Result<Self> {
        let socket = super::udp::bind(address)?;
        let identity = Identity::new().map_err(io::Error::other)?;
        let (sender, asks) = mpsc::channel(WHIP_OFFERS_QUEUED_MAX);
        Ok(Self { socket, public, identity, whip: Whip { asks: sender }, asks })
    }

    pub(super) fn whip(&self) -> Whip {
        self.whip.clone()
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// State of the port, which the tasks of its senders share.
struct Port<A> {
    shared: Arc<Shared<A>>,
    stopped: CancellationToken,
    socket: std::net::UdpSocket,
    public: Vec<IpAddr>,
    identity: Identity,
    routes: Arc<Routes>,
    /// The socket takes IPv4 as mapped addresses.
    is_v6: bool,
}

impl<A> Port<A> {
    /// Sends what the system takes at once; the rest counts as lost on the way.
    fn send(&self, datagram: &[u8], to: SocketAddr) {
        let to = match to {
            SocketAddr::V4(v4) if self.is_v6 => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
            as_it_is => as_it_is,
        };
        let _may_be_lost = self.socket.send_to(datagram, to);
    }

    /// Addresses for the answer to a client: those of the configuration, or that of the socket. If the socket has them all, the
    /// address of the interface that leads to the client.
    fn addresses(&self, client: IpAddr) -> Vec<SocketAddr> {
        let Ok(own) = self.socket.local_addr() else { return Vec::new() };
        let with_port = |ip: IpAddr| SocketAddr::new(ip, own.port());
        if !self.public.is_empty() {
            return self.public.iter().copied().map(with_port).collect();
        }
        if !own.ip().is_unspecified() {
            return vec![canonical(own)];
        }
        towards(client).map(with_port).into_iter().collect()
    }
}

/// The address of this machine on the way to `client`. Nothing is sent.
fn towards(client: IpAddr) -> Option<IpAddr> {
    let any =
        if client.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let probe = std::net::UdpSocket::bind((any, 0)).ok()?;
    // Any port but 0.
    probe.connect((client, 9)).ok()?;
    Some(probe.local_addr().ok()?.ip().to_canonical())
}

/// The port, with what decides about senders before they have a task.
pub(super) struct Senders<A> {
    port: Arc<Port<A>>,
    asks: mpsc::Receiver<Ask>,
    limiter: Arc<ConnectionLimiter>,
    threads: Arc<Threads>,
    drained: CancellationToken,
}

impl<A: Admission> Senders<A> {
    /// The port behind `bound`. Once `drained` is cancelled, offers are refused.
    pub(super) fn new(bound: Bound, acceptor: &Acceptor<A>, drained: CancellationToken) -> Self {
        let Bound { socket, public, identity, whip: _, asks } = bound;
        let (shared, stopped) = (Arc::clone(&acceptor.shared), acceptor.stopped.clone());
        let is_v6 = socket.local_addr().is_ok_and(|own| own.is_ipv6());
        let port = Port { shared, stopped, socket, public, identity, routes: Arc::default(), is_v6 };
        let port = Arc::new(port);
        let (limiter, threads) = (Arc::clone(&acceptor.limiter), Arc::clone(&acceptor.threads));
        Self { port, asks, limiter, threads, drained }
    }

    /// Serves until the service stops, and all senders have ended.
    pub(super) async fn serve(mut self) {
        let mut tasks = JoinSet::new();
        let read = self.read(&mut tasks).await;
        // Refuses at once what waits and what comes, also while a port that failed waits for the end of the service.
        drop(self.asks);
        if let Err(failure) = read {
            tracing::error!(%failure, "the WHIP port failed; encoders cannot connect by WHIP until the next start");
            self.port.stopped.cancelled().await;
        }
        while let Some(ended) = tasks.join_next().await {
            report(ended);
        }
    }

    async fn read(&mut self, tasks: &mut JoinSet<()>) -> io::Result<()> {
        let socket = UdpSocket::from_std(self.port.socket.try_clone()?)?;
        let mut block = [0; DATAGRAM_BYTES];
        loop {
            tokio::select! {
                biased;
                () = self.port.stopped.cancelled() => return Ok(()),
                Some(ended) = tasks.join_next() => report(ended),
                Some(ask) = self.asks.recv() => self.take(ask, tasks),
                ready = socket.readable() => ready?,
            }
            let (routes, now) = (&self.port.routes, Instant::now());
            read_round(&socket, &mut block, |datagram, from| routes.lead(datagram, canonical(from), now))
                .await;
        }
    }

    fn take(&self, ask: Ask, tasks: &mut JoinSet<()>) {
        match ask {
            Ask::Publish(offer) => self.offered(offer, tasks),
            Ask::Leave { id, key, client, reply } => {
                let key = key.map_or([0; 32], |key| key_hash(key.expose().trim()));
                let _client_is_gone = reply.send(self.leave(&id, key, client));
            }
        }
    }

    /// An offer. From here on its sender has slots, unless it is refused at once.
    fn offered(&self, offer: Offer, tasks: &mut JoinSet<()>) {
        let port = &self.port;
        let peer = canonical(SocketAddr::new(offer.client, 0));
        if self.drained.is_cancelled() {
            let _client_is_gone = offer.reply.send(Err(unavailable()));
            return;
        }
        let (all, stranger) = match port.shared.take_slots(&self.limiter, peer) {
            Ok(slots) => slots,
            Err(full) => {
                port.shared.warn_of("WHIP", peer, Subject::Unknown, &format!("refused: {full}"));
                let refused = WhipRefused { why: WhipRefusal::Full, reason: full.to_owned() };
                let _client_is_gone = offer.reply.send(Err(refused));
                return;
            }
        };
        let (thread, slot) = self.threads.slot();
        let sender = Sender::new(Arc::clone(port), peer, slot);
        tasks.spawn_on(
            async move {
                let _all = all;
                sender.serve(offer, stranger).await;
            },
            &thread,
        );
    }

    fn leave(&self, id: &str, key: [u8; 32], client: IpAddr) -> Result<(), WhipRefused> {
        let refused = |why, reason: &str| Err(WhipRefused { why, reason: reason.to_owned() });
        match self.port.routes.leave(id, key) {
            Ok(()) => Ok(()),
            Err(NotLeft::Unknown) => {
                refused(WhipRefusal::NoPublish, "no publish has this address; it may have ended")
            }
            Err(NotLeft::WrongKey) => {
                let shared = &self.port.shared;
                shared.keys.failed(client.into(), shared.clock.monotonic());
                refused(
                    WhipRefusal::UnknownKey,
                    "this publish began with another key; send that stream key as bearer token",
                )
            }
        }
    }
}
