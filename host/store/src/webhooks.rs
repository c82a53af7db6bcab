//! Webhooks and the log of what was sent to them.

use satcast_core::ids::{DeliveryId, StreamId, UnixMillis, WebhookId};
use satcast_core::secret::Redacted;

/// How long the secret before the last goes on signing after a new one was made: receivers change theirs in that time.
pub const OLD_SECRET_KEPT_MS: i64 = 24 * 60 * 60 * 1_000;

/// What webhooks are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// A session began.
    StreamStarted,
    /// A session ended.
    StreamEnded,
    /// A recording was uploaded.
    RecordingReady,
    /// The owner tests a webhook.
    TestPing,
    /// A destination forwards.
    DestinationConnected,
    /// A destination stopped forwarding.
    DestinationFailed,
    /// A destination forwards again.
    DestinationRecovered,
    /// A session used most of a hard limit.
    LimitWarning,
    /// A session ended at a hard limit.
    LimitReached,
    /// The account's credit is nearly used up.
    BalanceLow,
    /// What the encoder sends got worse or better.
    StreamHealth,
    /// A recording could not be uploaded.
    RecordingFailed,
}

impl EventType {
    /// Every type, in the order of the declaration.
    pub const ALL: [EventType; 12] = [
        EventType::StreamStarted,
        EventType::StreamEnded,
        EventType::RecordingReady,
        EventType::TestPing,
        EventType::DestinationConnected,
        EventType::DestinationFailed,
        EventType::DestinationRecovered,
        EventType::LimitWarning,
        EventType::LimitReached,
        EventType::BalanceLow,
        EventType::StreamHealth,
        EventType::RecordingFailed,
    ];

    /// The name in the API, in the body and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::StreamStarted => "stream.started",
            EventType::StreamEnded => "stream.ended",
            EventType::RecordingReady => "recording.ready",
            EventType::TestPing => "test.ping",
            EventType::DestinationConnected => "destination.connected",
            EventType::DestinationFailed => "destination.failed",
            EventType::DestinationRecovered => "destination.recovered",
            EventType::LimitWarning => "limit.warning",
            EventType::LimitReached => "limit.reached",
            EventType::BalanceLow => "balance.low",
            EventType::StreamHealth => "stream.health",
            EventType::RecordingFailed => "recording.failed",
        }
    }

    /// The type with that name, or `None`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == name)
    }
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is sent, or will be.
    Pending,
    /// The receiver took it.
    Delivered,
    /// Every attempt failed.
    Failed,
    /// Its webhook was disabled before it could be sent, or had too many waiting.
    Cancelled,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [DeliveryState; 4] =
        [DeliveryState::Pending, DeliveryState::Delivered, DeliveryState::Failed, DeliveryState::Cancelled];

    /// The name in the API and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryState::Pending => "pending",
            DeliveryState::Delivered => "delivered",
            DeliveryState::Failed => "failed",
            DeliveryState::Cancelled => "cancelled",
        }
    }

    /// The state with that name, or `None`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// A webhook to be made; url and secret were checked.
#[derive(Clone, Debug)]
pub struct NewWebhook {
    /// Only events of this stream; `None` for all.
    pub stream_id: Option<StreamId>,
    /// Where to.
    pub url: Redacted<String>,
    /// The host of the url in one spelling.
    pub host: String,
    /// What it is told of.
    pub events: Vec<EventType>,
    /// What signs; `None` leaves deliveries unsigned.
    pub secret: Option<Redacted<String>>,
    /// Webhooks the account may have.
    pub cap: i64,
}

/// The newest attempt at a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastDelivery {
    /// When.
    pub at: UnixMillis,
    /// HTTP status; `None` when there was no answer.
    pub status: Option<u16>,
    /// Whether the receiver took it.
    pub ok: bool,
}

/// A webhook as its owner sees it.
#[derive(Clone, Debug)]
pub struct WebhookView {
    /// Its id.
    pub id: WebhookId,
    /// Where to; path and query may hold a secret.
    pub url: Redacted<String>,
    /// What it is told of.
    pub events: Vec<EventType>,
    /// Only events of this stream; `None` for all.
    pub stream_id: Option<StreamId>,
    /// Whether deliveries are signed.
    pub has_secret: bool,
    /// Whether it is told anything at all.
    pub enabled: bool,
    /// Why the service disabled it.
    pub disabled_reason: Option<String>,
    /// When it was made.
    pub created_at: UnixMillis,
    /// The newest attempt.
    pub last_delivery: Option<LastDelivery>,
}

/// One attempt at a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptView {
    /// When it began.
    pub at: UnixMillis,
    /// How long it took in milliseconds.
    pub duration_ms: i64,
    /// HTTP status; `None` when there was no answer.
    pub status: Option<u16>,
    /// Whether the receiver took it.
    pub ok: bool,
    /// The beginning of the answer's body.
    pub answer: String,
    /// What was wrong, in words.
    pub error: Option<String>,
}

/// A delivery with its attempts.
#[derive(Clone, Debug)]
pub struct DeliveryView {
    /// Its id.
    pub id: DeliveryId,
    /// The id that the receiver sees.
    pub event_id: String,
    /// What it tells.
    pub event: EventType,
    /// What became of it.
    pub state: DeliveryState,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When the next attempt is due; `None` when none is.
    pub due_at: Option<UnixMillis>,
    /// Attempts, oldest first.
    pub attempts: Vec<AttemptView>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_and_state_survives_its_name() {
        for event in EventType::ALL {
            assert_eq!(EventType::parse(event.as_str()), Some(event));
        }
        for state in DeliveryState::ALL {
            assert_eq!(DeliveryState::parse(state.as_str()), Some(state));
        }
        assert_eq!((EventType::parse("stream.paused"), DeliveryState::parse("")), (None, None));
    }
}
