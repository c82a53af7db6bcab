//! The task of a session: keeps its destinations equal to those in the database, checks the health of its stream, and ends it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::encoders::Failover;
use super::ending::Ending;
use super::schedule::{Pending, Schedule, Wait, Wanted};
use super::timer::Timer;
use super::{Command, Session, millis};
use crate::codes::{self, Closed};
use crate::destination::{self, Destination, Parts};
use crate::health::{Figures, HealthNews, Issue, IssueCode, PlatformRequirements, Watch, judge};
use crate::live::Inner;
use crate::notifier::Notifier;
use crate::shown::{Delayed, DestState, SessionState};
use crate::slate::Slate;
use satcast_core::ids::{DestinationId, EndReason, UnixMillis};
use satcast_drivers::Requirements;
use satcast_store::{
    Delays, DestinationRecord, FailoverNotice, HealthNotice, IssueNotice, Limit, NoticeKind, Returning,
    StreamLimits,
};
use satcast_usage::{Orders, Unmetered, Usage};

/// Longest wait of an ending session for the settlement of its usage. The settlement goes on without the session.
const SETTLE_WAIT: Duration = Duration::from_secs(3);
/// Longest wait of a new session for the settlement of earlier usage. Usage that is not settled then may count for the new session.
pub(super) const SETTLE_EARLIER_WAIT: Duration = Duration::from_millis(500);
/// Event of a session whose encoder returns, to its node or to another one.
pub(super) const RETURNED: &str = "stream.reconnected";
/// How often bit rates are sampled.
const TICK: Duration = Duration::from_secs(1);
/// The ticks of all sessions fall on a grid of this width, so that one wake-up serves many sessions. Several of them in a second keep
/// the work of a tick short.
const TICK_GRID_MS: u64 = 100;
/// The task of a session.
pub(crate) struct Run {
    pub(super) session: Arc<Session>,
    pub(super) live: Arc<Inner>,
    /// The session goes on here; until the first media.
    pub(super) returning: Option<Returning>,
    queue: mpsc::Receiver<Command>,
    span: Span,
    tasks: BTreeMap<DestinationId, JoinHandle<()>>,
    /// The destinations or the slate could not be read. The next tick retries.
    pub(super) reload_due: bool,
    /// Monotonic time of the first media; at a node that takes the session over, of its encoder's return.
    pub(super) began: Duration,
    /// How long the session had lasted before.
    pub(super) before: Duration,
    /// The session is to be given up: the notice for its encoder, and the monotonic end of its reconnect window.
    pub(super) gives_up: Option<(Closed, Duration)>,
    /// Hard limits in force.
    pub(super) limits: StreamLimits,
    pub(super) timer: Timer,
    /// Receives the usage reports; unmetered until the session starts.
    pub(super) usage: Arc<dyn Usage>,
    pub(super) orders: watch::Receiver<Orders>,
    notifier: Notifier,
    /// Requirements of the platforms of the enabled destinations.
    requirements: Vec<PlatformRequirements>,
    watch: Watch,
    schedule: Schedule,
    pub(super) slate: Slate,
    /// Destinations that get no further backfill.
    had_backfill: Arc<Mutex<HashSet<DestinationId>>>,
}

pub(super) struct End {
    pub(super) reason: EndReason,
    pub(super) done: Option<oneshot::Sender<()>>,
}

impl Run {
    pub(super) fn new(
        session: Arc<Session>,
        live: Arc<Inner>,
        queue: mpsc::Receiver<Command>,
        returning: Option<Returning>,
    ) -> Self {
        let limits = session.stream.limits;
        let began = live.clock.monotonic();
        let before = returning.as_ref().map_or(Duration::ZERO, |returning| returning.lasted);
        let usage: Arc<dyn Usage> = Arc::new(Unmetered::default());
        let orders = usage.orders();
        let (tasks, reload_due, timer) = (BTreeMap::new(), false, Timer::default());
        // The encoder's connection has spans of its own, which end earlier.
        let span = tracing::error_span!(
            parent: None, "session", session = %session.id, stream = %session.stream.id, reason = Empty
        );
        let notifier = span.in_scope(|| Notifier::start(live.store.clone(), session.id.clone()));
        let (requirements, watch, schedule) = (Vec::new(), Watch::default(), Schedule::default());
        Self {
            session,
            live,
            returning,
            queue,
            span,
            tasks,
            reload_due,
            began,
            before,
            gives_up: None,
            limits,
            timer,
            usage,
            orders,
            notifier,
            requirements,
            watch,
            schedule,
            slate: Slate::default(),
            had_backfill: Arc::default(),
        }
    }

    pub(crate) async fn run(self) {
        let span = self.span.clone();
        self.run_in_span().instrument(span).await;
    }

    async fn run_in_span(mut self) {
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
                if shared.encoders.is_empty() {
                    shared.closing = true;
                    return Some(End { reason: EndReason::Unpublished, done: None });
                }
            }
            tokio::select! {
                () = self.session.changed.notified() => {}
                command = self.queue.recv() => match command {
                    Some(Command::Stop { reason, done }) => return Some(End { reason, done: Some(done) }),
                    Some(Command::GiveUp { done, .. }) => {
                        return Some(End { reason: EndReason::Shutdown, done: Some(done) });
                    }
                    // Destinations are read when the session starts. The caller may have stopped waiting.
                    Some(Command::Reload { done }) => { let _ = done.send(()); }
                    Some(Command::Limits { limits, done }) => {
                        self.limits = limits;
                        let _ = done.send(());
                    }
                    // No media has gone out.
                    Some(Command::Failover(_)) => {}
                    None => return Some(End { reason: EndReason::Error, done: None }),
                },
            }
        }
    }

    /// Runs the session until something ends it.
    async fn follow(&mut self) -> End {
        let mut tick = self.live.clock.monotonic();
        loop {
            self.show_connection();
            let slate = self.follow_slate().await;
            let left = match self.reconnect_time_left() {
                Some(left) if left.is_zero() => return End { reason: EndReason::Unpublished, done: None },
                left => left,
            };
            // The duration includes the time without an encoder.
            let duration = self.timer.due(self.limits.max_duration_minutes, self.lasted());
            if duration.warns {
                self.notifier.notify(NoticeKind::LimitWarning(Limit::MaxDuration), self.live.clock.now());
            }
            if duration.left.is_some_and(|left| left.is_zero()) {
                return End { reason: EndReason::MaxDuration, done: None };
            }
            if let Some(reason) = self.orders.borrow_and_update().end {
                return End { reason, done: None };
            }
            let next = [left, duration.left, duration.warns_in, slate].into_iter().flatten().min();
            tokio::select! {
                // `usage` holds the sender.
                _ = self.orders.changed() => {}
                () = self.session.changed.notified() => {}
                () = self.live.clock.sleep(next.unwrap_or(Duration::MAX)), if next.is_some() => {}
                () = self.live.clock.sleep_until(tick) => {
                    tick = tick_after(self.live.clock.monotonic());
                    self.sample_rates();
                    self.look_at_health();
                    if self.reload_due || self.schedule.is_due(self.live.clock.monotonic()) {
                        self.reload().await;
                    }
                }
                command = self.queue.recv() => match command {
                    Some(Command::Stop { reason, done }) => return End { reason, done: Some(done) },
                    Some(Command::GiveUp { closed, done }) => return self.begin_giving_up(closed, done),
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
                    Some(Command::Failover(failover)) => self.report_failover(failover),
                    None => return End { reason: EndReason::Error, done: None },
                },
            }
        }
    }

    /// Time since the first media.
    pub(super) fn lasted(&self) -> Duration {
        self.before.saturating_add(self.live.clock.monotonic().saturating_sub(self.began))
    }

    /// Monotonic time at which a session ends whose encoder is away since `since`: not before the end of its slate.
    pub(super) fn window_end(&self, since: Duration) -> Duration {
        let end = since + self.live.settings().reconnect_window;
        self.slate.until().map_or(end, |until| end.max(until))
    }

    /// Shows whether an encoder is connected, and tells of a change.
    fn show_connection(&self) {
        let mut shared = self.session.shared.lock();
        let is_away = shared.gone_since.is_some();
        let state = if is_away { SessionState::Reconnecting } else { SessionState::Live };
        if shared.state == Some(state) {
            return;
        }
        shared.state = Some(state);
        if is_away {
            self.publish_event("stream.reconnecting", self.live.clock.now(), json!({}));
            let window_ms = self.live.settings().reconnect_window.as_millis() as u64;
            tracing::info!(window_ms, "encoder disconnected, waiting for it to reconnect");
        } else {
            shared.slate_withheld = false;
            self.publish_event(RETURNED, self.live.clock.now(), json!({}));
            tracing::info!("encoder reconnected");
        }
    }

    /// Time until the session ends without an encoder; `None` while an encoder is connected.
    fn reconnect_time_left(&self) -> Option<Duration> {
        let now = self.live.clock.monotonic();
        let mut shared = self.session.shared.lock();
        let left = shared.gone_since.map(|since| self.window_end(since).saturating_sub(now));
        shared.closing = left.is_some_and(|left| left.is_zero());
        left
    }

    fn sample_rates(&self) {
        let (now, wall_now) = (self.live.clock.monotonic(), self.live.clock.now());
        let destinations: Vec<_> = self.session.shared.lock().destinations.values().cloned().collect();
        let sent = self.session.hub.sent();
        destinations.iter().for_each(|destination| destination.sample_rate(sent, now, wall_now));
    }

    async fn finish(mut self, end: End) {
        Span::current().record("reason", end.reason.as_str());
        self.end_slate();
        let ended_at = self.end_time(end.reason);
        self.usage.ends(self.live.clock.monotonic());
        let started = {
            let mut shared = self.session.shared.lock();
            shared.closing = true;
            let started = shared.state.is_some();
            shared.state = started.then_some(SessionState::Stopping);
            started
        };
        let ended = Closed { code: codes::ENDED, reason: codes::reason_text(end.reason).into() };
        let (closed, given_up_until) = match self.gives_up.take() {
            Some((closed, until)) => (closed, Some(until)),
            None => (ended, None),
        };
        self.session.close_encoders(&closed);
        let destinations = self.session.shared.lock().destinations.clone();
        for (id, destination) in &destinations {
            if let Some(opening) = self.live.openings.open(*id).filter(|_| given_up_until.is_some()) {
                opening.assets().continue_elsewhere();
            }
            destination.stop();
        }
        for (_, task) in std::mem::take(&mut self.tasks) {
            // A destination's task ends within its deadline. A panic in it must not keep the session from ending.
            let _ = task.await;
        }
        let mut ends = started;
        if started {
            let settled = tokio::time::timeout(SETTLE_WAIT, self.usage.settled()).await.is_ok();
            if !settled {
                tracing::error!("usage of the session is not settled yet; the session ends without waiting");
            }
            // Only its owner can charge for it.
            ends = match given_up_until.filter(|_| settled) {
                Some(until) => !self.give_up(until).await,
                None => true,
            };
            if ends {
                self.record_end(ended_at, end.reason).await;
            }
        }
        self.live.forget(&self.session, end.reason, || {
            // Inside the removal: a client that reads the stream after this event finds it idle.
            if ends {
                self.publish_event("stream.ended", ended_at, json!({"reason": end.reason.as_str()}));
            }
        });
        if ends {
            tracing::info!(reason = %end.reason, "session ended");
        }
        // Late commands get a dropped answer, which means that the session has ended.
        self.queue.close();
        if let Some(done) = end.done {
            // The caller may have stopped waiting.
            let _ = done.send(());
        }
    }

    /// Sends an event of the session to the event feed of the account.
    pub(super) fn publish_event(&self, name: &str, at: UnixMillis, mut data: Value) {
        let stream = &self.session.stream;
        data["streamId"] = json!(stream.id.0);
        data["sessionId"] = json!(self.session.id.as_str());
        self.live.store.feed().send(stream.account_id, name, at, data);
    }

    /// A session without an encoder ended with its last packet, not with the reconnect window.
    pub(super) fn end_time(&self, reason: EndReason) -> UnixMillis {
        let now = self.live.clock.now();
        if reason != EndReason::Unpublished {
            return now;
        }
        let monotonic_now = millis(self.live.clock.monotonic());
        let silent_ms = monotonic_now.saturating_sub(self.session.last_media_ms.load(Ordering::Acquire));
        UnixMillis(now.0.saturating_sub_unsigned(silent_ms))
    }

    /// Starts, stops and restarts destinations to match the database, each after its delay.
    pub(super) async fn reload(&mut self) {
        let wanted = match self.live.store.destinations_of(self.session.stream.id).await {
            Ok(wanted) => wanted,
            Err(error) => {
                tracing::error!(%error, "cannot read the destinations; retrying soon");
                self.reload_due = true;
                return;
            }
        };
        self.reload_due = false;
        self.reload_slate().await;
        self.read_requirements(wanted.iter().filter(|destination| destination.enabled));
        // A destination with a start delay gets no backfill.
        let late = wanted.iter().filter(|destination| destination.delays.start_secs > 0);
        self.had_backfill.lock().extend(late.map(|late| late.id));
        let wanted = self.due(wanted);
        let running: Vec<_> = self.session.shared.lock().destinations.values().cloned().collect();
        let mut stopped = Vec::new();
        for destination in running {
            let record = destination.record();
            let same = match wanted.get(&record.id) {
                Some(wanted) => *wanted == *record || destination.reconfigure(wanted).await,
                None => false,
            };
            if !same {
                if wanted.contains_key(&record.id) {
                    destination.mark_replaced();
                }
                self.stop_destination(record.id);
                stopped.push(record.id);
            }
        }
        let mut started = Vec::new();
        for (id, record) in wanted {
            if !self.session.shared.lock().destinations.contains_key(&id) {
                self.start_destination(record);
                started.push(id);
            }
        }
        self.note_forwarding(&started, &stopped).await;
    }

    /// The destinations that must run now. Records are returned without delays and as enabled, so that a change of delays or a
    /// delayed stop does not restart a running destination.
    fn due(&mut self, all: Vec<DestinationRecord>) -> BTreeMap<DestinationId, DestinationRecord> {
        let now = self.live.clock.monotonic();
        let running = self.session.shared.lock().destinations.clone();
        let wanted = all.iter().map(|record| {
            let state = running.get(&record.id).map(|destination| destination.snapshot().state);
            let (runs, forwards) = (state.is_some(), state == Some(DestState::Live));
            Wanted { id: record.id, enabled: record.enabled, delays: record.delays, runs, forwards }
        });
        let due = self.schedule.plan(wanted, now);
        let wall_now = self.live.clock.now();
        let delayed = self.schedule.waits().map(|(id, wait)| (id, delayed(wait, now, wall_now)));
        self.session.shared.lock().delayed = delayed.collect();
        let due = all.into_iter().filter(|record| due.contains(&record.id));
        due.map(|record| {
            (record.id, DestinationRecord { enabled: true, delays: Delays::default(), ..record })
        })
        .collect()
    }

    /// Writes the history rows. Destinations do not wait for the database.
    async fn note_forwarding(&self, started: &[DestinationId], stopped: &[DestinationId]) {
        let (store, session, now) = (&self.live.store, &self.session.id, self.live.clock.now());
        for destination in stopped {
            if let Err(error) = store.end_forwarding(session, *destination, now).await {
                tracing::error!(%destination, %error, "cannot record the end of a destination");
            }
        }
        if let Err(error) = store.begin_forwarding(session, started, now).await {
            tracing::error!(%error, "cannot record the destinations of a session");
        }
    }

    fn start_destination(&mut self, record: DestinationRecord) {
        let id = record.id;
        let parts = Parts {
            drivers: self.live.drivers.clone(),
            clock: self.live.clock.clone(),
            stop_deadline: self.live.stop_deadline,
            hub: self.session.hub.clone(),
            source: self.session.number,
            via: self.session.via.clone(),
            mark: self.live.marks.of(self.session.stream.id),
            session: self.session.id.clone(),
            label: self.session.stream.label.clone(),
            // Always set: destinations start after the session.
            started_at: self.session.shared.lock().started_at.unwrap_or_else(|| self.live.clock.now()),
            openings: self.live.openings.clone(),
            spools: self.live.spools.clone(),
            troubles: self.live.troubles.clone(),
            feed: self.live.store.feed().clone(),
            notifier: self.notifier.clone(),
            account: self.session.stream.account_id,
            usage: self.usage.clone(),
            flows: self.session.flows.subscribe(),
            had_backfill: self.had_backfill.clone(),
        };
        let (destination, task) = destination::run::start(record, parts);
        self.session.shared.lock().destinations.insert(id, destination);
        self.tasks.insert(id, task);
    }

    // The task flushes and ends within the stop deadline, and delays no other destination.
    fn stop_destination(&mut self, id: DestinationId) {
        if let Some(destination) = self.session.shared.lock().destinations.remove(&id) {
            destination.stop();
        }
        self.tasks.remove(&id);
    }

    /// Reads the requirements of the platforms of the enabled destinations. A type whose driver is loaded later is read with the
    /// next change of destinations.
    fn read_requirements<'a>(&mut self, enabled: impl Iterator<Item = &'a DestinationRecord>) {
        let kinds: BTreeSet<&str> = enabled.map(|record| record.kind.as_str()).collect();
        let requirements =
            kinds.into_iter().map(|kind| Some((kind.to_owned(), self.live.drivers.requirements(kind)?)));
        self.requirements = requirements.flatten().collect();
    }

    /// Requirements of the services that refused a codec: the codecs that they take.
    fn refusals(&self) -> Vec<PlatformRequirements> {
        let destinations: Vec<_> = self.session.shared.lock().destinations.values().cloned().collect();
        let requirement = |destination: &Arc<Destination>| {
            let (takes, kind) = (destination.takes()?, destination.record().kind.clone());
            let title = self.live.drivers.title(&kind)?;
            Some((kind, Arc::new(Requirements::of_codecs(&title, &takes))))
        };
        destinations.iter().filter_map(requirement).collect()
    }

    /// Checks the encoder's media; called about once a second. Does nothing while the encoder is away.
    fn look_at_health(&mut self) {
        if self.session.shared.lock().state != Some(SessionState::Live) {
            return;
        }
        let now = self.live.clock.monotonic();
        let figures = if self.slate.is_on_air() {
            Figures { is_silent: true, ..Figures::default() }
        } else {
            let figures = self.session.hub.figures(now);
            if figures.is_settled {
                self.slate.measured(self.session.hub.encoder(), &figures);
            }
            figures
        };
        let mut requirements = Cow::Borrowed(&self.requirements);
        let refusals = self.refusals();
        if !refusals.is_empty() {
            requirements.to_mut().extend(refusals);
        }
        let verdicts = judge(&figures, &requirements, |code| self.watch.is_shown(code));
        let news = self.watch.look(verdicts.into_iter().chain([self.slate.verdict()]), now);
        self.session.shared.lock().issues = self.watch.issues();
        if let Some(news) = news {
            self.report_health(news);
        }
    }

    fn report_health(&self, news: HealthNews) {
        let at = self.live.clock.now();
        let names = |codes: &[IssueCode]| codes.iter().map(|code| code.as_str()).collect::<Vec<_>>();
        let (appeared, cleared) = (names(&news.appeared), names(&news.cleared));
        tracing::info!(?appeared, ?cleared, "stream health changed");
        self.publish_event("stream.health", at, json!({"appeared": appeared, "cleared": cleared}));
        let issues = news.issues.into_iter().map(issue_notice).collect();
        self.notifier.notify(NoticeKind::Health(HealthNotice { appeared, cleared, issues }), at);
    }

    /// Tells the owner that another encoder became active.
    fn report_failover(&self, failover: Failover) {
        let (from, to) = (failover.from.as_str(), failover.to.as_str());
        let (reason, at) = (failover.reason.as_str(), self.live.clock.now());
        tracing::info!(from, to, reason, "another encoder took over");
        self.publish_event("stream.failover", at, json!({"from": from, "to": to, "reason": reason}));
        self.notifier.notify(NoticeKind::Failover(FailoverNotice { from, to, reason }), at);
    }

    /// Records the end of the session. If the database is not available, retries go on in the background.
    async fn record_end(&self, ended_at: UnixMillis, reason: EndReason) {
        let (store, clock) = (self.live.store.clone(), self.live.clock.clone());
        let ending = Ending { store, clock, session: self.session.id.clone(), ended_at, reason };
        ending.record_soon(&self.live.runtime).await;
    }
}

/// The tick after one at the monotonic time `now`: after [`TICK`], rounded down to the grid.
fn tick_after(now: Duration) -> Duration {
    Duration::from_millis(millis(now + TICK) / TICK_GRID_MS * TICK_GRID_MS)
}

/// Converts a wait to wall clock time.
fn delayed(wait: Wait, now: Duration, wall_now: UnixMillis) -> Delayed {
    let left = i64::try_from(millis(wait.until.saturating_sub(now))).unwrap_or(i64::MAX);
    let at = UnixMillis(wall_now.0.saturating_add(left));
    match wait.kind {
        Pending::ToStart => Delayed::StartsAt(at),
        Pending::ToStop => Delayed::StopsAt(at),
    }
}

fn issue_notice(issue: Issue) -> IssueNotice {
    IssueNotice { code: issue.code.as_str(), text: issue.text, platforms: issue.platforms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_sessions_meet_on_a_grid_about_a_second_apart() {
        let at = Duration::from_millis;
        for (now, next) in [(0, 1_000), (1, 1_000), (99, 1_000), (100, 1_100), (1_250, 2_200), (2_203, 3_200)]
        {
            assert_eq!(tick_after(at(now)), at(next), "{now}");
        }
    }
}
