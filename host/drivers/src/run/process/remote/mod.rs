//! A driver in a child process, across all the children it has in its life; [`supervise`]: the lives of these children.

mod supervise;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use satcast_plugin_api::Error;
use satcast_plugin_api::host::{MediaSource, Services};

use super::apart::Apart;
use super::message::{Ask, ToChild, ToOpen};
use super::session::{RemoteInstance, Session};
use super::spec::{Facts, Spec};
use crate::load::error::LoadError;
use crate::run::pump::Pump;
use satcast_core::clock::Clock;
use satcast_core::ids::UnixMillis;

/// What is told to an account that waits because others are looked at first.
const FOLLOWS: &str =
    "crashed, and serves some accounts before the others to find out with whose work; this account follows";

/// How soon an account that waits is tried again at the latest: the search may end before the turn does.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What its children are given.
struct Parts {
    spec: Spec,
    services: Arc<dyn Services>,
    pump: Arc<Pump>,
    clock: Clock,
    max_level: u32,
    hooks: Hooks,
}

/// The driver.
pub(crate) struct Remote {
    parts: Parts,
    state: Mutex<State>,
    changed: Condvar,
    /// As its last child said.
    keeps_recordings: AtomicBool,
    apart: Mutex<Apart>,
    /// How many there were.
    crashed: AtomicU64,
    /// The last destination in whose opening a process ended.
    ended_in: AtomicU64,
}

enum State {
    Starting,
    Up(Arc<Session>),
    /// Crashed; started again at this monotonic time.
    Down {
        until: Duration,
        why: String,
    },
    Ended,
}

/// Looks at what a library says of itself, before it is started.
pub(crate) type Accept = Box<dyn Fn(&Facts) -> Result<(), String> + Send + Sync>;

/// Who is asked and told on the way of each child.
pub(crate) struct Hooks {
    pub(crate) accept: Accept,
    /// It is up.
    pub(crate) up: Box<dyn Fn() + Send + Sync>,
    /// It crashed with the work of this account, and why; true where nothing new of it comes from now on.
    pub(crate) fault: Fault,
}

type Fault = Box<dyn Fn(i64, &str) -> bool + Send + Sync>;
type First = SyncSender<Result<Facts, LoadError>>;

impl Remote {
    /// Starts the first child. Blocks until its library is loaded or refused, within [`START_MS`](super::limits::START_MS).
    pub(crate) fn start(
        spec: Spec,
        services: Arc<dyn Services>,
        pump: Arc<Pump>,
        clock: Clock,
        max_level: u32,
        hooks: Hooks,
    ) -> Result<(Arc<Self>, Facts), LoadError> {
        let id = spec.id.clone();
        let parts = Parts { spec, services, pump, clock, max_level, hooks };
        let (state, keeps_recordings) = (Mutex::new(State::Starting), AtomicBool::new(false));
        let (changed, apart) = (Condvar::new(), Mutex::default());
        let (crashed, ended_in) = (AtomicU64::new(0), AtomicU64::new(0));
        let remote = Arc::new(Self { parts, state, changed, keeps_recordings, apart, crashed, ended_in });
        let (first, outcome) = sync_channel(1);
        let supervised = remote.clone();
        // Children die with the thread that started them: this one lives as long as the driver.
        thread::Builder::new()
            .name(format!("r:{id}"))
            .spawn(move || supervised.supervise(Some(first)))
            .map_err(|error| LoadError::Start(format!("cannot start a thread for driver {id}: {error}")))?;
        match outcome.recv() {
            Ok(outcome) => outcome.map(|facts| (remote, facts)),
            Err(_) => Err(LoadError::Start(format!("the supervisor of driver {id} ended"))),
        }
    }

    pub(super) fn session(&self) -> Result<Arc<Session>, Error> {
        let id = &self.parts.spec.id;
        match &*self.state.lock() {
            // Its supervisor has not seen it yet.
            State::Up(session) if session.is_over() => Err(session.has_ended()),
            State::Up(session) => Ok(session.clone()),
            State::Starting => Err(Error::internal(format!("driver {id} is being started"))),
            State::Down { until, why } => {
                let wait = until.saturating_sub(self.parts.clock.monotonic());
                Err(Error::internal(format!("driver {id} {why} and is being started again"))
                    .retry_after(wait))
            }
            State::Ended => Err(Error::internal(format!("driver {id} has ended"))),
        }
    }

    /// Why it does not run now; `None` when it does.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &*self.state.lock() {
            State::Up(_) | State::Starting | State::Ended => None,
            State::Down { why, .. } => Some(format!("{why}; it is being started again")),
        }
    }

    /// How often its process crashed.
    pub(crate) fn crashed(&self) -> u64 {
        self.crashed.load(Ordering::Relaxed)
    }

    /// It offers recordings, whether it runs now or not.
    pub(crate) fn keeps_recordings(&self) -> bool {
        self.keeps_recordings.load(Ordering::Acquire)
    }

    /// Asks about a configuration, for `account`.
    pub(crate) fn validate(&self, account: i64, kind: &str, config: &str) -> Result<(), Error> {
        let ask = Ask::Validate { kind: kind.to_owned(), config: config.to_owned() };
        self.session_for(account)?.call(Some(account), ask).map(drop)
    }

    /// The session, if it is the turn of `account`.
    fn session_for(&self, account: i64) -> Result<Arc<Session>, Error> {
        let session = self.session()?;
        let taken_in = self.apart.lock().take_in(account, self.parts.clock.monotonic());
        taken_in.map(|()| session).map_err(|wait| {
            let wait = wait.min(LOOK_AGAIN);
            Error::internal(format!("driver {} {FOLLOWS}", self.parts.spec.id)).retry_after(wait)
        })
    }

    /// Accounts that wait because others are looked at first, why, and until when.
    pub(crate) fn waiting(&self) -> Vec<(i64, String, UnixMillis)> {
        let (now, wall_now) = (self.parts.clock.monotonic(), self.parts.clock.now());
        let apart = self.apart.lock();
        let Some((accounts, until)) = apart.waiting(now) else { return Vec::new() };
        let until = UnixMillis(wall_now.0.saturating_add((until - now).as_millis() as i64));
        accounts.iter().map(|account| (*account, FOLLOWS.to_owned(), until)).collect()
    }

    /// Whether it runs, and it is the turn of `account`.
    pub(crate) fn may_open(&self, account: i64) -> Result<(), Error> {
        self.session_for(account).map(drop)
    }

    /// Opens a destination.
    pub(crate) fn open(&self, what: &ToOpen, media: Arc<dyn MediaSource>) -> Result<RemoteInstance, Error> {
        let session = self.session_for(what.about.account_id)?;
        let opened = session.open(what, media);
        if opened.is_err() && session.is_over() {
            self.ended_in.store(what.dest, Ordering::Release);
        }
        opened
    }

    /// A process ended in the opening of `dest`, the last one that was opened. That counts as a crash, and as nothing else.
    pub(crate) fn has_ended_in(&self, dest: u64) -> bool {
        self.ended_in.load(Ordering::Acquire) == dest
    }

    /// Ends the child in order, within [`END_MS`](super::limits::END_MS), and for good.
    pub(crate) fn end(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Ended);
        self.changed.notify_all();
        if let State::Up(session) = before {
            session.tell(&ToChild::End);
        }
    }
}
