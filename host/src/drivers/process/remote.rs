//! A driver in a child process, across all the children it has in its life.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use satcast_plugin_api::Error;
use satcast_plugin_api::host::{MediaSource, Services};
use satcast_plugin_api::manifest::Manifest;
use satcast_plugin_api::recording::About;

use super::blame::Blame;
use super::channel::{ChannelError, MESSAGE_BYTES_MAX};
use super::message::ToChild;
use super::requests::Begun;
use super::restart::{Crashes, Verdict, left_alone, quarantined};
use super::session::{RemoteInstance, Session, lock};
use super::spawn::{Spawned, spawn};
use super::usage::{PROCESSES_MAX, Watch};
use super::{BYTES_PER_MB, END_MS, PING_MS, SILENCE_MS, START_MS};
use crate::clock::Clock;
use crate::config::ProcessLimits;
use crate::drivers::control::Pump;
use crate::drivers::loader::LoadError;

/// Pause between tries of a destination whose driver is in quarantine: it comes back when the operator does something.
const QUARANTINE_RETRY: Duration = Duration::from_secs(60);
/// How often it is looked whether a child has ended without its socket.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// How often it is looked how much memory a child takes.
const MEMORY_PAUSE: Duration = Duration::from_millis(500);
/// What a child whose socket closed gets to be seen ending by itself.
const CLOSED_GRACE: Duration = Duration::from_millis(300);

/// What a child is made from.
#[derive(Clone)]
pub(in crate::drivers) struct Spec {
    /// This binary.
    pub(in crate::drivers) exe: PathBuf,
    /// Id of the driver.
    pub(in crate::drivers) id: String,
    /// Absolute path of the private copy of its library.
    pub(in crate::drivers) image: PathBuf,
    /// Limits of the process.
    pub(in crate::drivers) limits: ProcessLimits,
}

/// What a driver says of itself.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::drivers) struct Facts {
    pub(in crate::drivers) id: String,
    pub(in crate::drivers) version: String,
    pub(in crate::drivers) manifest: Manifest,
    /// It must not lose packets.
    pub(in crate::drivers) is_lossless: bool,
}

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
pub(in crate::drivers) struct Remote {
    parts: Parts,
    state: Mutex<State>,
    changed: Condvar,
    /// As its last child said.
    keeps_recordings: AtomicBool,
    crashes: Mutex<Crashes>,
}

enum State {
    Starting,
    Up(Arc<Session>),
    /// Crashed; started again at this monotonic time.
    Down {
        until: Duration,
        why: String,
    },
    /// Crashed too often.
    Quarantined {
        why: String,
    },
    Ended,
}

/// Looks at what a library says of itself, before it is started.
pub(in crate::drivers) type Accept = Box<dyn Fn(&Facts) -> Result<(), String> + Send + Sync>;

/// Who is asked and told on the way of each child.
pub(in crate::drivers) struct Hooks {
    pub(in crate::drivers) accept: Accept,
    /// It is up.
    pub(in crate::drivers) up: Box<dyn Fn() + Send + Sync>,
}

type First = SyncSender<Result<Facts, LoadError>>;

impl Remote {
    /// Starts the first child. Blocks until its library is loaded or refused, within [`START_MS`].
    pub(in crate::drivers) fn start(
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
        let (changed, crashes) = (Condvar::new(), Mutex::default());
        let remote = Arc::new(Self { parts, state, changed, keeps_recordings, crashes });
        let (first, outcome) = sync_channel(1);
        let supervised = remote.clone();
        // Children die with the thread that started them: this one lives as long as the driver.
        thread::Builder::new()
            .name(format!("r:{id}"))
            .spawn(move || supervised.supervise(first))
            .map_err(|error| LoadError::Start(format!("cannot start a thread for driver {id}: {error}")))?;
        match outcome.recv() {
            Ok(outcome) => outcome.map(|facts| (remote, facts)),
            Err(_) => Err(LoadError::Start(format!("the supervisor of driver {id} ended"))),
        }
    }

    pub(super) fn session(&self) -> Result<Arc<Session>, Error> {
        let id = &self.parts.spec.id;
        match &*self.lock() {
            State::Up(session) => Ok(session.clone()),
            State::Starting => Err(Error::internal(format!("driver {id} is being started"))),
            State::Down { until, why } => {
                let wait = until.saturating_sub(self.parts.clock.monotonic());
                Err(Error::internal(format!("driver {id} {why} and is being started again"))
                    .retry_after(wait))
            }
            State::Quarantined { why } => {
                Err(Error::internal(quarantined(id, why)).retry_after(QUARANTINE_RETRY))
            }
            State::Ended => Err(Error::internal(format!("driver {id} has ended"))),
        }
    }

    /// Why it does not run now; `None` when it does.
    pub(in crate::drivers) fn trouble(&self) -> Option<String> {
        match &*self.lock() {
            State::Up(_) | State::Starting | State::Ended => None,
            State::Down { why, .. } => Some(format!("{why}; it is being started again")),
            State::Quarantined { why } => Some(quarantined(&self.parts.spec.id, why)),
        }
    }

    /// It offers recordings, whether it runs now or not.
    pub(in crate::drivers) fn keeps_recordings(&self) -> bool {
        self.keeps_recordings.load(Ordering::Acquire)
    }

    /// Asks about a configuration, for `account`.
    pub(in crate::drivers) fn validate(&self, account: i64, kind: &str, config: &str) -> Result<(), Error> {
        self.session_for(account)?.validate(account, kind, config)
    }

    /// Lets it be used again by accounts that crashed it.
    pub(in crate::drivers) fn forgive(&self) {
        lock(&self.crashes).forgive();
    }

    fn session_for(&self, account: i64) -> Result<Arc<Session>, Error> {
        if lock(&self.crashes).is_left(account) {
            return Err(Error::internal(left_alone(&self.parts.spec.id)).retry_after(QUARANTINE_RETRY));
        }
        self.session()
    }

    /// Opens a destination.
    pub(in crate::drivers) fn open(
        &self,
        dest: u64,
        source: u64,
        kind: &str,
        config: &str,
        about: &About,
        media: Arc<dyn MediaSource>,
    ) -> Result<RemoteInstance, Error> {
        self.session_for(about.account_id)?.open(dest, source, kind, config, about, media)
    }

    /// Ends the child in order, within [`END_MS`], and for good.
    pub(in crate::drivers) fn end(&self) {
        let before = std::mem::replace(&mut *self.lock(), State::Ended);
        self.changed.notify_all();
        if let State::Up(session) = before {
            session.tell(&ToChild::End);
        }
    }

    fn supervise(&self, first: First) {
        let mut first = Some(first);
        loop {
            let (why, blame) = self.one_child(&mut first);
            if let Some(first) = first.take() {
                // Who started it may have gone.
                let _ = first.send(Err(LoadError::Probe(why)));
                return;
            }
            if matches!(*self.lock(), State::Ended) {
                return;
            }
            let id = self.parts.spec.id.as_str();
            let now = self.parts.clock.monotonic();
            // Not under its lock: what is logged may take a while.
            let verdict = lock(&self.crashes).add(now, blame);
            let wait = match verdict {
                Verdict::Restart(wait) => wait,
                Verdict::Without(account, wait) => {
                    tracing::error!(driver = id, account, "{}", left_alone(id));
                    wait
                }
                Verdict::Quarantine => {
                    tracing::error!(driver = id, "{}", quarantined(id, &why));
                    self.enter(State::Quarantined { why });
                    return;
                }
            };
            tracing::error!(
                driver = id,
                restart_in_ms = wait.as_millis() as u64,
                account = blame.account(),
                "the process of driver {id} {why}"
            );
            self.enter(State::Down { until: now + wait, why });
            if self.is_ended_within(wait) {
                return;
            }
        }
    }

    /// The end is final.
    fn enter(&self, next: State) -> bool {
        let mut state = self.lock();
        if matches!(*state, State::Ended) {
            return false;
        }
        *state = next;
        true
    }

    fn is_ended_within(&self, wait: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, wait, |state| !matches!(state, State::Ended));
        matches!(*waited.unwrap_or_else(PoisonError::into_inner).0, State::Ended)
    }

    /// The life of one child; how it ended, and whom that is laid to.
    fn one_child(&self, first: &mut Option<First>) -> (String, Blame) {
        let Parts { spec, services, pump, max_level, .. } = &self.parts;
        let (session, theirs) = match Session::begin(spec, services, pump, *max_level) {
            Ok(begun) => begun,
            Err(error) => return (format!("cannot be given a socket and memory: {error}"), Blame::Nobody),
        };
        let spawned = match spawn(&spec.exe, &spec.id, theirs, services) {
            Ok(spawned) => spawned,
            Err(error) => {
                return (format!("cannot be started as {}: {error}", spec.exe.display()), Blame::Nobody);
            }
        };
        let refused = self.follow(&session, &spawned, first);
        let why = self.end_child(&session, spawned, refused);
        let blame = session.blame();
        let error = format!("the process of driver {} {why}", spec.id);
        session.bury(&Error::internal(error));
        (why, blame)
    }

    fn end_child(&self, session: &Session, spawned: Spawned, refused: Option<String>) -> String {
        let is_ended = matches!(*self.lock(), State::Ended);
        let failure = session.failure();
        let grace = match &failure {
            _ if is_ended => Duration::from_millis(END_MS),
            Some(_) => Duration::ZERO,
            None => CLOSED_GRACE,
        };
        let ended_itself = spawned.end(grace);
        refused.or(failure).or(ended_itself).unwrap_or_else(|| "closed its socket".to_owned())
    }

    /// Reads what the child says until its end; why it refused to start, if it did.
    fn follow(&self, session: &Arc<Session>, spawned: &Spawned, first: &mut Option<First>) -> Option<String> {
        let began = self.parts.clock.monotonic();
        let (mut is_ready, mut heard, mut pinged, mut ending) = (false, began, began, None);
        let (mut looked, mut measured, mut said, mut died) = (began, began, None, None);
        let (mut watch, mut buffer) = (Watch::default(), vec![0; MESSAGE_BYTES_MAX]);
        loop {
            let received = session.channel.recv(&mut buffer);
            let now = self.parts.clock.monotonic();
            match received {
                Ok((len, descriptors)) => {
                    heard = now;
                    match session.handle(&buffer[..len], descriptors) {
                        Ok(None) => {}
                        Ok(Some(Begun::Loaded(facts))) if said.is_none() && !is_ready => {
                            if let Err(reason) = (self.parts.hooks.accept)(&facts) {
                                return Some(reason);
                            }
                            said = Some(facts);
                        }
                        Ok(Some(Begun::Ready { keeps_recordings })) if said.is_some() => {
                            is_ready = true;
                            self.keeps_recordings.store(keeps_recordings, Ordering::Release);
                            said.take().into_iter().for_each(|facts| self.is_up(session, facts, first));
                        }
                        Ok(Some(Begun::Refused(reason))) if !is_ready => return Some(reason),
                        Ok(Some(_)) => session.fail("spoke of its start when it should not"),
                        Err(what) => session.fail(what),
                    }
                }
                Err(ChannelError::TimedOut) if died.is_some() => return None,
                Err(ChannelError::TimedOut) => {}
                Err(ChannelError::TooLarge) => session.fail("sent more than a message holds"),
                Err(ChannelError::Closed | ChannelError::System(_)) => return None,
            }
            if !is_ready && now.saturating_sub(began) > Duration::from_millis(START_MS) {
                session.fail(&format!("did not start within {START_MS} ms"));
            }
            if matches!(*self.lock(), State::Ended)
                && now.saturating_sub(*ending.get_or_insert(now)) > Duration::from_millis(END_MS)
            {
                session.fail("did not end in time");
            }
            if now.saturating_sub(looked) > LOOK_PAUSE {
                looked = now;
                died = died.or_else(|| spawned.has_ended().then_some(now));
            }
            // Its last words may not have been read yet, and what it left behind may speak on.
            if died.is_some_and(|died| now.saturating_sub(died) > CLOSED_GRACE) {
                return None;
            }
            if now.saturating_sub(measured) > MEMORY_PAUSE {
                measured = now;
                self.measure(session, spawned, &mut watch);
            }
            let silent = now.saturating_sub(heard);
            if silent > Duration::from_millis(SILENCE_MS) {
                session.fail(&format!("gave no sign of life for {SILENCE_MS} ms"));
            } else if silent.min(now.saturating_sub(pinged)) > Duration::from_millis(PING_MS) {
                pinged = now;
                session.tell(&ToChild::Ping);
            }
        }
    }

    /// Ends a child that takes more memory than it may, with what it started, or started too much.
    fn measure(&self, session: &Session, spawned: &Spawned, watch: &mut Watch) {
        let (id, memory_mb) = (&self.parts.spec.id, self.parts.spec.limits.memory_mb);
        let Some(taken) = spawned.taken(session.shared) else { return };
        if taken.processes > PROCESSES_MAX {
            spawned.end_below();
            session.fail(&format!("started more than {PROCESSES_MAX} processes"));
        }
        if watch.is_over(taken, memory_mb.saturating_mul(BYTES_PER_MB)) {
            // Before it: what is orphaned is found no more.
            spawned.end_below();
            session.fail(&format!(
                "took more memory than its {memory_mb} MiB ([driver.{id}] limits, memory_mb)"
            ));
        }
    }

    fn is_up(&self, session: &Arc<Session>, facts: Facts, first: &mut Option<First>) {
        let id = self.parts.spec.id.as_str();
        let version = facts.version.clone();
        if self.enter(State::Up(session.clone())) {
            tracing::info!(driver = id, version, "driver runs in a process of its own");
            (self.parts.hooks.up)();
        } else {
            session.tell(&ToChild::End);
        }
        if let Some(first) = first.take() {
            // Who started it waits for this.
            let _ = first.send(Ok(facts));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
