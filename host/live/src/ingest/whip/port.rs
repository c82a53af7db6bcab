//! What the HTTP side, the port and the tasks of its senders share: offers, their answers and refusals, and the socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use satcast_core::secret::{Redacted, key_hash};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::super::admit::{CODE_BAD_NAME, CODE_FAILED, CODE_NO_CODEC, CODE_OFFER, Status};
use super::super::conn::Shared;
use super::super::connections::canonical;
use super::super::limits::WHIP_OFFER_BYTES_MAX;
use super::crypto::Identity;
use super::routes::Routes;

/// The HTTP side of the port: gives offers to it, and ends publishes.
#[derive(Clone, Debug)]
pub struct Whip {
    pub(super) asks: mpsc::Sender<Ask>,
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
    pub(super) fn of(status: &Status) -> Self {
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
pub(super) enum Ask {
    Publish(Offer),
    Leave {
        id: String,
        key: Option<Redacted<String>>,
        client: IpAddr,
        reply: oneshot::Sender<Result<(), WhipRefused>>,
    },
}

#[derive(Debug)]
pub(super) struct Offer {
    pub(super) text: String,
    pub(super) key: Option<Redacted<String>>,
    pub(super) client: IpAddr,
    pub(super) reply: oneshot::Sender<Result<WhipAccepted, WhipRefused>>,
}

impl Offer {
    pub(super) fn key_hash(&self) -> [u8; 32] {
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

pub(super) fn unavailable() -> WhipRefused {
    WhipRefused { why: WhipRefusal::Unavailable, reason: Status::unavailable().reason }
}

/// State of the port, which the tasks of its senders share.
pub(super) struct Port<A> {
    pub(super) shared: Arc<Shared<A>>,
    pub(super) stopped: CancellationToken,
    pub(super) socket: std::net::UdpSocket,
    pub(super) public: Vec<IpAddr>,
    pub(super) identity: Identity,
    pub(super) routes: Arc<Routes>,
    /// The socket takes IPv4 as mapped addresses.
    pub(super) is_v6: bool,
}

impl<A> Port<A> {
    /// Sends what the system takes at once; the rest counts as lost on the way.
    pub(super) fn send(&self, datagram: &[u8], to: SocketAddr) {
        let to = match to {
            SocketAddr::V4(v4) if self.is_v6 => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
            as_it_is => as_it_is,
        };
        let _may_be_lost = self.socket.send_to(datagram, to);
    }

    /// Addresses for the answer to a client: those of the configuration, or that of the socket. If the socket has them all, the
    /// address of the interface that leads to the client.
    pub(super) fn addresses(&self, client: IpAddr) -> Vec<SocketAddr> {
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
