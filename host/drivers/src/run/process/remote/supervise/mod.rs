//! The lives of the children of a driver, one after the other, on one thread.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use satcast_plugin_api::Error;

use super::super::apart::Apart;
use super::super::channel::{self, ChannelError, Message, Receiver};
use super::super::limits::{END_MS, SILENCE_MS, START_MS};
use super::super::message::{PROTOCOL, ToChild, ToHost};
use super::super::requests::Begun;
use super::super::session::Session;
use super::super::shortage;
use super::super::spawn::{Ended, Spawned, spawn};
use super::super::spec::Facts;
use super::{First, Parts, Remote, State};
use crate::load::error::LoadError;

/// Wait after an end, and after the first of several of which nobody is the cause; each further one of those doubles it.
const RESTART_WAIT_MIN: Duration = Duration::from_millis(500);
/// Longest wait after a crash with nobody inside.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(30);
/// Longest wait while the service lacks something.
const SHORTAGE_WAIT_MAX: Duration = Duration::from_secs(10);
/// The end of a child that lived for longer is the first of several again.
const STEADY_AFTER: Duration = Duration::from_secs(60);
/// How often it is looked whether a child has ended without its socket.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// How long a message to a child may wait for room; a child that does not read for so long is killed.
const SEND_LIMIT: Duration = Duration::from_secs(1);
/// How often a reader that gets nothing looks at the time.
const TICK: Duration = Duration::from_millis(250);
/// Bytes that are read at once.
const BLOCK_BYTES: usize = 64 * 1024;
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
    pub(super) cause: Cause,
}

/// Why a child ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A crash or a hang, with these accounts inside: they had open destinations or calls.
    Fault(BTreeSet<i64>),
    /// The service lacked something.
    Shortage,
    /// It used the processor time that it is given.
    Spent,
}

impl End {
    fn shortage(why: String) -> Self {
        Self { why, cause: Cause::Shortage }
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
            let (wait, account) = self.wait_after(&end, &mut ends);
            let (id, restart_in_ms) = (self.parts.spec.id.as_str(), wait.as_millis() as u64);
            let why = &end.why;
            if end.cause != Cause::Shortage {
                tracing::error!(driver = id, restart_in_ms, account, "the process of driver {id} {why}");
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

    /// How long to wait after an end that follows `ends` others, and the account that it counts for.
    fn wait_after(&self, end: &End, ends: &mut u32) -> (Duration, Option<i64>) {
        let (most, account) = match &end.cause {
            Cause::Shortage => (SHORTAGE_WAIT_MAX, None),
            Cause::Spent => (RESTART_WAIT_MIN, None),
            Cause::Fault(inside) => {
                // Crashes with somebody inside come to an end: it is found out whose work they are, and that account is set aside.
                let most = if inside.is_empty() { RESTART_WAIT_MAX } else { RESTART_WAIT_MIN };
                (most, self.count(inside, &end.why))
            }
        };
        let wait = restart_wait(*ends, most);
        *ends = if most == RESTART_WAIT_MIN { 0 } else { *ends + 1 };
        (wait, account)
    }

    /// Counts a crash or hang; for whom, where that is known.
    fn count(&self, inside: &BTreeSet<i64>, why: &str) -> Option<i64> {
        self.crashed.fetch_add(1, Ordering::Relaxed);
        let account = self.apart.lock().crashed(inside, self.parts.clock.monotonic())?;
        // Who gets nothing new crashes it no more, and the others need not wait for that.
        if (self.parts.hooks.fault)(account, &format!("its process {why}")) {
            *self.apart.lock() = Apart::default();
        }
        Some(account)
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
        let Parts { spec, services, pump, .. } = &self.parts;
        let limits = |(ours, theirs)| {
            channel::set_limits(&ours, Some(SEND_LIMIT), Some(TICK)).map(|()| (ours, theirs))
        };
        let (ours, theirs) = match channel::pair().and_then(limits) {
            Ok(ends) => ends,
            Err(error) => return End::shortage(shortage::told("cannot be given a socket", &error.into())),
        };
        let spawned = match spawn(spec, theirs, services) {
            Ok(spawned) => spawned,
            Err(error) => return End::shortage(shortage::told(&not_started(&spec.exe), &error)),
        };
        let (sender, receiver) = channel::split(ours, BLOCK_BYTES);
        let session = Session::new(&spec.id, sender, services, pump);
        session.tell(&ToChild::Start {
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
        // Whoever hears of the end finds it down.
        self.enter(State::Down { until: self.parts.clock.monotonic(), why: why.clone() });
        session.bury(&Error::internal(format!("the process of driver {} {why}", spec.id)));
        End { why, cause }
    }

    /// Ends what is left of a child; why it ended, and whether that is its processor time.
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

    /// Reads what the child says until its end; why it refused to start, if it did.
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
                    if message.is_short && lines.admit(now).is_some() {
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
                    session.fail("sent what is no message")
                }
                Err(ChannelError::System(error)) if shortage::is_shortage(error) => {
                    session.fail_for_service(&shortage::told("cannot be heard", &error.into()));
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
            // What it said last may not have been read yet, and what it left behind may speak on.
            if died.is_some_and(|died| now.saturating_sub(died) > CLOSED_GRACE) {
                return None;
            }
            if now.saturating_sub(heard) > Duration::from_millis(SILENCE_MS) {
                session.fail(&format!("gave no sign of life for {SILENCE_MS} ms"));
            }
        }
    }

    /// Does what one message asks for; why the child refuses to start, if it does.
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
fn restart_wait(before: u32, most: Duration) -> Duration {
    RESTART_WAIT_MIN.saturating_mul(1 << before.min(16)).min(most)
}

fn not_started(exe: &Path) -> String {
    format!("cannot be started as {}", exe.display())
}

#[cfg(test)]
mod tests;
