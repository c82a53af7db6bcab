//! One destination of a session: opened, watched, opened again after failures until the session ends.
//!
//! Exactly this layer owns the retry; drivers end at their first failure.

mod codecs;
mod losing;
mod parts;
mod source;
mod telling;

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
use self::losing::Losing;
#[cfg(test)]
pub(super) use self::losing::WINDOW as LOSING_WINDOW;
pub(super) use self::parts::Parts;
#[cfg(test)]
pub(super) use self::source::SETTLE_MAX;
use self::source::{Hoarding, Source};
#[cfg(test)]
pub(super) use self::telling::{EVENT_SHOWN_BYTES_MAX, lost_text};
use super::backoff::{self, Next};
use super::hub::Codecs;
use super::mailbox::Mailbox;
use super::queue::LEASED_BYTES_MAX;
use super::shown::{DestState, DestinationSnapshot};
use super::teller::Teller;
use super::view::{Told, View};
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

/// How long a driver may take over a new configuration before its destination is opened again.
const CHANGE_WAIT: Duration = Duration::from_secs(2);
/// New configurations that wait for one destination.
const CHANGES_MAX: usize = 1;
/// What is waited beyond the deadline for a driver that does not answer.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// What is shown of a destination that would be opened while the encoder is away.
pub(crate) const NO_MEDIA_TEXT: &str = "no media from the encoder; it connects when that is back";
/// The same of one that is opened anew because it does not keep up.
pub(crate) const LOSING_TEXT: &str = "it took less than four fifths of the stream for too long and is connected to anew; send at a lower bit rate, \
    or look at the way to it";

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
}

/// The task of a destination: opened, watched, and opened anew for as long as its session lives.
struct Run {
    destination: Arc<Destination>,
    parts: Parts,
    stopping: CancellationToken,
    orders: watch::Receiver<Orders>,
    failures: u32,
    panics: u32,
    /// Its driver was away as this try began, and did not open it.
    began_away: bool,
    /// What the encoder sends, as this try began.
    codecs: watch::Receiver<Codecs>,
    /// What its driver was given of them last.
    given: Codecs,
}

impl Run {
    async fn run(mut self) {
        while self.may_run().await {
            let outcome = self.one_try().await;
            if self.is_stopping() || self.held().is_some() {
                continue;
            }
            let error = outcome.err().unwrap_or_else(|| Error::remote("the destination ended by itself"));
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

    /// Waits until it may be opened, and shows meanwhile why not; `false` when it is to end.
    async fn may_run(&mut self) -> bool {
        while !self.is_stopping() {
            {
                let mut view = self.destination.view.lock();
                if view.told != Told::Over {
                    view.told = Told::Claims;
                    self.destination.usage.claims(self.id());
                }
            }
            let id = self.id();
            let Some(held) = self.held() else {
                if *self.parts.flows.borrow() || self.shows_what_was() {
                    return true;
                }
                self.show(DestState::Connecting, Some(NO_MEDIA_TEXT.into()));
                tokio::select! {
                    // The senders outlive this.
                    _ = self.parts.flows.wait_for(|flows| *flows) => {}
                    _ = self.orders.wait_for(|orders| orders.held.contains_key(&id)) => {}
                    () = self.stopping.cancelled() => {}
                }
                continue;
            };
            self.show(DestState::Stopped, Some(held.as_str().into()));
            tokio::select! {
                // The senders of both outlive this.
                _ = self.orders.wait_for(|orders| !orders.held.contains_key(&id)) => {}
                () = self.stopping.cancelled() => {}
            }
        }
        false
    }

    /// It has something to do without an encoder: it has viewers, or keeps what must not be lost. Another would begin a broadcast with a
    /// picture from before the encoder went.
    fn shows_what_was(&self) -> bool {
        let kind = &self.destination.record().kind;
        self.parts.drivers.has_playback(kind) || self.parts.drivers.spool(kind).is_some()
    }

    /// From open to the end of the opening, however it came.
    async fn one_try(&mut self) -> Result<(), Error> {
        let record = self.destination.record();
        let waker = self.parts.drivers.waker(&record.kind)?;
        self.show(DestState::Connecting, None);
        let mailbox = Arc::new(Mailbox::default());
        let patience = self.parts.drivers.queue(&record.kind).reopen_secs;
        *self.destination.losing.lock() = Losing::new((patience > 0).then(|| Duration::from_secs(patience)));
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
                // Once in a session; what broke off in the middle begins anew.
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
            self.tell_lost(lost);
        }
        outcome
    }

    /// What its driver is told of whom it works for.
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

    /// An opening for what viewers may fetch; others find it only when its type has playback.
    fn begin_opening(&self) -> Arc<Opening> {
        let (session, started_at) = (self.parts.session.clone(), self.parts.started_at);
        let opening = Arc::new(Opening::new(self.id(), session, started_at));
        if self.parts.drivers.has_playback(&self.destination.record().kind)
            && let Some(oldest) = self.parts.openings.begin(opening.clone())
        {
            // Its drop runs driver code. Nobody waits for it.
            tokio::task::spawn_blocking(move || drop(oldest));
        }
        opening
    }

    /// Follows an opening to its end.
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
        let mut gives_up = false;
        // One of an earlier try is no reason to give up this one.
        self.destination.gives_up.notified().now_or_never();
        loop {
            let change = tokio::select! {
                () = mailbox.arrived.notified() => None,
                () = hoarding.noticed(source) => {
                    tracing::error!(
                        session = %self.parts.session, destination = %id, kind = %self.destination.record().kind,
                        bytes = LEASED_BYTES_MAX, "driver holds packets of a destination and lets go of none; it gets no more until it does"
                    );
                    None
                }
                change = changes.recv() => change,
                () = self.destination.gives_up.notified() => {
                    gives_up = true;
                    break;
                }
                // The sender lives as long as the destination, which `self` holds.
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
                // Whoever asked may have given up.
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
                if gives_up { Err(Error::remote(LOSING_TEXT)) } else { outcome }
            }
            None => {
                tracing::error!(
                    session = %self.parts.session, destination = %self.id(), kind = %self.destination.record().kind,
                    "driver did not end a destination in time; it gets nothing more of it, and what it holds stays until it lets go of it or its \
                     process ends"
                );
                Err(Error::internal("the driver did not end the destination"))
            }
        }
    }

    /// As [`Run::read_mail`] while it ends: what it says of its state no longer matters.
    fn read_last_mail(&mut self, mailbox: &Mailbox) -> Option<Result<(), Error>> {
        let mail = mailbox.take();
        self.tell_events(mail.events);
        mail.outcome
    }

    /// Takes what the driver reported; the outcome when it has ended.
    fn read_mail(&mut self, mailbox: &Mailbox) -> Option<Result<(), Error>> {
        let mail = mailbox.take();
        self.tell_events(mail.events);
        match mail.state {
            // Words alone do not make it live again.
            Some((DriverState::Live, _)) if self.destination.view.lock().is_quieted => {}
            Some((DriverState::Live, _)) => self.show(DestState::Live, None),
            Some((DriverState::Connecting, reason)) => {
                self.show(DestState::Connecting, reason.map(|reason| reason.message));
            }
            None => {}
        }
        mail.outcome
    }

    /// Shows a failure and waits until it is time to try again, or for the end.
    async fn after_failure(&mut self, error: Error) {
        let (now, monotonic_now) = (self.parts.clock.now(), self.parts.clock.monotonic());
        let live_from = self.destination.view.lock().live_from;
        if live_from.is_some_and(|from| monotonic_now.saturating_sub(from) >= backoff::RECOVERED_AFTER) {
            self.failures = 0;
            self.panics = 0;
        }
        // That is no failure of the destination, which comes back as fast as after its first one. Its driver may be back by now.
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
                    error = %error.message, "destination failed, will be tried again"
                );
                self.show_until(DestState::Retrying, Some(error.message), Some(retry_at));
                tokio::select! {
                    () = self.parts.clock.sleep(wait) => {}
                    () = self.stopping.cancelled() => {}
                }
            }
            Next::GiveUp => {
                tracing::warn!(%session, %destination, error = %error.message, "destination failed, not tried again until it or a codec is changed");
                let may_be_the_codec = error.class == Class::Config;
                self.show(DestState::Failed, Some(error.message));
                // As above: the senders outlive this.
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

    /// As [`Run::show`], with the time of the next try.
    fn show_until(&self, state: DestState, error: Option<String>, next_retry_at: Option<UnixMillis>) {
        let (now, wall_now) = (self.parts.clock.monotonic(), self.parts.clock.now());
        let mut view = self.destination.view.lock();
        // Another try is no reason to forget why it is needed.
        let is_again = state == DestState::Connecting && self.failures > 0;
        let why = || view.error.clone().filter(|why| is_again && why != NO_MEDIA_TEXT);
        let error = error.or_else(why);
        let changed = view.set(state, error, now, wall_now);
        view.next_retry_at = next_retry_at;
        self.destination.note_trouble(&view, wall_now);
        self.destination.tell_usage(&mut view, now);
        view.attempt = match state {
            DestState::Live | DestState::Stopped => 0,
            DestState::Retrying | DestState::Failed => self.failures,
            DestState::Connecting => self.failures.saturating_add(1),
        };
        // A driver may flip between the two as fast as it likes.
        let flips = matches!(state, DestState::Live | DestState::Connecting);
        self.destination.tell_watchers(&mut view, now, wall_now, !flips);
        if changed && (self.destination.lines.admit(now).is_some() || !flips) {
            tracing::info!(session = %self.parts.session, destination = %self.id(), state = state.as_str(), "destination");
        }
    }
}
