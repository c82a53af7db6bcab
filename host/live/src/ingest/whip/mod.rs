//! The port of WHIP (RFC 9725): one UDP socket for the media of all senders, ICE lite. Their offers come from the HTTP side by
//! [`Whip`]; each accepted sender has a task ([`sender`]), which gets its datagrams by [`routes`].

mod clock;
mod crypto;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod media;
mod offer;
#[cfg(test)]
pub(super) mod peer;
mod port;
mod routes;
mod sender;
mod stun;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use satcast_core::secret::key_hash;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::admit::Admission;
use super::conn::Subject;
use super::connections::{Acceptor, ConnectionLimiter, canonical};
use super::limits::WHIP_OFFERS_QUEUED_MAX;
use super::threads::{Threads, report};
use super::udp::{DATAGRAM_BYTES, read_round};
use crypto::Identity;
use port::{Ask, Offer, Port, unavailable};
pub use port::{Whip, WhipAccepted, WhipRefusal, WhipRefused};
use routes::NotLeft;
use sender::Sender;

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
