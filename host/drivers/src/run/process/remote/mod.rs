//! A driver in a child process, across all its children; [`supervise`]: the lives of these children.

mod supervise;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use satcast_plugin_api::Error;
use satcast_plugin_api::host::{MediaSource, Services};

use super::bisect::Bisection;
use super::message::{Ask, ToChild, ToOpen};
use super::requests::Facts;
use super::session::{RemoteInstance, Session};
use super::spawn::Spec;
use crate::load::error::LoadError;
use crate::run::pump::Pump;
use satcast_core::clock::Clock;
use satcast_core::ids::UnixMillis;

/// Error text for an account that waits because others are admitted first.
const FOLLOWS: &str =
    "crashed, and serves some accounts first to find the one whose work crashes it; this account follows";

/// Longest wait before an account is tried again: the search may end before the head start does.
const ADMISSION_RETRY_MAX: Duration = Duration::from_secs(5);

/// Input for its children.
struct Parts {
    spec: Spec,
    services: Arc<dyn Services>,
    pump: Arc<Pump>,
    clock: Clock,
    max_level: u32,
    hooks: Hooks,
}

pub(crate) struct Remote {
    parts: Parts,
    state: Mutex<State>,
    changed: Condvar,
    /// From the latest child.
    keeps_recordings: AtomicBool,
    reads_recordings: AtomicBool,
    bisection: Mutex<Bisection>,
    /// Number of crashes.
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

/// Checks the declarations of a library before it is started.
pub(crate) type Accept = Box<dyn Fn(&Facts) -> Result<(), String> + Send + Sync>;

/// Callbacks about each child.
pub(crate) struct Hooks {
    pub(crate) accept: Accept,
    /// It is up.
    pub(crate) up: Box<dyn Fn() + Send + Sync>,
    /// It crashed with the work of this account; the text says why. Returns true where the account gets nothing new.
    pub(crate) fault: Fault,
}

type Fault = Box<dyn Fn(i64, &str) -> bool + Send + Sync>;
type First = SyncSender<Result<Facts, LoadError>>;

impl Remote {
    /// Starts the first child. Blocks until its library is loaded or refused, within
    /// [`START_MS`](super::message::START_MS).
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
        let state = Mutex::new(State::Starting);
        let (keeps_recordings, reads_recordings) = (AtomicBool::default(), AtomicBool::default());
        let (changed, bisection) = (Condvar::new(), Mutex::default());
        let (crashed, ended_in) = (AtomicU64::new(0), AtomicU64::new(0));
        let remote = Arc::new(Self {
            parts,
            state,
            changed,
            keeps_recordings,
            reads_recordings,
            bisection,
            crashed,
            ended_in,
        });
        let (first, outcome) = sync_channel(1);
        let supervised = remote.clone();
        // Children die with the thread that started them: this thread lives as long as the driver.
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
            // The supervisor has not seen its end yet.
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

    /// Why it does not run now; `None` when it runs.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &*self.state.lock() {
            State::Up(_) | State::Starting | State::Ended => None,
            State::Down { why, .. } => Some(format!("{why}; it is being started again")),
        }
    }

    /// Number of crashes of its process.
    pub(crate) fn crashed(&self) -> u64 {
        self.crashed.load(Ordering::Relaxed)
    }

    /// Whether it keeps recordings, even when it is not running now.
    pub(crate) fn keeps_recordings(&self) -> bool {
        self.keeps_recordings.load(Ordering::Acquire)
    }

    /// Whether it can read them.
    pub(crate) fn reads_recordings(&self) -> bool {
        self.reads_recordings.load(Ordering::Acquire)
    }

    /// Checks a configuration for `account`.
    pub(crate) fn validate(&self, account: i64, kind: &str, config: &str) -> Result<(), Error> {
        let ask = Ask::Validate { kind: kind.to_owned(), config: config.to_owned() };
        self.session_for(account)?.call(Some(account), ask).map(drop)
    }

    /// The session, if `account` may be admitted now.
    fn session_for(&self, account: i64) -> Result<Arc<Session>, Error> {
        let session = self.session()?;
        let admitted = self.bisection.lock().admit(account, self.parts.clock.monotonic());
        admitted.map(|()| session).map_err(|wait| {
            let wait = wait.min(ADMISSION_RETRY_MAX);
            Error::internal(format!("driver {} {FOLLOWS}", self.parts.spec.id)).retry_after(wait)
        })
    }

    /// Accounts that wait because others are admitted first, why, and until when.
    pub(crate) fn waiting(&self) -> Vec<(i64, String, UnixMillis)> {
        let (now, wall_now) = (self.parts.clock.monotonic(), self.parts.clock.now());
        let bisection = self.bisection.lock();
        let Some((accounts, until)) = bisection.waiting(now) else { return Vec::new() };
        let until = UnixMillis(wall_now.0.saturating_add((until - now).as_millis() as i64));
        accounts.iter().map(|account| (*account, FOLLOWS.to_owned(), until)).collect()
    }

    /// Whether it runs, and `account` may be admitted now.
    pub(crate) fn may_open(&self, account: i64) -> Result<(), Error> {
        self.session_for(account).map(drop)
    }

    pub(crate) fn open(
        &self,
        to_open: &ToOpen,
        media: Arc<dyn MediaSource>,
    ) -> Result<RemoteInstance, Error> {
        let session = self.session_for(to_open.about.account_id)?;
        let opened = session.open(to_open, media);
        if opened.is_err() && session.is_over() {
            self.ended_in.store(to_open.dest, Ordering::Release);
        }
        opened
    }

    /// Whether a process ended in the opening of `dest`, the latest opening. That counts as a crash and as nothing
    /// else.
    pub(crate) fn has_ended_in(&self, dest: u64) -> bool {
        self.ended_in.load(Ordering::Acquire) == dest
    }

    /// Ends the child in order and for good, within [`END_MS`](super::message::END_MS).
    pub(crate) fn end(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Ended);
        self.changed.notify_all();
        if let State::Up(session) = before {
            session.send(&ToChild::End);
        }
    }
}
