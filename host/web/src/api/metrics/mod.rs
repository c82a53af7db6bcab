//! `/metrics`: state of the service and its destinations, for operators, in the text format of Prometheus (version 0.0.4).
//!
//! Holds no stream key, address or account: streams and destinations are labelled by their ids.

mod live;
mod process;
mod service;
mod text;

use std::sync::Arc;

use poem::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use poem::{Request, Response};

#[cfg(test)]
pub(super) use self::service::stored;
pub(super) use self::text::Text;
use super::app::{App, VERSION};
use super::drivers::is_operator;
use crate::api::caller::Caller;
use crate::base::{ApiError, Code, Requests};

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics; an error unless the caller is an operator.
pub(super) async fn respond(
    app: Arc<App>,
    requests: Arc<Requests>,
    request: Request,
) -> poem::Result<Response> {
    let caller = Caller::of(&app, &request).await?;
    if !is_operator(&app, &caller).await? {
        let text = "Only operators may read metrics; use a key of an operator account (satcast account create --operator)";
        return Err(ApiError::forbidden(Code::NotOperator, text).into());
    }
    let mut response = Response::from(text(&app, &requests).await);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(FORMAT));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn text(app: &App, requests: &Requests) -> String {
    let mut text = Text::default();
    text.family("satcast_build_info", "gauge", "Always 1; the label is the version of the service");
    text.sample("satcast_build_info", &[("version", VERSION)], 1);
    live::sessions(&mut text, app);
    live::destinations(&mut text, &app.live.destinations());
    live::drivers(&mut text, &app.drivers.summaries());
    service::requests(&mut text, requests);
    service::playback(&mut text, app);
    service::billing(&mut text, app);
    service::traces(&mut text);
    service::certificates(&mut text, app);
    service::database(&mut text, app);
    service::stored(&mut text, app).await;
    process::process(&mut text);
    text.0
}
