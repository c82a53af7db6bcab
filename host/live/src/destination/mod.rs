//! One destination of a session: its shared state; [`run`] opens it, watches it, and reopens it after failures until the session
//! ends.
//!
//! Only this layer retries. Drivers end at their first failure.

mod loss;
pub(super) mod run;
mod source;

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use satcast_plugin_api::driver_state::State as DriverState;
use satcast_plugin_api::{Codec, Error};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::loss::LossMonitor;
#[cfg(test)]
pub(super) use self::loss::WINDOW as LOSS_WINDOW;
#[cfg(test)]
pub(super) use self::source::SETTLE_MAX;
use super::hub::Hub;
use super::notifier::{Notifier, Transition};
use super::queue::Queue;
use super::shown::{DestState, DestinationSnapshot, Waiting};
use super::spool::Shares;
use super::via::Via;
use super::view::{Reported, View};
use satcast_core::clock::Clock;
use satcast_core::feed::Feed;
use satcast_core::ids::{AccountId, DestinationId, SessionId, UnixMillis};
use satcast_core::log_limit::LogLimit;
use satcast_core::troubles::Troubles;
use satcast_drivers::published::Openings;
use satcast_drivers::{Counters, Drivers, Observer, SENT_BYTES_PER_SEC_MAX};
use satcast_store::{DestinationNotice, DestinationRecord, NoticeKind};
use satcast_usage::Usage;

/// Time for a driver to apply a new configuration. After it, the destination is reopened.
const CHANGE_WAIT: Duration = Duration::from_secs(2);

/// Most unread driver events; older ones are dropped.
pub(crate) const EVENTS_MAX: usize = 64;

/// What a session gives to each destination.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) drivers: Drivers,
    pub(crate) clock: Clock,
    /// Time to flush and end.
    pub(crate) stop_deadline: Duration,
    pub(crate) hub: Arc<Hub>,
    pub(crate) source: u64,
    /// The streams that the media has passed through before this one; `mark` is that of this stream.
    pub(crate) via: Arc<Mutex<Via>>,
    pub(crate) mark: String,
    pub(crate) session: SessionId,
    /// Label of the stream.
    pub(crate) label: String,
    /// Time of the session's first media.
    pub(crate) started_at: UnixMillis,
    pub(crate) openings: Arc<Openings>,
    pub(crate) spools: Arc<Shares>,
    pub(crate) troubles: Arc<Troubles<DestinationId, String>>,
    pub(crate) feed: Feed,
    pub(crate) notifier: Notifier,
    /// Owner of the stream.
    pub(crate) account: AccountId,
    pub(crate) usage: Arc<dyn Usage>,
    /// The current encoder sends media.
    pub(crate) flows: watch::Receiver<bool>,
    /// Destinations of the session that get no further backfill.
    pub(crate) had_backfill: Arc<Mutex<HashSet<DestinationId>>>,
}

/// A destination while its session lives.
pub(super) struct Destination {
    id: DestinationId,
    record: Mutex<Arc<DestinationRecord>>,
    /// Takes new configurations while the destination is open.
    changes: Mutex<Option<mpsc::Sender<Change>>>,
    view: Mutex<View>,
    counters: Arc<Counters>,
    dropped: Arc<AtomicU64>,
    /// The queue of its opening, if it has one.
    queue: Mutex<Weak<Queue>>,
    loss: Mutex<LossMonitor>,
    /// It loses too many packets and must be reopened.
    reopen: Notify,
    stop: CancellationToken,
    is_replaced: AtomicBool,
    /// See [`Parts::flows`].
    flows: watch::Receiver<bool>,
    /// The codecs that its service takes, where the last attempt failed because of another one.
    takes: Mutex<Option<Vec<Codec>>>,
    /// Limits log lines about states that its driver reports.
    lines: LogLimit,
    feed: Feed,
    notifier: Notifier,
    troubles: Arc<Troubles<DestinationId, String>>,
    account: AccountId,
    usage: Arc<dyn Usage>,
    clock: Clock,
}

/// A new configuration for the driver. The answer says whether the driver took it.
struct Change {
    config: Value,
    answer: oneshot::Sender<bool>,
}

impl Destination {
    fn new(record: DestinationRecord, parts: &Parts, stop: CancellationToken) -> Self {
        let view = View::new(parts.clock.monotonic(), parts.clock.now());
        Self {
            id: record.id,
            record: Mutex::new(Arc::new(record)),
            changes: Mutex::default(),
            view: Mutex::new(view),
            counters: Arc::default(),
            dropped: Arc::default(),
            queue: Mutex::default(),
            loss: Mutex::default(),
            reopen: Notify::new(),
            is_replaced: AtomicBool::new(false),
            flows: parts.flows.clone(),
            takes: Mutex::default(),
            lines: LogLimit::per_second(1),
            stop,
            feed: parts.feed.clone(),
            notifier: parts.notifier.clone(),
            troubles: parts.troubles.clone(),
            account: parts.account,
            usage: parts.usage.clone(),
            clock: parts.clock.clone(),
        }
    }

    /// What waits in its queue.
    pub(super) fn waiting(&self) -> Waiting {
        let queue = self.queue.lock().upgrade();
        let (packets, bytes) = queue.map_or((0, 0), |queue| queue.depth());
        Waiting { packets, bytes }
    }

    /// The codecs that its service takes, where the last attempt failed because of another one.
    pub(super) fn takes(&self) -> Option<Vec<Codec>> {
        self.takes.lock().clone()
    }

    pub(super) fn record(&self) -> Arc<DestinationRecord> {
        self.record.lock().clone()
    }

    /// Applies `wanted` without reopening the destination. False when more than the configuration differs, or the driver does not take
    /// the new configuration.
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

    /// Another instance replaces this one. Its further states are not published.
    pub(super) fn mark_replaced(&self) {
        self.is_replaced.store(true, Ordering::Relaxed);
    }

    /// Requests the end. Usage ends here.
    pub(super) fn stop(&self) {
        self.stop.cancel();
        let mut view = self.view.lock();
        if view.reported != Reported::Over {
            view.reported = Reported::Over;
            self.usage.leaves(self.id, self.clock.monotonic());
        }
    }

    /// Reports usage according to the shown state. The view is locked, so reports stay in order.
    fn report_usage(&self, view: &mut View, now: Duration) {
        let is_live = view.state == DestState::Live;
        match view.reported {
            Reported::Over => {}
            Reported::Forwards if is_live => {}
            Reported::Nothing if !is_live => {}
            Reported::Claims if view.state == DestState::Connecting => {}
            _ if is_live => {
                view.reported = Reported::Forwards;
                self.usage.forwards(self.id, now);
            }
            _ => {
                view.reported = Reported::Nothing;
                self.usage.pauses(self.id, now);
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

    /// Counters of its driver, without the bytes sent.
    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        self.counters.own()
    }

    fn bytes_sent(&self) -> u64 {
        self.counters.bytes_sent(self.clock.monotonic())
    }

    /// Samples the bytes sent and the packets lost. `offered`: packets of the session so far. Called about once a second.
    pub(super) fn sample_rate(&self, offered: u64, now: Duration, wall_now: UnixMillis) {
        let bytes = self.bytes_sent();
        if let Some(excess) = self.counters.take_excess() {
            let (destination, kind) = (self.id, self.record().kind.clone());
            tracing::warn!(
                %destination, kind, bytes = excess,
                "driver reports more bytes sent than possible; bytes above {SENT_BYTES_PER_SEC_MAX} per second are not counted"
            );
        }
        let mut view = self.view.lock();
        let before = view.state;
        view.sample(bytes, now, self.clock.monotonic(), wall_now);
        let lost = self.dropped.load(Ordering::Relaxed);
        view.sample_lost(lost, now);
        if self.loss.lock().sample(view.state == DestState::Live, offered, lost, now) {
            self.reopen.notify_one();
        }
        if view.state != before {
            self.report_usage(&mut view, now);
        }
        // Nothing can be sent while the encoder is away.
        let is_idle = view.is_stalled && !*self.flows.borrow();
        if (view.state != before && !is_idle) || view.state == DestState::Live {
            self.note_trouble(&view, wall_now);
        }
        self.publish_state(&mut view, now, wall_now, true);
    }

    /// Keeps the reason why it is not live, for later queries.
    fn note_trouble(&self, view: &View, at: UnixMillis) {
        if let Some(error) = &view.error {
            self.troubles.note(self.id, error.clone(), at);
        }
    }

    /// Notifies webhooks of relevant state changes.
    fn notify_webhooks(&self, view: &mut View, at: UnixMillis) {
        let Some(transition) = view.webhook_state.transition(view.state) else { return };
        let notice = DestinationNotice { id: self.id, platform: self.record().platform.clone() };
        let kind = match transition {
            Transition::Connected => NoticeKind::Connected(notice),
            Transition::Failed => NoticeKind::Failed(notice, view.error.clone().unwrap_or_default()),
            Transition::Recovered => NoticeKind::Recovered(notice),
        };
        self.notifier.notify(kind, at);
    }

    /// Sends the state to webhooks and the event feed, if it changed.
    fn publish_state(&self, view: &mut View, now: Duration, at: UnixMillis, urgent: bool) {
        if self.is_replaced.load(Ordering::Relaxed) {
            return;
        }
        self.notify_webhooks(view, at);
        if !view.take_change(now, urgent) {
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

/// Reports of a driver, kept until the task reads them.
#[derive(Default)]
struct Mailbox {
    mail: Mutex<Mail>,
    /// The last reported state, read or not.
    last: Mutex<Option<Report>>,
    arrived: Notify,
}

/// A state, and the reason why it is not live.
type Report = (DriverState, Option<Error>);

#[derive(Default)]
struct Mail {
    state: Option<Report>,
    events: VecDeque<(String, Value)>,
    outcome: Option<Result<(), Error>>,
}

impl Mailbox {
    /// Everything reported since the last call.
    fn take(&self) -> Mail {
        std::mem::take(&mut *self.mail.lock())
    }
}

impl Observer for Mailbox {
    /// A driver may report the same state with each packet. A repeated state does not wake the task.
    fn state(&self, state: DriverState, reason: Option<Error>) {
        let report = (state, reason);
        let mut last = self.last.lock();
        if last.as_ref() == Some(&report) {
            return;
        }
        // Under the lock, so that reports of several threads leave both in the same state.
        self.mail.lock().state = Some(report.clone());
        *last = Some(report);
        drop(last);
        self.arrived.notify_one();
    }

    fn stopped(&self, outcome: Result<(), Error>) {
        // A second end is a fault of the driver. The first one counts.
        self.mail.lock().outcome.get_or_insert(outcome);
        self.arrived.notify_one();
    }

    fn event(&self, name: &str, data: Value) {
        let mut mail = self.mail.lock();
        if mail.events.len() >= EVENTS_MAX {
            mail.events.pop_front();
        }
        mail.events.push_back((name.to_string(), data));
        self.arrived.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_state_is_not_reported_again() {
        let mailbox = Mailbox::default();
        let news = |mailbox: &Mailbox| mailbox.take().state;
        mailbox.state(DriverState::Live, None);
        assert_eq!(news(&mailbox), Some((DriverState::Live, None)));
        mailbox.state(DriverState::Live, None);
        assert_eq!(news(&mailbox), None);
        let why = |text| (DriverState::Connecting, Some(Error::network(text)));
        for text in ["one", "another"] {
            let (state, reason) = why(text);
            mailbox.state(state, reason);
            assert_eq!(news(&mailbox), Some(why(text)));
        }
        mailbox.state(DriverState::Live, None);
        assert_eq!(
            news(&mailbox),
            Some((DriverState::Live, None)),
            "a state after a different one is reported"
        );
    }

    #[test]
    fn the_last_state_the_first_end_and_the_newest_events_are_kept() {
        let mailbox = Mailbox::default();
        mailbox.state(DriverState::Connecting, None);
        mailbox.state(DriverState::Live, None);
        mailbox.stopped(Err(Error::network("first")));
        mailbox.stopped(Ok(()));
        for n in 0..=EVENTS_MAX {
            mailbox.event(&n.to_string(), json!({}));
        }
        let mail = mailbox.take();
        assert_eq!(mail.state, Some((DriverState::Live, None)));
        assert_eq!(mail.outcome, Some(Err(Error::network("first"))));
        assert_eq!((mail.events.len(), mail.events[0].0.as_str()), (EVENTS_MAX, "1"));
        assert!(mailbox.take().outcome.is_none());
    }
}
