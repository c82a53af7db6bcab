//! Requests of other nodes for content of this node's sessions and recordings. Keys, metering and counting are at the node of the viewer. Nothing is
//! relayed from here, so no request goes in a circle.

use poem::http::header::{HeaderName, HeaderValue, RANGE};
use poem::http::{HeaderMap, StatusCode};
use poem::{Request, Response};
use satcast_plugin_api::http::Method as HttpMethod;
use satcast_plugin_api::{Audience, HttpRequest};
use tokio::time::timeout;

use super::body::Chain;
use super::follow::{Asked, Current, follow};
use super::headers::Keep;
use super::relay::{
    BEGUN, Content, DRIVER, NOT_PUBLISHED, NOT_YET, OF_NODE, Part, Report, Resource, SESSION, SLICE, VIEWERS,
    What,
};
use super::route::refused;
use super::serve::{Found, Refused};
use super::{Playback, caught};
use crate::base::{ApiError, RequestContext};
use satcast_core::networks::Network;
use satcast_drivers::published::{Answer, Opening};

impl Playback {
    /// Answers another node, which the caller has [admitted](Self::admits). It never fails: errors and panics become responses.
    pub(crate) async fn give(&self, request: &Request) -> Response {
        let context = RequestContext::begin(request, &self.trusted_proxies);
        self.answer_node(request, &context).await
    }

    /// Whether a request comes from another node. One without the secret of the nodes counts as a wrong key of its network.
    pub(crate) fn admits(&self, request: &Request) -> bool {
        let Some(relay) = &self.relay else { return false };
        let admitted = relay.admits(request.headers());
        if !admitted {
            let context = RequestContext::begin(request, &self.trusted_proxies);
            // The answer is that of an unknown path in any case.
            let _ = self.invalid_keys.hit(Network::from(context.client), self.clock.monotonic());
        }
        admitted
    }

    pub(super) async fn answer_node(&self, request: &Request, context: &RequestContext) -> Response {
        let answer = caught(self.resource_for_node(request), context).await;
        let mut response = answer.unwrap_or_else(|refused| refused.response(context));
        response.headers_mut().insert(OF_NODE, HeaderValue::from_static("1"));
        response
    }

    async fn resource_for_node(&self, request: &Request) -> Result<Response, Refused> {
        if let Some((id, part)) = Part::parse(request.uri().path()) {
            return Ok(self.recording_for_node(id, part).await?);
        }
        let query = request.uri().query().unwrap_or_default();
        let resource =
            Resource::parse(request.uri().path(), query).ok_or_else(|| ApiError::not_found("path"))?;
        if let What::Driver { path, query } = resource.what {
            return self.driver_for_node(request, &resource, path, query).await;
        }
        let report = Report::parse(query);
        let content = match (resource.audience, resource.what) {
            (Audience::Hosted, What::Asset { name, query, player }) => {
                let found = timeout(SLICE, self.hosted(&resource, &report, name, query, player)).await;
                match found {
                    Ok(content) => content?,
                    Err(_) => return Ok(Response::from(NOT_YET)),
                }
            }
            _ => self.own(&resource)?,
        };
        let opening = content.opening.clone();
        let mut response = match &content.asset {
            None => Response::from(NOT_PUBLISHED),
            Some(asset) => {
                let secs = content.max_age_secs.unwrap_or(asset.max_age_secs);
                let found = Found { opening: content.opening, keep: Keep::Playlist(secs), counted: None };
                self.deliver(request, asset.clone(), found).await?
            }
        };
        self.say(&mut response, &opening, &report);
        Ok(response)
    }

    /// A hosted asset, waited for as a player asks.
    async fn hosted(
        &self,
        resource: &Resource<'_>,
        report: &Report,
        name: &str,
        query: &str,
        player: bool,
    ) -> Result<Content, ApiError> {
        let session = resource.session.unwrap_or_default();
        let opening =
            self.live.opening_of(resource.destination, session, name).ok_or_else(ApiError::offline)?;
        let asset = opening.assets().get(name).filter(|asset| asset.audience.is_hosted());
        // Media players ask for ranges of everything.
        let ranges = player.then(|| (RANGE, HeaderValue::from_static("bytes=0-")));
        let headers = HeaderMap::from_iter(ranges);
        let asked = Asked { query, headers: &headers, waited: report.waited };
        let Current { asset, max_age_secs, waited } = follow(asked, &opening, name, asset).await?;
        Ok(Content { opening, asset, max_age_secs, waited })
    }

    /// The answer of the driver, with its headers under another name.
    async fn driver_for_node(
        &self,
        request: &Request,
        resource: &Resource<'_>,
        path: &str,
        query: &str,
    ) -> Result<Response, Refused> {
        let opening = self.own_opening(resource)?;
        let handler = opening.assets().handler().ok_or_else(|| ApiError::not_found("asset"))?;
        let (path, query) = (path.to_owned(), query.to_owned());
        let asked = HttpRequest { method: HttpMethod::Get, audience: resource.audience, path, query };
        let Answer { status, headers, asset } = handler.ask(asked).await.map_err(refused)?;
        let chain = Chain::of(&opening, &asset).ok_or_else(ApiError::driver_failed)?;
        let slices =
            chain.cut(0, chain.size, None).await.map_err(|error| self.unreadable(&error, &opening))?;
        let found =
            Found { opening: opening.clone(), keep: Keep::Playlist(asset.max_age_secs), counted: None };
        let mut response = self.response(request, &asset, &found, slices);
        response.set_status(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
        for (name, value) in headers {
            let name = HeaderName::try_from(format!("{DRIVER}{name}"));
            if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
                response.headers_mut().append(name, value);
            }
        }
        self.say(&mut response, &opening, &Report::default());
        Ok(response)
    }

    /// Takes the players of the node that asks, and adds what it needs to know about the session.
    fn say(&self, response: &mut Response, opening: &Opening, report: &Report) {
        let (headers, now) = (response.headers_mut(), self.clock.monotonic());
        headers
            .extend(HeaderValue::from_str(opening.session.as_str()).ok().map(|session| (SESSION, session)));
        if opening.has_begun() {
            headers.insert(BEGUN, HeaderValue::from_static("1"));
        }
        if let (Some((node, players)), Some(relay)) = (&report.viewers, &self.relay) {
            relay.remote_players.note(opening.destination, node, *players, now);
            let others = relay.remote_players.players(opening.destination, Some(node), now);
            let here = self.viewers.count(opening.destination, now);
            headers.insert(VIEWERS, HeaderValue::from(here.saturating_add(others)));
        }
    }
}
