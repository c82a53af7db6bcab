//! One session: from the first media of an encoder to the recorded end, across reconnects of the encoder.
//!
//! An actor: one task ([`Run`]) owns the session. Commands reach it through a bounded channel. Encoders connect and leave through the
//! shared state ([`Session`]) and a notification. Media does not pass through the task (see `hub`).

mod destinations;
mod ending;
mod health;
pub(super) mod publisher;
mod schedule;
mod timer;

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use self::schedule::Schedule;
use self::timer::Timer;
use super::codes::{self, Closed};
use super::destination::Destination;
use super::health::{Health, Issue, PlatformRequirements, Watch};
use super::hub::Hub;
use super::live::Inner;
use super::notifier::Notifier;
use super::shown::{Delayed, DestinationSnapshot, LiveDestination, SessionSnapshot, SessionState};
use super::via::Via;
use satcast_core::clock::Clock;
use satcast_core::ids::{DestinationId, EndReason, SessionId, UnixMillis};
use satcast_store::{Limit, NewSession, NoticeKind, StreamLimits, StreamRecord, Terms};
use satcast_usage::{Beginning, Orders, Unmetered, Usage};

/// Most commands that wait for one session.
pub(super) const COMMANDS_QUEUED_MAX: usize = 64;
/// A newer encoder replaces one that has sent nothing for this long.
pub(super) const TAKE_OVER_AFTER: Duration = Duration::from_secs(2);
/// An encoder that sends media for longer than this after another one connected is present. Earlier media may have been in flight:
/// sockets are read at least once a second.
pub(super) const ON_ITS_WAY: Duration = Duration::from_millis(1_250);
/// How often the encoder's silence is checked.
const SILENCE_POLL: Duration = Duration::from_millis(20);
/// Longest wait of an ending session for the settlement of its usage. The settlement goes on without the session.
const SETTLE_WAIT: Duration = Duration::from_secs(3);
/// Longest wait of a new session for the settlement of earlier usage. Usage that is not settled then may count for the new session.
const SETTLE_EARLIER_WAIT: Duration = Duration::from_millis(500);
/// How often bit rates are sampled.
const TICK: Duration = Duration::from_secs(1);

/// Why a session does not accept an encoder.
pub(super) enum Refusal {
    /// Another encoder publishes.
    Busy,
    /// The session is ending.
    Closing,
}

pub(super) enum Command {
    Stop { reason: EndReason, done: oneshot::Sender<()> },
    Reload { done: oneshot::Sender<()> },
    Limits { limits: StreamLimits, done: oneshot::Sender<()> },
}

/// The shared part of a session.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) stream: StreamRecord,
    hub: Arc<Hub>,
    /// The streams that the current encoder's media has passed through.
    via: Arc<Mutex<Via>>,
    number: u64,
    shared: Mutex<Shared>,
    changed: Notify,
    commands: mpsc::Sender<Command>,
    /// Monotonic time of the last packets in milliseconds.
    last_media_ms: AtomicU64,
    has_media: AtomicBool,
    /// The current encoder has sent media.
    flows: watch::Sender<bool>,
    /// Receives the usage reports; set when the session starts.
    usage: OnceLock<Arc<dyn Usage>>,
}

#[derive(Default)]
struct Shared {
    started_at: Option<UnixMillis>,
    /// `None` until the first media.
    state: Option<SessionState>,
    encoder: Option<Encoder>,
    encoders: u64,
    gone_since: Option<Duration>,
    /// No further encoder is accepted.
    closing: bool,
    destinations: BTreeMap<DestinationId, Arc<Destination>>,
    /// Current health issues.
    issues: Vec<Issue>,
    /// Destinations that wait for their start or stop delay.
    delayed: BTreeMap<DestinationId, Delayed>,
}

struct Encoder {
    number: u64,
    /// `None` if not known.
    address: Option<IpAddr>,
    close: watch::Sender<Option<Closed>>,
}

impl Session {
    /// Creates a session that waits for its first media. The caller spawns `run`.
    pub(super) fn new(stream: StreamRecord, number: u64, live: Arc<Inner>) -> (Arc<Self>, Run) {
        let (commands, queue) = mpsc::channel(COMMANDS_QUEUED_MAX);
        let session = Arc::new(Self {
            id: satcast_core::secret::new_session_id(),
            stream,
            hub: Arc::new(Hub::new(number)),
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
        let run = Run::new(session.clone(), live, queue);
        (session, run)
    }

    /// Resolves when the session was removed from the registry.
    pub(super) async fn gone(&self) {
        self.commands.closed().await;
    }

    /// True when the current encoder leaves or is silent for [`TAKE_OVER_AFTER`] before `until`. False earlier when the encoder
    /// still sends.
    pub(super) async fn encoder_gives_way(&self, clock: &Clock, until: Duration) -> bool {
        let start = millis(clock.monotonic());
        while clock.monotonic() < until {
            tokio::time::sleep(SILENCE_POLL).await;
            let last = self.last_media_ms.load(Ordering::Acquire);
            if self.shared.lock().encoder.is_none()
                || millis(clock.monotonic()).saturating_sub(last) >= millis(TAKE_OVER_AFTER)
            {
                return true;
            }
            if last.saturating_sub(start) > millis(ON_ITS_WAY) {
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

    /// Health at the monotonic time `now`; `None` while the encoder is away.
    pub(super) fn health(&self, now: Duration) -> Option<Health> {
        let issues = {
            let shared = self.shared.lock();
            (shared.state == Some(SessionState::Live)).then(|| shared.issues.clone())?
        };
        Some(Health { figures: self.hub.figures(now), issues })
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

    /// Disconnects the encoder if `is_such` holds for its address. Returns whether it did.
    pub(super) fn close_encoder_if(&self, closed: Closed, is_such: impl FnOnce(IpAddr) -> bool) -> bool {
        let mut shared = self.shared.lock();
        let address = shared.encoder.as_ref().and_then(|encoder| encoder.address);
        let Some(encoder) = address.filter(|address| is_such(*address)).and_then(|_| shared.encoder.take())
        else {
            return false;
        };
        encoder.close.send_replace(Some(closed));
        true
    }

    fn close_encoder(&self, closed: Closed) {
        if let Some(encoder) = self.shared.lock().encoder.take() {
            encoder.close.send_replace(Some(closed));
        }
    }
}

/// The task of a session.
pub(crate) struct Run {
    session: Arc<Session>,
    live: Arc<Inner>,
    queue: mpsc::Receiver<Command>,
    tasks: BTreeMap<DestinationId, JoinHandle<()>>,
    /// The destinations could not be read. The next tick retries.
    reload_due: bool,
    /// Monotonic time of the first media.
    began: Duration,
    /// Hard limits in force.
    limits: StreamLimits,
    timer: Timer,
    /// Receives the usage reports; unmetered until the session starts.
    usage: Arc<dyn Usage>,
    orders: watch::Receiver<Orders>,
    notifier: Notifier,
    /// Requirements of the platforms of the enabled destinations.
    requirements: Vec<PlatformRequirements>,
    watch: Watch,
    schedule: Schedule,
    /// Destinations that get no further backfill.
    had_backfill: Arc<Mutex<HashSet<DestinationId>>>,
}

struct End {
    reason: EndReason,
    done: Option<oneshot::Sender<()>>,
}

impl Run {
    pub(super) fn new(session: Arc<Session>, live: Arc<Inner>, queue: mpsc::Receiver<Command>) -> Self {
        let limits = session.stream.limits;
        let began = Duration::ZERO;
        let usage: Arc<dyn Usage> = Arc::new(Unmetered::default());
        let orders = usage.orders();
        let (tasks, reload_due, timer) = (BTreeMap::new(), false, Timer::default());
        let notifier = Notifier::start(live.store.clone(), session.id.clone());
        let (requirements, watch, schedule) = (Vec::new(), Watch::default(), Schedule::default());
        Self {
            session,
            live,
            queue,
            tasks,
            reload_due,
            began,
            limits,
            timer,
            usage,
            orders,
            notifier,
            requirements,
            watch,
            schedule,
            had_backfill: Arc::default(),
        }
    }

    pub(crate) async fn run(mut self) {
        let end = match self.wait_for_media().await {
            Some(end) => end,
            None => match self.begin().await {
                Some(end) => end,
                None => self.follow().await,
            },
        };
        self.finish(end).await;
    }

    /// Waits for the first media. Returns an end when the encoder leaves or is stopped before.
    async fn wait_for_media(&mut self) -> Option<End> {
        loop {
            if self.session.has_media.load(Ordering::Acquire) {
                return None;
            }
            {
                // Under one lock: a new encoder must find a session that accepts it, or none.
                let mut shared = self.session.shared.lock();
                if shared.encoder.is_none() {
                    shared.closing = true;
                    return Some(End { reason: EndReason::Unpublished, done: None });
                }
            }
            tokio::select! {
                () = self.session.changed.notified() => {}
                command = self.queue.recv() => match command {
                    Some(Command::Stop { reason, done }) => return Some(End { reason, done: Some(done) }),
                    // Destinations are read when the session starts. The caller may have stopped waiting.
                    Some(Command::Reload { done }) => { let _ = done.send(()); }
                    Some(Command::Limits { limits, done }) => {
                        self.limits = limits;
                        let _ = done.send(());
                    }
                    None => return Some(End { reason: EndReason::Error, done: None }),
                },
            }
        }
    }

    /// Records the session and starts its destinations. Returns an end when that fails.
    async fn begin(&mut self) -> Option<End> {
        let settled = self.live.gate.settle_earlier(self.session.stream.account_id);
        if tokio::time::timeout(SETTLE_EARLIER_WAIT, settled).await.is_err() {
            tracing::warn!(session = %self.session.id, "earlier usage is not settled yet; the session starts without waiting");
        }
        let started_at = self.live.clock.now();
        self.began = self.live.clock.monotonic();
        let terms = self.live.gate.terms();
        let (id, stream_id) = (self.session.id.clone(), self.session.stream.id);
        let new = NewSession { id, stream_id, started_at, terms };
        let begun = self.live.store.begin_session(new).await;
        if let Err(error) = begun {
            tracing::error!(session = %self.session.id, %error, "cannot record the session; the encoder is refused");
            self.session.close_encoder(Closed {
                code: codes::FAILED,
                reason: "the service cannot record the session; try again in a moment".into(),
            });
            return Some(End { reason: EndReason::Error, done: None });
        }
        {
            let mut shared = self.session.shared.lock();
            shared.started_at = Some(started_at);
            shared.state = Some(SessionState::Live);
        }
        self.publish_event("stream.started", started_at, json!({}));
        tracing::info!(session = %self.session.id, stream = %self.session.stream.id, label = %self.session.stream.label, "session started");
        // The stream may have been deleted after its key was checked. Until now the deletion could not find this session.
        match self.live.store.stream(self.session.stream.id).await {
            Ok(None) => return Some(End { reason: EndReason::KeyRevoked, done: None }),
            // The limits may have changed as well.
            Ok(Some(stream)) => self.limits = stream.limits,
            // The limits of the admission stay in force.
            Err(error) => {
                tracing::error!(session = %self.session.id, %error, "cannot read the limits of the stream; the earlier ones stay in force")
            }
        }
        self.meter(terms).await;
        self.reload().await;
        None
    }

    /// Starts the usage reports.
    async fn meter(&mut self, terms: Terms) {
        let stream = &self.session.stream;
        let beginning = Beginning {
            session: self.session.id.clone(),
            stream: stream.id,
            account: stream.account_id,
            began: self.began,
            terms,
            limits: self.limits,
        };
        self.usage = self.live.gate.begin(beginning).await;
        self.orders = self.usage.orders();
        // Under the lock under which encoders connect and leave, because their earlier reports were dropped.
        let _encoders = self.session.shared.lock();
        let usage = self.session.usage.get_or_init(|| self.usage.clone());
        usage.flows(*self.session.flows.borrow(), self.live.clock.monotonic());
    }

    /// Runs the session until something ends it.
    async fn follow(&mut self) -> End {
        let mut tick = self.live.clock.monotonic();
        loop {
            let left = match self.reconnect_time_left() {
                Some(left) if left.is_zero() => return End { reason: EndReason::Unpublished, done: None },
                left => left,
            };
            // The duration includes the time without an encoder.
            let lasted = self.live.clock.monotonic().saturating_sub(self.began);
            let duration = self.timer.due(self.limits.max_duration_minutes, lasted);
            if duration.warns {
                self.notifier.notify(NoticeKind::LimitWarning(Limit::MaxDuration), self.live.clock.now());
            }
            if duration.left.is_some_and(|left| left.is_zero()) {
                return End { reason: EndReason::MaxDuration, done: None };
            }
            if let Some(reason) = self.orders.borrow_and_update().end {
                return End { reason, done: None };
            }
            let next = [left, duration.left, duration.warns_in].into_iter().flatten().min();
            tokio::select! {
                // `usage` holds the sender.
                _ = self.orders.changed() => {}
                () = self.session.changed.notified() => {}
                () = self.live.clock.sleep(next.unwrap_or(Duration::MAX)), if next.is_some() => {}
                () = self.live.clock.sleep_until(tick) => {
                    tick = self.live.clock.monotonic() + TICK;
                    self.sample_rates();
                    self.look_at_health();
                    if self.reload_due || self.schedule.is_due(self.live.clock.monotonic()) {
                        self.reload().await;
                    }
                }
                command = self.queue.recv() => match command {
                    Some(Command::Stop { reason, done }) => return End { reason, done: Some(done) },
                    Some(Command::Reload { done }) => {
                        self.reload().await;
                        // The caller may have stopped waiting.
                        let _ = done.send(());
                    }
                    Some(Command::Limits { limits, done }) => {
                        self.limits = limits;
                        self.usage.limits(limits);
                        let _ = done.send(());
                    }
                    None => return End { reason: EndReason::Error, done: None },
                },
            }
        }
    }

    /// Time until the session ends without an encoder; `None` while an encoder is connected.
    fn reconnect_time_left(&self) -> Option<Duration> {
        let now = self.live.clock.monotonic();
        let mut shared = self.session.shared.lock();
        let left =
            shared.gone_since.map(|since| (since + self.live.settings.reconnect_window).saturating_sub(now));
        shared.closing = left.is_some_and(|left| left.is_zero());
        let state = if left.is_some() { SessionState::Reconnecting } else { SessionState::Live };
        if shared.state != Some(state) {
            shared.state = Some(state);
            let session = &self.session.id;
            match left {
                Some(left) => {
                    self.publish_event("stream.reconnecting", self.live.clock.now(), json!({}));
                    tracing::info!(%session, window_ms = left.as_millis() as u64, "encoder disconnected, waiting for it to reconnect")
                }
                None => {
                    self.publish_event("stream.reconnected", self.live.clock.now(), json!({}));
                    tracing::info!(%session, "encoder reconnected");
                }
            }
        }
        left
    }

    fn sample_rates(&self) {
        let (now, wall_now) = (self.live.clock.monotonic(), self.live.clock.now());
        let destinations: Vec<_> = self.session.shared.lock().destinations.values().cloned().collect();
        let sent = self.session.hub.sent();
        destinations.iter().for_each(|destination| destination.sample_rate(sent, now, wall_now));
    }

    async fn finish(mut self, end: End) {
        let ended_at = self.end_time(end.reason);
        self.usage.ends(self.live.clock.monotonic());
        let started = {
            let mut shared = self.session.shared.lock();
            shared.closing = true;
            let started = shared.state.is_some();
            shared.state = started.then_some(SessionState::Stopping);
            started
        };
        self.session
            .close_encoder(Closed { code: codes::ENDED, reason: codes::reason_text(end.reason).into() });
        let destinations: Vec<_> = self.session.shared.lock().destinations.values().cloned().collect();
        destinations.iter().for_each(|destination| destination.stop());
        for (_, task) in std::mem::take(&mut self.tasks) {
            // A destination's task ends within its deadline. A panic in it must not keep the session from ending.
            let _ = task.await;
        }
        if started {
            if tokio::time::timeout(SETTLE_WAIT, self.usage.settled()).await.is_err() {
                tracing::error!(session = %self.session.id, "usage of the session is not settled yet; the session ends without waiting");
            }
            self.record_end(ended_at, end.reason).await;
        }
        self.live.forget(&self.session, end.reason, || {
            // Inside the removal: a client that reads the stream after this event finds it idle.
            if started {
                self.publish_event("stream.ended", ended_at, json!({"reason": end.reason.as_str()}));
            }
        });
        if started {
            tracing::info!(session = %self.session.id, stream = %self.session.stream.id, reason = %end.reason, "session ended");
        }
        // Late commands get a dropped answer, which means that the session has ended.
        self.queue.close();
        if let Some(done) = end.done {
            // The caller may have stopped waiting.
            let _ = done.send(());
        }
    }

    /// Sends an event of the session to the event feed of the account.
    fn publish_event(&self, name: &str, at: UnixMillis, mut data: Value) {
        let stream = &self.session.stream;
        data["streamId"] = json!(stream.id.0);
        data["sessionId"] = json!(self.session.id.as_str());
        self.live.store.feed().send(stream.account_id, name, at, data);
    }

    /// A session without an encoder ended with its last packet, not with the reconnect window.
    fn end_time(&self, reason: EndReason) -> UnixMillis {
        let now = self.live.clock.now();
        if reason != EndReason::Unpublished {
            return now;
        }
        let monotonic_now = millis(self.live.clock.monotonic());
        let silent_ms = monotonic_now.saturating_sub(self.session.last_media_ms.load(Ordering::Acquire));
        UnixMillis(now.0.saturating_sub_unsigned(silent_ms))
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
