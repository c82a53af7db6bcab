//! One session: from the first media of a stream key's encoder to its recorded end, over reconnects of the encoder.
//!
//! An actor: one task ([`Run`]) owns the session's life; commands reach it through a bounded channel, the encoder's coming and going
//! through shared state ([`Session`]) and a notification. The media itself does not pass through the task (see `hub`).

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
use super::health::{Health, Issue, Watch, Wish};
use super::hub::Hub;
use super::live::Inner;
use super::shown::{Delayed, DestinationSnapshot, LiveDestination, SessionSnapshot, SessionState};
use super::teller::Teller;
use super::via::Via;
use satcast_core::clock::Clock;
use satcast_core::ids::{DestinationId, EndReason, SessionId, UnixMillis};
use satcast_store::{Happening, Limit, NewSession, StreamLimits, StreamRecord, Terms};
use satcast_usage::{Beginning, Orders, Unmetered, Usage};

/// Commands waiting for one session.
pub(super) const COMMANDS_QUEUED_MAX: usize = 64;
/// An encoder that has sent nothing for this long gives way to a newer one.
pub(super) const TAKE_OVER_AFTER: Duration = Duration::from_secs(2);
/// Media of an encoder for longer than this after another one came is not what was still on its way, in a socket that is read once a
/// second at the least: it is there.
pub(super) const ON_ITS_WAY: Duration = Duration::from_millis(1_250);
/// How often it is looked whether it has gone.
const REST_POLL: Duration = Duration::from_millis(20);
/// Longest wait until what a session used is settled; what is left then is settled without it.
const SETTLE_WAIT: Duration = Duration::from_secs(3);
/// Longest wait of a session that begins until what was used before it is settled; what is left then may count as its own.
const PAST_WAIT: Duration = Duration::from_millis(500);
/// How often bit rates are sampled.
const TICK: Duration = Duration::from_secs(1);

/// Why a session lets no encoder in.
pub(super) enum Refusal {
    /// Another one is publishing.
    Busy,
    /// It is ending.
    Closing,
}

pub(super) enum Command {
    Stop { reason: EndReason, done: oneshot::Sender<()> },
    Reload { done: oneshot::Sender<()> },
    Limits { limits: StreamLimits, done: oneshot::Sender<()> },
}

/// The part of a session that others see.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) stream: StreamRecord,
    hub: Arc<Hub>,
    /// Which streams the present encoder's media has come through.
    via: Arc<Mutex<Via>>,
    number: u64,
    shared: Mutex<Shared>,
    changed: Notify,
    commands: mpsc::Sender<Command>,
    /// Monotonic time of the last packets in milliseconds.
    last_media_ms: AtomicU64,
    has_media: AtomicBool,
    /// Media of the present encoder has come.
    flows: watch::Sender<bool>,
    /// Whom the session tells what it uses, once it has begun.
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
    /// No encoder is let in any more.
    closing: bool,
    destinations: BTreeMap<DestinationId, Arc<Destination>>,
    /// What is wrong with the stream.
    issues: Vec<Issue>,
    /// Destinations that wait for their delay.
    delayed: BTreeMap<DestinationId, Delayed>,
}

struct Encoder {
    number: u64,
    /// From where it publishes, where that is known.
    address: Option<IpAddr>,
    close: watch::Sender<Option<Closed>>,
}

impl Session {
    /// Makes a session that waits for its first media; `run` must be spawned.
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

    /// Resolves when the session is out of the registry.
    pub(super) async fn gone(&self) {
        self.commands.closed().await;
    }

    /// Whether the encoder that is there has gone or is silent for [`TAKE_OVER_AFTER`] before `until`; answers sooner when it
    /// goes on sending.
    pub(super) async fn encoder_rests(&self, clock: &Clock, until: Duration) -> bool {
        let came = millis(clock.monotonic());
        while clock.monotonic() < until {
            tokio::time::sleep(REST_POLL).await;
            let last = self.last_media_ms.load(Ordering::Acquire);
            if self.shared.lock().encoder.is_none()
                || millis(clock.monotonic()).saturating_sub(last) >= millis(TAKE_OVER_AFTER)
            {
                return true;
            }
            if last.saturating_sub(came) > millis(ON_ITS_WAY) {
                break;
            }
        }
        false
    }

    /// It never had media and takes no encoder any more: a new one may stand in its place.
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

    /// How good the stream is at the monotonic time `now`; `None` unless its encoder is there.
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

    /// What a destination waits for.
    pub(super) fn delayed(&self, id: DestinationId) -> Option<Delayed> {
        self.shared.lock().delayed.get(&id).copied()
    }

    /// Sends a command and waits for it; false when the session has ended meanwhile.
    pub(super) async fn command(&self, make: impl FnOnce(oneshot::Sender<()>) -> Command) -> bool {
        let (done, waiting) = oneshot::channel();
        self.commands.send(make(done)).await.is_ok() && waiting.await.is_ok()
    }

    /// Media of the encoder comes from `at` on, or no longer does.
    fn set_flow(&self, flows: bool, at: Duration) {
        self.flows.send_replace(flows);
        if let Some(usage) = self.usage.get() {
            usage.flows(flows, at);
        }
    }

    /// Sends the encoder away if its address is such; whether it was.
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
    /// The destinations could not be read; tried again at the next tick.
    reload_due: bool,
    /// Monotonic time of the first media.
    began: Duration,
    /// Hard limits in force.
    limits: StreamLimits,
    timer: Timer,
    /// Whom the session tells what it uses; nobody until it has begun.
    usage: Arc<dyn Usage>,
    orders: watch::Receiver<Orders>,
    teller: Teller,
    /// What the services behind the enabled destinations ask of the stream.
    wishes: Vec<Wish>,
    watch: Watch,
    schedule: Schedule,
    /// Destinations that get no backfill any more.
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
        let teller = Teller::start(live.store.clone(), session.id.clone());
        let (wishes, watch, schedule) = (Vec::new(), Watch::default(), Schedule::default());
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
            teller,
            wishes,
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

    /// Waits for the first media; an end when the encoder leaves or is stopped before.
    async fn wait_for_media(&mut self) -> Option<End> {
        loop {
            if self.session.has_media.load(Ordering::Acquire) {
                return None;
            }
            {
                // Under one lock: an encoder that comes now must find a session that takes it, or none.
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
                    // Destinations are read when the session begins. Nobody waits when the caller has gone.
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

    /// Records the session and starts its destinations; an end when that cannot be.
    async fn begin(&mut self) -> Option<End> {
        let past = self.live.gate.settle_past(self.session.stream.account_id);
        if tokio::time::timeout(PAST_WAIT, past).await.is_err() {
            tracing::warn!(session = %self.session.id, "what was used before the session is not settled yet; it begins without waiting");
        }
        let started_at = self.live.clock.now();
        self.began = self.live.clock.monotonic();
        let terms = self.live.gate.terms();
        let (id, stream_id) = (self.session.id.clone(), self.session.stream.id);
        let new = NewSession { id, stream_id, started_at, terms };
        let begun = self.live.store.begin_session(new).await;
        if let Err(error) = begun {
            tracing::error!(session = %self.session.id, %error, "session cannot be recorded, refused");
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
        self.tell("stream.started", started_at, json!({}));
        tracing::info!(session = %self.session.id, stream = %self.session.stream.id, label = %self.session.stream.label, "session started");
        // The stream may have been deleted between the check of its key and now, when nobody could find this session.
        match self.live.store.stream(self.session.stream.id).await {
            Ok(None) => return Some(End { reason: EndReason::KeyRevoked, done: None }),
            // They may have been changed since then, too.
            Ok(Some(stream)) => self.limits = stream.limits,
            // Those of the admission hold.
            Err(error) => {
                tracing::error!(session = %self.session.id, %error, "the stream's limits cannot be read")
            }
        }
        self.meter(terms).await;
        self.reload().await;
        None
    }

    /// From here on the session tells what it uses.
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
        // Under the lock in which encoders come and go: what they told before nobody heard.
        let _encoders = self.session.shared.lock();
        let usage = self.session.usage.get_or_init(|| self.usage.clone());
        usage.flows(*self.session.flows.borrow(), self.live.clock.monotonic());
    }

    /// The life of a running session, until something ends it.
    async fn follow(&mut self) -> End {
        let mut tick = self.live.clock.monotonic();
        loop {
            let left = match self.reconnect_time_left() {
                Some(left) if left.is_zero() => return End { reason: EndReason::Unpublished, done: None },
                left => left,
            };
            // It goes on while the encoder is away.
            let lasted = self.live.clock.monotonic().saturating_sub(self.began);
            let duration = self.timer.due(self.limits.max_duration_minutes, lasted);
            if duration.warns {
                self.teller.tell(Happening::LimitWarning(Limit::MaxDuration), self.live.clock.now());
            }
            if duration.left.is_some_and(|left| left.is_zero()) {
                return End { reason: EndReason::MaxDuration, done: None };
            }
            if let Some(reason) = self.orders.borrow_and_update().end {
                return End { reason, done: None };
            }
            let next = [left, duration.left, duration.warns_in].into_iter().flatten().min();
            tokio::select! {
                // The other end is held by `usage`.
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
                        // Nobody waits when the caller has gone.
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

    /// Time until the session ends because no encoder is there; `None` while one is.
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
                    self.tell("stream.reconnecting", self.live.clock.now(), json!({}));
                    tracing::info!(%session, window_ms = left.as_millis() as u64, "encoder has gone, waiting for its return")
                }
                None => {
                    self.tell("stream.reconnected", self.live.clock.now(), json!({}));
                    tracing::info!(%session, "encoder is back");
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
            // A destination's task ends within its deadline; a panic in it must not keep the session from ending.
            let _ = task.await;
        }
        if started {
            if tokio::time::timeout(SETTLE_WAIT, self.usage.settled()).await.is_err() {
                tracing::error!(session = %self.session.id, "what the session used is not settled yet; it ends without waiting");
            }
            self.record_end(ended_at, end.reason).await;
        }
        self.live.forget(&self.session, end.reason, || {
            // Who reads the stream when told finds it idle.
            if started {
                self.tell("stream.ended", ended_at, json!({"reason": end.reason.as_str()}));
            }
        });
        if started {
            tracing::info!(session = %self.session.id, stream = %self.session.stream.id, reason = %end.reason, "session ended");
        }
        // Late commands learn that there is no session any more by their dropped answer.
        self.queue.close();
        if let Some(done) = end.done {
            // Nobody waits when the caller has gone.
            let _ = done.send(());
        }
    }

    /// Tells those who watch the account what became of the session.
    fn tell(&self, name: &str, at: UnixMillis, mut data: Value) {
        let stream = &self.session.stream;
        data["streamId"] = json!(stream.id.0);
        data["sessionId"] = json!(self.session.id.as_str());
        self.live.store.feed().send(stream.account_id, name, at, data);
    }

    /// An unpublished session ended with its last packet, not with the window that waited for more.
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
    /// The moment between giving up and leaving the registry, which is too short to be met by chance.
    pub(super) fn give_up(&self) {
        self.shared.lock().closing = true;
    }
}
