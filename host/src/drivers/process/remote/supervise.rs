//! The lives of the children of a driver, one after the other, on one thread.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use satcast_plugin_api::Error;

use super::super::calls::Hung;
use super::super::channel::{ChannelError, MESSAGE_BYTES_MAX};
use super::super::message::ToChild;
use super::super::requests::Begun;
use super::super::session::Session;
use super::super::shortage;
use super::super::spawn::{Spawned, spawn};
use super::super::usage::{PROCESSES_MAX, Watch};
use super::super::{BYTES_PER_MB, END_MS, PING_MS, SILENCE_MS, START_MS};
use super::{Facts, First, Parts, Remote, State};
use crate::drivers::loader::LoadError;

/// Wait after the first of several ends; each further one doubles it.
const RESTART_WAIT_MIN: Duration = Duration::from_millis(500);
/// Longest wait after a crash.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait while the service lacks something.
const SHORTAGE_WAIT_MAX: Duration = Duration::from_secs(10);
/// The end of a child that lived for longer is the first of several again.
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// How often it is looked whether a child has ended without its socket.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// How often it is looked how much memory a child takes.
const MEMORY_PAUSE: Duration = Duration::from_millis(500);
/// What a child whose socket closed gets to be seen ending by itself.
const CLOSED_GRACE: Duration = Duration::from_millis(300);

/// How far a child has come.
#[derive(Default)]
struct Beginning {
    is_ready: bool,
    said: Option<Facts>,
}

/// How a child ended.
pub(super) struct End {
    pub(super) why: String,
    /// The service lacked something.
    pub(super) is_shortage: bool,
    /// The call that it did not return from.
    pub(super) hung: Option<Hung>,
    /// Accounts with open destinations or calls.
    pub(super) inside: BTreeSet<i64>,
}

impl End {
    fn shortage(why: String) -> Self {
        Self { why, is_shortage: true, hung: None, inside: BTreeSet::new() }
    }
}

impl Remote {
    /// `first` waits for the first child; without it all are as later ones.
    pub(super) fn supervise(&self, mut first: Option<First>) {
        // Ends one after the other without a child that lived for long.
        let (mut ends, lines) = (0, shortage::log_limit());
        loop {
            let began = self.parts.clock.monotonic();
            let end = self.one_child(&mut first);
            if let Some(first) = first.take() {
                // Who started it may have gone.
                let _ = first.send(Err(LoadError::Probe(end.why)));
                return;
            }
            if matches!(*self.state.lock(), State::Ended) {
                return;
            }
            let now = self.parts.clock.monotonic();
            if now.saturating_sub(began) > STEADY_AFTER {
                ends = 0;
            }
            let wait = restart_wait(ends, end.is_shortage);
            ends += 1;
            let (id, restart_in_ms) = (self.parts.spec.id.as_str(), wait.as_millis() as u64);
            let why = &end.why;
            if !end.is_shortage {
                let account = self.account_of(&end);
                tracing::error!(driver = id, restart_in_ms, account, "the process of driver {id} {why}");
                self.crashed.fetch_add(1, Ordering::Relaxed);
                // Who gets nothing new crashes it no more, and the others need not wait for that.
                if account.is_some_and(|account| self.is_held_for(&end, account)) {
                    ends = 0;
                }
            } else if lines.admit(now).is_some() {
                tracing::error!(
                    driver = id,
                    restart_in_ms,
                    "the process of driver {id} {why}; that is no fault of the driver, and it is tried until it succeeds"
                );
            }
            self.enter(State::Down { until: now + wait, why: end.why });
            if self.is_ended_within(wait) {
                return;
            }
        }
    }

    /// Whom a crash counts for; `None` where it is not known.
    fn account_of(&self, end: &End) -> Option<i64> {
        match end.hung {
            Some(hung) => hung.account,
            None => self.apart.lock().crashed(&end.inside),
        }
    }

    /// Notes the fault; true where nothing new of the account comes from now on.
    fn is_held_for(&self, end: &End, account: i64) -> bool {
        let is_noted = end.hung.is_some_and(|hung| hung.is_open);
        !is_noted && (self.parts.hooks.fault)(account, &format!("its process {}", end.why))
    }

    /// The end is final.
    fn enter(&self, next: State) -> bool {
        let mut state = self.state.lock();
        if matches!(*state, State::Ended) {
            return false;
        }
        *state = next;
        true
    }

    fn is_ended_within(&self, wait: Duration) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !matches!(state, State::Ended), wait);
        matches!(*state, State::Ended)
    }

    /// The life of one child, and how it ended.
    pub(super) fn one_child(&self, first: &mut Option<First>) -> End {
        let Parts { spec, services, pump, max_level, .. } = &self.parts;
        let (session, theirs) = match Session::begin(spec, services, pump, *max_level) {
            Ok(begun) => begun,
            Err(error) => {
                return End::shortage(shortage::told("cannot be given a socket and memory", &error.into()));
            }
        };
        let spawned = match spawn(&spec.exe, &spec.id, theirs, services) {
            Ok(spawned) => spawned,
            Err(error) => {
                return End::shortage(shortage::told(&not_started(&spec.exe), &error));
            }
        };
        let refused = self.follow(&session, &spawned, first);
        let why = self.end_child(&session, spawned, refused);
        let (hung, inside) = (*session.hung.lock(), session.inside());
        session.bury(&Error::internal(format!("the process of driver {} {why}", spec.id)));
        End { why, is_shortage: session.is_for_service(), hung, inside }
    }

    fn end_child(&self, session: &Session, spawned: Spawned, refused: Option<String>) -> String {
        let is_ended = matches!(*self.state.lock(), State::Ended);
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
        let (mut beginning, mut heard, mut pinged, mut ending) = (Beginning::default(), began, began, None);
        let (mut looked, mut measured, mut died, lines) = (began, began, None, shortage::log_limit());
        let (mut watch, mut buffer) = (Watch::default(), vec![0; MESSAGE_BYTES_MAX]);
        loop {
            let received = session.channel.recv(&mut buffer);
            let now = self.parts.clock.monotonic();
            let message = match received {
                Ok((len, descriptors)) => Some((len, Some(descriptors))),
                Err(ChannelError::Short(len)) => Some((len, None)),
                Err(ChannelError::TimedOut) if died.is_some() => return None,
                Err(ChannelError::TimedOut) => None,
                Err(ChannelError::TooLarge) => {
                    session.fail("sent more than a message holds");
                    None
                }
                Err(ChannelError::System(error)) if shortage::is_shortage(error) => {
                    session.fail_for_service(&shortage::told("cannot be heard", &error.into()));
                    return None;
                }
                Err(ChannelError::Closed | ChannelError::System(_)) => return None,
            };
            if let Some((len, descriptors)) = message {
                heard = now;
                if descriptors.is_none() && lines.admit(now).is_some() {
                    tracing::error!(driver = %session.id, "{}", shortage::lost());
                }
                let refused = self.take(session, &buffer[..len], descriptors, &mut beginning, first);
                if refused.is_some() {
                    return refused;
                }
            }
            if !beginning.is_ready && now.saturating_sub(began) > Duration::from_millis(START_MS) {
                session.fail(&format!("did not start within {START_MS} ms"));
            }
            if matches!(*self.state.lock(), State::Ended)
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

    /// Does what one message asks for; why the child refuses to start, if it does. `descriptors` is `None` where the service had no room
    /// for them.
    fn take(
        &self,
        session: &Arc<Session>,
        bytes: &[u8],
        descriptors: Option<Vec<OwnedFd>>,
        beginning: &mut Beginning,
        first: &mut Option<First>,
    ) -> Option<String> {
        let handled = match descriptors {
            Some(descriptors) => session.handle(bytes, descriptors),
            None => session.handle_short(bytes),
        };
        match handled {
            Ok(None) => {}
            Ok(Some(Begun::Loaded(facts))) if beginning.said.is_none() && !beginning.is_ready => {
                if let Err(reason) = (self.parts.hooks.accept)(&facts) {
                    return Some(reason);
                }
                beginning.said = Some(facts);
            }
            Ok(Some(Begun::Ready { keeps_recordings })) if beginning.said.is_some() => {
                beginning.is_ready = true;
                self.keeps_recordings.store(keeps_recordings, Ordering::Release);
                beginning.said.take().into_iter().for_each(|facts| self.is_up(session, facts, first));
            }
            Ok(Some(Begun::Refused(reason))) if !beginning.is_ready => return Some(reason),
            Ok(Some(_)) => session.fail("spoke of its start when it should not"),
            Err(what) => session.fail(what),
        }
        None
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
}

/// The wait after so many other ends.
fn restart_wait(before: u32, is_shortage: bool) -> Duration {
    let most = if is_shortage { SHORTAGE_WAIT_MAX } else { RESTART_WAIT_MAX };
    RESTART_WAIT_MIN.saturating_mul(1 << before.min(16)).min(most)
}

fn not_started(exe: &Path) -> String {
    format!("cannot be started as {}", exe.display())
}

#[cfg(test)]
mod tests;
