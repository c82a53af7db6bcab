//! One session: from the first media of a stream key's encoder to its end, over reconnects of the encoder.
//!
//! An actor: one task owns the session's life; commands reach it through a bounded channel, the encoder's coming and going
//! through shared state and a notification. The media itself does not pass through the task (see `hub`).

mod publisher;
mod run;
mod schedule;
mod timer;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::destination::Destination;
use super::health::{Health, Issue};
use super::hub::Hub;
use super::via::Via;
use super::view::DestinationSnapshot;
use super::{Closed, Inner, codes};
use crate::usage::Usage;
pub use publisher::Publisher;
use run::Run;
use satcast_core::clock::Clock;
use satcast_core::ids::{DestinationId, EndReason, SessionId, StreamId, UnixMillis};
use satcast_store::{StreamLimits, StreamRecord};

/// Commands waiting for one session.
pub(super) const COMMANDS_QUEUED_MAX: usize = 64;
/// An encoder that has sent nothing for this long gives way to a newer one.
pub(super) const TAKE_OVER_AFTER: Duration = Duration::from_secs(2);
/// Media of an encoder for longer than this after another one came is not what was still on its way, in a socket that is read once a
/// second at the least: it is there.
pub(super) const ON_ITS_WAY: Duration = Duration::from_millis(1_250);
/// How often it is looked whether it has gone.
const REST_POLL: Duration = Duration::from_millis(20);

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

/// A session and the stream it belongs to.
#[derive(Clone, Debug)]
pub struct LiveSession {
    /// The stream.
    pub stream: StreamId,
    /// The session.
    pub session: SessionSnapshot,
}

/// A destination of a live session and the stream it belongs to.
#[derive(Clone, Debug)]
pub struct LiveDestination {
    /// The stream.
    pub stream: StreamId,
    /// Its number.
    pub id: DestinationId,
    /// Its type.
    pub kind: String,
    /// How it stands.
    pub shown: DestinationSnapshot,
    /// What its driver counts in the session that runs, by name.
    pub counters: Vec<(String, u64)>,
}

/// What a destination with a delay waits for, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delayed {
    /// It is enabled and starts then.
    StartsAt(UnixMillis),
    /// It is disabled and goes on until then.
    StopsAt(UnixMillis),
}

/// Why a session lets no encoder in.
pub(super) enum Refusal {
    /// Another one is publishing.
    Busy,
    /// It is ending.
    Closing,
}

pub(super) enum Command {
    Stop { reason: EndReason, done: oneshot::Sender<()> },
    Reload { done: oneshot::Sender<()> },
    Limits { limits: StreamLimits, done: oneshot::Sender<()> },
}

/// The part of a session that others see.
pub(super) struct Session {
    pub(super) id: SessionId,
    pub(super) stream: StreamRecord,
    hub: Arc<Hub>,
    /// Which streams the present encoder's media has come through.
    via: Arc<Mutex<Via>>,
    number: u64,
    shared: Mutex<Shared>,
    changed: Notify,
    commands: mpsc::Sender<Command>,
    /// Monotonic time of the last packets in milliseconds.
    last_media_ms: AtomicU64,
    has_media: AtomicBool,
    /// Media of the present encoder has come.
    flows: watch::Sender<bool>,
    /// Whom the session tells what it uses, once it has begun.
    usage: OnceLock<Arc<dyn Usage>>,
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
    /// What is wrong with the stream.
    issues: Vec<Issue>,
    /// Destinations that wait for their delay.
    delayed: BTreeMap<DestinationId, Delayed>,
}

struct Encoder {
    number: u64,
    /// From where it publishes, where that is known.
    address: Option<IpAddr>,
    close: watch::Sender<Option<Closed>>,
}

impl Session {
    /// Makes a session that waits for its first media; `run` must be spawned.
    pub(super) fn new(stream: StreamRecord, number: u64, live: Arc<Inner>) -> (Arc<Self>, Run) {
        let (commands, queue) = mpsc::channel(COMMANDS_QUEUED_MAX);
        let session = Arc::new(Self {
            id: satcast_core::secret::new_session_id(),
            stream,
            hub: Arc::new(Hub::new(number)),
            via: Arc::default(),
            number,
            shared: Mutex::default(),
            changed: Notify::new(),
            commands,
            last_media_ms: AtomicU64::new(millis(live.clock.monotonic())),
            has_media: AtomicBool::new(false),
            flows: watch::Sender::new(false),
            usage: OnceLock::new(),
        });
        let run = Run::new(session.clone(), live, queue);
        (session, run)
    }

    /// Resolves when the session is out of the registry.
    pub(super) async fn gone(&self) {
        self.commands.closed().await;
    }

    /// Whether the encoder that is there has gone or is silent for [`TAKE_OVER_AFTER`] before `until`; answers sooner when it
    /// goes on sending.
    pub(super) async fn encoder_rests(&self, clock: &Clock, until: Duration) -> bool {
        let came = millis(clock.monotonic());
        while clock.monotonic() < until {
            tokio::time::sleep(REST_POLL).await;
            let last = self.last_media_ms.load(Ordering::Acquire);
            if self.shared.lock().encoder.is_none()
                || millis(clock.monotonic()).saturating_sub(last) >= millis(TAKE_OVER_AFTER)
            {
                return true;
            }
            if last.saturating_sub(came) > millis(ON_ITS_WAY) {
                break;
            }
        }
        false
    }

    /// Lets an encoder in: the first one, one that returns, or a newer one in place of a silent one.
    pub(super) fn let_in(
        self: &Arc<Self>,
        live: &Arc<Inner>,
        via: &Via,
        address: Option<IpAddr>,
    ) -> Result<Publisher, Refusal> {
        let now = live.clock.monotonic();
        let mut shared = self.shared.lock();
        if shared.closing {
            return Err(Refusal::Closing);
        }
        if let Some(encoder) = &shared.encoder {
            let silent =
                now.saturating_sub(Duration::from_millis(self.last_media_ms.load(Ordering::Acquire)));
            if silent < TAKE_OVER_AFTER {
                return Err(Refusal::Busy);
            }
            encoder
                .close
                .send_replace(Some(Closed { code: codes::BAD_NAME, reason: codes::TOOK_OVER.into() }));
        }
        *self.via.lock() = via.clone();
        shared.encoders += 1;
        let number = shared.encoders;
        let (close, closed) = watch::channel(None);
        shared.encoder = Some(Encoder { number, address, close });
        shared.gone_since = None;
        self.last_media_ms.store(millis(now), Ordering::Release);
        self.set_flow(false, now);
        drop(shared);
        self.hub.new_encoder();
        self.changed.notify_one();
        Ok(Publisher::new(self.clone(), live.clone(), number, closed))
    }

    /// It never had media and takes no encoder any more: a new one may stand in its place.
    pub(super) fn is_void(&self) -> bool {
        let shared = self.shared.lock();
        shared.closing && shared.state.is_none()
    }

    pub(super) fn snapshot(&self) -> Option<SessionSnapshot> {
        let shared = self.shared.lock();
        Some(SessionSnapshot {
            session_id: self.id.clone(),
            started_at: shared.started_at?,
            state: shared.state?,
        })
    }

    /// How good the stream is at the monotonic time `now`; `None` unless its encoder is there.
    pub(super) fn health(&self, now: Duration) -> Option<Health> {
        let issues = {
            let shared = self.shared.lock();
            (shared.state == Some(SessionState::Live)).then(|| shared.issues.clone())?
        };
        Some(Health { figures: self.hub.figures(now), issues })
    }

    pub(super) fn destination(&self, id: DestinationId) -> Option<DestinationSnapshot> {
        let destination = self.shared.lock().destinations.get(&id).cloned();
        destination.map(|destination| destination.snapshot())
    }

    pub(super) fn destinations(&self) -> Vec<LiveDestination> {
        let destinations: Vec<_> = self.shared.lock().destinations.clone().into_iter().collect();
        let seen = destinations.into_iter().map(|(id, destination)| LiveDestination {
            stream: self.stream.id,
            id,
            kind: destination.record().kind.clone(),
            shown: destination.snapshot(),
            counters: destination.counters(),
        });
        seen.collect()
    }

    /// What a destination waits for.
    pub(super) fn delayed(&self, id: DestinationId) -> Option<Delayed> {
        self.shared.lock().delayed.get(&id).copied()
    }

    /// Sends a command and waits for it; false when the session has ended meanwhile.
    pub(super) async fn command(&self, make: impl FnOnce(oneshot::Sender<()>) -> Command) -> bool {
        let (done, waiting) = oneshot::channel();
        self.commands.send(make(done)).await.is_ok() && waiting.await.is_ok()
    }

    /// Media of the encoder comes from `at` on, or no longer does.
    fn set_flow(&self, flows: bool, at: Duration) {
        self.flows.send_replace(flows);
        if let Some(usage) = self.usage.get() {
            usage.flows(flows, at);
        }
    }

    /// Sends the encoder away if its address is such; whether it was.
    pub(super) fn close_encoder_if(&self, closed: Closed, is_such: impl FnOnce(IpAddr) -> bool) -> bool {
        let mut shared = self.shared.lock();
        let address = shared.encoder.as_ref().and_then(|encoder| encoder.address);
        let Some(encoder) = address.filter(|address| is_such(*address)).and_then(|_| shared.encoder.take())
        else {
            return false;
        };
        encoder.close.send_replace(Some(closed));
        true
    }

    fn close_encoder(&self, closed: Closed) {
        if let Some(encoder) = self.shared.lock().encoder.take() {
            encoder.close.send_replace(Some(closed));
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
impl Session {
    /// The moment between giving up and leaving the registry, which is too short to be met by chance.
    pub(super) fn give_up(&self) {
        self.shared.lock().closing = true;
    }
}
