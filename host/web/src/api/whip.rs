//! WHIP (RFC 9725): offers of encoders, and the end of their publishes. Their media goes to the port of `[ingest] webrtc_listen`.
//!
//! Neither trickled candidates nor restarts of ICE are taken, so PATCH is answered as RFC 9725 (4.3) says: 405.

use std::sync::Arc;

use poem::http::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use poem::http::{Method, StatusCode};
use poem::{Request, Response};

use super::app::App;
use super::body::{BODY_TIMEOUT, read_limited};
use crate::auth;
use crate::base::{ApiError, Code, RequestContext};
use satcast_core::config::WHIP_PATH;
use satcast_live::ingest::{Whip, WhipAccepted};

/// Media type of offers and answers.
const SDP: &str = "application/sdp";

/// Answers a request to [`WHIP_PATH`].
pub(super) async fn publish(app: Arc<App>, mut request: Request) -> poem::Result<Response> {
    let whip = whip(&app, &request, &Method::POST)?;
    let kind = request.content_type().unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(SDP) {
        return Err(ApiError::not_sdp().into());
    }
    let offer = read_limited(request.take_body(), Whip::OFFER_BYTES_MAX, BODY_TIMEOUT).await?;
    let offer = String::from_utf8(offer.into())
        .map_err(|_| ApiError::malformed(Code::MalformedBody, "The offer is not text; send SDP"))?;
    let client = RequestContext::of(&request).client;
    let accepted = whip.publish(client, auth::presented_key(&request), offer).await;
    let WhipAccepted { id, answer } = accepted.map_err(ApiError::publish_refused)?;
    let mut response = Response::from(answer);
    response.set_status(StatusCode::CREATED);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(SDP));
    if let Ok(location) = HeaderValue::from_str(&format!("{WHIP_PATH}/{id}")) {
        headers.insert(LOCATION, location);
    }
    Ok(response)
}

/// Answers a request to the address of a publish.
pub(super) async fn leave(app: Arc<App>, request: Request) -> poem::Result<Response> {
    let whip = whip(&app, &request, &Method::DELETE)?;
    let id = request.raw_path_param("id").unwrap_or_default();
    let client = RequestContext::of(&request).client;
    whip.leave(client, auth::presented_key(&request), id).await.map_err(ApiError::publish_refused)?;
    Ok(Response::from(()))
}

/// The port of WHIP, for a request with the one method of its path.
fn whip<'a>(app: &'a App, request: &Request, method: &Method) -> Result<&'a Whip, ApiError> {
    if request.method() != method {
        return Err(ApiError::method_not_allowed());
    }
    app.whip.as_ref().ok_or_else(ApiError::whip_off)
}
