//! The lives of the children of a driver, one after the other, on one thread.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use satcast_plugin_api::Error;

use super::super::bisect::Bisection;
use super::super::channel::{self, ChannelError, Message, Receiver};
use super::super::message::{END_MS, PROTOCOL, SILENCE_MS, START_MS, ToChild, ToHost};
use super::super::requests::{Begun, Facts};
use super::super::session::Session;
use super::super::shortage;
use super::super::spawn::{Ended, Spawned, spawn};
use super::{First, Parts, Remote, State};
use crate::load::error::LoadError;

/// Wait after an end, and after the first of several ends without a known cause; doubled with each further one.
const RESTART_WAIT_MIN: Duration = Duration::from_millis(500);
/// Longest wait after a crash with no account inside.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait during a shortage of the service.
const SHORTAGE_WAIT_MAX: Duration = Duration::from_secs(10);
/// If a child lived for longer, its end counts as the first again.
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// Interval of checks for a child that has ended while its socket is still open.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// How long a message to a child may wait for space in the socket; a child that does not read for this long is
/// killed.
const SEND_LIMIT: Duration = Duration::from_secs(1);
/// Interval at which a reader without input checks the time.
const TICK: Duration = Duration::from_millis(250);
/// Block size of reads.
const BLOCK_BYTES: usize = 64 * 1024;
/// Time for a child whose socket closed to end by itself.
const CLOSED_GRACE: Duration = Duration::from_millis(300);

/// Progress of a child's start.
#[derive(Default)]
struct Beginning {
    is_ready: bool,
    said: Option<Facts>,
}

pub(super) struct End {
    pub(super) why: String,
    pub(super) cause: Cause,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A crash or a hang while these accounts had open destinations or calls.
    Fault(BTreeSet<i64>),
    /// A resource of the service was short.
    Shortage,
    /// It used up its processor time.
    Spent,
}

impl End {
    fn shortage(why: String) -> Self {
        Self { why, cause: Cause::Shortage }
    }
}

impl Remote {
    /// `first` waits for the first child; later children have no such caller.
    pub(super) fn supervise(&self, mut first: Option<First>) {
        // Consecutive ends without a child that lived for long.
        let (mut ends, lines) = (0, shortage::log_limit());
        loop {
            let began = self.parts.clock.monotonic();
            let end = self.one_child(&mut first);
            if let Some(first) = first.take() {
                // The caller may have gone.
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
            let (wait, account) = self.wait_after(&end, &mut ends);
            let (id, restart_in_ms) = (self.parts.spec.id.as_str(), wait.as_millis() as u64);
            let why = &end.why;
            if end.cause != Cause::Shortage {
                tracing::error!(driver = id, restart_in_ms, account, "the process of driver {id} {why}");
            } else if lines.admit(now).is_some() {
                tracing::error!(
                    driver = id,
                    restart_in_ms,
                    "the process of driver {id} {why}; this is no fault of the driver, and the service keeps trying"
                );
            }
            self.enter(State::Down { until: now + wait, why: end.why });
            if self.is_ended_within(wait) {
                return;
            }
        }
    }

    /// The wait after an end that follows `ends` others, and the account that the end counts for.
    fn wait_after(&self, end: &End, ends: &mut u32) -> (Duration, Option<i64>) {
        let (most, account) = match &end.cause {
            Cause::Shortage => (SHORTAGE_WAIT_MAX, None),
            Cause::Spent => (RESTART_WAIT_MIN, None),
            Cause::Fault(inside) => {
                // Crashes with accounts inside stop by themselves: the search finds the account, which is then set
                // aside.
                let most = if inside.is_empty() { RESTART_WAIT_MAX } else { RESTART_WAIT_MIN };
                (most, self.count(inside, &end.why))
            }
        };
        let wait = restart_wait(*ends, most);
        *ends = if most == RESTART_WAIT_MIN { 0 } else { *ends + 1 };
        (wait, account)
    }

    /// Counts a crash or hang; returns the account, if it is known.
    fn count(&self, inside: &BTreeSet<i64>, why: &str) -> Option<i64> {
        self.crashed.fetch_add(1, Ordering::Relaxed);
        let account = self.bisection.lock().crashed(inside, self.parts.clock.monotonic())?;
        // The account gets nothing new and cannot crash it again, so the others need not wait.
        if (self.parts.hooks.fault)(account, &format!("its process {why}")) {
            *self.bisection.lock() = Bisection::default();
        }
        Some(account)
    }

    /// Returns false after the final end.
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

    /// Runs one child until its end.
    pub(super) fn one_child(&self, first: &mut Option<First>) -> End {
        let Parts { spec, services, pump, .. } = &self.parts;
        let limits = |(ours, theirs)| {
            channel::set_limits(&ours, Some(SEND_LIMIT), Some(TICK)).map(|()| (ours, theirs))
        };
        let (ours, theirs) = match channel::pair().and_then(limits) {
            Ok(ends) => ends,
            Err(error) => return End::shortage(shortage::describe("cannot get a socket", &error.into())),
        };
        let spawned = match spawn(spec, theirs, services) {
            Ok(spawned) => spawned,
            Err(error) => return End::shortage(shortage::describe(&not_started(&spec.exe), &error)),
        };
        let (sender, receiver) = channel::split(ours, BLOCK_BYTES);
        let session = Session::new(&spec.id, sender, services, pump);
        session.send(&ToChild::Start {
            protocol: PROTOCOL,
            id: spec.id.clone(),
            image: spec.image.to_string_lossy().into_owned(),
            max_level: self.parts.max_level,
            limits: spec.limits,
            is_grouped: spawned.is_grouped(),
        });
        let refused = self.follow(&session, receiver, &spawned, first);
        let (why, is_spent) = self.end_child(&session, spawned, refused);
        let cause = match session.is_for_service() {
            true => Cause::Shortage,
            false if is_spent => Cause::Spent,
            false => Cause::Fault(session.inside()),
        };
        // Callers that see the end find the state down.
        self.enter(State::Down { until: self.parts.clock.monotonic(), why: why.clone() });
        session.bury(&Error::internal(format!("the process of driver {} {why}", spec.id)));
        End { why, cause }
    }

    /// Ends the rest of a child; returns why it ended, and whether it used up its processor time.
    fn end_child(&self, session: &Session, spawned: Spawned, refused: Option<String>) -> (String, bool) {
        let is_ended = matches!(*self.state.lock(), State::Ended);
        let failure = session.failure();
        let grace = match &failure {
            _ if is_ended => Duration::from_millis(END_MS),
            Some(_) => Duration::ZERO,
            None => CLOSED_GRACE,
        };
        let ended_itself = spawned.end(grace);
        match (refused.or(failure), ended_itself) {
            (Some(why), _) | (None, Some(Ended::Crashed(why))) => (why, false),
            (None, Some(Ended::Spent)) => {
                let (id, limit) = (&self.parts.spec.id, self.parts.spec.limits.cpu_secs);
                (format!("used its {limit} s of processor time ([driver.{id}] limits, cpu_secs)"), true)
            }
            (None, None) => ("closed its socket".to_owned(), false),
        }
    }

    /// Reads the child's messages until its end; returns why it refused to start, if it did.
    fn follow(
        &self,
        session: &Arc<Session>,
        mut receiver: Receiver,
        spawned: &Spawned,
        first: &mut Option<First>,
    ) -> Option<String> {
        let began = self.parts.clock.monotonic();
        let (mut beginning, mut heard, mut ending) = (Beginning::default(), began, None);
        let (mut looked, mut died, lines) = (began, None, shortage::log_limit());
        loop {
            let received = receiver.next::<ToHost>();
            let now = self.parts.clock.monotonic();
            match received {
                Ok(message) => {
                    heard = now;
                    if message.lost_descriptor && lines.admit(now).is_some() {
                        tracing::error!(driver = %session.id, "{}", shortage::lost());
                    }
                    let refused = self.take(session, message, &mut beginning, first);
                    if refused.is_some() {
                        return refused;
                    }
                }
                Err(ChannelError::TimedOut) if died.is_some() => return None,
                Err(ChannelError::TimedOut) => {}
                Err(ChannelError::Malformed | ChannelError::TooLarge) => {
                    session.fail("sent an invalid message")
                }
                Err(ChannelError::System(error)) if shortage::is_shortage(error) => {
                    session.fail_for_service(&shortage::describe("cannot be read from", &error.into()));
                    return None;
                }
                Err(ChannelError::Closed | ChannelError::System(_)) => return None,
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
            // Its last messages may not have been read yet, and processes that it left behind may keep the socket
            // open.
            if died.is_some_and(|died| now.saturating_sub(died) > CLOSED_GRACE) {
                return None;
            }
            if now.saturating_sub(heard) > Duration::from_millis(SILENCE_MS) {
                session.fail(&format!("gave no sign of life for {SILENCE_MS} ms"));
            }
        }
    }

    /// Handles one message; returns why the child refuses to start, if it does.
    fn take(
        &self,
        session: &Arc<Session>,
        message: Message<ToHost>,
        beginning: &mut Beginning,
        first: &mut Option<First>,
    ) -> Option<String> {
        match session.handle(message) {
            Ok(None) => {}
            Ok(Some(Begun::Loaded(facts))) if beginning.said.is_none() && !beginning.is_ready => {
                if let Err(reason) = (self.parts.hooks.accept)(&facts) {
                    return Some(reason);
                }
                beginning.said = Some(facts);
            }
            Ok(Some(Begun::Ready { keeps_recordings, reads_recordings })) if beginning.said.is_some() => {
                beginning.is_ready = true;
                self.keeps_recordings.store(keeps_recordings, Ordering::Release);
                self.reads_recordings.store(reads_recordings, Ordering::Release);
                beginning.said.take().into_iter().for_each(|facts| self.is_up(session, facts, first));
            }
            Ok(Some(Begun::Refused(reason))) if !beginning.is_ready => return Some(reason),
            Ok(Some(_)) => session.fail("sent a start message at the wrong time"),
            Err(reason) => session.fail(reason),
        }
        None
    }

    fn is_up(&self, session: &Arc<Session>, facts: Facts, first: &mut Option<First>) {
        let id = self.parts.spec.id.as_str();
        let version = facts.version.clone();
        if self.enter(State::Up(session.clone())) {
            tracing::info!(driver = id, version, "driver runs in a process of its own");
            (self.parts.hooks.up)();
        } else {
            session.send(&ToChild::End);
        }
        if let Some(first) = first.take() {
            // The caller of `start` waits for this.
            let _ = first.send(Ok(facts));
        }
    }
}

/// The wait after `before` other ends.
fn restart_wait(before: u32, most: Duration) -> Duration {
    RESTART_WAIT_MIN.saturating_mul(1 << before.min(16)).min(most)
}

fn not_started(exe: &Path) -> String {
    format!("cannot be started as {}", exe.display())
}

#[cfg(test)]
mod tests;
