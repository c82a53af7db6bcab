//! Webhooks: list, create, delete, test, and their delivery log.

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

/// Most deliveries of one page: each has its body, and may have parts of several responses.
const DELIVERIES_MAX: u32 = 100;

/// Operations on webhooks.
pub(super) struct WebhooksApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Webhooks")]
impl WebhooksApi {
    /// List webhooks
    ///
    /// Newest first. The `Link` header has the next page. Needs a permanent key with the scope `webhooks`.
    #[oai(path = "/webhooks", method = "get", operation_id = "listWebhooks")]
    async fn list(
        &self,
        app: Data<&Arc<App>>,
        caller: WebhookCaller,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Position of the page, from a `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<Webhook>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let mut views =
            app.store.webhooks_of(caller.0.account, page.to_store()).await.map_err(ApiError::from)?;
        let address = format!("{}/api/webhooks", app.config().public_base());
        let link = page.finish(&mut views, &address, |view| view.id.0);
        Ok(with_link(Json(views.into_iter().map(Webhook::from).collect()), link))
    }

    /// Create a webhook
    ///
    /// Events are sent as POST requests with a JSON body. With a secret they are signed as in Standard Webhooks. Needs a permanent
    /// key with the scope `webhooks`.
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
    /// Pending deliveries are cancelled. Needs a permanent key with the scope `webhooks`.
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
    /// Events are sent to the webhook again after the service disabled it.
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
    /// For 24 hours, deliveries are also signed with the previous secret. Deliveries of a webhook without a secret are signed from
    /// then on.
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
    /// Deliveries of the last 30 days, newest first, at most 100 per page. The `Link` header has the next page.
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
        /// Position of the page, from a `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<Delivery>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?.at_most(DELIVERIES_MAX);
        let state = STATES.iter().find(|(shown, _)| Some(*shown) == state.0).map(|(_, state)| *state);
        let views = app.store.deliveries_of(caller.0.account, WebhookId(id.0), state, page.to_store()).await;
        let mut views = views.map_err(ApiError::from)?;
        let address = format!("{}/api/webhooks/{}/deliveries", app.config().public_base(), id.0);
        let link = page.finish_query(&mut views, &address, request.uri().query(), |view| view.id.0);
        Ok(with_link(Json(views.into_iter().map(Delivery::from).collect()), link))
    }

    /// Test a webhook
    ///
    /// Sends a `test.ping` at once and returns the result, whether or not the webhook is enabled or subscribes to it. There is only
    /// one attempt. At most 10 tests a minute.
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
        app.count(&RequestContext::of(request), request, &app.limits.webhook_tests, caller.0.subject).await?;
        let webhooks = app.webhooks.clone();
        let tested =
            App::to_the_end(async move { Ok(webhooks.test(caller.0.account, WebhookId(id.0)).await?) })
                .await?;
        Ok(Json(WebhookTested::of(tested.0, tested.1)))
    }

    /// Send a delivery again
    ///
    /// Sends the event at once, with the same event id. A pending delivery is attempted earlier; any other delivery gets one more
    /// attempt.
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
