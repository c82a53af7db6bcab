//! What is shown of webhooks and their deliveries.

use poem_openapi::{Enum, Object};

use super::input::Event;
use crate::api::null::Null;
use satcast_core::ids::DeliveryId;
use satcast_store::{AttemptView, DeliveryState, DeliveryView, LastDelivery, Settled, WebhookView};

/// The newest attempt at a webhook.
#[derive(Clone, Debug, Object)]
#[oai(rename = "WebhookLastDelivery")]
pub(super) struct Last {
    /// When, Unix milliseconds.
    at: i64,
    /// HTTP status; null when there was no answer.
    status: Null<u16>,
    /// Whether the receiver took it.
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
    /// Where events are sent.
    url: String,
    /// What is sent.
    events: Vec<Event>,
    /// Only events of this stream key; null for all.
    #[oai(rename = "stream_key_id")]
    stream_key_id: Null<i64>,
    /// Whether deliveries are signed; the secret is never shown.
    has_secret: bool,
    /// Whether anything is sent.
    enabled: bool,
    /// Creation time, Unix milliseconds.
    created_at: i64,
    /// The newest attempt; null before the first.
    last_delivery: Null<Last>,
    /// Why the service disabled it; null when it did not.
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
    /// The secret that was made for `"auto"`; it is not shown again.
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
    /// The secret that signs from now on; it is not shown again.
    pub(super) secret: String,
    /// Until when the secret before signs too, Unix milliseconds; null when there was none.
    pub(super) old_secret_until: Null<i64>,
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "DeliveryState")]
pub(super) enum State {
    /// It is sent, or will be.
    Pending,
    /// The receiver took it.
    Delivered,
    /// Every attempt failed.
    Failed,
    /// Its webhook was disabled before it could be sent, or had too many waiting.
    Cancelled,
}

/// The states and what the store calls them.
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
    /// When it began, Unix milliseconds.
    at: i64,
    /// How long it took in milliseconds.
    duration_ms: i64,
    /// HTTP status; null when there was no answer.
    status: Null<u16>,
    /// Whether the receiver took it: any status from 200 to 299.
    ok: bool,
    /// The first kilobyte of the answer's body.
    answer: String,
    /// What was wrong, in words; null when nothing was.
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

/// One event on its way to a webhook.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Delivery {
    /// Delivery identifier.
    id: i64,
    /// The event's id, which the receiver sees as `webhook-id`.
    event_id: String,
    /// What is sent.
    #[oai(rename = "type")]
    event: Event,
    /// What became of it.
    state: State,
    /// Creation time, Unix milliseconds.
    created_at: i64,
    /// When the next attempt is due, Unix milliseconds; null when none is.
    next_attempt_at: Null<i64>,
    /// The attempts, oldest first; at most the newest 20.
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
            attempts: view.attempts.into_iter().map(Attempt::from).collect(),
        }
    }
}

/// What came of a test.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct WebhookTested {
    /// `true`: it was tested. Whether the receiver took it says `ok`.
    success: bool,
    /// Delivery identifier.
    delivery_id: i64,
    /// Whether the receiver took it: any status from 200 to 299.
    ok: bool,
    /// HTTP status; null when there was no answer.
    status: Null<u16>,
    /// Time from the resolver to the answer, in milliseconds.
    latency_ms: i64,
    /// The first kilobyte of the answer's body.
    answer: String,
    /// What was wrong, in words; null when nothing was.
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

/// A delivery that is made again.
#[derive(Clone, Debug, Object)]
pub(super) struct Redelivered {
    /// `true`.
    pub(super) success: bool,
    /// Delivery identifier.
    pub(super) id: i64,
}
