//! Webhooks and their deliveries as the API shows them.

use poem_openapi::{Enum, Object};

use super::input::Event;
use crate::api::null::Null;
use satcast_core::ids::DeliveryId;
use satcast_store::{AttemptView, DeliveryState, DeliveryView, LastDelivery, Settled, WebhookView};

/// The newest attempt at a webhook.
#[derive(Clone, Debug, Object)]
#[oai(rename = "WebhookLastDelivery")]
pub(super) struct Last {
    /// Time of the attempt, Unix milliseconds.
    at: i64,
    /// HTTP status; null without a response.
    status: Null<u16>,
    /// Whether the receiver accepted it: any status from 200 to 299.
    ok: bool,
}

impl From<LastDelivery> for Last {
    fn from(last: LastDelivery) -> Self {
        Self { at: last.at.0, status: last.status.into(), ok: last.ok }
    }
}

/// A webhook.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Webhook {
    /// Webhook identifier.
    id: i64,
    /// URL that receives events.
    url: String,
    /// Subscribed events.
    events: Vec<Event>,
    /// Only events of this stream key; null for all.
    #[oai(rename = "stream_key_id")]
    stream_key_id: Null<i64>,
    /// Whether deliveries are signed; the secret is never shown.
    has_secret: bool,
    /// Whether events are sent.
    enabled: bool,
    /// Creation time, Unix milliseconds.
    created_at: i64,
    /// The newest attempt; null before the first.
    last_delivery: Null<Last>,
    /// Why the service disabled the webhook; null if it did not.
    disabled_reason: Null<String>,
}

impl From<WebhookView> for Webhook {
    fn from(view: WebhookView) -> Self {
        Self {
            id: view.id.0,
            url: view.url.into_inner(),
            events: view.events.into_iter().map(Event::from).collect(),
            stream_key_id: view.stream_id.map(|stream| stream.0).into(),
            has_secret: view.has_secret,
            enabled: view.enabled,
            created_at: view.created_at.0,
            last_delivery: view.last_delivery.map(Last::from).into(),
            disabled_reason: view.disabled_reason.into(),
        }
    }
}

/// A new webhook.
#[derive(Clone, Object)]
#[oai(skip_serializing_if_is_none)]
pub(super) struct WebhookCreated {
    /// `true`.
    pub(super) success: bool,
    /// Webhook identifier.
    pub(super) id: i64,
    /// The generated secret, if `"auto"` was sent; not shown again.
    pub(super) secret: Option<String>,
}

/// The new secret of a webhook.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct SecretRotated {
    /// `true`.
    pub(super) success: bool,
    /// Webhook identifier.
    pub(super) id: i64,
    /// The new secret; not shown again.
    pub(super) secret: String,
    /// Time until which deliveries are also signed with the previous secret, Unix milliseconds; null if there was none.
    pub(super) old_secret_until: Null<i64>,
}

/// State of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "DeliveryState")]
pub(super) enum State {
    /// The delivery is being sent or waits for an attempt.
    Pending,
    /// The receiver accepted it.
    Delivered,
    /// Every attempt failed.
    Failed,
    /// The webhook was disabled before the delivery was sent, or had too many pending deliveries.
    Cancelled,
}

/// States of the API and of the store.
pub(super) const STATES: [(State, DeliveryState); 4] = [
    (State::Pending, DeliveryState::Pending),
    (State::Delivered, DeliveryState::Delivered),
    (State::Failed, DeliveryState::Failed),
    (State::Cancelled, DeliveryState::Cancelled),
];

/// One attempt at a delivery.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase", rename = "DeliveryAttempt")]
pub(super) struct Attempt {
    /// Start of the attempt, Unix milliseconds.
    at: i64,
    /// Duration in milliseconds.
    duration_ms: i64,
    /// HTTP status; null without a response.
    status: Null<u16>,
    /// Whether the receiver accepted it: any status from 200 to 299.
    ok: bool,
    /// First kilobyte of the response body.
    answer: String,
    /// Error text; null if the attempt succeeded.
    error: Null<String>,
}

impl From<AttemptView> for Attempt {
    fn from(view: AttemptView) -> Self {
        Self {
            at: view.at.0,
            duration_ms: view.duration_ms,
            status: view.status.into(),
            ok: view.ok,
            answer: view.answer,
            error: view.error.into(),
        }
    }
}

/// Delivery of one event to one webhook.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Delivery {
    /// Delivery identifier.
    id: i64,
    /// Event identifier, sent to the receiver as `webhook-id`.
    event_id: String,
    /// Name of the event.
    #[oai(rename = "type")]
    event: Event,
    /// State of the delivery.
    state: State,
    /// Creation time, Unix milliseconds.
    created_at: i64,
    /// Time of the next attempt, Unix milliseconds; null when none is planned.
    next_attempt_at: Null<i64>,
    /// Body of the request, exactly as it is signed and sent.
    body: String,
    /// The newest 20 attempts, oldest first.
    attempts: Vec<Attempt>,
}

impl From<DeliveryView> for Delivery {
    fn from(view: DeliveryView) -> Self {
        let state = STATES.iter().find(|(_, state)| *state == view.state).map(|(state, _)| *state);
        Self {
            id: view.id.0,
            event_id: view.event_id,
            event: view.event.into(),
            state: state.unwrap_or(State::Failed),
            created_at: view.created_at.0,
            next_attempt_at: view.due_at.map(|due| due.0).into(),
            body: view.body,
            attempts: view.attempts.into_iter().map(Attempt::from).collect(),
        }
    }
}

/// Result of a test.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct WebhookTested {
    /// `true`: the test was sent. `ok` shows whether the receiver accepted it.
    success: bool,
    /// Delivery identifier.
    delivery_id: i64,
    /// Whether the receiver accepted it: any status from 200 to 299.
    ok: bool,
    /// HTTP status; null without a response.
    status: Null<u16>,
    /// Time from the name look-up to the response, in milliseconds.
    latency_ms: i64,
    /// First kilobyte of the response body.
    answer: String,
    /// Error text; null if the attempt succeeded.
    error: Null<String>,
}

impl WebhookTested {
    pub(super) fn of(delivery: DeliveryId, settled: Settled) -> Self {
        Self {
            success: true,
            delivery_id: delivery.0,
            ok: settled.error.is_none(),
            status: settled.status.into(),
            latency_ms: settled.duration_ms,
            answer: settled.answer,
            error: settled.error.into(),
        }
    }
}

/// A delivery that is sent again.
#[derive(Clone, Debug, Object)]
pub(super) struct Redelivered {
    /// `true`.
    pub(super) success: bool,
    /// Delivery identifier.
    pub(super) id: i64,
}
