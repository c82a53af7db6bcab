//! Input for a new webhook.

use poem_openapi::Enum;
use poem_openapi::registry::MetaSchema;
use serde_json::Value;

use crate::api::app::App;
use crate::api::body::{Kind, body, text};
use crate::api::null::Null;
use crate::base::{ApiError, Code};
use satcast_core::ids::StreamId;
use satcast_core::secret::{Redacted, new_webhook_secret};
use satcast_store::{EventType, NewWebhook};
use satcast_webhooks::{URL_BYTES_MAX, check_secret};

/// Value of `secret` for which the service generates one.
const SECRET_AUTO: &str = "auto";

type Result<T> = std::result::Result<T, ApiError>;

/// Event that a webhook can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Enum)]
#[oai(rename = "WebhookEvent")]
pub(super) enum Event {
    /// A stream starts to receive data.
    #[oai(rename = "stream.started")]
    StreamStarted,
    /// A stream stops.
    #[oai(rename = "stream.ended")]
    StreamEnded,
    /// A cloud archive upload completes.
    #[oai(rename = "recording.ready")]
    RecordingReady,
    /// A webhook is tested; sent even if the webhook does not subscribe to it.
    #[oai(rename = "test.ping")]
    TestPing,
    /// A destination has started to forward.
    #[oai(rename = "destination.connected")]
    DestinationConnected,
    /// A destination has stopped forwarding.
    #[oai(rename = "destination.failed")]
    DestinationFailed,
    /// A destination forwards again.
    #[oai(rename = "destination.recovered")]
    DestinationRecovered,
    /// A session used 80 % of its `maxSats` or of its `maxDurationMinutes`.
    #[oai(rename = "limit.warning")]
    LimitWarning,
    /// A session ended at a hard limit.
    #[oai(rename = "limit.reached")]
    LimitReached,
    /// The credit is low, or refills fail.
    #[oai(rename = "balance.low")]
    BalanceLow,
    /// A health issue of the stream appeared or cleared; at most six times a minute per stream.
    #[oai(rename = "stream.health")]
    StreamHealth,
    /// The other encoder of the stream took over.
    #[oai(rename = "stream.failover")]
    StreamFailover,
    /// A recording could not be uploaded.
    #[oai(rename = "recording.failed")]
    RecordingFailed,
    /// A recording will be deleted at its store by a rule of its destination.
    #[oai(rename = "recording.expiring")]
    RecordingExpiring,
    /// A clip was made and uploaded.
    #[oai(rename = "clip.ready")]
    ClipReady,
    /// A clip could not be made or uploaded.
    #[oai(rename = "clip.failed")]
    ClipFailed,
}

const EVENTS: [(Event, EventType); 16] = [
    (Event::StreamStarted, EventType::StreamStarted),
    (Event::StreamEnded, EventType::StreamEnded),
    (Event::RecordingReady, EventType::RecordingReady),
    (Event::TestPing, EventType::TestPing),
    (Event::DestinationConnected, EventType::DestinationConnected),
    (Event::DestinationFailed, EventType::DestinationFailed),
    (Event::DestinationRecovered, EventType::DestinationRecovered),
    (Event::LimitWarning, EventType::LimitWarning),
    (Event::LimitReached, EventType::LimitReached),
    (Event::BalanceLow, EventType::BalanceLow),
    (Event::StreamHealth, EventType::StreamHealth),
    (Event::StreamFailover, EventType::StreamFailover),
    (Event::RecordingFailed, EventType::RecordingFailed),
    (Event::RecordingExpiring, EventType::RecordingExpiring),
    (Event::ClipReady, EventType::ClipReady),
    (Event::ClipFailed, EventType::ClipFailed),
];

impl From<EventType> for Event {
    fn from(event: EventType) -> Self {
        let known = EVENTS.iter().find(|(_, known)| *known == event);
        known.map_or(Event::TestPing, |(shown, _)| *shown)
    }
}

body! {
    /// A webhook to create.
    pub(super) struct WebhookInput: "NewWebhook" {
        /// URL that receives events: `https`, at a public address.
        url: String = text().length(0, URL_BYTES_MAX),
        /// Events to send.
        events: Vec<Event> = events(),
        /// Secret that signs deliveries: at least 16 characters, `whsec_` with base64 of 24 to 64 bytes, or `auto` to generate one,
        /// which is shown once. Without a secret, deliveries are not signed.
        secret: Option<String> = text().optional(),
        /// Only events of this stream key; null or absent for all.
        stream_key_id: Option<i64> = stream_key(),
    }
}

/// Event names without duplicates.
fn events() -> Kind<Vec<Event>> {
    let events = Kind::of::<Vec<Event>>(|value, place| {
        let refused = |fault: &str| place.refused(Code::EventRefused, fault);
        let names: Option<Vec<&str>> =
            value.as_array().and_then(|names| names.iter().map(Value::as_str).collect());
        let names = names.ok_or_else(|| place.malformed("must be a list of event names"))?;
        let mut events = Vec::with_capacity(names.len().min(EVENTS.len()));
        for name in names {
            let event = EventType::parse(name).map(Event::from).ok_or_else(|| {
                let known = EventType::ALL.map(EventType::as_str).join(", ");
                refused(&format!("names an unknown event; known events: {known}"))
            })?;
            if events.contains(&event) {
                return Err(refused("names an event twice"));
            }
            events.push(event);
        }
        if events.is_empty() { Err(refused("must name at least one event")) } else { Ok(events) }
    });
    events.noted(MetaSchema { min_items: Some(1), unique_items: Some(true), ..MetaSchema::ANY })
}

fn stream_key() -> Kind<Option<i64>> {
    let id = Kind::of::<Null<i64>>(|value, place| match value.as_i64() {
        None if !value.is_null() => Err(place.malformed("must be a whole number or null")),
        id => Ok(id),
    });
    id.or_is(None)
}

impl WebhookInput {
    /// The new webhook, and its secret if the service generated it.
    ///
    /// # Errors
    /// 422 for a refused url or secret; the text never repeats them.
    pub(super) fn checked(self, app: &App) -> Result<(NewWebhook, Option<Redacted<String>>)> {
        let target = app.webhooks.targets().check(&self.url).map_err(|error| {
            ApiError::refused(Code::UrlRefused, format!("Field `url` {}", after_field(&error.to_string())))
        })?;
        let made = (self.secret.as_deref() == Some(SECRET_AUTO)).then(new_webhook_secret);
        let secret = made.clone().or(self.secret.map(Redacted::new));
        if let Some(secret) = &secret {
            check_secret(secret.expose())
                .map_err(|error| ApiError::refused(Code::SecretRefused, format!("Field `secret` {error}")))?;
        }
        let events = self.events.iter().filter_map(|event| EVENTS.iter().find(|(shown, _)| shown == event));
        let new = NewWebhook {
            stream_id: self.stream_key_id.map(StreamId),
            host: target.host().to_owned(),
            url: Redacted::new(self.url),
            events: events.map(|(_, event)| *event).collect(),
            secret,
            cap: app.config().limits.webhooks_per_account,
        };
        Ok((new, made))
    }
}

/// Text after the field's name: some errors start with a verb, those of the guard are complete sentences.
fn after_field(text: &str) -> String {
    if text.starts_with("must") { text.to_owned() } else { format!("is refused: {text}") }
}

#[cfg(test)]
mod tests {
    use poem_openapi::types::ToJSON as _;

    use super::*;

    #[test]
    fn every_event_has_its_name_in_the_document() {
        for event in EventType::ALL {
            assert_eq!(Event::from(event).to_json(), Some(Value::from(event.as_str())));
        }
    }
}
