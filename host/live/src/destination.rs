//! One destination of a session: opened, watched, opened again after failures until the session ends.
//!
//! Exactly this layer owns the retry; drivers end at their first failure.

mod codecs;
mod losing;
mod run;
mod source;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::losing::Losing;
#[cfg(test)]
pub(super) use self::losing::WINDOW as LOSING_WINDOW;
use self::run::Run;
#[cfg(test)]
pub(super) use self::run::{LOSING_TEXT, NO_MEDIA_TEXT};
#[cfg(test)]
pub(super) use self::{run::EVENT_SHOWN_BYTES_MAX, source::SETTLE_MAX};
use super::hub::Hub;
use super::spool::Shares;
use super::teller::{Teller, Turn};
use super::via::Via;
use super::view::{DestState, DestinationSnapshot, Told, View};
use crate::usage::Usage;
use satcast_core::clock::Clock;
use satcast_core::feed::Feed;
use satcast_core::ids::{AccountId, DestinationId, SessionId, UnixMillis};
use satcast_core::log_limit::LogLimit;
use satcast_core::troubles::Troubles;
use satcast_drivers::published::Openings;
use satcast_drivers::{Counters, Drivers, SENT_BYTES_PER_SEC_MAX};
use satcast_store::{DestinationRecord, Happening, ToldDestination};

/// How long a driver may take over a new configuration before its destination is opened again.
const CHANGE_WAIT: Duration = Duration::from_secs(2);
/// New configurations that wait for one destination.
const CHANGES_MAX: usize = 1;

/// What a destination needs of its session.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) drivers: Drivers,
    pub(super) clock: Clock,
    /// What it is given to flush and end.
    pub(super) stop_deadline: Duration,
    pub(super) hub: Arc<Hub>,
    pub(super) source: u64,
    /// Which streams the media has come through before this one, and the mark of this one.
    pub(super) via: Arc<Mutex<Via>>,
    pub(super) mark: String,
    pub(super) session: SessionId,
    /// Of the stream.
    pub(super) label: String,
    /// Time of the session's first media.
    pub(super) started_at: UnixMillis,
    pub(super) openings: Arc<Openings>,
    pub(super) spools: Arc<Shares>,
    pub(super) troubles: Arc<Troubles<DestinationId, String>>,
    pub(super) feed: Feed,
    pub(super) teller: Teller,
    /// Whose the stream is.
    pub(super) account: AccountId,
    pub(super) usage: Arc<dyn Usage>,
    /// Media of the present encoder comes.
    pub(super) flows: watch::Receiver<bool>,
    /// Destinations of the session that get no backfill any more.
    pub(super) had_backfill: Arc<Mutex<HashSet<DestinationId>>>,
}

/// A destination while its session lives.
pub(super) struct Destination {
    id: DestinationId,
    record: Mutex<Arc<DestinationRecord>>,
    /// Where a new configuration goes while the destination is open.
    changes: Mutex<Option<mpsc::Sender<Change>>>,
    view: Mutex<View>,
    counters: Arc<Counters>,
    dropped: Arc<AtomicU64>,
    losing: Mutex<Losing>,
    /// It loses too much, and is to be opened anew.
    gives_up: Notify,
    stop: CancellationToken,
    has_given_way: AtomicBool,
    /// See [`Parts::flows`].
    flows: watch::Receiver<bool>,
    /// Lines about states that its driver reports.
    lines: LogLimit,
    feed: Feed,
    teller: Teller,
    troubles: Arc<Troubles<DestinationId, String>>,
    account: AccountId,
    usage: Arc<dyn Usage>,
    clock: Clock,
}

/// A new configuration on its way to the driver, and where the answer goes: whether the driver took it.
struct Change {
    config: Value,
    answer: oneshot::Sender<bool>,
}

impl Destination {
    /// Starts it; the task ends some time after [`Destination::stop`].
    pub(super) fn start(record: DestinationRecord, parts: Parts) -> (Arc<Self>, tokio::task::JoinHandle<()>) {
        let stop = CancellationToken::new();
        let view = View::new(parts.clock.monotonic(), parts.clock.now());
        let destination = Arc::new(Self {
            id: record.id,
            record: Mutex::new(Arc::new(record)),
            changes: Mutex::default(),
            view: Mutex::new(view),
            counters: Arc::default(),
            dropped: Arc::default(),
            losing: Mutex::default(),
            gives_up: Notify::new(),
            has_given_way: AtomicBool::new(false),
            flows: parts.flows.clone(),
            lines: LogLimit::per_second(1),
            stop: stop.clone(),
            feed: parts.feed.clone(),
            teller: parts.teller.clone(),
            troubles: parts.troubles.clone(),
            account: parts.account,
            usage: parts.usage.clone(),
            clock: parts.clock.clone(),
        });
        let orders = parts.usage.orders();
        let codecs = parts.hub.codecs();
        let (failures, panics) = (0, 0);
        let given = [None, None];
        let run = Run {
            destination: destination.clone(),
            parts,
            stopping: stop,
            orders,
            failures,
            panics,
            codecs,
            given,
        };
        (destination, tokio::spawn(run.run()))
    }

    pub(super) fn record(&self) -> Arc<DestinationRecord> {
        self.record.lock().clone()
    }

    /// Makes a running destination that of `wanted` without opening it again, when only its configuration differs and its driver
    /// takes the new one.
    pub(super) async fn reconfigure(&self, wanted: &DestinationRecord) -> bool {
        let now = self.record();
        let same = DestinationRecord {
            config: now.config.clone(),
            platform: now.platform.clone(),
            ..wanted.clone()
        };
        let Some(changes) = self.changes.lock().clone().filter(|_| same == *now) else { return false };
        let (answer, taken) = oneshot::channel();
        if changes.try_send(Change { config: wanted.config.clone(), answer }).is_err() {
            return false;
        }
        let taken = tokio::time::timeout(CHANGE_WAIT, taken).await.is_ok_and(|taken| taken == Ok(true));
        if taken {
            *self.record.lock() = Arc::new(wanted.clone());
        }
        taken
    }

    /// Another takes its place: what becomes of this one is told to nobody who watches any more.
    pub(super) fn give_way(&self) {
        self.has_given_way.store(true, Ordering::Relaxed);
    }

    /// Asks for the end. What it does until then is no use any more.
    pub(super) fn stop(&self) {
        self.stop.cancel();
        let mut view = self.view.lock();
        if view.told != Told::Over {
            view.told = Told::Over;
            self.usage.leaves(self.id, self.clock.monotonic());
        }
    }

    /// Tells what the shown state means for its use. Under the view's lock, so that nobody tells a state that is over.
    fn tell_usage(&self, view: &mut View, now: Duration) {
        let is_live = view.state == DestState::Live;
        match view.told {
            Told::Over => {}
            Told::Forwards if is_live => {}
            Told::Nothing if !is_live => {}
            Told::Claims if view.state == DestState::Connecting => {}
            _ if is_live => {
                view.told = Told::Forwards;
                self.usage.forwards(self.id, now);
            }
            _ => {
                view.told = Told::Nothing;
                self.usage.rests(self.id, now);
            }
        }
    }

    pub(super) fn snapshot(&self) -> DestinationSnapshot {
        let view = self.view.lock();
        DestinationSnapshot {
            state: view.state,
            error: view.error.clone(),
            attempt: view.attempt,
            next_retry_at: view.next_retry_at,
            bytes_sent: self.bytes_sent(),
            bitrate: view.bits_per_sec(),
            dropped_packets: self.dropped.load(Ordering::Relaxed),
            live_since: view.live_since,
            state_since: Some(view.state_since),
            server: view.server.clone(),
        }
    }

    /// What its driver counts beside the bytes sent.
    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        self.counters.own()
    }

    fn bytes_sent(&self) -> u64 {
        self.counters.bytes_sent(self.clock.monotonic())
    }

    /// Looks at the bytes sent, and at what was lost of the `offered` packets of the session; called about once a second.
    pub(super) fn sample_rate(&self, offered: u64, now: Duration, wall_now: UnixMillis) {
        let bytes = self.bytes_sent();
        if let Some(excess) = self.counters.take_excess() {
            let (destination, kind) = (self.id, self.record().kind.clone());
            tracing::warn!(
                %destination, kind, bytes = excess,
                "driver counts more bytes sent than can be; what is beyond {SENT_BYTES_PER_SEC_MAX} a second is left out, now and later"
            );
        }
        let mut view = self.view.lock();
        let before = view.state;
        view.sample(bytes, now, wall_now);
        let lost = self.dropped.load(Ordering::Relaxed);
        view.sample_lost(lost, now);
        if self.losing.lock().sample(view.state == DestState::Live, offered, lost, now) {
            self.gives_up.notify_one();
        }
        if view.state != before {
            self.tell_usage(&mut view, now);
        }
        // Nothing can be sent while the encoder is away.
        let is_idle = view.is_quieted && !*self.flows.borrow();
        if (view.state != before && !is_idle) || view.state == DestState::Live {
            self.note_trouble(&view, wall_now);
        }
        self.tell_watchers(&mut view, now, wall_now, true);
    }

    /// Keeps why it is not live, for whoever looks later.
    fn note_trouble(&self, view: &View, at: UnixMillis) {
        if let Some(error) = &view.error {
            self.troubles.note(self.id, error.clone(), at);
        }
    }

    /// Tells webhooks of what really changed.
    fn tell_webhooks(&self, view: &mut View, at: UnixMillis) {
        let Some(turn) = view.known.turn(view.state) else { return };
        let told = ToldDestination { id: self.id, platform: self.record().platform.clone() };
        let what = match turn {
            Turn::Connected => Happening::Connected(told),
            Turn::Failed => Happening::Failed(told, view.error.clone().unwrap_or_default()),
            Turn::Recovered => Happening::Recovered(told),
        };
        self.teller.tell(what, at);
    }

    /// Tells webhooks and those who watch the account, unless they know.
    fn tell_watchers(&self, view: &mut View, now: Duration, at: UnixMillis, urgent: bool) {
        if self.has_given_way.load(Ordering::Relaxed) {
            return;
        }
        self.tell_webhooks(view, at);
        if !view.take_news(now, urgent) {
            return;
        }
        let data = json!({
            "streamId": self.record().stream_id.0,
            "destinationId": self.id.0,
            "state": view.state.as_str(),
            "error": view.error,
            "attempt": view.attempt,
            "nextRetryAt": view.next_retry_at.map(|at| at.0),
            "liveSince": view.live_since.map(|since| since.0),
            "stateSince": view.state_since.0,
        });
        self.feed.send(self.account, "destination.state", at, data);
    }
}

/// What is said of packets that a destination must not lose and did not take in time.
pub(super) fn lost_text(lost: u64) -> String {
    let wait = source::SETTLE_MAX.as_secs();
    format!("{lost} packets were lost at the end: the destination did not take them within {wait} s")
}
