//! One destination of a session: opens it, watches it, and reopens it after failures until the session ends.
//!
//! Only this layer retries. Drivers end at their first failure.

mod codecs;
mod loss;
mod parts;
mod reporting;
mod source;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use satcast_plugin_api::driver_state::State as DriverState;
use satcast_plugin_api::recording::About;
use satcast_plugin_api::{Class, Error};
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::codecs::another_codec;
use self::loss::LossMonitor;
#[cfg(test)]
pub(super) use self::loss::WINDOW as LOSS_WINDOW;
pub(super) use self::parts::Parts;
#[cfg(test)]
pub(super) use self::reporting::{EVENT_SHOWN_BYTES_MAX, lost_text};
#[cfg(test)]
pub(super) use self::source::SETTLE_MAX;
use self::source::{Hoarding, Source};
use super::backoff::{self, Next};
use super::hub::Codecs;
use super::mailbox::Mailbox;
use super::notifier::Notifier;
use super::queue::LEASED_BYTES_MAX;
use super::shown::{DestState, DestinationSnapshot};
use super::view::{Reported, View};
use satcast_core::clock::Clock;
use satcast_core::feed::Feed;
use satcast_core::ids::{AccountId, DestinationId, UnixMillis};
use satcast_core::log_limit::LogLimit;
use satcast_core::secret;
use satcast_core::troubles::Troubles;
use satcast_drivers::published::Opening;
use satcast_drivers::{Counters, OpenDestination, OpenRequest, SENT_BYTES_PER_SEC_MAX};
use satcast_store::DestinationRecord;
use satcast_usage::{Held, Orders, Usage};

/// Time for a driver to apply a new configuration. After it, the destination is reopened.
const CHANGE_WAIT: Duration = Duration::from_secs(2);
/// Most new configurations that wait for one destination.
const CHANGES_MAX: usize = 1;
/// Wait beyond the stop deadline for a driver that does not answer.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// Shown while a destination waits for the encoder.
pub(crate) const NO_MEDIA_TEXT: &str =
    "no media from the encoder; the destination connects when the encoder sends again";
/// Error of a destination that is reopened because it does not keep up.
pub(crate) const SLOW_REOPEN_TEXT: &str = "the destination took less than 80% of the stream for too long, so it reconnects; lower the bit rate or \
    check the network path to the destination";

/// A destination while its session lives.
pub(super) struct Destination {
    id: DestinationId,
    record: Mutex<Arc<DestinationRecord>>,
    /// Takes new configurations while the destination is open.
    changes: Mutex<Option<mpsc::Sender<Change>>>,
    view: Mutex<View>,
    counters: Arc<Counters>,
    dropped: Arc<AtomicU64>,
    loss: Mutex<LossMonitor>,
    /// It loses too many packets and must be reopened.
    reopen: Notify,
    stop: CancellationToken,
    is_replaced: AtomicBool,
    /// See [`Parts::flows`].
    flows: watch::Receiver<bool>,
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
    /// Starts the task. It ends some time after [`Destination::stop`].
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
            loss: Mutex::default(),
            reopen: Notify::new(),
            is_replaced: AtomicBool::new(false),
            flows: parts.flows.clone(),
            lines: LogLimit::per_second(1),
            stop: stop.clone(),
            feed: parts.feed.clone(),
            notifier: parts.notifier.clone(),
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
            began_away: false,
            panics,
            codecs,
            given,
        };
        (destination, tokio::spawn(run.run()))
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
        view.sample(bytes, now, wall_now);
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
}

/// The task of a destination: opens, watches and reopens it until the session ends.
struct Run {
    destination: Arc<Destination>,
    parts: Parts,
    stopping: CancellationToken,
    orders: watch::Receiver<Orders>,
    failures: u32,
    panics: u32,
    /// The driver was not available at the start of this attempt, and did not open the destination.
    began_away: bool,
    /// Codecs of the encoder since the start of this attempt.
    codecs: watch::Receiver<Codecs>,
    /// Codecs that its driver got last.
    given: Codecs,
}

impl Run {
    async fn run(mut self) {
        while self.may_run().await {
            let outcome = self.attempt().await;
            if self.is_stopping() || self.held().is_some() {
                continue;
            }
            let error = outcome
                .err()
                .unwrap_or_else(|| Error::remote("the driver ended the destination without an error"));
            self.after_failure(error).await;
        }
        self.show(DestState::Stopped, None);
    }

    fn id(&self) -> DestinationId {
        self.destination.id
    }

    fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    fn is_driver_away(&self) -> bool {
        self.parts.drivers.is_away(&self.destination.record().kind, self.parts.account)
    }

    fn held(&self) -> Option<Held> {
        self.orders.borrow().held.get(&self.id()).copied()
    }

    /// Waits until it may be opened, and shows the reason of the wait. `false` when it must end.
    async fn may_run(&mut self) -> bool {
        while !self.is_stopping() {
            {
                let mut view = self.destination.view.lock();
                if view.reported != Reported::Over {
                    view.reported = Reported::Claims;
                    self.destination.usage.claims(self.id());
                }
            }
            let id = self.id();
            let Some(held) = self.held() else {
                if *self.parts.flows.borrow() || self.opens_without_encoder() {
                    return true;
                }
                self.show(DestState::Connecting, Some(NO_MEDIA_TEXT.into()));
                tokio::select! {
                    // The senders outlive this task.
                    _ = self.parts.flows.wait_for(|flows| *flows) => {}
                    _ = self.orders.wait_for(|orders| orders.held.contains_key(&id)) => {}
                    () = self.stopping.cancelled() => {}
                }
                continue;
            };
            self.show(DestState::Stopped, Some(held.as_str().into()));
            tokio::select! {
                // The senders outlive this task.
                _ = self.orders.wait_for(|orders| !orders.held.contains_key(&id)) => {}
                () = self.stopping.cancelled() => {}
            }
        }
        false
    }

    /// Destinations with playback or a spool open without an encoder. Others would start a broadcast with a frame from before the encoder
    /// left.
    fn opens_without_encoder(&self) -> bool {
        let kind = &self.destination.record().kind;
        self.parts.drivers.has_playback(kind) || self.parts.drivers.spool(kind).is_some()
    }

    /// One attempt: from open to the end of the opening.
    async fn attempt(&mut self) -> Result<(), Error> {
        let record = self.destination.record();
        let waker = self.parts.drivers.waker(&record.kind)?;
        self.show(DestState::Connecting, None);
        let mailbox = Arc::new(Mailbox::default());
        let patience = self.parts.drivers.queue(&record.kind).reopen_secs;
        *self.destination.loss.lock() =
            LossMonitor::new((patience > 0).then(|| Duration::from_secs(patience)));
        self.codecs = self.parts.hub.codecs();
        let source =
            Source::attached(&self.parts, self.id(), &record.kind, &waker, &self.destination.dropped);
        let opening = self.begin_opening();
        let request = OpenRequest {
            kind: record.kind.clone(),
            config: record.config.clone(),
            destination: record.id,
            about: self.about(),
            source: self.parts.source,
            media: source.media(),
            observer: mailbox.clone(),
            counters: self.destination.counters.clone(),
            assets: opening.assets().clone(),
        };
        self.began_away = self.is_driver_away();
        let opened = self.parts.drivers.open(request).await;
        let outcome = match opened {
            Ok(open) => {
                self.began_away = false;
                source.start();
                let outcome = self.watch(open, &mailbox, &source).await;
                // A complete backfill is given once in a session. An interrupted one starts again.
                if source.is_backfill_taken() {
                    self.parts.had_backfill.lock().insert(record.id);
                }
                outcome
            }
            Err(error) => Err(error),
        };
        self.parts.openings.end(&opening, self.parts.clock.monotonic());
        self.given = source.given();
        let lost = source.end(&self.parts.hub);
        if lost > 0 {
            self.report_lost(lost);
        }
        outcome
    }

    /// Context for the driver.
    fn about(&self) -> About {
        About {
            destination_id: self.id().0,
            session_id: self.parts.session.to_string(),
            stream_key_id: self.destination.record().stream_id.0,
            label: self.parts.label.clone(),
            session_started_ms: self.parts.started_at.0,
            account_id: self.parts.account.0,
            via: self.parts.via.lock().and(self.parts.mark.clone()),
        }
    }

    /// Creates the opening that holds the published assets. Viewers find it only when its type has playback.
    fn begin_opening(&self) -> Arc<Opening> {
        let (session, started_at) = (self.parts.session.clone(), self.parts.started_at);
        let opening = Arc::new(Opening::new(self.id(), session, started_at));
        if self.parts.drivers.has_playback(&self.destination.record().kind)
            && let Some(oldest) = self.parts.openings.begin(opening.clone())
        {
            // The drop runs driver code, so it is not awaited.
            tokio::task::spawn_blocking(move || drop(oldest));
        }
        opening
    }

    /// Watches an opening until its end.
    async fn watch(
        &mut self,
        mut open: OpenDestination,
        mailbox: &Mailbox,
        source: &Source,
    ) -> Result<(), Error> {
        let (stopping, mut orders, id) = (self.stopping.clone(), self.orders.clone(), self.id());
        let (sender, mut changes) = mpsc::channel::<Change>(CHANGES_MAX);
        *self.destination.changes.lock() = Some(sender);
        let mut hoarding = Hoarding::new();
        let mut reopen = false;
        // A request from an earlier attempt does not apply to this one.
        self.destination.reopen.notified().now_or_never();
        loop {
            let change = tokio::select! {
                () = mailbox.arrived.notified() => None,
                () = hoarding.noticed(source) => {
                    tracing::error!(
                        session = %self.parts.session, destination = %id, kind = %self.destination.record().kind,
                        bytes = LEASED_BYTES_MAX, "driver holds the maximum of unreleased packets of a destination; it gets no more until it releases some"
                    );
                    None
                }
                change = changes.recv() => change,
                () = self.destination.reopen.notified() => {
                    reopen = true;
                    break;
                }
                // The sender lives as long as the destination, and `self` holds the destination.
                () = stopping.cancelled() => break,
                _ = orders.wait_for(|orders| orders.held.contains_key(&id)) => break,
            };
            if let Some(outcome) = self.read_mail(mailbox) {
                open.ended();
                return outcome;
            }
            if let Some(change) = change {
                let taken = open.reconfigure(&change.config).await;
                tracing::info!(session = %self.parts.session, destination = %id, taken, "new configuration for a running destination");
                // The caller may have stopped waiting.
                let _ = change.answer.send(taken);
            }
        }
        drop(changes);
        if let Some(held) = self.held().filter(|_| !self.is_stopping()) {
            self.show(DestState::Stopped, Some(held.as_str().into()));
        }
        source.settle().await;
        open.stop(self.parts.stop_deadline).await;
        let (clock, limit) = (self.parts.clock.clone(), self.parts.stop_deadline + STOP_GRACE);
        let end = async {
            loop {
                if let Some(outcome) = self.read_last_mail(mailbox) {
                    return outcome;
                }
                mailbox.arrived.notified().await;
            }
        };
        match clock.timeout(limit, end).await {
            Some(outcome) => {
                open.ended();
                if reopen { Err(Error::remote(SLOW_REOPEN_TEXT)) } else { outcome }
            }
            None => {
                tracing::error!(
                    session = %self.parts.session, destination = %self.id(), kind = %self.destination.record().kind,
                    "driver did not end a destination in time; it gets no more packets, and its packets stay in memory until it releases them or \
                     its process ends"
                );
                Err(Error::internal("the driver did not end the destination in time"))
            }
        }
    }

    /// As [`Run::read_mail`], while the destination ends: reported states are ignored.
    fn read_last_mail(&mut self, mailbox: &Mailbox) -> Option<Result<(), Error>> {
        let mail = mailbox.take();
        self.report_events(mail.events);
        mail.outcome
    }

    /// Handles the driver's reports. Returns the outcome when the driver has ended.
    fn read_mail(&mut self, mailbox: &Mailbox) -> Option<Result<(), Error>> {
        let mail = mailbox.take();
        self.report_events(mail.events);
        match mail.state {
            // After a stall only sent bytes make it live again.
            Some((DriverState::Live, _)) if self.destination.view.lock().is_stalled => {}
            Some((DriverState::Live, _)) => self.show(DestState::Live, None),
            Some((DriverState::Connecting, reason)) => {
                self.show(DestState::Connecting, reason.map(|reason| reason.message));
            }
            None => {}
        }
        mail.outcome
    }

    /// Shows a failure, and waits for the next attempt or the end.
    async fn after_failure(&mut self, error: Error) {
        let (now, monotonic_now) = (self.parts.clock.now(), self.parts.clock.monotonic());
        let live_from = self.destination.view.lock().live_from;
        if live_from.is_some_and(|from| monotonic_now.saturating_sub(from) >= backoff::RECOVERED_AFTER) {
            self.failures = 0;
            self.panics = 0;
        }
        // A driver that is not available is no failure of the destination, so the back-off starts over. The driver may be available
        // again by now.
        if std::mem::take(&mut self.began_away) || self.is_driver_away() {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        self.panics += u32::from(error.class == Class::Panic);
        self.destination.sample_rate(self.parts.hub.sent(), monotonic_now, now);
        let (session, destination) = (self.parts.session.clone(), self.id());
        match backoff::next(&error, self.failures, self.panics, secret::random_u64()) {
            Next::Retry(wait) => {
                let retry_at = UnixMillis(now.0.saturating_add(wait.as_millis() as i64));
                tracing::warn!(
                    %session, %destination, attempt = self.failures, retry_in_ms = wait.as_millis() as u64,
                    error = %error.message, "destination failed; retrying"
                );
                self.show_until(DestState::Retrying, Some(error.message), Some(retry_at));
                tokio::select! {
                    () = self.parts.clock.sleep(wait) => {}
                    () = self.stopping.cancelled() => {}
                }
            }
            Next::GiveUp => {
                tracing::warn!(%session, %destination, error = %error.message, "destination failed; no retry until its configuration or a codec changes");
                let may_be_the_codec = error.class == Class::Config;
                self.show(DestState::Failed, Some(error.message));
                // The senders outlive this task.
                tokio::select! {
                    () = another_codec(&self.parts.clock, &mut self.codecs, self.given), if may_be_the_codec => {}
                    () = self.stopping.cancelled() => {}
                }
            }
        }
    }

    fn show(&self, state: DestState, error: Option<String>) {
        self.show_until(state, error, None);
    }

    /// As [`Run::show`], with the time of the next attempt.
    fn show_until(&self, state: DestState, error: Option<String>, next_retry_at: Option<UnixMillis>) {
        let (now, wall_now) = (self.parts.clock.monotonic(), self.parts.clock.now());
        let mut view = self.destination.view.lock();
        // A new attempt keeps the error of the last one.
        let is_retry = state == DestState::Connecting && self.failures > 0;
        let why = || view.error.clone().filter(|why| is_retry && why != NO_MEDIA_TEXT);
        let error = error.or_else(why);
        let changed = view.set(state, error, now, wall_now);
        view.next_retry_at = next_retry_at;
        self.destination.note_trouble(&view, wall_now);
        self.destination.report_usage(&mut view, now);
        view.attempt = match state {
            DestState::Live | DestState::Stopped => 0,
            DestState::Retrying | DestState::Failed => self.failures,
            DestState::Connecting => self.failures.saturating_add(1),
        };
        // A driver may switch between these two states at any rate.
        let flips = matches!(state, DestState::Live | DestState::Connecting);
        self.destination.publish_state(&mut view, now, wall_now, !flips);
        if changed && (self.destination.lines.admit(now).is_some() || !flips) {
            tracing::info!(session = %self.parts.session, destination = %self.id(), state = state.as_str(), "destination state");
        }
    }
}
