//! The task of a destination: opens, watches and reopens it, and reports what its driver says to the event feed and the log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use satcast_plugin_api::driver_state::State as DriverState;
use satcast_plugin_api::recording::About;
use satcast_plugin_api::{Class, Codec, Error};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use tracing::field::Empty;

use super::loss::LossMonitor;
use super::source::{Hoarding, SETTLE_MAX, Source};
use super::{Change, Destination, Mailbox, Parts};
use crate::backoff::{self, Next};
use crate::hub::Codecs;
use crate::queue::LEASED_BYTES_MAX;
use crate::shown::DestState;
use crate::view::Reported;
use satcast_core::clock::Clock;
use satcast_core::ids::{DestinationId, UnixMillis};
use satcast_core::secret;
use satcast_drivers::published::Opening;
use satcast_drivers::{OpenDestination, OpenRequest};
use satcast_store::DestinationRecord;
use satcast_usage::{Held, Orders};

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

/// Longest logged data of an event, in bytes; the rest is cut.
const EVENT_LOGGED_BYTES_MAX: usize = 512;
/// Longest data of an event in the feed, in bytes, because the feed keeps events for clients that reconnect. Longer data becomes null.
pub(crate) const EVENT_SHOWN_BYTES_MAX: usize = 4 * 1024;

/// Event by which a driver names the server that takes the stream, as `server` in its data.
const PUBLISHING_EVENT: &str = "publishing";
/// Event by which a driver says that the service behind it does not take `codec` of the stream; its data has the codecs that it `takes`.
const CODEC_REFUSED_EVENT: &str = "codec_refused";
/// Longest shown `server`, in characters: a host name and a port.
const SERVER_CHARS_MAX: usize = 260;
/// Wait after a change of codec before the retry. Both tracks may change, and an encoder that changes its codecs repeatedly must not
/// cause connections at that rate.
const CODEC_CHANGE_WAIT: Duration = Duration::from_secs(2);

/// Starts the task of a destination. It ends some time after [`Destination::stop`].
pub(crate) fn start(
    record: DestinationRecord,
    parts: Parts,
) -> (Arc<Destination>, tokio::task::JoinHandle<()>) {
    let stopping = CancellationToken::new();
    let span = tracing::error_span!("destination", destination = %record.id, kind = record.kind);
    let destination = Arc::new(Destination::new(record, &parts, stopping.clone()));
    let orders = parts.usage.orders();
    let codecs = parts.hub.codecs();
    let (failures, panics) = (0, 0);
    let given = [None, None];
    let run = Run {
        destination: destination.clone(),
        parts,
        stopping,
        orders,
        failures,
        began_away: false,
        panics,
        codecs,
        given,
    };
    (destination, tokio::spawn(run.run().instrument(span)))
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
            let span =
                tracing::error_span!("opening", attempt = self.failures.saturating_add(1), error = Empty);
            let outcome = self.attempt().instrument(span.clone()).await;
            if let Err(error) = &outcome {
                span.record("error", error.class.name());
            }
            drop(span);
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
        *self.destination.takes.lock() = None;
        let source =
            Source::attached(&self.parts, self.id(), &record.kind, &waker, &self.destination.dropped);
        *self.destination.queue.lock() = source.queue();
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
                        bytes = LEASED_BYTES_MAX,
                        "driver holds the maximum of unreleased packets of a destination; it gets no more until it releases some"
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
                tracing::info!(taken, "new configuration for a running destination");
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
        match backoff::next(&error, self.failures, self.panics, secret::random_u64()) {
            Next::Retry(wait) => {
                let retry_at = UnixMillis(now.0.saturating_add(wait.as_millis() as i64));
                tracing::warn!(
                    attempt = self.failures, retry_in_ms = wait.as_millis() as u64,
                    error = %error.message, "destination failed; retrying"
                );
                self.show_until(DestState::Retrying, Some(error.message), Some(retry_at));
                tokio::select! {
                    () = self.parts.clock.sleep(wait) => {}
                    () = self.stopping.cancelled() => {}
                }
            }
            Next::GiveUp => {
                tracing::warn!(error = %error.message, "destination failed; no retry until its configuration or a codec changes");
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
            tracing::info!(state = state.as_str(), "destination state");
        }
    }

    /// Packets of a lossless driver that it did not take before its end.
    fn report_lost(&self, lost: u64) {
        tracing::error!(lost, "a destination ended before it took all of its queue");
        if self.is_stopping() {
            self.parts.troubles.note(self.id(), lost_text(lost), self.parts.clock.now());
        }
    }

    /// Sends events of the driver to the event feed and the log.
    fn report_events(&self, events: VecDeque<(String, Value)>) {
        for (name, data) in events {
            let text = data.to_string();
            let end =
                (0..=text.len().min(EVENT_LOGGED_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
            let logged = &text[..end.unwrap_or(0)];
            tracing::info!(event = name, data = logged, "driver event");
            if name == CODEC_REFUSED_EVENT {
                let names = data["takes"].as_array().map_or(&[][..], Vec::as_slice);
                let takes =
                    Codec::ALL.into_iter().filter(|codec| names.iter().any(|name| name == codec.name()));
                *self.destination.takes.lock() = Some(takes.collect());
            }
            if name == PUBLISHING_EVENT {
                let server =
                    data["server"].as_str().map(|server| server.chars().take(SERVER_CHARS_MAX).collect());
                self.destination.view.lock().server = server;
            }
            let data = if text.len() > EVENT_SHOWN_BYTES_MAX { Value::Null } else { data };
            let (stream, destination) = (self.destination.record().stream_id.0, self.id().0);
            let data =
                json!({ "streamId": stream, "destinationId": destination, "name": name, "data": data });
            self.parts.feed.send(self.parts.account, "destination.event", self.parts.clock.now(), data);
        }
    }
}

/// Error text for packets that a lossless destination did not take in time.
pub(crate) fn lost_text(lost: u64) -> String {
    let wait = SETTLE_MAX.as_secs();
    format!("{lost} packets were lost at the end: the destination did not take them within {wait} s")
}

/// Waits until the encoder sends a codec that differs from those `given` to the driver before it gave up. If the driver got none, any
/// change since the start of the attempt counts.
async fn another_codec(clock: &Clock, codecs: &mut watch::Receiver<Codecs>, given: Codecs) {
    let changed = match given {
        [None, None] => codecs.changed().await,
        given => codecs.wait_for(|codecs| have_changed(*codecs, given)).await.map(drop),
    };
    if changed.is_ok() {
        clock.sleep(CODEC_CHANGE_WAIT).await;
    }
}

/// Whether a track of `given` has a different codec now. A track that only starts or ends does not count.
fn have_changed(now: Codecs, given: Codecs) -> bool {
    now.iter().zip(given).any(|(now, given)| now.is_some() && given.is_some() && *now != given)
}

#[cfg(test)]
mod tests {
    use satcast_plugin_api::Codec;

    use super::*;
    use satcast_core::ids::UnixMillis;

    #[tokio::test]
    async fn only_a_codec_that_differs_from_the_refused_one_causes_a_retry() {
        let (h264, hevc, aac) = (Some(Codec::H264), Some(Codec::Hevc), Some(Codec::Aac));
        for (given, now, other) in [
            ([hevc, aac], [hevc, aac], false),
            ([hevc, None], [hevc, aac], false),
            ([hevc, aac], [hevc, None], false),
            ([h264, aac], [hevc, aac], true),
            ([hevc, aac], [hevc, Some(Codec::Opus)], true),
            ([None, None], [hevc, aac], true),
        ] {
            // The encoder changed from H.264 to `now` during the attempt.
            let (sender, mut codecs) = watch::channel([h264, aac]);
            sender.send_replace(now);
            let clock = Clock::manual(UnixMillis(0));
            let wait = clock.timeout(CODEC_CHANGE_WAIT * 2, another_codec(&clock, &mut codecs, given));
            assert_eq!(
                clock.passing(CODEC_CHANGE_WAIT / 2, wait).await.is_some(),
                other,
                "{given:?} {now:?}"
            );
        }
    }
}
