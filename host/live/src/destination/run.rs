//! The task of a destination: opened, watched, and opened anew for as long as its session lives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use satcast_plugin_api::driver_state::State as DriverState;
use satcast_plugin_api::recording::About;
use satcast_plugin_api::{Class, Error};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::codecs::another_codec;
use super::losing::Losing;
use super::source::{Hoarding, Source};
use super::{CHANGES_MAX, Change, Destination, Parts, lost_text};
use crate::backoff::{self, Next};
use crate::hub::Codecs;
use crate::mailbox::Mailbox;
use crate::queue::LEASED_BYTES_MAX;
use crate::usage::{Held, Orders};
use crate::view::{DestState, Told};
use satcast_core::ids::{DestinationId, UnixMillis};
use satcast_core::secret;
use satcast_drivers::published::Opening;
use satcast_drivers::{OpenDestination, OpenRequest};

/// What is waited beyond the deadline for a driver that does not answer.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// What is shown of a destination that would be opened while the encoder is away.
pub(crate) const NO_MEDIA_TEXT: &str = "no media from the encoder; it connects when that is back";
/// The same of one that is opened anew because it does not keep up.
pub(crate) const LOSING_TEXT: &str = "it took less than four fifths of the stream for too long and is connected to anew; send at a lower bit rate, \
    or look at the way to it";

/// Bytes of an event's data that are logged; the rest is cut.
const EVENT_LOGGED_BYTES_MAX: usize = 512;
/// Longest data of an event that those who watch are shown, in bytes: events are kept for who was away. Instead of longer ones they see null.
pub(crate) const EVENT_SHOWN_BYTES_MAX: usize = 4 * 1024;

/// Event by which a driver says which server takes the stream, as `server` in its data.
const PUBLISHING_EVENT: &str = "publishing";
/// Longest such text that is shown, in characters: a host name and a port.
const SERVER_CHARS_MAX: usize = 260;

pub(super) struct Run {
    pub(super) destination: Arc<Destination>,
    pub(super) parts: Parts,
    pub(super) stopping: CancellationToken,
    pub(super) orders: watch::Receiver<Orders>,
    pub(super) failures: u32,
    pub(super) panics: u32,
    /// What the encoder sends, as this try began.
    pub(super) codecs: watch::Receiver<Codecs>,
    /// What its driver was given of them last.
    pub(super) given: Codecs,
}

impl Run {
    pub(super) async fn run(mut self) {
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
        let waker = self.parts.drivers.waker(&record.kind).ok_or_else(|| {
            Error::config(format!("no driver serves type {}; the operator can enable one", record.kind))
        })?;
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
        let opened = self.parts.drivers.open(request).await;
        let outcome = match opened {
            Ok(open) => {
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

    /// Packets that its driver must not lose, and did not take before its end.
    fn tell_lost(&self, lost: u64) {
        let (session, destination) = (&self.parts.session, self.id());
        tracing::error!(%session, %destination, lost, "a destination ended before it took what waited for it");
        if self.is_stopping() {
            self.parts.troubles.note(destination, lost_text(lost), self.parts.clock.now());
        }
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

    /// What its driver tells the owner: to who watches, and to the log.
    fn tell_events(&self, events: VecDeque<(String, serde_json::Value)>) {
        for (name, data) in events {
            let text = data.to_string();
            let end =
                (0..=text.len().min(EVENT_LOGGED_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
            let logged = &text[..end.unwrap_or(0)];
            tracing::info!(session = %self.parts.session, destination = %self.id(), event = name, data = logged, "driver event");
            if name == PUBLISHING_EVENT {
                let server =
                    data["server"].as_str().map(|server| server.chars().take(SERVER_CHARS_MAX).collect());
                self.destination.view.lock().server = server;
            }
            let data = if text.len() > EVENT_SHOWN_BYTES_MAX { serde_json::Value::Null } else { data };
            let (stream, destination) = (self.destination.record().stream_id.0, self.id().0);
            let data =
                json!({ "streamId": stream, "destinationId": destination, "name": name, "data": data });
            self.parts.feed.send(self.parts.account, "destination.event", self.parts.clock.now(), data);
        }
    }

    /// Shows a failure and waits until it is time to try again, or for the end.
    async fn after_failure(&mut self, error: Error) {
        let (now, monotonic_now) = (self.parts.clock.now(), self.parts.clock.monotonic());
        let live_from = self.destination.view.lock().live_from;
        if live_from.is_some_and(|from| monotonic_now.saturating_sub(from) >= backoff::RECOVERED_AFTER) {
            self.failures = 0;
            self.panics = 0;
        }
        // That is no failure of the destination, which comes back as fast as after its first one.
        if self.parts.drivers.is_away(&self.destination.record().kind, self.parts.account) {
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
