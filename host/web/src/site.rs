//! Everything the HTTP port serves: playback below `/hls/` and `/vod/`; everywhere else, inside the middleware, the API and the pages.

use std::sync::Arc;

use poem::endpoint::{make, make_sync};
use poem::error::NotFoundError;
use poem::web::Redirect;
use poem::{Endpoint, Request, Response, Route};

use crate::api::{self, App};
use crate::base::{ApiError, Middleware};
use crate::nodes::{COUNT_PREFIX, EVENTS_PATH, Nodes};
use crate::pages::{DASHBOARD_PATHS, Pages};
use crate::playback::{NODE_PREFIX, NODE_VOD_PREFIX, PREFIX, Playback, VOD_PREFIX};
use crate::watch::{self, Shown, Watch};

/// The endpoint of the HTTP port.
#[derive(Debug)]
pub struct Site {
    middleware: Middleware,
    playback: Arc<Playback>,
    nodes: Option<Arc<Nodes>>,
}

impl Site {
    /// The API of `app`, its playback, and `pages`.
    pub fn new(app: Arc<App>, pages: Arc<Pages>) -> Self {
        let (playback, nodes) = (app.playback.clone(), app.nodes.clone());
        let (watch, watched, counted) = (Arc::new(Watch::of(&pages)), playback.clone(), playback.clone());
        let (shown, played) = (watch.clone(), playback.clone());
        let (assets, reference, texts, others) = (pages.clone(), pages.clone(), pages.clone(), pages.clone());
        let dashboard = DASHBOARD_PATHS.iter().fold(Route::new(), |routes, path| {
            let pages = pages.clone();
            routes.at(path, poem::get(make_sync(move |request: Request| pages.dashboard(&request))))
        });
        let routes = dashboard
            .at("/watch/:path", poem::get(make(move |request| page(watch.clone(), watched.clone(), request))))
            .at(
                "/watch/vod/:id",
                poem::get(make(move |request| recording(shown.clone(), played.clone(), request))),
            )
            .at("/watch/:path/viewers", poem::get(make(move |request| viewers(counted.clone(), request))))
            .at("/assets/:name", poem::get(make(move |request| asset(assets.clone(), request))))
            .at("/docs", poem::get(make(move |request| documentation(reference.clone(), request))))
            .at("/licenses", poem::get(make(move |request| licences(texts.clone(), request))))
            .at("/manual", poem::get(make_sync(|_| Redirect::temporary("/manual/"))))
            .at("/manual/*path", poem::get(make(move |request| manual(pages.clone(), request))))
            // Every other path. `/*` would take `/` as well.
            .at("/<.+>", make(move |request| unknown(others.clone(), request)));
        Self { middleware: api::endpoint(app, routes), playback, nodes }
    }
}

impl Endpoint for Site {
    type Output = Response;

    async fn call(&self, request: Request) -> poem::Result<Response> {
        if let Some(response) = self.for_node(&request).await {
            Ok(response)
        } else if let Some(route) = playback_route(request.uri().path()) {
            let response = self.playback.answer(request).await;
            self.middleware.requests().count(route, response.status());
            Ok(response)
        } else {
            Ok(self.middleware.answer(request).await)
        }
    }
}

/// The route of a path that playback answers.
fn playback_route(path: &str) -> Option<&'static str> {
    [PREFIX, VOD_PREFIX].into_iter().find(|route| path.starts_with(route))
}

impl Site {
    /// The answer to another node; `None` for any other request.
    async fn for_node(&self, request: &Request) -> Option<Response> {
        let path = request.uri().path();
        let routes = [EVENTS_PATH, COUNT_PREFIX, NODE_PREFIX, NODE_VOD_PREFIX];
        let route = routes.into_iter().find(|route| path.starts_with(route))?;
        if !self.playback.admits(request) {
            return None;
        }
        let response = match route {
            EVENTS_PATH => self.nodes.as_ref()?.give_events(),
            COUNT_PREFIX => self.nodes.as_ref()?.give_count(request),
            _ => self.playback.give(request).await,
        };
        self.middleware.requests().count(route, response.status());
        Some(response)
    }
}

/// The player page of a self-hosted destination.
async fn page(watch: Arc<Watch>, playback: Arc<Playback>, request: Request) -> poem::Result<Response> {
    let path = request.raw_path_param("path").unwrap_or_default();
    Ok(watch.answer(&playback, &request, Shown::Stream(path)).await?)
}

/// The player page of a recording.
async fn recording(watch: Arc<Watch>, playback: Arc<Playback>, request: Request) -> poem::Result<Response> {
    let id = request.raw_path_param("id").and_then(|id| id.parse().ok());
    let id = id.ok_or_else(|| ApiError::not_found("recording"))?;
    Ok(watch.answer(&playback, &request, Shown::Recording(id)).await?)
}

/// Number of viewers, for the player page.
async fn viewers(playback: Arc<Playback>, request: Request) -> poem::Result<Response> {
    let path = request.raw_path_param("path").unwrap_or_default();
    Ok(watch::viewers(&playback, &request, path).await?)
}

/// A script or style of a page.
async fn asset(pages: Arc<Pages>, request: Request) -> poem::Result<Response> {
    Ok(pages.asset(&request, request.raw_path_param("name").unwrap_or_default())?)
}

/// The API reference.
async fn documentation(pages: Arc<Pages>, request: Request) -> poem::Result<Response> {
    Ok(pages.reference(&request)?)
}

/// The licences of the packages in the pages.
async fn licences(pages: Arc<Pages>, request: Request) -> poem::Result<Response> {
    Ok(pages.licences(&request)?)
}

/// An address that nothing else has.
async fn unknown(pages: Arc<Pages>, request: Request) -> poem::Result<Response> {
    pages.unknown(&request).ok_or_else(|| NotFoundError.into())
}

/// A page of the manual.
async fn manual(pages: Arc<Pages>, request: Request) -> poem::Result<Response> {
    // A path that is not UTF-8 has no parameter.
    let path = request.raw_path_param("path").ok_or_else(|| ApiError::not_found("page"))?;
    Ok(pages.manual(&request, path)?)
}
