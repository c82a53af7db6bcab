//! The task of a session: its life from the first media to the recorded end.

mod destinations;
mod ending;
mod health;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::schedule::Schedule;
use super::timer::Timer;
use super::{Command, Session, SessionState, millis};
use crate::health::{Watch, Wish};
use crate::teller::Teller;
use crate::usage::{Beginning, Orders, Unmetered, Usage};
use crate::{Closed, Inner, codes};
use satcast_core::ids::{DestinationId, EndReason, UnixMillis};
use satcast_store::{Happening, Limit, NewSession, StreamLimits, Terms};

/// Longest wait until what a session used is settled; what is left then is settled without it.
const SETTLE_WAIT: Duration = Duration::from_secs(3);
/// Longest wait of a session that begins until what was used before it is settled; what is left then may count as its own.
const PAST_WAIT: Duration = Duration::from_millis(500);
/// How often bit rates are sampled.
const TICK: Duration = Duration::from_secs(1);

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
