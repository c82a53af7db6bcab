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
mod clips;
mod cost;
mod destinations;
mod document;
mod drivers;
mod edits;
mod elsewhere;
mod encoders;
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
mod slate;
mod status;
mod streams;
#[cfg(test)]
pub(crate) mod tests;
mod uploads;
mod wallet;
mod webhooks;
mod whip;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use poem::endpoint::make;
use poem::http::header::{CONTENT_TYPE, HeaderValue};
use poem::web::Data;
use poem::{EndpointExt as _, Response, Route, handler};

pub use app::{App, KnownKeys, Limits, Subject, VERSION};
pub use caller::Caller;
pub use document::{document, document_text};

use self::document::Documents;
use self::service::service;
use crate::base::{ApiError, Middleware, Requests};
use crate::nodes::{COUNT_PREFIX, EVENTS_PATH};
use crate::playback::{NODE_PREFIX, NODE_VOD_PREFIX, PREFIX, VOD_PREFIX};
use satcast_core::config::WHIP_PATH;
use satcast_drivers::State;
use satcast_live::Admits;

/// Routes that are counted beside those of the document; `/hls/` is all playback, those below `/node/` are for other nodes.
const BESIDE: [&str; 16] = [
    PREFIX,
    VOD_PREFIX,
    NODE_PREFIX,
    NODE_VOD_PREFIX,
    COUNT_PREFIX,
    EVENTS_PATH,
    "/openapi.json",
    "/metrics",
    "/healthz",
    "/readyz",
    "/docs",
    "/watch/{path}",
    "/watch/vod/{id}",
    "/watch/{path}/viewers",
    "/assets/{name}",
    "/licenses",
];

/// API, document, metrics, health checks and the routes of `beside`, inside the middleware.
pub fn endpoint(app: Arc<App>, beside: Route) -> Middleware {
    let documents = Documents::new(&app.drivers);
    let methods = document::methods_by_path();
    let named = methods.keys().map(String::as_str).filter(|path| {
        !BESIDE.contains(path) && ![PREFIX, VOD_PREFIX].iter().any(|prefix| path.starts_with(prefix))
    });
    let requests = Arc::new(Requests::new(named.chain(BESIDE)));
    let (measured, counted) = (app.clone(), requests.clone());
    let (offered, left) = (app.clone(), app.clone());
    let routes = beside
        // Not at "/": it would hide the page there.
        .nest_no_strip("/api", service())
        .at("/openapi.json", poem::get(make(move |_| json(documents.get()))))
        .at(
            "/metrics",
            poem::get(make(move |request| metrics::respond(measured.clone(), counted.clone(), request))),
        )
        .at(WHIP_PATH, make(move |request| whip::publish(offered.clone(), request)))
        .at(WHIP_PATH.to_owned() + "/:id", make(move |request| whip::leave(left.clone(), request)))
        .at("/healthz", poem::get(healthz))
        .at("/readyz", poem::get(readyz))
        .data(app.clone());
    let routes = idempotency::Idempotent::new(routes, app.clone());
    let polled = status::Polled::new(app.clone());
    Middleware::new(routes, app.clock.clone(), &app.config().http.trusted_proxies, methods)
        .counting(requests)
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

/// Readiness: every part can do its work. Otherwise the answer names each part that cannot, and why.
#[handler]
async fn readyz(app: Data<&Arc<App>>) -> poem::Result<&'static str> {
    let faults = not_ready(&app).await;
    if faults.is_empty() {
        return Ok("ok\n");
    }
    for (part, reason) in &faults {
        tracing::warn!(part, reason, "not ready");
    }
    Err(ApiError::not_ready(faults).into())
}

/// Parts that are not ready, and why. The answer needs no key, so it holds no detail of the operator's machines.
async fn not_ready(app: &App) -> Vec<(&'static str, &'static str)> {
    let mut faults = Vec::new();
    if app.stopping.load(Ordering::Relaxed) {
        faults.push(("service", "it is shutting down"));
    }
    if let Err(error) = app.store.ping().await {
        tracing::warn!(%error, "the database does not answer");
        faults.push(("database", "it does not answer"));
    }
    let is_wanted = !app.config().drivers.enabled.is_empty();
    if is_wanted && !app.drivers.summaries().iter().any(|driver| driver.state == State::Loaded) {
        faults.push(("drivers", "none of the enabled drivers is loaded"));
    }
    match app.live.admits() {
        Admits::All => {}
        Admits::Returning => faults.push(("node", "it is being drained")),
        Admits::Nobody => faults.push(("node", "it has no lease")),
    }
    faults
}
