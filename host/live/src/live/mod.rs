//! The live sessions of the service, by stream: queries, stops and changes.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use super::codes;
use super::health::{Figures, Health, Issue};
use super::refusals::{EncoderRefusal, Refusals};
use super::session::{Command, FailoverTimes, Session};
use super::shown::{
    Delayed, DestinationSnapshot, EncoderSnapshot, LiveDestination, LiveSession, SessionSnapshot,
    SessionState,
};
use super::slate::{SLATE_MEMORY_BYTES, SLATE_SHARE_BYTES, texts};
use super::spool;
use super::via::Marks;
use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, DestinationId, EndReason, SessionId, StreamId, UnixMillis};
use satcast_core::networks::Networks;
use satcast_core::troubles::{Trouble, Troubles};
use satcast_drivers::Drivers;
use satcast_drivers::published::{Opening, Openings};
use satcast_quota::Quota;
use satcast_store::{CommandTarget, SlateRecord, Store, StoreError, StreamLimits};
use satcast_usage::{Gate, Unmetered};

/// Longest time that a shutdown waits for sessions to end. It covers the flush of queues and the end of destinations.
pub const SHUTDOWN_WAIT: Duration = Duration::from_secs(15);

/// How often running sessions are marked as alive in the database. After a crash nothing is billed past the last mark.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// Time for a destination to flush and end.
const STOP_DEADLINE: Duration = Duration::from_secs(2);

/// How long before the end of its lease a node ends its sessions: nothing is forwarded after it.
pub const LEASE_MARGIN: Duration = STOP_DEADLINE.saturating_add(Duration::from_secs(1));

/// Which encoders may publish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admits {
    #[default]
    All,
    /// The node drains: only encoders that return to a session of this node.
    Returning,
    /// The node has no lease.
    Nobody,
}

/// Times of `[ingest]`.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// When a backup encoder takes over, and the primary one again.
    pub failover: FailoverTimes,
    /// How long a session waits for its encoder to return.
    pub reconnect_window: Duration,
    /// How long encoders are refused after their stream was stopped (`refuse_quiet_secs`).
    pub cooldown: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let (reconnect_window, cooldown) = (Duration::from_secs(30), Duration::from_secs(60));
        Self { failover: FailoverTimes::default(), reconnect_window, cooldown }
    }
}

/// The live sessions; cheap to clone.
#[derive(Clone)]
pub struct Live {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) drivers: Drivers,
    pub(super) clock: Clock,
    pub(super) settings: RwLock<Settings>,
    /// Time for a destination to flush and end.
    pub(super) stop_deadline: Duration,
    pub(super) gate: Arc<dyn Gate>,
    pub(super) admits: Mutex<Admits>,
    pub(super) sessions: Mutex<HashMap<StreamId, Arc<Session>>>,
    /// Streams whose encoders are refused after a stop.
    pub(super) cooldowns: Mutex<HashMap<StreamId, Cooldown>>,
    pub(super) next_number: AtomicU64,
    /// Bytes of media from all encoders since the start.
    pub(super) received: AtomicU64,
    pub(super) openings: Arc<Openings>,
    pub(super) spools: Arc<spool::Shares>,
    pub(super) troubles: Arc<Troubles<DestinationId, String>>,
    /// Streams whose last encoder sent no supported track, and the issues of its tracks.
    pub(super) unusable: Troubles<StreamId, Vec<Issue>>,
    refusals: Refusals,
    /// Media of slates that play.
    pub(super) slates: Quota<AccountId>,
    pub(super) marks: Marks,
    /// Runtime of the session tasks. The thread of the encoder may end before the session.
    pub(super) runtime: tokio::runtime::Handle,
}

/// Encoders of a stopped stream are refused until the monotonic time `until`; `reason`: why the stream was stopped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cooldown {
    pub(super) until: Duration,
    pub(super) reason: EndReason,
}

pub(super) fn needs_cooldown(reason: EndReason) -> bool {
    matches!(reason, EndReason::Stopped | EndReason::MaxSats | EndReason::MaxDuration)
}

impl Live {
    /// Without sessions and metering. Sessions run on the current runtime.
    pub fn new(store: Store, drivers: Drivers, clock: Clock, settings: Settings) -> Self {
        Self::metered(store, drivers, clock, settings, Arc::new(Unmetered::default()))
    }

    pub fn drivers(&self) -> &Drivers {
        &self.inner.drivers
    }

    /// As [`Live::new`], with sessions that `gate` admits and meters.
    pub fn metered(
        store: Store,
        drivers: Drivers,
        clock: Clock,
        settings: Settings,
        gate: Arc<dyn Gate>,
    ) -> Self {
        let inner = Inner {
            store,
            drivers,
            clock,
            settings: RwLock::new(settings),
            stop_deadline: STOP_DEADLINE,
            gate,
            admits: Mutex::default(),
            sessions: Mutex::default(),
            cooldowns: Mutex::default(),
            next_number: AtomicU64::new(1),
            received: AtomicU64::new(0),
            openings: Arc::default(),
            spools: Arc::default(),
            troubles: Arc::default(),
            unusable: Troubles::default(),
            refusals: Refusals::default(),
            slates: Quota::new(SLATE_MEMORY_BYTES, SLATE_SHARE_BYTES),
            marks: Marks::new(),
            runtime: tokio::runtime::Handle::current(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes other times; cooldowns that run keep theirs.
    pub fn set_settings(&self, settings: Settings) {
        *self.inner.settings.write() = settings;
    }

    pub(super) fn find(&self, stream: StreamId) -> Option<Arc<Session>> {
        self.inner.sessions.lock().get(&stream).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.inner.sessions.lock().values().cloned().collect()
    }

    /// The session of a stream, after its first media.
    pub fn session(&self, stream: StreamId) -> Option<SessionSnapshot> {
        self.find(stream)?.snapshot()
    }

    /// A destination of a live session.
    pub fn destination(&self, stream: StreamId, destination: DestinationId) -> Option<DestinationSnapshot> {
        self.find(stream)?.destination(destination)
    }

    /// The last reason why a destination was not live, in a running or ended session. It is lost at a restart.
    pub fn last_trouble(&self, destination: DestinationId) -> Option<Trouble<String>> {
        self.inner.troubles.of(destination)
    }

    /// Whether a destination of a live session waits for its start or stop delay.
    pub fn delayed(&self, stream: StreamId, destination: DestinationId) -> Option<Delayed> {
        self.find(stream)?.delayed(destination)
    }

    /// `None` unless the encoder is connected, or the last encoder sent no supported track.
    pub fn health(&self, stream: StreamId) -> Option<Health> {
        let unusable = || {
            let trouble = self.inner.unusable.of(stream)?;
            let health =
                Health { figures: Figures::default(), issues: trouble.what, failovers: 0, link: None };
            Some(health)
        };
        let live = self.find(stream).and_then(|session| session.health(self.inner.clock.monotonic()));
        live.or_else(unusable)
    }

    /// The connected encoders of a stream, the primary one first.
    pub fn encoders(&self, stream: StreamId) -> Vec<EncoderSnapshot> {
        let session = self.find(stream);
        session.map_or_else(Vec::new, |session| session.encoders(self.inner.clock.monotonic()))
    }

    /// Since when the slate of a stream is on air.
    pub fn slate_since(&self, stream: StreamId) -> Option<UnixMillis> {
        self.find(stream)?.slate_since()
    }

    /// How a slate differs from the media of the live session of a stream, for people; `None` if it does not, or if there is no
    /// media that it could be compared with.
    pub fn slate_differs(&self, stream: StreamId, slate: &SlateRecord) -> Option<String> {
        let differ = self.find(stream)?.slate_differs(slate, self.inner.clock.monotonic())?;
        (!differ.is_empty()).then(|| texts(&differ))
    }

    /// An encoder with the key of a stream was refused with this status.
    pub fn note_refusal(&self, stream: StreamId, code: &'static str, reason: &str) {
        let refusal = EncoderRefusal { at: self.inner.clock.now(), code, reason: reason.to_owned() };
        self.inner.refusals.note(stream, refusal);
    }

    /// The last refusals of encoders with the key of a stream, newest first. They are lost at a restart.
    pub fn refusals(&self, stream: StreamId) -> Vec<EncoderRefusal> {
        self.inner.refusals.of(stream)
    }

    /// The live sessions of an account, oldest first.
    pub fn sessions_of(&self, account: AccountId) -> Vec<LiveSession> {
        let own = self.all().into_iter().filter(|session| session.stream.account_id == account);
        let mut sessions: Vec<_> = own
            .filter_map(|session| {
                Some(LiveSession { stream: session.stream.id, session: session.snapshot()? })
            })
            .collect();
        sessions.sort_by(|a, b| {
            (a.session.started_at, &a.session.session_id).cmp(&(b.session.started_at, &b.session.session_id))
        });
        sessions
    }

    /// Bytes of media from all encoders since the start.
    pub fn received_bytes(&self) -> u64 {
        self.inner.received.load(Ordering::Relaxed)
    }

    pub fn session_states(&self) -> Vec<SessionState> {
        let states = self.all().into_iter().filter_map(|session| session.snapshot());
        states.map(|session| session.state).collect()
    }

    /// Destinations of all sessions, sorted by stream and id.
    pub fn destinations(&self) -> Vec<LiveDestination> {
        let mut all: Vec<_> = self.all().iter().flat_map(|session| session.destinations()).collect();
        all.sort_by_key(|seen| (seen.stream, seen.id));
        all
    }

    /// The published assets of a destination; `None` when it is not live or has no playback.
    pub fn opening(&self, destination: DestinationId) -> Option<Arc<Opening>> {
        self.inner.openings.open(destination)
    }

    /// The opening of a session with the longest DVR window; `None` when it has no window.
    pub fn window(&self, session: &SessionId) -> Option<Arc<Opening>> {
        self.inner.openings.longest_window(session)
    }

    /// The opening that published the asset `name` in a session, also for `KEPT_AFTER_END` after its end.
    pub fn opening_of(&self, destination: DestinationId, session: &str, name: &str) -> Option<Arc<Opening>> {
        self.inner.openings.of(destination, session, name, self.inner.clock.monotonic())
    }

    /// Number of sessions that are live or wait for their encoder.
    pub fn count(&self) -> usize {
        self.all().iter().filter(|session| session.snapshot().is_some()).count()
    }

    /// Ends the session of a stream, at any node, also before its first media, and waits for its end. `false` when there
    /// is no session.
    pub async fn stop(&self, stream: StreamId, reason: EndReason) -> bool {
        let here = match self.find(stream) {
            Some(session) => session.command(|done| Command::Stop { reason, done }).await,
            None => false,
        };
        self.stop_elsewhere(CommandTarget::Stream(stream), reason).await || here
    }

    /// Ends the sessions of the target because of a change in the database that has told other nodes: those of this node,
    /// also before their first media. Waits for the ends at all nodes.
    pub async fn revoked(&self, target: CommandTarget<'_>, reason: EndReason) {
        let mut sessions = self.all();
        sessions.retain(|session| match target {
            CommandTarget::Stream(stream) => session.stream.id == stream,
            CommandTarget::Account(account) => session.stream.account_id == account,
            CommandTarget::Session(id) => session.id == *id,
        });
        let ends = sessions.iter().map(async |session| {
            if !session.command(|done| Command::Stop { reason, done }).await {
                // It was given up meanwhile.
                self.stop_elsewhere(CommandTarget::Session(&session.id), reason).await;
            }
        });
        tokio::join!(futures_util::future::join_all(ends), self.followed_elsewhere(target));
    }

    /// Reads the destinations of a stream again, and starts and stops those that changed.
    pub async fn destinations_changed(&self, stream: StreamId) {
        match self.find(stream) {
            Some(session) => drop(session.command(|done| Command::Reload { done }).await),
            None => self.followed_elsewhere(CommandTarget::Stream(stream)).await,
        }
    }

    /// The hard limits of a stream changed. They apply to its session at once, and its cooldown ends.
    pub async fn limits_changed(&self, stream: StreamId, limits: StreamLimits) {
        // Kept as expired, so that the database is not read again. The reason is never shown.
        let expired = Cooldown { until: self.inner.clock.monotonic(), reason: EndReason::Stopped };
        self.inner.cooldowns.lock().insert(stream, expired);
        match self.find(stream) {
            Some(session) => drop(session.command(|done| Command::Limits { limits, done }).await),
            None => self.followed_elsewhere(CommandTarget::Stream(stream)).await,
        }
    }

    /// Only `allowed` addresses may publish the stream from now on. Its session ends if the encoder has another address. An encoder
    /// that is away is checked when it returns.
    pub async fn addresses_changed(&self, stream: StreamId, allowed: &Networks) {
        let Some(session) = self.find(stream) else {
            return self.followed_elsewhere(CommandTarget::Stream(stream)).await;
        };
        if session.disconnect_unless(allowed) {
            tracing::info!(session = %session.id, %stream, "the address of the encoder is no longer allowed; the session ends");
            self.stop(stream, EndReason::KeyRevoked).await;
        }
    }

    /// Marks all running sessions as alive in the database and removes expired published assets. Never returns.
    pub async fn keep_heartbeat(self) {
        let mut tick = tokio::time::interval(HEARTBEAT);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.sweep_openings();
            let running: Vec<SessionId> =
                self.all().iter().filter_map(|session| Some(session.snapshot()?.session_id)).collect();
            if running.is_empty() {
                continue;
            }
            let now: UnixMillis = self.inner.clock.now();
            let marked: Result<(), StoreError> = self.inner.store.heartbeat_sessions(&running, now).await;
            if let Err(error) = marked {
                tracing::error!(%error, "cannot mark sessions as alive");
            }
        }
    }

    /// The drop runs driver code and may free an hour of media, so it does not run on a runtime thread.
    fn sweep_openings(&self) {
        let gone = self.inner.openings.sweep(self.inner.clock.monotonic());
        if !gone.is_empty() {
            // Not awaited: a driver that hangs here must not delay the heartbeats.
            tokio::task::spawn_blocking(move || drop(gone));
        }
    }

    /// Which encoders may publish.
    pub fn admits(&self) -> Admits {
        *self.inner.admits.lock()
    }

    /// Changes which encoders may publish from now on. Running sessions go on.
    pub fn admit(&self, admits: Admits) {
        *self.inner.admits.lock() = admits;
    }

    /// Ends all sessions because the service shuts down, or gives them up for other nodes; waits at most
    /// [`SHUTDOWN_WAIT`].
    pub async fn shut_down(&self) {
        if self.inner.store.is_node() {
            self.give_up_all().await;
        } else {
            self.end_all(EndReason::Shutdown).await;
        }
    }

    /// Gives all sessions up: each goes on at the node that its encoder comes to, or at this one. Ends those before their
    /// first media. Waits at most [`SHUTDOWN_WAIT`].
    pub async fn give_up_all(&self) {
        self.command_all(|done| Command::GiveUp { closed: codes::moves(), done }).await;
    }

    /// Ends all sessions, also before their first media; waits at most [`SHUTDOWN_WAIT`].
    pub async fn end_all(&self, reason: EndReason) {
        self.command_all(|done| Command::Stop { reason, done }).await;
    }

    async fn command_all(&self, make: impl Fn(oneshot::Sender<()>) -> Command) {
        let sessions = self.all();
        let ends = sessions.iter().map(|session| session.command(&make));
        let all = futures_util::future::join_all(ends);
        if tokio::time::timeout(SHUTDOWN_WAIT, all).await.is_err() {
            tracing::error!("some sessions did not end in time; the next start records their end");
        }
    }
}

impl Inner {
    pub(super) fn settings(&self) -> Settings {
        *self.settings.read()
    }

    /// Removes an ended session from the registry. Calls `gone` under the lock, before a lookup or a new session can follow.
    pub(super) fn forget(&self, session: &Arc<Session>, reason: EndReason, gone: impl FnOnce()) {
        let stream = session.stream.id;
        let mut sessions = self.sessions.lock();
        if sessions.get(&stream).is_some_and(|held| Arc::ptr_eq(held, session)) {
            // Before the removal: an encoder that finds no session must find the cooldown.
            let mut cooldowns = self.cooldowns.lock();
            if needs_cooldown(reason) {
                let until = self.clock.monotonic() + self.settings().cooldown;
                cooldowns.insert(stream, Cooldown { until, reason });
            } else {
                cooldowns.remove(&stream);
            }
            drop(cooldowns);
            sessions.remove(&stream);
        }
        gone();
    }
}

#[cfg(test)]
impl Live {
    /// Changes the time for destinations to end. Call it before the first session.
    fn with_stop_deadline(mut self, stop_deadline: Duration) -> Self {
        Arc::get_mut(&mut self.inner).expect("the only reference").stop_deadline = stop_deadline;
        self
    }
}

#[cfg(any(test, feature = "testing"))]
impl Live {
    /// An opening without a driver.
    pub fn begin_opening(&self, destination: DestinationId, session: SessionId) -> Arc<Opening> {
        let opening = Arc::new(Opening::new(destination, session, self.inner.clock.now()));
        drop(self.inner.openings.begin(opening.clone()));
        opening
    }

    /// Ends an opening as the end of its destination does.
    pub fn end_opening(&self, opening: &Opening) {
        self.inner.openings.end(opening, self.inner.clock.monotonic());
    }
}
