//! What a destination tells of itself: to webhooks, to those who watch the account, and to the log.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Destination, Run, source};
use crate::teller::Turn;
use crate::view::View;
use satcast_core::ids::UnixMillis;
use satcast_store::{Happening, ToldDestination};

/// Bytes of an event's data that are logged; the rest is cut.
const EVENT_LOGGED_BYTES_MAX: usize = 512;
/// Longest data of an event that those who watch are shown, in bytes: events are kept for who was away. Instead of longer ones they see null.
pub(crate) const EVENT_SHOWN_BYTES_MAX: usize = 4 * 1024;

/// Event by which a driver says which server takes the stream, as `server` in its data.
const PUBLISHING_EVENT: &str = "publishing";
/// Longest such text that is shown, in characters: a host name and a port.
const SERVER_CHARS_MAX: usize = 260;

impl Destination {
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
    pub(super) fn tell_watchers(&self, view: &mut View, now: Duration, at: UnixMillis, urgent: bool) {
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

impl Run {
    /// Packets that its driver must not lose, and did not take before its end.
    pub(super) fn tell_lost(&self, lost: u64) {
        let (session, destination) = (&self.parts.session, self.id());
        tracing::error!(%session, %destination, lost, "a destination ended before it took what waited for it");
        if self.is_stopping() {
            self.parts.troubles.note(destination, lost_text(lost), self.parts.clock.now());
        }
    }

    /// What its driver tells the owner: to who watches, and to the log.
    pub(super) fn tell_events(&self, events: VecDeque<(String, Value)>) {
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

/// What is said of packets that a destination must not lose and did not take in time.
pub(crate) fn lost_text(lost: u64) -> String {
    let wait = source::SETTLE_MAX.as_secs();
    format!("{lost} packets were lost at the end: the destination did not take them within {wait} s")
}
