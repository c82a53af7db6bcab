//! Everything the HTTP port serves: playback below `/hls/`; everywhere else, inside the middleware, the API and the player page.

use std::sync::Arc;

use poem::endpoint::make;
use poem::{Endpoint, Request, Response, Route};

use crate::api::{self, App};
use crate::base::Middleware;
use crate::playback::{PREFIX, Playback};
use crate::watch::{self, Pages};

/// The endpoint of the HTTP port.
#[derive(Debug)]
pub struct Site {
    middleware: Middleware,
    playback: Arc<Playback>,
}

impl Site {
    /// The API of `app`, its playback, and the player page from `pages`.
    pub fn new(app: Arc<App>, pages: Arc<Pages>) -> Self {
        let playback = app.playback.clone();
        let (watched, counted, assets) = (playback.clone(), playback.clone(), pages.clone());
        let routes = Route::new()
            .at("/watch/:path", poem::get(make(move |request| page(pages.clone(), watched.clone(), request))))
            .at("/watch/:path/viewers", poem::get(make(move |request| viewers(counted.clone(), request))))
            .at("/assets/:name", poem::get(make(move |request| asset(assets.clone(), request))));
        Self { middleware: api::endpoint(app, routes), playback }
    }
}

impl Endpoint for Site {
    type Output = Response;

    async fn call(&self, request: Request) -> poem::Result<Response> {
        if request.uri().path().starts_with(PREFIX) {
            Ok(self.playback.answer(request).await)
        } else {
            Ok(self.middleware.answer(request).await)
        }
    }
}

/// The player page of a self-hosted destination.
async fn page(pages: Arc<Pages>, playback: Arc<Playback>, request: Request) -> poem::Result<Response> {
    let path = request.raw_path_param("path").unwrap_or_default();
    Ok(pages.watch(&playback, &request, path).await?)
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
