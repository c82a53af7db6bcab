//! Webhooks: list, make, delete, and their log.

mod input;

use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Enum, Object, OpenApi};

use self::input::{Event, WebhookInput};
use super::body::Body;
use super::caller::WebhookCaller;
use super::destinations::Done;
use super::null::Null;
use super::page::PageRequest;
use super::streams::with_link;
use super::{ApiError, App, Tag};
use crate::ids::WebhookId;
use crate::secret::new_webhook_secret;
use crate::store::{AttemptView, DeliveryState, DeliveryView, LastDelivery, WebhookView};

/// Deliveries of one page: each may hold the beginnings of several answers.
const DELIVERIES_MAX: u32 = 100;

/// The newest attempt at a webhook.
#[derive(Clone, Debug, Object)]
#[oai(rename = "WebhookLastDelivery")]
struct Last {
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
#[derive(Clone, Debug, Object)]
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
#[derive(Clone, Debug, Object)]
#[oai(skip_serializing_if_is_none)]
pub(super) struct WebhookCreated {
    /// `true`.
    success: bool,
    /// Webhook identifier.
    id: i64,
    /// The secret that was made for `"auto"`; it is not shown again.
    secret: Option<String>,
}

/// The new secret of a webhook.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct SecretRotated {
    /// `true`.
    success: bool,
    /// Webhook identifier.
    id: i64,
    /// The secret that signs from now on; it is not shown again.
    secret: String,
    /// Until when the secret before signs too, Unix milliseconds; null when there was none.
    old_secret_until: Null<i64>,
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

const STATES: [(State, DeliveryState); 4] = [
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

/// Operations on webhooks.
pub(super) struct WebhooksApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Webhooks")]
impl WebhooksApi {
    /// List webhooks
    ///
    /// Newest first. A further page is named in the `Link` header. Needs a permanent key with the scope `webhooks`.
    #[oai(path = "/webhooks", method = "get", operation_id = "listWebhooks")]
    async fn list(
        &self,
        app: Data<&Arc<App>>,
        caller: WebhookCaller,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Where the page starts, from the `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<Webhook>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let mut views =
            app.store.webhooks_of(caller.account, page.to_store()).await.map_err(ApiError::from)?;
        let address = format!("{}/api/webhooks", app.config.public_base());
        let link = page.finish(&mut views, &address, |view| view.id.0);
        Ok(with_link(Json(views.into_iter().map(Webhook::from).collect()), link))
    }

    /// Make a webhook
    ///
    /// Events are sent as POST requests with JSON, signed by the rules of Standard Webhooks when there is a secret. Needs
    /// a permanent key with the scope `webhooks`.
    #[oai(path = "/webhooks", method = "post", operation_id = "createWebhook")]
    async fn create(
        &self,
        app: Data<&Arc<App>>,
        caller: WebhookCaller,
        body: Body<WebhookInput>,
    ) -> Result<Json<WebhookCreated>> {
        let (new, made) = body.0.checked(&app, caller.account)?;
        let store = app.store.clone();
        let id = App::to_the_end(async move { Ok(store.create_webhook(new).await?) }).await?;
        Ok(Json(WebhookCreated { success: true, id: id.0, secret: made.map(|secret| secret.into_inner()) }))
    }

    /// Delete a webhook
    ///
    /// What waits to be sent to it is not sent. Needs a permanent key with the scope `webhooks`.
    #[oai(path = "/webhooks/:id", method = "delete", operation_id = "deleteWebhook")]
    async fn delete(
        &self,
        app: Data<&Arc<App>>,
        caller: WebhookCaller,
        /// Webhook identifier.
        id: Path<i64>,
    ) -> Result<Json<Done>> {
        let store = app.store.clone();
        App::to_the_end(async move { Ok(store.delete_webhook(caller.account, WebhookId(id.0)).await?) })
            .await?;
        Ok(Json(Done::new()))
    }

    /// Enable a webhook
    ///
    /// It is told of events again after the service disabled it. An addition to the specification.
    #[oai(path = "/webhooks/:id/enable", method = "post", operation_id = "enableWebhook")]
    async fn enable(
        &self,
        app: Data<&Arc<App>>,
        caller: WebhookCaller,
        /// Webhook identifier.
        id: Path<i64>,
    ) -> Result<Json<Done>> {
        let store = app.store.clone();
        App::to_the_end(async move { Ok(store.enable_webhook(caller.account, WebhookId(id.0)).await?) })
            .await?;
        Ok(Json(Done::new()))
    }

    /// Replace a webhook's secret
    ///
    /// For 24 hours deliveries carry a signature of the secret before as well. A webhook without a secret is signed from
    /// then on. An addition to the specification.
    #[oai(path = "/webhooks/:id/rotate-secret", method = "post", operation_id = "rotateWebhookSecret")]
    async fn rotate_secret(
        &self,
        app: Data<&Arc<App>>,
        caller: WebhookCaller,
        /// Webhook identifier.
        id: Path<i64>,
    ) -> Result<Json<SecretRotated>> {
        let (store, now) = (app.store.clone(), app.clock.now());
        let secret = new_webhook_secret();
        let stored = secret.clone();
        let until = App::to_the_end(async move {
            Ok(store.rotate_webhook_secret(caller.account, WebhookId(id.0), &stored, now).await?)
        })
        .await?;
        let old_secret_until = until.map(|until| until.0).into();
        Ok(Json(SecretRotated { success: true, id: id.0, secret: secret.into_inner(), old_secret_until }))
    }

    /// List a webhook's deliveries
    ///
    /// Newest first, of the last 30 days, at most 100 a page. A further page is named in the `Link` header. An addition to
    /// the specification.
    #[oai(path = "/webhooks/:id/deliveries", method = "get", operation_id = "listWebhookDeliveries")]
    async fn deliveries(
        &self,
        app: Data<&Arc<App>>,
        request: &poem::Request,
        caller: WebhookCaller,
        /// Webhook identifier.
        id: Path<i64>,
        /// Only deliveries in this state.
        state: Query<Option<State>>,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Where the page starts, from the `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<Delivery>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?.at_most(DELIVERIES_MAX);
        let state = STATES.iter().find(|(shown, _)| Some(*shown) == state.0).map(|(_, state)| *state);
        let views = app.store.deliveries_of(caller.account, WebhookId(id.0), state, page.to_store()).await;
        let mut views = views.map_err(ApiError::from)?;
        let address = format!("{}/api/webhooks/{}/deliveries", app.config.public_base(), id.0);
        let link = page.finish_query(&mut views, &address, request.uri().query(), |view| view.id.0);
        Ok(with_link(Json(views.into_iter().map(Delivery::from).collect()), link))
    }
}
