//! One session: from the first media of an encoder to the recorded end, across reconnects of the encoder.
//!
//! An actor: one task ([`run`]) owns the session. Commands reach it through a bounded channel. Encoders connect and leave through the
//! shared state ([`Session`]) and a notification. Media does not pass through the task (see `hub`).

mod begin;
mod encoders;
mod ending;
mod run;
mod schedule;
mod slate;
mod standby;
mod timer;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use satcast_media::flv::ForeignCodec;
use satcast_media::{Kind, Packet};
use tokio::sync::{Notify, mpsc, oneshot, watch};

pub use self::encoders::FailoverTimes;
use self::encoders::{Arrival, Encoders, Entered, Failover, TakeOver, Turn};
use self::run::Run;
use super::codes::{self, Closed};
use super::destination::Destination;
use super::health::{Figures, Health, Issue, IssueCode, LinkHealth};
use super::hub::Hub;
use super::live::Inner;
use super::shown::{
    Delayed, DestinationSnapshot, EncoderRole, EncoderSnapshot, LiveDestination, SessionSnapshot,
    SessionState,
};
use super::via::Via;
use satcast_core::clock::Clock;
use satcast_core::ids::{DestinationId, EndReason, SessionId, UnixMillis};
use satcast_core::networks::Networks;
use satcast_drivers::published::Published;
use satcast_store::{Returning, StreamLimits, StreamRecord};
use satcast_usage::Usage;

/// Most commands that wait for one session.
pub(super) const COMMANDS_QUEUED_MAX: usize = 64;
/// A newer encoder replaces one that has sent nothing for this long.
pub(super) const TAKE_OVER_AFTER: Duration = Duration::from_secs(2);
/// An encoder that sends media for longer than this after another one connected is present. Earlier media may have been in flight:
/// sockets are read at least once a second.
pub(super) const ON_ITS_WAY: Duration = Duration::from_millis(1_250);
/// How often the encoder's silence is checked.
const SILENCE_POLL: Duration = Duration::from_millis(20);

/// Why a session does not accept an encoder.
pub(super) enum Refusal {
    /// Another encoder with the same key publishes.
    Busy,
    /// The session is ending.
    Closing,
}

pub(super) enum Command {
    Stop {
        reason: EndReason,
        done: oneshot::Sender<()>,
    },
    /// Gives the session up, so that it goes on at another node. A connected encoder gets the notice.
    GiveUp {
        closed: Closed,
        done: oneshot::Sender<()>,
    },
    Reload {
        done: oneshot::Sender<()>,
    },
    Limits {
        limits: StreamLimits,
        done: oneshot::Sender<()>,
    },
    /// Another encoder became active, which is to be reported.
    Failover(Failover),
}

/// The shared part of a session.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) stream: StreamRecord,
    pub(super) hub: Arc<Hub>,
    /// The newest poster, and the monotonic time at which it was made.
    pub(super) poster: Mutex<Option<(Duration, Arc<Published>)>>,
    /// The streams that the active encoder's media has passed through.
    via: Arc<Mutex<Via>>,
    number: u64,
    shared: Mutex<Shared>,
    changed: Notify,
    commands: mpsc::Sender<Command>,
    /// Monotonic time of the last packets that went out, in milliseconds.
    last_media_ms: AtomicU64,
    has_media: AtomicBool,
    /// The active encoder has sent media.
    flows: watch::Sender<bool>,
    /// Receives the usage reports; set when the session starts.
    usage: OnceLock<Arc<dyn Usage>>,
}

#[derive(Default)]
struct Shared {
    started_at: Option<UnixMillis>,
    /// `None` until the first media.
    state: Option<SessionState>,
    encoders: Encoders,
    /// Since when no encoder is connected.
    gone_since: Option<Duration>,
    /// No further encoder is accepted.
    closing: bool,
    destinations: BTreeMap<DestinationId, Arc<Destination>>,
    /// Current health issues.
    issues: Vec<Issue>,
    /// Since when the slate is on air; also a moment after an encoder took over.
    slate_since: Option<UnixMillis>,
    /// The slate is not shown while the encoder is away, because it does not match.
    slate_withheld: bool,
    /// Destinations that wait for their start or stop delay.
    delayed: BTreeMap<DestinationId, Delayed>,
}

impl Session {
    /// Creates a session that waits for its first media, or goes on with the media of its returning encoder. The caller
    /// spawns `run`.
    pub(super) fn new(
        stream: StreamRecord,
        number: u64,
        live: Arc<Inner>,
        returning: Option<Returning>,
    ) -> (Arc<Self>, Run) {
        let (commands, queue) = mpsc::channel(COMMANDS_QUEUED_MAX);
        let (id, hub) = match &returning {
            None => (satcast_core::secret::new_session_id(), Hub::new(number)),
            Some(returning) => {
                let hub = Hub::resumed(number, returning.position, live.clock.monotonic());
                (returning.session.clone(), hub)
            }
        };
        let session = Arc::new(Self {
            id,
            stream,
            hub: Arc::new(hub),
            poster: Mutex::default(),
            via: Arc::default(),
            number,
            shared: Mutex::default(),
            changed: Notify::new(),
            commands,
            last_media_ms: AtomicU64::new(millis(live.clock.monotonic())),
            has_media: AtomicBool::new(false),
            flows: watch::Sender::new(false),
            usage: OnceLock::new(),
        });
        let run = Run::new(session.clone(), live, queue, returning);
        (session, run)
    }

    /// Accepts an encoder: the first one, one that returns, a newer one that replaces a silent one, or one of the other role,
    /// which is on standby.
    pub(crate) fn let_in(
        self: &Arc<Self>,
        live: &Arc<Inner>,
        role: EncoderRole,
        via: &Via,
        address: Option<IpAddr>,
    ) -> Result<Publisher, Refusal> {
        let now = live.clock.monotonic();
        let mut shared = self.shared.lock();
        if shared.closing {
            return Err(Refusal::Closing);
        }
        let arrival = Arrival { role, address, via: via.clone(), at: live.clock.now() };
        let entered = shared.encoders.enter(arrival, TAKE_OVER_AFTER, now).ok_or(Refusal::Busy)?;
        shared.gone_since = None;
        if entered.is_active {
            *self.via.lock() = via.clone();
            self.last_media_ms.store(millis(now), Ordering::Release);
            self.set_flow(false, now);
            self.hub.new_encoder(entered.number);
        }
        drop(shared);
        self.changed.notify_one();
        Ok(Publisher::new(self.clone(), live.clone(), role, entered))
    }

    /// Resolves when the session was removed from the registry.
    pub(super) async fn gone(&self) {
        self.commands.closed().await;
    }

    /// True when the encoder of this role, or any encoder, leaves or is silent for [`TAKE_OVER_AFTER`] before `until`. False
    /// earlier when the encoder still sends.
    pub(super) async fn encoder_gives_way(
        &self,
        role: Option<EncoderRole>,
        clock: &Clock,
        until: Duration,
    ) -> bool {
        let start = clock.monotonic();
        while clock.monotonic() < until {
            tokio::time::sleep(SILENCE_POLL).await;
            let last = self.shared.lock().encoders.media_at(role);
            let Some(last) = last.filter(|last| clock.monotonic().saturating_sub(*last) < TAKE_OVER_AFTER)
            else {
                return true;
            };
            if last.saturating_sub(start) > ON_ITS_WAY {
                break;
            }
        }
        false
    }

    /// The session never had media and accepts no encoder. A new session may replace it.
    pub(super) fn is_void(&self) -> bool {
        let shared = self.shared.lock();
        shared.closing && shared.state.is_none()
    }

    pub(super) fn snapshot(&self) -> Option<SessionSnapshot> {
        let shared = self.shared.lock();
        Some(SessionSnapshot {
            session_id: self.id.clone(),
            started_at: shared.started_at?,
            state: shared.state?,
        })
    }

    /// Health at the monotonic time `now`; `None` while the encoder is away, unless the slate is not shown because it does not
    /// match.
    pub(super) fn health(&self, now: Duration) -> Option<Health> {
        let (issues, failovers, link, sends) = {
            let shared = self.shared.lock();
            let is_live = shared.state == Some(SessionState::Live);
            let mut issues = shared.issues.clone();
            if !is_live {
                issues.retain(|issue| issue.code == IssueCode::SlateMismatch);
            }
            let sends = is_live && !shared.encoders.has_slate();
            let shows = is_live || (shared.slate_withheld && !issues.is_empty());
            shows.then(|| (issues, shared.encoders.failovers(), shared.encoders.active_link(), sends))?
        };
        // The media of the slate is not that of the encoder.
        let figures = if sends { self.hub.figures(now) } else { Figures::default() };
        Some(Health { figures, issues, failovers, link })
    }

    /// The connected encoders, the primary one first, at the monotonic time `now`.
    pub(super) fn encoders(&self, now: Duration) -> Vec<EncoderSnapshot> {
        let mut encoders = self.shared.lock().encoders.snapshots(now);
        for active in encoders.iter_mut().filter(|encoder| encoder.is_active) {
            active.figures = self.hub.figures(now);
        }
        encoders
    }

    pub(super) fn destination(&self, id: DestinationId) -> Option<DestinationSnapshot> {
        let destination = self.shared.lock().destinations.get(&id).cloned();
        destination.map(|destination| destination.snapshot())
    }

    pub(super) fn destinations(&self) -> Vec<LiveDestination> {
        let destinations: Vec<_> = self.shared.lock().destinations.clone().into_iter().collect();
        let seen = destinations.into_iter().map(|(id, destination)| LiveDestination {
            stream: self.stream.id,
            id,
            kind: destination.record().kind.clone(),
            shown: destination.snapshot(),
            counters: destination.counters(),
            waiting: destination.waiting(),
        });
        seen.collect()
    }

    pub(super) fn delayed(&self, id: DestinationId) -> Option<Delayed> {
        self.shared.lock().delayed.get(&id).copied()
    }

    /// Sends a command and waits until it is done; false when the session ended before.
    pub(super) async fn command(&self, make: impl FnOnce(oneshot::Sender<()>) -> Command) -> bool {
        let (done, waiting) = oneshot::channel();
        self.commands.send(make(done)).await.is_ok() && waiting.await.is_ok()
    }

    /// The encoder sends media from `at` on, or stopped sending.
    fn set_flow(&self, flows: bool, at: Duration) {
        self.flows.send_replace(flows);
        if let Some(usage) = self.usage.get() {
            usage.flows(flows, at);
        }
    }

    /// Disconnects encoders whose address is not allowed. Returns whether the session has to end with it: an encoder on standby
    /// leaves alone.
    pub(super) fn disconnect_unless(&self, allowed: &Networks) -> bool {
        let encoders = &mut self.shared.lock().encoders;
        encoders.close_if(&codes::wrong_address(), |address| !allowed.allow(address))
    }

    fn close_encoders(&self, closed: &Closed) {
        self.shared.lock().encoders.close(closed);
    }
}

/// The encoder's side of a session. Dropping it means that the encoder has left.
pub struct Publisher {
    session: Arc<Session>,
    live: Arc<Inner>,
    role: EncoderRole,
    number: u64,
    closed: watch::Receiver<Option<Closed>>,
    /// It has sent media.
    sends: bool,
    /// Its media went out since it became active.
    flows: bool,
    unpublished: bool,
    /// Codecs of tracks that are left out because they are not supported.
    foreign: Vec<ForeignCodec>,
}

impl Publisher {
    fn new(session: Arc<Session>, live: Arc<Inner>, role: EncoderRole, entered: Entered) -> Self {
        let Entered { number, closed, .. } = entered;
        let (sends, flows, unpublished) = (false, false, false);
        Self { session, live, role, number, closed, sends, flows, unpublished, foreign: Vec::new() }
    }

    /// The session it feeds.
    pub fn session_id(&self) -> &SessionId {
        &self.session.id
    }

    /// Drains the vector in order. Never waits. Packets of an encoder that was disconnected are dropped; those of an encoder on
    /// standby are measured, and kept from the newest keyframe on.
    pub fn push(&mut self, packets: &mut Vec<Packet>) {
        if self.closed.borrow().is_some() {
            packets.clear();
            return;
        }
        let now = self.live.clock.monotonic();
        // Codec configurations alone do not count as media.
        let has_media = packets.iter().any(|packet| !packet.is_config());
        self.sends |= has_media;
        let bytes: usize = packets.iter().map(|packet| packet.payload.len()).sum();
        self.live.received.fetch_add(bytes as u64, Ordering::Relaxed);
        match self.turn(packets, now) {
            Turn::Active => {
                self.session.hub.publish(self.number, packets.drain(..), now);
                if has_media {
                    self.note_media(now);
                }
            }
            Turn::Standby => packets.clear(),
            Turn::TakesOver(taken) => {
                packets.clear();
                self.take_over(*taken, now);
            }
        }
    }

    /// Whether the packets go out. An encoder that takes over is the active one when this returns, and nothing more of the other
    /// one goes out.
    fn turn(&self, packets: &[Packet], now: Duration) -> Turn {
        let times = self.live.settings().failover;
        let mut shared = self.session.shared.lock();
        let turn = shared.encoders.take((self.role, self.number), packets, now, times);
        if let Turn::TakesOver(taken) = &turn {
            self.session.hub.new_encoder(self.number);
            *self.session.via.lock() = taken.via.clone();
        }
        turn
    }

    /// Sends the kept media of an encoder that was on standby.
    fn take_over(&mut self, taken: TakeOver, now: Duration) {
        let TakeOver { start, failover, foreign, .. } = taken;
        foreign.into_iter().for_each(|codec| self.session.hub.foreign(codec));
        self.session.hub.publish_since(self.number, start.packets.into_iter(), start.began, now);
        self.flows = false;
        self.note_media(now);
        if let Some(failover) = failover
            && let Err(error) = self.session.commands.try_send(Command::Failover(failover))
        {
            tracing::warn!(%error, session = %self.session.id, "a failover between encoders is not reported");
        }
    }

    /// Media of the active encoder went out.
    fn note_media(&mut self, now: Duration) {
        self.session.last_media_ms.store(millis(now), Ordering::Release);
        if self.flows {
            return;
        }
        self.flows = true;
        self.live.unusable.forget(self.session.stream.id);
        // After a stall, or when the primary encoder takes over again, the media never stopped.
        if !*self.session.flows.borrow() {
            self.session.set_flow(true, now);
        }
        self.session.has_media.store(true, Ordering::Release);
        self.session.changed.notify_one();
    }

    /// A track has an unsupported codec; called once for each kind of track.
    pub fn foreign(&mut self, codec: ForeignCodec) {
        self.foreign.push(codec);
        if self.session.shared.lock().encoders.foreign(self.role, self.number, codec) {
            self.session.hub.foreign(codec);
        }
    }

    /// The media has passed through these streams, as it says itself; called before the first media.
    ///
    /// # Errors
    /// It comes from the stream itself, or through too many: the encoder has to leave.
    pub fn came_through(&mut self, via: &Via) -> Result<(), Closed> {
        if let Some(reason) = self.live.marks.refusal(self.session.stream.id, via) {
            return Err(Closed { code: codes::DENIED, reason: reason.into() });
        }
        if self.session.shared.lock().encoders.came_through(self.role, self.number, via) {
            *self.session.via.lock() = via.clone();
        }
        Ok(())
    }

    /// The encoder ends its publish, and leaves.
    pub fn unpublished(&mut self) {
        self.unpublished = true;
    }

    /// Numbers of the encoder's connection by SRT or WHIP, about once a second.
    pub fn link(&mut self, link: LinkHealth) {
        self.session.shared.lock().encoders.link(self.role, self.number, link);
        if matches!(link, LinkHealth::Whip(_)) {
            self.session.hub.rate_varies(self.number);
        }
    }

    /// Resolves when the encoder has to leave.
    pub async fn closed(&self) -> Closed {
        let mut closed = self.closed.clone();
        match closed.wait_for(Option::is_some).await.map(|closed| closed.clone()) {
            Ok(Some(closed)) => closed,
            // The sender is dropped only with a close notice or the session.
            _ => Closed { code: codes::ENDED, reason: "the session has ended".into() },
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let is_spare = self.role == EncoderRole::Backup && self.session.has_media.load(Ordering::Acquire);
        if !self.sends && !self.foreign.is_empty() && !is_spare {
            self.foreign.sort_by_key(|codec| codec.kind == Kind::Audio);
            let issues = self.foreign.iter().map(|codec| Issue::unsupported(*codec)).collect();
            self.live.unusable.note(self.session.stream.id, issues, self.live.clock.now());
        }
        let mut shared = self.session.shared.lock();
        if let Some(left) = shared.encoders.leave(self.role, self.number, self.unpublished) {
            let now = self.live.clock.monotonic();
            shared.gone_since = left.was_last.then_some(now);
            if left.was_active {
                self.session.set_flow(false, now);
            }
            drop(shared);
            self.session.changed.notify_one();
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl Session {
    /// Simulates the short moment between closing and leaving the registry.
    pub(super) fn give_up(&self) {
        self.shared.lock().closing = true;
    }
}
