//! The task of one sender: its admission, then its datagrams to packets for its publisher, until one of both ends it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant as Moment};

use satcast_core::ids::{AccountId, StreamId as Stream};
use satcast_core::networks::Network;
use satcast_core::secret::new_uid;
use satcast_media::Packet;
use satcast_quota::Permit;
use str0m::media::KeyframeRequestKind;
use str0m::net::{Protocol, Receive};
use str0m::{Event, Input, Output, Rtc};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::field::display;
use tracing::info;

use super::super::admit::{Admission, Admitted, Denied, PacketSink, Status, StreamKey};
use super::super::conn::{KnownNetwork, Subject};
use super::super::end::End;
use super::super::limits::DATAGRAMS_QUEUED_MAX;
use super::super::threads::ConnectionSlot;
use super::media::Media;
use super::offer::{self, Local, Offered};
use super::port::{Offer, Port, WhipAccepted, WhipRefusal, WhipRefused};
use super::routes::{Datagram, Registered};
use super::stun::is_stun;
use crate::{LinkHealth, Via, WhipLink};

/// A sender that sends is looked after this far apart.
const ROUND: Duration = Duration::from_millis(10);
/// Datagrams that are taken before other tasks of the thread run.
const DATAGRAMS_AT_ONCE: usize = 64;

/// A sender with slots.
pub(super) struct Sender<A> {
    port: Arc<Port<A>>,
    /// The client of the HTTP request, for logs and limits.
    peer: SocketAddr,
    slot: ConnectionSlot,
    publishes: Option<(AccountId, Stream)>,
}

/// Why a sender is not accepted.
struct Refusal {
    refused: WhipRefused,
    /// For the operator.
    text: String,
    /// The mask of its stream key, if one was sent.
    key: Option<String>,
}

impl<A: Admission> Sender<A> {
    pub(super) fn new(port: Arc<Port<A>>, peer: SocketAddr, slot: ConnectionSlot) -> Self {
        Self { port, peer, slot, publishes: None }
    }

    /// Serves the sender until it ends. The slot `stranger` is released when it is admitted.
    pub(super) async fn serve(mut self, offer: Offer, stranger: Permit<Network>) {
        let shared = Arc::clone(&self.port.shared);
        let deadline = Instant::now() + shared.limits.setup;
        let local = Local {
            identity: self.port.identity.clone(),
            addresses: self.port.addresses(self.peer.ip()),
            name: new_uid(),
            password: new_uid(),
        };
        let (Admitted { account, stream, publisher }, offered) =
            match self.decide(&offer, local.clone(), deadline).await {
                Ok(admitted) => admitted,
                Err(Refusal { refused, text, key }) => {
                    self.warn(key.as_deref(), &format!("publish refused: {text}"));
                    let _client_is_gone = offer.reply.send(Err(refused));
                    return;
                }
            };
        drop(stranger);
        self.publishes = Some((account, stream));
        let _known = KnownNetwork::note(&shared, self.peer);
        let session = publisher.session().cloned();
        let (peer, session) = (self.peer.ip(), session.as_ref().map(display));
        let (registered, datagrams) = self.port.routes.register(&local.name, offer.key_hash());
        let accepted = WhipAccepted { id: registered.id.to_string(), answer: offered.answer.clone() };
        if offer.reply.send(Ok(accepted)).is_err() {
            return info!(%peer, account = %account, stream = %stream, session, "encoder left before the answer");
        }
        info!(%peer, account = %account, stream = %stream, session, "encoder publishes by WHIP");
        let mut relay = Relay::new(&self.port, local.addresses, registered, offered, publisher);
        let end = self.relay(&mut relay, datagrams).await;
        let lost = relay.media.lost;
        info!(%peer, account = %account, stream = %stream, session, lost, "encoder disconnected: {end}");
        if end.is_warning() {
            self.warn(None, &end.to_string());
        }
        relay.close();
    }

    /// A publisher and a connection for this offer, or a refusal.
    async fn decide(
        &self,
        offer: &Offer,
        local: Local,
        deadline: Instant,
    ) -> Result<(Admitted<A::Publisher>, Offered), Refusal> {
        let port = &self.port;
        let address = self.peer.ip();
        let refusal = |why, reason: &str, key: Option<String>| Refusal {
            refused: WhipRefused { why, reason: reason.to_owned() },
            text: reason.to_owned(),
            key,
        };
        let count = async || port.shared.wrong_key(address, deadline, &port.stopped).await;
        let Some(key) = offer.key.as_ref().and_then(|key| StreamKey::find("", key.expose(), None)) else {
            let _stopped = count().await;
            return Err(refusal(WhipRefusal::NoKey, &Status::no_key().reason, None));
        };
        let mask = Some(key.mask());
        let text = offer.text.clone();
        let fits = move |stream: &satcast_store::StreamRecord| {
            let offered = offer::accept(&local, &text, Moment::now());
            offered.map_err(|fault| Denied::Refused(stream.id, fault.status()))
        };
        match port.shared.ask(key, Via::default(), address, deadline, fits).await {
            Ok(admitted) => Ok(admitted),
            Err(Denied::UnknownKey) => {
                let _stopped = count().await;
                Err(refusal(WhipRefusal::UnknownKey, &Status::unknown_key().reason, mask))
            }
            Err(Denied::WrongAddress(stream)) => {
                let _stopped = count().await;
                let status = Status::wrong_address();
                port.shared.admission.refused(stream, &status);
                Err(refusal(WhipRefusal::Denied, &status.reason, mask))
            }
            Err(Denied::Refused(stream, status)) => {
                port.shared.admission.refused(stream, &status);
                Err(refusal(WhipRefusal::of(&status), &status.reason, mask))
            }
            Err(Denied::Unavailable(cause)) => {
                let refused = refusal(WhipRefusal::Unavailable, &Status::unavailable().reason, mask);
                Err(Refusal { text: cause, ..refused })
            }
        }
    }

    /// One warning for the operator; `key`: the mask of a refused key.
    fn warn(&self, key: Option<&str>, text: &str) {
        let of_stream = self.publishes.map(|(account, stream)| Subject::Stream { account, stream });
        let subject = of_stream.unwrap_or(key.map_or(Subject::Unknown, Subject::Key));
        self.port.shared.warn_of("WHIP", self.peer, subject, text);
    }

    async fn relay(
        &self,
        relay: &mut Relay<'_, A, A::Publisher>,
        mut datagrams: mpsc::Receiver<Datagram>,
    ) -> End {
        let _prompt = self.slot.read_promptly();
        let end = match self.relay_packets(relay, &mut datagrams).await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        relay.push();
        if matches!(end, End::Unpublished) {
            relay.publisher.unpublished();
        }
        end
    }

    async fn relay_packets(
        &self,
        relay: &mut Relay<'_, A, A::Publisher>,
        datagrams: &mut mpsc::Receiver<Datagram>,
    ) -> Result<Infallible, End> {
        let limits = &self.port.shared.limits;
        let left = relay.registered.left.clone();
        let mut last_media = Instant::now();
        loop {
            let mut is_busy = false;
            for number in 1..=DATAGRAMS_QUEUED_MAX {
                let Ok(datagram) = datagrams.try_recv() else { break };
                is_busy = true;
                relay.input(datagram)?;
                if number.is_multiple_of(DATAGRAMS_AT_ONCE) {
                    tokio::task::yield_now().await;
                }
            }
            relay.look_after(Moment::now())?;
            if relay.push() {
                last_media = Instant::now();
            }
            let (idle, heard) = (last_media + limits.idle, Instant::from_std(relay.heard));
            let silent = heard + if relay.is_connected { limits.silence } else { limits.setup };
            let now = Instant::now();
            if relay.is_over {
                return Err(End::PeerClosed);
            }
            if now >= silent && !relay.is_connected {
                return Err(End::NotConnected(limits.setup.as_millis()));
            }
            if now >= silent {
                return Err(End::Io(io::ErrorKind::TimedOut.into()));
            }
            if now >= idle {
                return Err(End::Idle(limits.idle.as_millis()));
            }
            let due = Instant::from_std(relay.due).max(now + ROUND).min(silent).min(idle);
            let until = if is_busy { now + ROUND } else { due };
            tokio::select! {
                biased;
                () = self.port.stopped.cancelled() => return Err(End::Shutdown),
                () = left.cancelled() => return Err(End::Unpublished),
                status = relay.publisher.closed() => return Err(End::Closed(status)),
                Some(datagram) = datagrams.recv(), if !is_busy => relay.input(datagram)?,
                () = sleep_until(until) => {}
            }
        }
    }
}

/// An accepted sender with its publisher.
struct Relay<'a, A, P> {
    port: &'a Port<A>,
    /// Our addresses in the answer.
    addresses: Vec<SocketAddr>,
    registered: Registered,
    rtc: Rtc,
    publisher: P,
    media: Media,
    packets: Vec<Packet>,
    link: WhipLink,
    /// Requests to send packets again, of audio and video.
    nacks: [u64; 2],
    /// When the connection wants to be looked after.
    due: Moment,
    /// When the last datagram came; before the connection, when it was accepted.
    heard: Moment,
    is_connected: bool,
    is_over: bool,
}

impl<'a, A, P: PacketSink> Relay<'a, A, P> {
    fn new(
        port: &'a Port<A>,
        addresses: Vec<SocketAddr>,
        registered: Registered,
        offered: Offered,
        publisher: P,
    ) -> Self {
        let now = Moment::now();
        let media = Media::of(&offered, now);
        Self {
            port,
            addresses,
            registered,
            rtc: offered.rtc,
            publisher,
            media,
            packets: Vec::new(),
            link: WhipLink::default(),
            nacks: [0; 2],
            due: now,
            heard: now,
            is_connected: false,
            is_over: false,
        }
    }

    /// Takes a datagram, if it is from this sender.
    fn input(&mut self, (at, from, datagram): Datagram) -> Result<(), End> {
        let same = |address: &&SocketAddr| address.is_ipv4() == from.is_ipv4();
        let Some(to) = self.addresses.iter().find(same).or(self.addresses.first()) else { return Ok(()) };
        let Ok(received) = Receive::new(Protocol::Udp, from, *to, &datagram) else { return Ok(()) };
        let input = Input::Receive(at, received);
        if !self.rtc.accepts(&input) {
            return Ok(());
        }
        if is_stun(&datagram) && !self.registered.claim(from) {
            return Ok(());
        }
        if self.is_connected {
            self.heard = at;
        }
        self.rtc.handle_input(input).map_err(failed)?;
        self.drain()
    }

    /// Does what is due at `now`: timers, and requests for keyframes.
    fn look_after(&mut self, now: Moment) -> Result<(), End> {
        if now >= self.due {
            self.rtc.handle_input(Input::Timeout(now)).map_err(failed)?;
            self.drain()?;
        }
        if self.is_connected && self.media.asks(now) {
            self.ask_for_keyframe();
            self.drain()?;
        }
        Ok(())
    }

    fn ask_for_keyframe(&mut self) {
        let Some(mid) = self.media.video() else { return };
        let Some(mut writer) = self.rtc.writer(mid) else { return };
        let kinds = [KeyframeRequestKind::Pli, KeyframeRequestKind::Fir];
        if let Some(kind) = kinds.into_iter().find(|kind| writer.is_request_keyframe_possible(*kind)) {
            // It fails before the first packet of the track, which begins with a keyframe.
            let _no_track_yet = writer.request_keyframe(None, kind);
        }
    }

    /// Takes everything out of the connection.
    fn drain(&mut self) -> Result<(), End> {
        loop {
            let output = match self.rtc.poll_output() {
                // One frame, which str0m has thrown away.
                Err(str0m::RtcError::Packet(mid, ..)) => {
                    self.media.unreadable(mid);
                    continue;
                }
                output => output.map_err(failed)?,
            };
            match output {
                Output::Timeout(due) => {
                    self.due = due;
                    return Ok(());
                }
                Output::Transmit(datagram) => self.port.send(&datagram.contents, datagram.destination),
                Output::Event(Event::MediaData(data)) => self.media.take(&data, &mut self.packets)?,
                Output::Event(Event::Connected) => {
                    self.is_connected = true;
                    self.heard = Moment::now();
                }
                Output::Event(Event::Closed) => self.is_over = true,
                Output::Event(Event::MediaIngressStats(stats)) => {
                    self.nacks[usize::from(self.media.video() == Some(stats.mid))] = stats.nacks;
                    self.link.rtt = stats.rtt.or(self.link.rtt);
                    self.link.nacks = self.nacks.iter().sum();
                    self.link.lost = self.media.lost;
                    self.publisher.link(LinkHealth::Whip(self.link));
                }
                Output::Event(_) => {}
            }
        }
    }

    /// Passes the packets on; whether there was media.
    fn push(&mut self) -> bool {
        let has_media = self.packets.iter().any(|packet| !packet.is_config());
        if !self.packets.is_empty() {
            self.publisher.push(&mut self.packets);
            self.packets.clear();
        }
        has_media
    }

    /// Tells the sender that the connection is over.
    fn close(&mut self) {
        if self.rtc.close().is_ok() {
            let _over_in_any_case = self.drain();
        }
    }
}

/// The connection cannot go on. Texts of str0m name states and fields, never what the peer sent.
fn failed(error: str0m::RtcError) -> End {
    End::Io(io::Error::other(error.to_string()))
}
