//! Webhooks: list, make, delete, and their log.

mod input;
mod view;

use std::sync::Arc;

use poem::Result;
use poem::web::Data;
use poem_openapi::OpenApi;
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::{Json, Response};

use self::input::WebhookInput;
use self::view::{
    Delivery, Redelivered, STATES, SecretRotated, State, Webhook, WebhookCreated, WebhookTested,
};
use super::app::{App, Tag};
use super::body::{Body, NoBody};
use super::caller::WebhookCaller;
use super::destinations::Done;
use super::page::{PageRequest, with_link};
use crate::base::{ApiError, RequestContext};
use satcast_core::ids::{DeliveryId, WebhookId};
use satcast_core::secret::new_webhook_secret;
use satcast_webhooks::TestError;

/// Deliveries of one page: each may hold the beginnings of several answers.
const DELIVERIES_MAX: u32 = 100;

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
            app.store.webhooks_of(caller.0.account, page.to_store()).await.map_err(ApiError::from)?;
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
        let (new, made) = body.0.checked(&app)?;
        let (store, actor) = (app.store.clone(), caller.0.actor(&app));
        let id = App::to_the_end(async move { Ok(store.create_webhook(&actor, new).await?) }).await?;
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
        let (store, actor) = (app.store.clone(), caller.0.actor(&app));
        App::to_the_end(async move { Ok(store.delete_webhook(&actor, WebhookId(id.0)).await?) }).await?;
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
        _none: NoBody,
        /// Webhook identifier.
        id: Path<i64>,
    ) -> Result<Json<Done>> {
        let (store, actor) = (app.store.clone(), caller.0.actor(&app));
        App::to_the_end(async move { Ok(store.enable_webhook(&actor, WebhookId(id.0)).await?) }).await?;
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
        _none: NoBody,
        /// Webhook identifier.
        id: Path<i64>,
    ) -> Result<Json<SecretRotated>> {
        let (store, actor) = (app.store.clone(), caller.0.actor(&app));
        let secret = new_webhook_secret();
        let stored = secret.clone();
        let until = App::to_the_end(async move {
            Ok(store.rotate_webhook_secret(&actor, WebhookId(id.0), &stored).await?)
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
        let views = app.store.deliveries_of(caller.0.account, WebhookId(id.0), state, page.to_store()).await;
        let mut views = views.map_err(ApiError::from)?;
        let address = format!("{}/api/webhooks/{}/deliveries", app.config.public_base(), id.0);
        let link = page.finish_query(&mut views, &address, request.uri().query(), |view| view.id.0);
        Ok(with_link(Json(views.into_iter().map(Delivery::from).collect()), link))
    }

    /// Test a webhook
    ///
    /// Sends a `test.ping` at once, whatever the webhook subscribes to and whether it is enabled, and answers with what came
    /// of it. It is tried once. 10 a minute. An addition to the specification.
    #[oai(path = "/webhooks/:id/test", method = "post", operation_id = "testWebhook")]
    async fn test(
        &self,
        app: Data<&Arc<App>>,
        request: &poem::Request,
        caller: WebhookCaller,
        _none: NoBody,
        /// Webhook identifier.
        id: Path<i64>,
    ) -> Result<Json<WebhookTested>> {
        let verdict = app.limits.webhook_tests.hit(caller.0.subject, app.clock.monotonic());
        RequestContext::of(request).count(verdict)?;
        let webhooks = app.webhooks.clone();
        let tested =
            App::to_the_end(async move { Ok(webhooks.test(caller.0.account, WebhookId(id.0)).await?) })
                .await?;
        Ok(Json(WebhookTested::of(tested.0, tested.1)))
    }

    /// Send a delivery again
    ///
    /// At once and with the same event id. One that waits for its next attempt is tried earlier, any other once more. An
    /// addition to the specification.
    #[oai(
        path = "/webhooks/:id/deliveries/:deliveryId/redeliver",
        method = "post",
        operation_id = "redeliverWebhookDelivery"
    )]
    async fn redeliver(
        &self,
        app: Data<&Arc<App>>,
        caller: WebhookCaller,
        _none: NoBody,
        /// Webhook identifier.
        id: Path<i64>,
        /// Delivery identifier.
        #[oai(name = "deliveryId")]
        delivery_id: Path<i64>,
    ) -> Result<Json<Redelivered>> {
        let (store, actor) = (app.store.clone(), caller.0.actor(&app));
        let (webhook, delivery) = (WebhookId(id.0), DeliveryId(delivery_id.0));
        App::to_the_end(async move { Ok(store.redeliver(&actor, webhook, delivery).await?) }).await?;
        Ok(Json(Redelivered { success: true, id: delivery.0 }))
    }
}

impl From<TestError> for ApiError {
    fn from(error: TestError) -> Self {
        match error {
            TestError::Busy => Self::tests_busy(),
            TestError::Store(error) => error.into(),
        }
    }
}
