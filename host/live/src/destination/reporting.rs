//! Reports of a destination: to webhooks, to the event feed, and to the log.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Destination, Run, source};
use crate::notifier::Transition;
use crate::view::View;
use satcast_core::ids::UnixMillis;
use satcast_store::{DestinationNotice, NoticeKind};

/// Longest logged data of an event, in bytes; the rest is cut.
const EVENT_LOGGED_BYTES_MAX: usize = 512;
/// Longest data of an event in the feed, in bytes, because the feed keeps events for clients that reconnect. Longer data becomes null.
pub(crate) const EVENT_SHOWN_BYTES_MAX: usize = 4 * 1024;

/// Event by which a driver names the server that takes the stream, as `server` in its data.
const PUBLISHING_EVENT: &str = "publishing";
/// Longest shown `server`, in characters: a host name and a port.
const SERVER_CHARS_MAX: usize = 260;

impl Destination {
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
    pub(super) fn publish_state(&self, view: &mut View, now: Duration, at: UnixMillis, urgent: bool) {
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

impl Run {
    /// Packets of a lossless driver that it did not take before its end.
    pub(super) fn report_lost(&self, lost: u64) {
        let (session, destination) = (&self.parts.session, self.id());
        tracing::error!(%session, %destination, lost, "a destination ended before it took all of its queue");
        if self.is_stopping() {
            self.parts.troubles.note(destination, lost_text(lost), self.parts.clock.now());
        }
    }

    /// Sends events of the driver to the event feed and the log.
    pub(super) fn report_events(&self, events: VecDeque<(String, Value)>) {
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
    let wait = source::SETTLE_MAX.as_secs();
    format!("{lost} packets were lost at the end: the destination did not take them within {wait} s")
}
