//! The live sessions of the service, by stream: looked at, stopped, and told of changes.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;

use super::health::{Figures, Health, Issue};
use super::session::{Command, Session};
use super::shown::{
    Delayed, DestinationSnapshot, LiveDestination, LiveSession, SessionSnapshot, SessionState,
};
use super::spool;
use super::via::Marks;
use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, DestinationId, EndReason, StreamId};
use satcast_core::troubles::{Trouble, Troubles};
use satcast_drivers::Drivers;
use satcast_drivers::published::{Opening, Openings};
use satcast_store::{Store, StreamLimits};
use satcast_usage::{Gate, Unmetered};

/// Longest a shutdown waits for sessions to end: what destinations are given to take what waits, and to end.
pub const SHUTDOWN_WAIT: Duration = Duration::from_secs(15);

/// What a destination is given to flush and end.
const STOP_DEADLINE: Duration = Duration::from_secs(2);

/// Times of `[ingest]`.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a session waits for its encoder to return.
    pub reconnect_window: Duration,
    /// How long an encoder must be quiet after its stream was stopped.
    pub refuse_quiet: Duration,
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
    pub(super) settings: Settings,
    /// What a destination is given to flush and end.
    pub(super) stop_deadline: Duration,
    pub(super) gate: Arc<dyn Gate>,
    pub(super) sessions: Mutex<HashMap<StreamId, Arc<Session>>>,
    /// Streams that were stopped, and the monotonic time until which their encoder is refused.
    pub(super) quiet: Mutex<HashMap<StreamId, Quiet>>,
    pub(super) next_number: AtomicU64,
    pub(super) openings: Arc<Openings>,
    pub(super) spools: Arc<spool::Shares>,
    pub(super) troubles: Arc<Troubles<DestinationId, String>>,
    /// Streams whose last encoder sent nothing that can be used, and why.
    pub(super) unusable: Troubles<StreamId, Vec<Issue>>,
    pub(super) marks: Marks,
    /// Where sessions run: not on the thread of the encoder that began them, which may end before them.
    pub(super) runtime: tokio::runtime::Handle,
}

/// Until when an encoder is refused that was cut off, and why it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quiet {
    pub(super) until: Duration,
    pub(super) reason: EndReason,
}

pub(super) fn needs_quiet(reason: EndReason) -> bool {
    matches!(reason, EndReason::Stopped | EndReason::MaxSats | EndReason::MaxDuration)
}

impl Live {
    /// No sessions yet, and nothing is metered. Those to come run on the runtime this is called on.
    pub fn new(store: Store, drivers: Drivers, clock: Clock, settings: Settings) -> Self {
        Self::metered(store, drivers, clock, settings, Arc::new(Unmetered::default()))
    }

    /// The drivers that serve destinations.
    pub fn drivers(&self) -> &Drivers {
        &self.inner.drivers
    }

    /// As [`Live::new`], for sessions that ask `gate` what they may use.
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
            settings,
            stop_deadline: STOP_DEADLINE,
            gate,
            sessions: Mutex::default(),
            quiet: Mutex::default(),
            next_number: AtomicU64::new(1),
            openings: Arc::default(),
            spools: Arc::default(),
            troubles: Arc::default(),
            unusable: Troubles::default(),
            marks: Marks::new(),
            runtime: tokio::runtime::Handle::current(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn find(&self, stream: StreamId) -> Option<Arc<Session>> {
        self.inner.sessions.lock().get(&stream).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        self.inner.sessions.lock().values().cloned().collect()
    }

    /// The session of a stream, once media has come.
    pub fn session(&self, stream: StreamId) -> Option<SessionSnapshot> {
        self.find(stream)?.snapshot()
    }

    /// A destination of a live session.
    pub fn destination(&self, stream: StreamId, destination: DestinationId) -> Option<DestinationSnapshot> {
        self.find(stream)?.destination(destination)
    }

    /// Why a destination was not live when it last was not, in a session that runs or is over; forgotten at a restart.
    pub fn last_trouble(&self, destination: DestinationId) -> Option<Trouble<String>> {
        self.inner.troubles.of(destination)
    }

    /// What a destination of a live session waits for because of its delays.
    pub fn delayed(&self, stream: StreamId, destination: DestinationId) -> Option<Delayed> {
        self.find(stream)?.delayed(destination)
    }

    /// How good a stream is; `None` unless its encoder is there, or the last one sent nothing that can be used.
    pub fn health(&self, stream: StreamId) -> Option<Health> {
        let unusable = || {
            let trouble = self.inner.unusable.of(stream)?;
            Some(Health { figures: Figures::default(), issues: trouble.what })
        };
        let live = self.find(stream).and_then(|session| session.health(self.inner.clock.monotonic()));
        live.or_else(unusable)
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

    /// States of all sessions.
    pub fn session_states(&self) -> Vec<SessionState> {
        let states = self.all().into_iter().filter_map(|session| session.snapshot());
        states.map(|session| session.state).collect()
    }

    /// Destinations of all sessions, by stream and number.
    pub fn destinations(&self) -> Vec<LiveDestination> {
        let mut all: Vec<_> = self.all().iter().flat_map(|session| session.destinations()).collect();
        all.sort_by_key(|seen| (seen.stream, seen.id));
        all
    }

    /// What viewers of a destination can fetch now; `None` when it is not live or has no playback.
    pub fn opening(&self, destination: DestinationId) -> Option<Arc<Opening>> {
        self.inner.openings.open(destination)
    }

    /// Where viewers of a destination's session find the piece `name`, for [`KEPT_AFTER_END`] after its end too.
    pub fn opening_of(&self, destination: DestinationId, session: &str, name: &str) -> Option<Arc<Opening>> {
        self.inner.openings.of(destination, session, name, self.inner.clock.monotonic())
    }

    /// Sessions that are live or waiting for their encoder.
    pub fn count(&self) -> usize {
        self.all().iter().filter(|session| session.snapshot().is_some()).count()
    }

    /// Ends the session of a stream, also one whose encoder has sent no media yet, and waits for its end; `false` when there is none.
    pub async fn stop(&self, stream: StreamId, reason: EndReason) -> bool {
        let Some(session) = self.find(stream) else { return false };
        session.command(|done| Command::Stop { reason, done }).await
    }

    /// Reads the destinations of a stream again and starts and stops what changed.
    pub async fn destinations_changed(&self, stream: StreamId) {
        if let Some(session) = self.find(stream) {
            session.command(|done| Command::Reload { done }).await;
        }
    }

    /// The hard limits of a stream changed: they hold for its session at once, and an encoder that was refused because of the
    /// old ones may come.
    pub async fn limits_changed(&self, stream: StreamId, limits: StreamLimits) {
        // Kept with a time that has passed, so that the history is not asked again; nobody is told the reason.
        let over = Quiet { until: self.inner.clock.monotonic(), reason: EndReason::Stopped };
        self.inner.quiet.lock().insert(stream, over);
        if let Some(session) = self.find(stream) {
            session.command(|done| Command::Limits { limits, done }).await;
        }
    }

    /// Ends all sessions; waits at most [`SHUTDOWN_WAIT`].
    pub async fn shut_down(&self) {
        let sessions = self.all();
        let ends = sessions
            .iter()
            .map(|session| session.command(|done| Command::Stop { reason: EndReason::Shutdown, done }));
        let all = futures_util::future::join_all(ends);
        if tokio::time::timeout(SHUTDOWN_WAIT, all).await.is_err() {
            tracing::error!("not all sessions ended in time; the next start records their end");
        }
    }
}

impl Inner {
    /// Takes a session that has ended out of the registry, and calls `gone` before anyone can look for it or begin another one.
    pub(super) fn forget(&self, session: &Arc<Session>, reason: EndReason, gone: impl FnOnce()) {
        let stream = session.stream.id;
        let mut sessions = self.sessions.lock();
        if sessions.get(&stream).is_some_and(|held| Arc::ptr_eq(held, session)) {
            // Before it has gone: an encoder that finds no session must find why there is none.
            let mut quiet = self.quiet.lock();
            if needs_quiet(reason) {
                let until = self.clock.monotonic() + self.settings.refuse_quiet;
                quiet.insert(stream, Quiet { until, reason });
            } else {
                quiet.remove(&stream);
            }
            drop(quiet);
            sessions.remove(&stream);
        }
        gone();
    }
}

#[cfg(test)]
impl Live {
    /// The same with another limit for destinations that are to end. No session may have begun.
    fn with_stop_deadline(mut self, stop_deadline: Duration) -> Self {
        Arc::get_mut(&mut self.inner).expect("a live that nobody else has").stop_deadline = stop_deadline;
        self
    }
}

#[cfg(any(test, feature = "testing"))]
impl Live {
    /// An opening that no driver fills.
    pub fn begin_opening(
        &self,
        destination: DestinationId,
        session: satcast_core::ids::SessionId,
    ) -> Arc<Opening> {
        let opening = Arc::new(Opening::new(destination, session, self.inner.clock.now()));
        drop(self.inner.openings.begin(opening.clone()));
        opening
    }

    /// As when its destination ends.
    pub fn end_opening(&self, opening: &Opening) {
        self.inner.openings.end(opening, self.inner.clock.monotonic());
    }
}
