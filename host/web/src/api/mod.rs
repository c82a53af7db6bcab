//! The JSON API: turns requests into calls of the store and of live sessions, and answers into JSON.
//!
//! The only HTTP-JSON code. Handlers hold no decisions: they read, call, and convert. Every request goes through
//! the middleware (`base::middleware`), which gives it an id, answers every error in one shape, and writes the access log.

mod accounts;
mod analytics;
mod app;
mod archives;
mod audit;
mod bandwidth;
mod body;
mod caller;
mod cost;
mod destinations;
mod document;
mod drivers;
mod edits;
mod events;
mod health;
mod idempotency;
mod keys;
mod login;
mod metrics;
mod null;
mod page;
mod playback;
mod public;
mod range;
mod service;
mod status;
mod streams;
#[cfg(test)]
pub(crate) mod tests;
mod wallet;
mod webhooks;

use std::sync::Arc;

use poem::endpoint::make;
use poem::http::header::{CONTENT_TYPE, HeaderValue};
use poem::web::Data;
use poem::{EndpointExt as _, Response, Route, handler};

pub use app::{App, KnownKeys, Limits, Subject, VERSION};
pub use caller::Caller;
pub use document::{document, document_text};

use self::document::Documents;
use self::service::service;
use crate::base::{ApiError, Middleware};

/// API, document, metrics, health checks and the routes of `beside`, inside the middleware.
pub fn endpoint(app: Arc<App>, beside: Route) -> Middleware {
    let document = document(&app.drivers.schemas());
    let documents = Documents::new(&app.drivers);
    let measured = app.clone();
    let routes = beside
        // Not at "/": it would hide the page there.
        .nest_no_strip("/api", service())
        .at("/openapi.json", poem::get(make(move |_| json(documents.get()))))
        .at("/metrics", poem::get(make(move |request| metrics::respond(measured.clone(), request))))
        .at("/healthz", poem::get(healthz))
        .at("/readyz", poem::get(readyz))
        .data(app.clone());
    let routes = idempotency::Idempotent::new(routes, app.clone());
    let methods = document::methods_by_path(&document);
    let polled = status::Polled::new(app.clone());
    Middleware::new(routes, app.clock.clone(), &app.config().http.trusted_proxies, methods)
        .with_polled(status::PATH, make(move |request| polled.clone().respond(request)))
}

async fn json(text: Arc<str>) -> poem::Result<Response> {
    let mut response = Response::from(text.to_string());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Liveness: the process responds.
#[handler]
fn healthz() -> &'static str {
    "ok\n"
}

/// Readiness: the database responds.
#[handler]
async fn readyz(app: Data<&Arc<App>>) -> poem::Result<&'static str> {
    match app.store.ping().await {
        Ok(()) => Ok("ok\n"),
        Err(error) => {
            tracing::warn!(%error, "not ready");
            Err(ApiError::not_ready().into())
        }
    }
}
