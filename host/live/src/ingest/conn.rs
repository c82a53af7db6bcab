//! The task of one encoder's connection, from the handshake to the close, and the state that all connections share.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use satcast_media::Packet;
use satcast_media::flv::ForeignCodec;
use satcast_media::rtmp::Metadata;
use satcast_media::rtmp::server::{PublishId, ServerEvent};
use satcast_quota::Permit;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tracing::field::display;
use tracing::{debug, info, warn};

use super::admit::{Admission, Admitted, Denied, PacketSink, Status, StreamKey, admit, is_documented_app};
use super::end::End;
use super::keys::KeyAttempts;
use super::limits::Limits;
use super::threads::ConnectionSlot;
use super::tls::Tls;
use super::usable::Usable;
use super::wire::{Pace, Wire};
use crate::{Issue, Via};
use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, StreamId};
use satcast_core::log_limit::LogLimit;
use satcast_core::networks::Network;
use satcast_store::{Store, StreamRecord};

/// State shared by all connections of the ports.
#[derive(Debug)]
pub(super) struct Shared<A> {
    pub(super) store: Store,
    pub(super) admission: A,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    /// Times of the reads of publishing connections; `None`: as bytes arrive.
    pub(super) pace: Option<Pace>,
    /// Start of the grid of `pace`.
    pub(super) started: Instant,
    pub(super) keys: KeyAttempts,
    pub(super) warnings: LogLimit,
}

/// The connection that a warning is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject<'a> {
    Unknown,
    /// Refused with this key, masked.
    Key(&'a str),
    /// Admitted.
    Stream {
        account: AccountId,
        stream: StreamId,
    },
}

impl<A> Shared<A> {
    /// Logs one warning about an RTMP connection, subject to the log limit.
    pub(super) fn warn(&self, peer: SocketAddr, subject: Subject<'_>, text: &str) {
        self.warn_of("RTMP", peer, subject, text);
    }

    /// The same about a connection of this protocol.
    pub(super) fn warn_of(&self, protocol: &str, peer: SocketAddr, subject: Subject<'_>, text: &str) {
        let Some(withheld) = self.warnings.admit(self.clock.monotonic()) else { return };
        if withheld > 0 {
            warn!("{withheld} more warnings about connections of encoders were left out");
        }
        match subject {
            Subject::Unknown => warn!(peer = %peer, "{protocol} connection: {text}"),
            Subject::Key(key) => warn!(peer = %peer, key, "{protocol} connection: {text}"),
            Subject::Stream { account, stream } => {
                warn!(peer = %peer, account = %account, stream = %stream, "{protocol} connection: {text}");
            }
        }
    }

    /// Counts a wrong key. Delays the answer, at most until `deadline`, if the attempts of the network are used up.
    pub(super) async fn wrong_key(
        &self,
        address: IpAddr,
        deadline: Instant,
        stop: &CancellationToken,
    ) -> Result<(), End> {
        let over = self.keys.failed(Network::from(address), self.clock.monotonic());
        if !over {
            return Ok(());
        }
        let until = deadline.min(Instant::now() + self.limits.refusal_delay);
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(End::Shutdown),
            () = sleep_until(until) => Ok(()),
        }
    }
}

impl<A: Admission> Shared<A> {
    /// Asks the store and the live sessions in a separate task, so that the work is not interrupted when the deadline of the encoder
    /// passes. A publisher that is created too late is dropped with the result of the task. `fits`: see [`admit`].
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        key: StreamKey,
        via: Via,
        address: IpAddr,
        deadline: Instant,
        fits: impl FnOnce(&StreamRecord) -> Result<T, Denied> + Send + 'static,
    ) -> Result<(Admitted<A::Publisher>, T), Denied> {
        let (shared, limit) = (Arc::clone(self), self.limits.admission);
        let decision =
            tokio::spawn(
                async move { admit(&shared.store, &shared.admission, &key, via, address, fits).await },
            );
        match timeout_at(deadline.min(Instant::now() + limit), decision).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(_panicked)) => Err(Denied::Unavailable("the decision panicked".to_owned())),
            Err(_) => Err(Denied::Unavailable("the decision took too long".to_owned())),
        }
    }
}

/// Serves one connection until it ends, with TLS if `tls` is given. The slot `stranger` is released when the encoder is admitted or the
/// connection ends.
pub(super) async fn serve<A: Admission>(
    socket: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    peer: SocketAddr,
    shared: Arc<Shared<A>>,
    stranger: Permit<Network>,
    stop: CancellationToken,
    slot: ConnectionSlot,
) {
    let tls = match tls.map(Tls::new).transpose() {
        Ok(tls) => tls,
        Err(failure) => return shared.warn(peer, Subject::Unknown, &format!("refused: {failure}")),
    };
    let wire = Wire::new(socket, tls, shared.limits.reply_bytes_max);
    let stranger = Some(stranger);
    let mut connection =
        Connection { wire, peer, shared, stranger, stop, slot, events: VecDeque::new(), publishes: None };
    let deadline = Instant::now() + connection.shared.limits.setup;
    let end = match connection.set_up(deadline).await {
        Ok(admitted) => {
            let Admitted { account, stream, publisher } = admitted;
            connection.publishes = Some((account, stream));
            connection.stranger = None;
            connection.wire.admit();
            let _known = KnownNetwork::note(&connection.shared, peer);
            let session = publisher.session().cloned();
            let session = session.as_ref().map(display);
            info!(peer = %peer, account = %account, stream = %stream, session, "encoder publishes");
            let end = connection.relay(publisher).await;
            let bytes_in = connection.wire.bytes_in();
            info!(peer = %peer, account = %account, stream = %stream, session, bytes_in, "encoder disconnected: {end}");
            end
        }
        Err(end) => end,
    };
    connection.finish(end).await;
}

struct Connection<A> {
    wire: Wire,
    peer: SocketAddr,
    shared: Arc<Shared<A>>,
    stranger: Option<Permit<Network>>,
    stop: CancellationToken,
    slot: ConnectionSlot,
    /// Events between a publish request and its decision.
    events: VecDeque<ServerEvent>,
    /// Account and stream of an admitted encoder.
    publishes: Option<(AccountId, StreamId)>,
}

impl<A: Admission> Connection<A> {
    /// Handshake, connect and publish, up to the first accepted request.
    async fn set_up(&mut self, deadline: Instant) -> Result<Admitted<A::Publisher>, End> {
        let limits = &self.shared.limits;
        let (setup_ms, bytes_max) = (limits.setup.as_millis(), limits.setup_bytes_max);
        loop {
            while let Some(event) = self.events.pop_front() {
                if let ServerEvent::PublishRequested { id, app, stream_key, query } = event {
                    let key = StreamKey::find(&app, &stream_key, query.as_deref());
                    if !is_documented_app(&app) {
                        debug!(peer = %self.peer, "the encoder publishes to an app other than live");
                    }
                    return self.decide(id, key, deadline).await;
                }
            }
            self.wire.flush()?;
            if self.wire.bytes_in() > bytes_max {
                return Err(End::SetupFull(bytes_max));
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(End::Shutdown),
                ready = self.wire.ready(deadline) => ready?,
                () = sleep_until(deadline) => return Err(End::SetupTimeout(setup_ms)),
            }
            let events = &mut self.events;
            self.wire.take(|event| events.push_back(event))?;
        }
    }

    /// Accepts a publish request with a publisher, or refuses it with a reason.
    async fn decide(
        &mut self,
        id: PublishId,
        key: Option<StreamKey>,
        deadline: Instant,
    ) -> Result<Admitted<A::Publisher>, End> {
        let Some(key) = key else {
            self.wrong_key(deadline).await?;
            return Err(self.refuse(
                id,
                Status::no_key(),
                "the publish request holds no stream key".to_owned(),
                None,
            ));
        };
        let mask = Some(key.mask());
        match self.ask(key, deadline).await {
            Ok(admitted) => {
                self.wire.session.accept_publish(id)?;
                Ok(admitted)
            }
            Err(Denied::UnknownKey) => {
                self.wrong_key(deadline).await?;
                Err(self.refuse(id, Status::unknown_key(), "unknown stream key".to_owned(), mask))
            }
            Err(Denied::WrongAddress(stream)) => {
                self.wrong_key(deadline).await?;
                let status = Status::wrong_address();
                self.shared.admission.refused(stream, &status);
                let reason = "the stream key may not be used from this address".to_owned();
                Err(self.refuse(id, status, reason, mask))
            }
            Err(Denied::Refused(stream, status)) => {
                self.shared.admission.refused(stream, &status);
                let reason = status.reason.clone();
                Err(self.refuse(id, status, reason, mask))
            }
            Err(Denied::Unavailable(cause)) => Err(self.refuse(id, Status::unavailable(), cause, mask)),
        }
    }

    async fn wrong_key(&mut self, deadline: Instant) -> Result<(), End> {
        self.shared.wrong_key(self.peer.ip(), deadline, &self.stop).await
    }

    fn refuse(&mut self, id: PublishId, status: Status, reason: String, key: Option<String>) -> End {
        self.wire.session.reject_publish(id, status.code, &status.reason);
        End::Refused { reason, key }
    }

    async fn ask(&self, key: StreamKey, deadline: Instant) -> Result<Admitted<A::Publisher>, Denied> {
        let via = Via::read(self.wire.session.flash_ver());
        let decision = self.shared.ask(key, via, self.peer.ip(), deadline, |_| Ok(())).await;
        decision.map(|(admitted, ())| admitted)
    }

    /// Passes the encoder's packets to its publisher until one of both ends it.
    async fn relay(&mut self, mut publisher: A::Publisher) -> End {
        match self.relay_packets(&mut publisher).await {
            Ok(never) => match never {},
            Err(end) => {
                if matches!(end, End::Unpublished) {
                    publisher.unpublished();
                }
                end
            }
        }
    }

    async fn relay_packets(&mut self, publisher: &mut A::Publisher) -> Result<std::convert::Infallible, End> {
        // Dropped when the wait between reads begins; without such a wait, at the end.
        let mut prompt = Some(self.slot.read_promptly());
        let (began, mut keyframes) = (Instant::now(), 0);
        let mut intake = Intake::default();
        let mut usable = Usable::default();
        let held = std::mem::take(&mut self.events);
        held.into_iter().for_each(|event| intake.add(event));
        self.wire.events(&mut |event| intake.add(event));
        let mut last_media = Instant::now();
        let mut read = Ok(());
        loop {
            if intake.has_media() {
                last_media = Instant::now();
            }
            self.judge(&mut intake, &mut usable, publisher);
            if intake.has_media() {
                usable.packet();
            }
            if !intake.packets.is_empty() {
                if prompt.is_some() {
                    keyframes += intake.packets.iter().filter(|packet| packet.keyframe).count();
                }
                publisher.push(&mut intake.packets);
                intake.packets.clear();
            }
            read?;
            if usable.is_hopeless(Instant::now()) {
                return Err(End::Unusable(usable.text()));
            }
            self.wire.flush()?;
            intake.check_end()?;
            if prompt.is_some() && self.is_paced(began, keyframes) {
                self.wire.unwatch()?;
                prompt = None;
            }
            let due = self.next_read();
            let silence_ends = silence_ends(&self.shared.limits, last_media, self.wire.stuck_since());
            let look_at = usable.decided_at().map_or(silence_ends, |at| at.min(silence_ends));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(End::Shutdown),
                status = publisher.closed() => return Err(End::Closed(status)),
                ready = self.wire.ready(due) => ready?,
                () = sleep_until(look_at) => {}
            }
            read = self.wire.take(|event| intake.add(event));
            if read.is_ok() && !intake.has_media() {
                let now = Instant::now();
                check_silence(&self.shared.limits, last_media, self.wire.stuck_since(), now)?;
            }
        }
    }

    /// Reports unsupported tracks to the publisher and the operator.
    fn judge(&self, intake: &mut Intake, usable: &mut Usable, publisher: &mut A::Publisher) {
        if let Some(metadata) = intake.metadata.take() {
            usable.announced(metadata);
        }
        for codec in intake.foreign.drain(..) {
            self.warn(None, &Issue::unsupported(codec).text);
            usable.foreign(codec, Instant::now());
            publisher.foreign(codec);
        }
    }

    /// One warning for the operator; `key`: the mask of a refused key.
    fn warn(&self, key: Option<&str>, text: &str) {
        let of_stream = self.publishes.map(|(account, stream)| Subject::Stream { account, stream });
        let subject = of_stream.unwrap_or(key.map_or(Subject::Unknown, Subject::Key));
        self.shared.warn(self.peer, subject, text);
    }

    /// Whether an encoder that began at `began` and sent so many keyframes is read with the wait between reads.
    fn is_paced(&self, began: Instant, keyframes: usize) -> bool {
        let limits = &self.shared.limits;
        let is_in_first_gop = keyframes == 1 && began.elapsed() < limits.first_gop;
        self.shared.pace.is_some() && began.elapsed() >= limits.prompt && !is_in_first_gop
    }

    /// Time of the next read of an unwatched socket.
    fn next_read(&self) -> Instant {
        let started = self.shared.started;
        let next = self.shared.pace.map(|pace| pace.next(started.elapsed(), self.slot.connections()));
        next.map_or_else(Instant::now, |next| started + next)
    }

    /// Reports the end to the log and, if possible, to the encoder.
    async fn finish(mut self, end: End) {
        if end.is_warning() {
            let key = match &end {
                End::Refused { key, .. } => key.as_deref(),
                _ => None,
            };
            self.warn(key, &end.to_string());
        } else {
            debug!(peer = %self.peer, "connection closed: {end}");
        }
        if let Some(status) = end.status() {
            if let (End::Unusable(_), Some((_, stream))) = (&end, self.publishes) {
                self.shared.admission.refused(stream, &status);
            }
            self.wire.session.end_publish(status.code, &status.reason);
        }
        if end.is_polite() {
            self.wire.close(self.shared.limits.linger).await;
        } else {
            // The connection closes in any case. Pending replies are sent only if the socket takes them at once.
            let _sent = self.wire.flush();
        }
    }
}

/// When the encoder has sent no media, or read no replies, for too long.
fn silence_ends(limits: &Limits, last_media: Instant, stuck_since: Option<Instant>) -> Instant {
    let idle = last_media + limits.idle;
    stuck_since.map_or(idle, |since| idle.min(since + limits.write))
}

fn check_silence(
    limits: &Limits,
    last_media: Instant,
    stuck_since: Option<Instant>,
    now: Instant,
) -> Result<(), End> {
    if stuck_since.is_some_and(|since| now >= since + limits.write) {
        return Err(End::WriteTimeout(limits.write.as_millis()));
    }
    if now >= last_media + limits.idle {
        return Err(End::Idle(limits.idle.as_millis()));
    }
    Ok(())
}

/// Events of one read.
#[derive(Default)]
struct Intake {
    packets: Vec<Packet>,
    foreign: Vec<ForeignCodec>,
    metadata: Option<Metadata>,
    unpublished: bool,
    published_again: bool,
}

impl Intake {
    fn add(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Packet(packet) => self.packets.push(packet),
            ServerEvent::Unpublished => self.unpublished = true,
            ServerEvent::PublishRequested { .. } => self.published_again = true,
            ServerEvent::Foreign(codec) => self.foreign.push(codec),
            ServerEvent::Metadata(metadata) => self.metadata = Some(metadata),
            ServerEvent::Connected { .. } => {}
        }
    }

    /// Whether it holds media. A codec configuration alone does not count.
    fn has_media(&self) -> bool {
        self.packets.iter().any(|packet| !packet.is_config())
    }

    /// Whether the encoder ended its publish with this read.
    fn check_end(&self) -> Result<(), End> {
        if self.published_again {
            let reason = "one connection publishes one stream; open another connection";
            return Err(End::Closed(Status::new(super::admit::CODE_BAD_NAME, reason)));
        }
        if self.unpublished { Err(End::Unpublished) } else { Ok(()) }
    }
}

/// Registers an admitted encoder of the network; its drop registers that the encoder has left.
pub(super) struct KnownNetwork<A> {
    shared: Arc<Shared<A>>,
    network: Network,
}

impl<A> KnownNetwork<A> {
    pub(super) fn note(shared: &Arc<Shared<A>>, peer: SocketAddr) -> Self {
        let network = Network::from(peer.ip());
        shared.keys.admitted(network, shared.clock.monotonic());
        Self { shared: Arc::clone(shared), network }
    }
}

impl<A> Drop for KnownNetwork<A> {
    fn drop(&mut self) {
        self.shared.keys.left(self.network, self.shared.clock.monotonic());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_and_unread_replies_have_their_own_timeouts() {
        let limits = Limits::default();
        let start = Instant::now();
        let check = |stuck, now| check_silence(&limits, start, stuck, now).map_err(|end| end.to_string());
        let idle_ends = silence_ends(&limits, start, None);
        assert_eq!(idle_ends, start + limits.idle);
        assert_eq!(check(None, idle_ends - limits.write), Ok(()));
        assert_eq!(check(None, idle_ends), Err("no media within 30000 ms".to_owned()));
        let unread_ends = silence_ends(&limits, start, Some(start));
        assert_eq!(unread_ends, start + limits.write);
        assert_eq!(
            check(Some(start), unread_ends),
            Err("the encoder took no reply within 5000 ms".to_owned())
        );
        let late = start + limits.idle;
        assert_eq!(silence_ends(&limits, start, Some(late)), late, "the earlier time counts");
    }
}
