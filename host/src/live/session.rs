//! One session: from the first media of a stream key's encoder to its end, over reconnects of the encoder.
//!
//! An actor: one task owns the session's life; commands reach it through a bounded channel, the encoder's coming and going
//! through shared state and a notification. The media itself does not pass through the task (see `hub`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use satcast_media::packet::{Packet, Role};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::destination::{Destination, DestinationSnapshot, Parts};
use super::hub::Hub;
use super::{Closed, Inner, PublishRefused, codes};
use crate::ids::{DestinationId, EndReason, SessionId, UnixMillis};
use crate::store::{DestinationRecord, NewSession, StreamRecord};

/// Commands waiting for one session.
pub(super) const COMMANDS_QUEUED_MAX: usize = 64;
/// An encoder that has sent nothing for this long gives way to a newer one.
pub(super) const TAKE_OVER_AFTER: Duration = Duration::from_secs(2);
/// Tries to write the end of a session to the database.
pub(super) const END_TRIES_MAX: u32 = 5;
/// Wait between them.
const END_RETRY_WAIT: Duration = Duration::from_millis(200);
/// How often bit rates are sampled.
const TICK: Duration = Duration::from_secs(1);

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Media comes in.
    Live,
    /// The encoder left less than the reconnect window ago.
    Reconnecting,
    /// The session is ending.
    Stopping,
}

/// A session as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSnapshot {
    /// Its id.
    pub session_id: SessionId,
    /// Time of the first media.
    pub started_at: UnixMillis,
    /// Its state.
    pub state: SessionState,
}

pub(super) enum Command {
    Stop { reason: EndReason, done: oneshot::Sender<()> },
    Reload { done: oneshot::Sender<()> },
}

/// The part of a session that others see.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) stream: StreamRecord,
    hub: Arc<Hub>,
    number: u64,
    shared: Mutex<Shared>,
    changed: Notify,
    commands: mpsc::Sender<Command>,
    /// Monotonic time of the last packets in milliseconds.
    last_media_ms: AtomicU64,
    has_media: AtomicBool,
}

#[derive(Default)]
struct Shared {
    started_at: Option<UnixMillis>,
    /// `None` until the first media.
    state: Option<SessionState>,
    encoder: Option<Encoder>,
    encoders: u64,
    gone_since: Option<Duration>,
    /// No encoder is let in any more.
    closing: bool,
    destinations: BTreeMap<DestinationId, Arc<Destination>>,
}

struct Encoder {
    number: u64,
    close: watch::Sender<Option<Closed>>,
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a session that waits for its first media; `run` must be spawned.
    pub(super) fn new(stream: StreamRecord, number: u64, live: Arc<Inner>) -> (Arc<Self>, Run) {
        let (commands, queue) = mpsc::channel(COMMANDS_QUEUED_MAX);
        let session = Arc::new(Self {
            id: crate::secret::new_session_id(),
            stream,
            hub: Arc::new(Hub::new(number)),
            number,
            shared: Mutex::default(),
            changed: Notify::new(),
            commands,
            last_media_ms: AtomicU64::new(millis(live.clock.monotonic())),
            has_media: AtomicBool::new(false),
        });
        let run = Run { session: session.clone(), live, queue, tasks: BTreeMap::new() };
        (session, run)
    }

    /// Lets an encoder in: the first one, one that returns, or a newer one in place of a silent one.
    pub(super) fn let_in(self: &Arc<Self>, live: &Arc<Inner>) -> Result<Publisher, PublishRefused> {
        let now = live.clock.monotonic();
        let mut shared = self.lock();
        if shared.closing {
            return Err(PublishRefused::new(
                codes::DENIED,
                "the stream is just being stopped; try again in a moment",
            ));
        }
        if let Some(encoder) = &shared.encoder {
            let silent =
                now.saturating_sub(Duration::from_millis(self.last_media_ms.load(Ordering::Acquire)));
            if silent < TAKE_OVER_AFTER {
                return Err(PublishRefused::new(
                    codes::BAD_NAME,
                    "this stream key is already publishing; stop the other encoder first",
                ));
            }
            encoder.close.send_replace(Some(Closed {
                code: codes::BAD_NAME,
                reason: "another encoder took over this stream key".into(),
            }));
        }
        shared.encoders += 1;
        let number = shared.encoders;
        let (close, closed) = watch::channel(None);
        shared.encoder = Some(Encoder { number, close });
        shared.gone_since = None;
        self.last_media_ms.store(millis(now), Ordering::Release);
        drop(shared);
        self.hub.new_encoder();
        self.changed.notify_one();
        Ok(Publisher { session: self.clone(), live: live.clone(), number, closed, has_sent: false })
    }

    /// It never had media and takes no encoder any more: a new one may stand in its place.
    pub(super) fn is_void(&self) -> bool {
        let shared = self.lock();
        shared.closing && shared.state.is_none()
    }

    pub(super) fn snapshot(&self) -> Option<SessionSnapshot> {
        let shared = self.lock();
        Some(SessionSnapshot {
            session_id: self.id.clone(),
            started_at: shared.started_at?,
            state: shared.state?,
        })
    }

    pub(super) fn destination(&self, id: DestinationId) -> Option<DestinationSnapshot> {
        let destination = self.lock().destinations.get(&id).cloned();
        destination.map(|destination| destination.snapshot())
    }

    /// Sends a command and waits for it; false when the session has ended meanwhile.
    pub(super) async fn command(&self, make: impl FnOnce(oneshot::Sender<()>) -> Command) -> bool {
        let (done, waiting) = oneshot::channel();
        self.commands.send(make(done)).await.is_ok() && waiting.await.is_ok()
    }

    fn close_encoder(&self, closed: Closed) {
        if let Some(encoder) = self.lock().encoder.take() {
            encoder.close.send_replace(Some(closed));
        }
    }
}

/// The encoder's end of a session. Dropping it means that the encoder has gone.
pub struct Publisher {
    session: Arc<Session>,
    live: Arc<Inner>,
    number: u64,
    closed: watch::Receiver<Option<Closed>>,
    has_sent: bool,
}

impl Publisher {
    /// The session it feeds.
    pub fn session_id(&self) -> &SessionId {
        &self.session.id
    }

    /// Takes all packets out of the vector, in order. Never waits. Packets of an encoder that was sent away are dropped.
    pub fn push(&mut self, packets: &mut Vec<Packet>) {
        if self.closed.borrow().is_some() {
            packets.clear();
            return;
        }
        let now = self.live.clock.monotonic();
        let has_media = self.has_sent || packets.iter().any(|packet| packet.role == Role::Data);
        self.session.hub.publish(packets.drain(..), now);
        self.session.last_media_ms.store(millis(now), Ordering::Release);
        if has_media && !self.has_sent {
            self.has_sent = true;
            self.session.has_media.store(true, Ordering::Release);
            self.session.changed.notify_one();
        }
    }

    /// Resolves when the encoder has to leave.
    pub async fn closed(&self) -> Closed {
        let mut closed = self.closed.clone();
        match closed.wait_for(Option::is_some).await.map(|closed| closed.clone()) {
            Ok(Some(closed)) => closed,
            // The sender is dropped only with a close notice or the session.
            _ => Closed { code: codes::ENDED, reason: "the session has ended".into() },
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let mut shared = self.session.lock();
        if shared.encoder.as_ref().is_some_and(|encoder| encoder.number == self.number) {
            shared.encoder = None;
            shared.gone_since = Some(self.live.clock.monotonic());
            drop(shared);
            self.session.changed.notify_one();
        }
    }
}

/// The task of a session.
pub(super) struct Run {
    session: Arc<Session>,
    live: Arc<Inner>,
    queue: mpsc::Receiver<Command>,
    tasks: BTreeMap<DestinationId, JoinHandle<()>>,
}

struct End {
    reason: EndReason,
    done: Option<oneshot::Sender<()>>,
}

impl Run {
    pub(super) async fn run(mut self) {
        let end = match self.wait_for_media().await {
            Some(end) => end,
            None => {
                self.begin().await;
                self.follow().await
            }
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
                let mut shared = self.session.lock();
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
                    None => return Some(End { reason: EndReason::Error, done: None }),
                },
            }
        }
    }

    async fn begin(&mut self) {
        let started_at = self.live.clock.now();
        let new = NewSession { id: self.session.id.clone(), stream_id: self.session.stream.id, started_at };
        let begun = self.live.store.begin_session(new).await;
        if let Err(error) = begun {
            tracing::error!(session = %self.session.id, %error, "session cannot be recorded, refused");
            self.session.close_encoder(Closed {
                code: codes::FAILED,
                reason: "the service cannot record the session; try again in a moment".into(),
            });
            return;
        }
        {
            let mut shared = self.session.lock();
            shared.started_at = Some(started_at);
            shared.state = Some(SessionState::Live);
        }
        tracing::info!(session = %self.session.id, stream = %self.session.stream.id, label = %self.session.stream.label, "session started");
        self.reload().await;
    }

    /// The life of a running session, until something ends it.
    async fn follow(&mut self) -> End {
        if self.session.snapshot().is_none() {
            return End { reason: EndReason::Error, done: None };
        }
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let left = match self.reconnect_time_left() {
                Some(left) if left.is_zero() => return End { reason: EndReason::Unpublished, done: None },
                left => left,
            };
            tokio::select! {
                () = self.session.changed.notified() => {}
                () = tokio::time::sleep(left.unwrap_or(Duration::MAX)), if left.is_some() => {}
                _ = tick.tick() => self.sample_rates(),
                command = self.queue.recv() => match command {
                    Some(Command::Stop { reason, done }) => return End { reason, done: Some(done) },
                    Some(Command::Reload { done }) => {
                        self.reload().await;
                        // Nobody waits when the caller has gone.
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
        let mut shared = self.session.lock();
        let left =
            shared.gone_since.map(|since| (since + self.live.settings.reconnect_window).saturating_sub(now));
        shared.closing = left.is_some_and(|left| left.is_zero());
        let state = if left.is_some() { SessionState::Reconnecting } else { SessionState::Live };
        if shared.state != Some(state) {
            shared.state = Some(state);
            let session = &self.session.id;
            match left {
                Some(left) => {
                    tracing::info!(%session, window_ms = left.as_millis() as u64, "encoder has gone, waiting for its return")
                }
                None => tracing::info!(%session, "encoder is back"),
            }
        }
        left
    }

    fn sample_rates(&self) {
        let now = self.live.clock.monotonic();
        let destinations: Vec<_> = self.session.lock().destinations.values().cloned().collect();
        destinations.iter().for_each(|destination| destination.sample_rate(now));
    }

    /// Starts, stops and restarts destinations so that they are those of the database.
    async fn reload(&mut self) {
        let wanted = match self.live.store.destinations_of(self.session.stream.id).await {
            Ok(wanted) => wanted,
            Err(error) => {
                tracing::error!(session = %self.session.id, %error, "destinations cannot be read, left as they are");
                return;
            }
        };
        let wanted: BTreeMap<DestinationId, DestinationRecord> = wanted
            .into_iter()
            .filter(|destination| destination.enabled)
            .map(|destination| (destination.id, destination))
            .collect();
        let running: Vec<_> = self.session.lock().destinations.values().cloned().collect();
        for destination in running {
            let record = destination.record();
            let same = wanted.get(&record.id).is_some_and(|wanted| wanted == record);
            if !same {
                self.stop_destination(record.id);
            }
        }
        for (id, record) in wanted {
            if !self.session.lock().destinations.contains_key(&id) {
                self.start_destination(record);
            }
        }
    }

    fn start_destination(&mut self, record: DestinationRecord) {
        let id = record.id;
        let parts = Parts {
            drivers: self.live.drivers.clone(),
            clock: self.live.clock.clone(),
            hub: self.session.hub.clone(),
            source: self.session.number,
            session: self.session.id.clone(),
        };
        let (destination, task) = Destination::start(record, parts);
        self.session.lock().destinations.insert(id, destination);
        self.tasks.insert(id, task);
    }

    // Its task flushes and ends by itself within the stop deadline; the others are not held up by it.
    fn stop_destination(&mut self, id: DestinationId) {
        if let Some(destination) = self.session.lock().destinations.remove(&id) {
            destination.stop();
        }
        self.tasks.remove(&id);
    }

    async fn finish(mut self, end: End) {
        let ended_at = self.end_time(end.reason);
        let started = {
            let mut shared = self.session.lock();
            shared.closing = true;
            let started = shared.state.is_some();
            shared.state = started.then_some(SessionState::Stopping);
            started
        };
        self.session
            .close_encoder(Closed { code: codes::ENDED, reason: codes::reason_text(end.reason).into() });
        let destinations: Vec<_> = self.session.lock().destinations.values().cloned().collect();
        destinations.iter().for_each(|destination| destination.stop());
        for (_, task) in std::mem::take(&mut self.tasks) {
            // A destination's task ends within its deadline; a panic in it must not keep the session from ending.
            let _ = task.await;
        }
        if started {
            self.record_end(ended_at, end.reason).await;
            tracing::info!(session = %self.session.id, stream = %self.session.stream.id, reason = %end.reason, "session ended");
        }
        self.live.forget(&self.session, end.reason);
        // Late commands learn that there is no session any more by their dropped answer.
        self.queue.close();
        if let Some(done) = end.done {
            // Nobody waits when the caller has gone.
            let _ = done.send(());
        }
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

    async fn record_end(&self, ended_at: UnixMillis, reason: EndReason) {
        for attempt in 1..=END_TRIES_MAX {
            match self.live.store.end_session(&self.session.id, ended_at, reason).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(session = %self.session.id, attempt, %error, "end of session cannot be recorded");
                    tokio::time::sleep(END_RETRY_WAIT).await;
                }
            }
        }
        // The next start finds it without an end and closes it as interrupted.
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl Session {
    /// The moment between giving up and leaving the registry, which is too short to be met by chance.
    pub(super) fn give_up(&self) {
        self.lock().closing = true;
    }
}
