//! The task of one caller: its admission, then its datagrams to packets for its publisher, until one of both ends it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use satcast_core::networks::Network;
use satcast_media::flv::ForeignCodec;
use satcast_media::srt::{Conclusion, Connection, Delivery, KeyMaterial, Keys, Mode, Over, Reason, StreamId};
use satcast_media::ts::{Demuxer, TsError};
use satcast_media::{Kind, Packet};
use satcast_quota::Permit;
use satcast_store::StreamRecord;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::field::display;
use tracing::info;

use super::super::admit::{
    Admission, Admitted, CODE_BAD_NAME, CODE_BAD_SECRET, CODE_FAILED, CODE_UNSECURE, Denied, PacketSink,
    Status, StreamKey,
};
use super::super::conn::{KnownNetwork, Subject};
use super::super::connections::canonical;
use super::super::end::End;
use super::super::limits::{DATAGRAMS_QUEUED_MAX, SRT_ANSWER_KEPT_MS};
use super::super::threads::ConnectionSlot;
use super::super::usable::Usable;
use super::port::{Datagram, Registered};
use crate::{Issue, LinkHealth, Via};
use satcast_core::ids::{AccountId, StreamId as Stream};

/// A caller that sends is looked after this far apart, which is as often as acknowledgements are due.
const ROUND: Duration = Duration::from_millis(10);
/// How often the numbers of the connection are given to the publisher.
const LINK_EVERY: Duration = Duration::from_secs(1);

/// A caller with slots.
pub(super) struct Caller<A> {
    registered: Registered<A>,
    asked: Conclusion,
    /// When the conclusion came: the caller's clock is known from then on.
    came: Duration,
    /// For logs and limits; the address of the datagrams may be another form of it.
    peer: SocketAddr,
    slot: ConnectionSlot,
    publishes: Option<(AccountId, Stream)>,
}

/// Why a caller is not accepted.
struct Refusal {
    reason: Reason,
    /// For the operator.
    text: String,
    /// The mask of its stream key, if one was sent.
    key: Option<String>,
}

impl<A: Admission> Caller<A> {
    pub(super) fn new(
        registered: Registered<A>,
        asked: Conclusion,
        came: Duration,
        slot: ConnectionSlot,
    ) -> Self {
        let peer = canonical(registered.id.0);
        Self { registered, asked, came, peer, slot, publishes: None }
    }

    /// Serves the caller until it ends. The slot `stranger` is released when it is admitted.
    pub(super) async fn serve(mut self, stranger: Permit<Network>) {
        let shared = Arc::clone(&self.registered.port.shared);
        let deadline = Instant::now() + shared.limits.setup;
        let (Admitted { account, stream, publisher }, keys) = match self.decide(deadline).await {
            Ok(admitted) => admitted,
            Err(refusal) => return self.refuse(refusal).await,
        };
        drop(stranger);
        self.publishes = Some((account, stream));
        let _known = KnownNetwork::note(&shared, self.peer);
        let session = publisher.session().cloned();
        let (peer, session) = (self.peer, session.as_ref().map(display));
        let (own, datagrams) = self.registered.open();
        let (port, to) = (Arc::clone(&self.registered.port), self.registered.id.0);
        let accepted = Connection::accept(&self.asked, own, to.ip(), keys, self.came, port.now());
        port.send(&accepted.answer, to);
        self.registered.answered(&accepted.answer);
        info!(peer = %peer, account = %account, stream = %stream, session, "encoder publishes by SRT");
        let mut relay = Relay::new(accepted.connection, publisher);
        let end = self.relay(&mut relay, datagrams).await;
        let stats = relay.connection.stats();
        let (bytes_in, lost, dropped) = (stats.bytes, stats.lost, stats.dropped);
        info!(peer = %peer, account = %account, stream = %stream, session, bytes_in, lost, dropped, "encoder disconnected: {end}");
        if end.is_warning() {
            self.warn(None, &end.to_string());
        }
        match &end {
            End::Unusable(text) => shared.admission.refused(stream, &Status::unusable(text)),
            End::Looped(status) => shared.admission.refused(stream, status),
            _ => {}
        }
        if relay.connection.over().is_none() {
            relay.connection.shut_down(port.now());
        }
        relay.connection.take_output().iter().for_each(|datagram| port.send(datagram, to));
    }

    /// Asks for a publisher by the key in the `streamid`.
    async fn decide(&self, deadline: Instant) -> Result<(Admitted<A::Publisher>, Option<Keys>), Refusal> {
        let port = &self.registered.port;
        let refusal = |reason, text: &str, key| Refusal { reason, text: text.to_owned(), key };
        let asked = StreamId::parse(self.asked.stream_id());
        if asked.mode != Mode::Publish {
            return Err(refusal(Reason::BadMode, "the streamid asks for another mode than publish", None));
        }
        let address = self.peer.ip();
        let count = async || port.shared.wrong_key(address, deadline, &port.stopped).await;
        let Some(key) = StreamKey::find("", asked.resource, None) else {
            let _stopped = count().await;
            return Err(refusal(Reason::BadRequest, "the streamid holds no stream key", None));
        };
        let mask = Some(key.mask());
        let material = self.asked.key_material().cloned();
        let fits = move |stream: &StreamRecord| keys_of(stream, material.as_ref());
        match port.shared.ask(key, Via::default(), address, deadline, fits).await {
            Ok(admitted) => Ok(admitted),
            Err(Denied::UnknownKey) => {
                let _stopped = count().await;
                Err(refusal(Reason::Unauthorized, "unknown stream key", mask))
            }
            Err(Denied::WrongAddress(stream)) => {
                let _stopped = count().await;
                port.shared.admission.refused(stream, &Status::wrong_address());
                Err(refusal(Reason::Forbidden, "the stream key may not be used from this address", mask))
            }
            Err(Denied::Refused(stream, status)) => {
                if status.code == CODE_BAD_SECRET {
                    let _stopped = count().await;
                }
                port.shared.admission.refused(stream, &status);
                Err(refusal(reason_of(&status), &status.reason, mask))
            }
            Err(Denied::Unavailable(cause)) => Err(refusal(Reason::Down, &cause, mask)),
        }
    }

    /// Sends the reason, and keeps it for a while, because the answer may be lost.
    async fn refuse(self, refusal: Refusal) {
        let Refusal { reason, text, key } = refusal;
        self.warn(key.as_deref(), &format!("publish refused with code {}: {text}", reason.code()));
        let (port, to) = (&self.registered.port, self.registered.id.0);
        let answer = self.asked.refuse(reason, to.ip());
        port.send(&answer, to);
        self.registered.answered(&answer);
        let _stopped = timeout(Duration::from_millis(SRT_ANSWER_KEPT_MS), port.stopped.cancelled()).await;
    }

    /// One warning for the operator; `key`: the mask of a refused key.
    fn warn(&self, key: Option<&str>, text: &str) {
        let of_stream = self.publishes.map(|(account, stream)| Subject::Stream { account, stream });
        let subject = of_stream.unwrap_or(key.map_or(Subject::Unknown, Subject::Key));
        self.registered.port.shared.warn_of("SRT", self.peer, subject, text);
    }

    async fn relay(&self, relay: &mut Relay<A::Publisher>, datagrams: mpsc::Receiver<Datagram>) -> End {
        let _prompt = self.slot.read_promptly();
        let ended = self.relay_packets(relay, datagrams).await;
        let end = match ended {
            Ok(never) => match never {},
            Err(end) => end,
        };
        // What came before the end is not lost.
        if matches!(end, End::Unpublished | End::Io(_)) {
            let _end = relay.give(Duration::MAX);
            let _end = relay.demuxer.finish(&mut relay.packets);
            relay.push();
        }
        if matches!(end, End::Unpublished) {
            relay.publisher.unpublished();
        }
        end
    }

    async fn relay_packets(
        &self,
        relay: &mut Relay<A::Publisher>,
        mut datagrams: mpsc::Receiver<Datagram>,
    ) -> Result<Infallible, End> {
        let port = &self.registered.port;
        let idle = port.shared.limits.idle;
        let mut last_media = Instant::now();
        loop {
            let mut is_busy = false;
            for _ in 0..DATAGRAMS_QUEUED_MAX {
                let Ok((at, datagram)) = datagrams.try_recv() else { break };
                is_busy = true;
                relay.connection.input(datagram, at);
            }
            let now = port.now();
            relay.connection.poll(now);
            let output = relay.connection.take_output();
            output.iter().for_each(|datagram| port.send(datagram, self.registered.id.0));
            let given = relay.give(now);
            relay.tell_note()?;
            for codec in relay.unsupported() {
                self.warn(None, &Issue::unsupported(codec).text);
            }
            if relay.push() {
                last_media = Instant::now();
            }
            given?;
            relay.report(now);
            if relay.usable.is_hopeless(Instant::now()) {
                return Err(End::Unusable(relay.usable.text()));
            }
            match relay.connection.over() {
                Some(Over::Closed) => return Err(End::Unpublished),
                Some(Over::Silent | Over::Worn) => return Err(End::Io(io::ErrorKind::TimedOut.into())),
                None => {}
            }
            if last_media.elapsed() >= idle {
                return Err(End::Idle(idle.as_millis()));
            }
            let wait = relay.connection.next_at().saturating_sub(now).max(ROUND);
            let quiet = (Instant::now() + wait).min(last_media + idle);
            let quiet = relay.usable.decided_at().map_or(quiet, |at| at.min(quiet));
            let until = if is_busy { Instant::now() + ROUND } else { quiet };
            tokio::select! {
                biased;
                () = port.stopped.cancelled() => return Err(End::Shutdown),
                status = relay.publisher.closed() => return Err(End::Closed(status)),
                Some((at, datagram)) = datagrams.recv(), if !is_busy => relay.connection.input(datagram, at),
                () = sleep_until(until) => {}
            }
        }
    }
}

/// The keys for the packets of a caller: its passphrase is that of the stream, or both have none.
fn keys_of(stream: &StreamRecord, material: Option<&KeyMaterial>) -> Result<Option<Keys>, Denied> {
    let refused = |code, reason: &str| Denied::Refused(stream.id, Status::new(code, reason));
    match (&stream.srt_passphrase, material) {
        (None, None) => Ok(None),
        (Some(passphrase), Some(material)) => {
            Keys::unwrap(passphrase.expose(), material).map(Some).ok_or_else(|| {
                refused(
                    CODE_BAD_SECRET,
                    "the SRT passphrase is wrong; enter the passphrase of the stream in the encoder; if it is \
                     lost, set a new one",
                )
            })
        }
        (Some(_), None) => Err(refused(
            CODE_UNSECURE,
            "the stream has an SRT passphrase and the encoder has none; enter the passphrase of the stream in the \
             encoder; if it is lost, set a new one",
        )),
        (None, Some(_)) => Err(refused(
            CODE_UNSECURE,
            "the encoder has an SRT passphrase and the stream has none; set one for the stream, or remove it from the \
             encoder",
        )),
    }
}

/// The reason code of a refusal by the live sessions.
fn reason_of(status: &Status) -> Reason {
    match status.code {
        CODE_BAD_SECRET => Reason::BadSecret,
        CODE_UNSECURE => Reason::Unsecure,
        CODE_BAD_NAME => Reason::Conflict,
        CODE_FAILED => Reason::Down,
        _ => Reason::Forbidden,
    }
}

/// An accepted caller with its publisher.
struct Relay<P> {
    connection: Connection,
    publisher: P,
    demuxer: Demuxer,
    packets: Vec<Packet>,
    usable: Usable,
    /// The publisher knows the note of the transport stream.
    is_note_told: bool,
    /// Kinds of tracks whose unsupported codec is known.
    foreign: Vec<Kind>,
    reported: Duration,
}

impl<P: PacketSink> Relay<P> {
    fn new(connection: Connection, publisher: P) -> Self {
        let (packets, foreign) = (Vec::new(), Vec::new());
        Self {
            connection,
            publisher,
            demuxer: Demuxer::default(),
            packets,
            usable: Usable::default(),
            is_note_told: false,
            foreign,
            reported: Duration::ZERO,
        }
    }

    /// Reads the media that is due at `now`.
    fn give(&mut self, now: Duration) -> Result<(), End> {
        let unreadable = |error: TsError| End::Unusable(error.to_string());
        while let Some(delivery) = self.connection.give(now) {
            match delivery {
                Delivery::Payload(bytes) => {
                    self.demuxer.push(&bytes, &mut self.packets).map_err(unreadable)?
                }
                Delivery::Lost => self.demuxer.lost(),
            }
        }
        Ok(())
    }

    /// Tells the publisher of tracks with an unsupported codec, and returns the new ones.
    fn unsupported(&mut self) -> Vec<ForeignCodec> {
        let mut new: Vec<_> = self.demuxer.foreign().collect();
        new.retain(|codec| !self.foreign.contains(&codec.kind));
        for codec in &new {
            self.foreign.push(codec.kind);
            self.usable.foreign(*codec, Instant::now());
            self.publisher.foreign(*codec);
        }
        new
    }

    /// Tells the publisher of the streams that the media has passed through.
    fn tell_note(&mut self) -> Result<(), End> {
        if !self.is_note_told && self.demuxer.has_streams() {
            self.is_note_told = true;
            let known = self.publisher.came_through(Via::of_note(self.demuxer.note()));
            known.map_err(End::Looped)?;
        }
        Ok(())
    }

    /// Passes the packets on; whether there was media.
    fn push(&mut self) -> bool {
        let has_media = self.packets.iter().any(|packet| !packet.is_config());
        if has_media {
            self.usable.packet();
        }
        if !self.packets.is_empty() {
            self.publisher.push(&mut self.packets);
            self.packets.clear();
        }
        has_media
    }

    fn report(&mut self, now: Duration) {
        if now >= self.reported + LINK_EVERY {
            self.reported = now;
            self.publisher.link(LinkHealth::Srt(self.connection.stats()));
        }
    }
}
