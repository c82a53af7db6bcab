//! The built pages: the folder `web` beside the binary, read and compressed once when the service starts ([`files`]). Only files
//! found then are served.
//!
//! `assets/` holds scripts and styles, whose names contain the hash of their content; `index.html` is the dashboard; `docs.html` is
//! the API reference; `licences.txt` has the licences of the packages in the pages; `manual/` is the manual, which only
//! `cargo xtask docs` and a release make; `watch.html` is a template of [`crate::watch`].

mod files;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use poem::http::header::{
    ACCEPT, ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, HeaderName, HeaderValue, VARY,
};
use poem::http::{Method, StatusCode};
use poem::{Request, Response};

pub use files::{FILE_BYTES_MAX, FILES_MAX, PagesError};

use crate::base::ApiError;
use crate::playback::accepts_gzip;
use files::{File, Files, PLAIN_TEXT};

/// Name of the folder beside the binary.
const FOLDER_NAME: &str = "web";
/// Paths of the dashboard: one page, whose script shows what belongs to the path. `host/dashboard/src/routes.ts` has the same.
pub(crate) const DASHBOARD_PATHS: [&str; 14] = [
    "/login",
    "/setup",
    "/",
    "/streams/:id",
    "/webhooks",
    "/webhooks/:id",
    "/keys",
    "/recordings",
    "/clips",
    "/analytics",
    "/wallet",
    "/drivers",
    "/accounts",
    "/settings",
];
/// First parts of paths whose unknown addresses get JSON from a browser, too.
const OTHER_PATHS: [&str; 8] = ["api", "hls", "watch", "docs", "manual", "metrics", "licenses", "assets"];
/// The dashboard.
const DASHBOARD: &str = "index.html";
/// The API reference.
const REFERENCE: &str = "docs.html";
/// The licences of the packages in the pages.
const LICENCES: &str = "licences.txt";
/// Folder of the manual.
const MANUAL: &str = "manual/";
/// Page of a folder of the manual.
const INDEX: &str = "index.html";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// Nothing from other origins, no inline script or style, no frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
/// As [`POLICY`]; hls.js feeds the video of the preview through `blob:`, and works in a worker.
const DASHBOARD_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; \
     connect-src 'self'; worker-src 'self' blob:; font-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'",
);
/// Cached for a long time, because names contain the hash of the content.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// A page that another release replaces under the same name.
const FOR_MINUTES: HeaderValue = HeaderValue::from_static("public, max-age=300");
/// A page that names files of its own build.
const NEVER: HeaderValue = HeaderValue::from_static("no-cache");

/// The built pages, or the reason why they are missing.
#[derive(Debug)]
pub struct Pages(Result<Files, PagesError>);

impl Pages {
    /// The folder of the pages, beside the running binary.
    pub fn folder() -> PathBuf {
        let binary = std::env::current_exe().unwrap_or_default();
        binary.parent().unwrap_or(Path::new("")).join(FOLDER_NAME)
    }

    /// Reads the folder. Without pages the service still runs, with a warning in the log.
    pub fn load(folder: &Path) -> Self {
        let found = files::read(folder);
        if let Err(error) = &found {
            tracing::warn!(%error, "no pages are served");
        }
        Self(found)
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.0.as_ref().ok()?.get(path)
    }

    /// The text of a file, for a template.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.file(path).and_then(|file| std::str::from_utf8(&file.plain).ok())
    }

    /// A script or style by name.
    ///
    /// # Errors
    /// 404 for a file that did not exist at the start, 503 without pages.
    pub fn asset(&self, request: &Request, name: &str) -> Result<Response, ApiError> {
        let missing = if self.0.is_ok() { ApiError::not_found("file") } else { ApiError::pages_not_built() };
        let asset = self.file(&format!("assets/{name}")).ok_or(missing)?;
        let mut response = response(request, asset, FOR_EVER);
        // A sandboxed frame has an opaque origin and loads scripts as a cross-origin request.
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        Ok(response)
    }

    /// The dashboard; without pages a text for people that says how to get them, with status 503.
    pub fn dashboard(&self, request: &Request) -> Response {
        if let Some(page) = self.file(DASHBOARD) {
            return guarded(response(request, page, NEVER), DASHBOARD_POLICY);
        }
        let error = ApiError::pages_not_built();
        let mut response = Response::from(format!("{error}\n"));
        response.set_status(error.http_status());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PLAIN_TEXT));
        response
    }

    /// For a browser at an unknown address: the dashboard, whose script shows that there is no such page, with 404.
    pub fn unknown(&self, request: &Request) -> Option<Response> {
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        if !is_read || !prefers_page(request) || self.file(DASHBOARD).is_none() {
            return None;
        }
        let mut response = self.dashboard(request);
        response.set_status(StatusCode::NOT_FOUND);
        Some(response)
    }

    /// The API reference.
    ///
    /// # Errors
    /// 503 without pages.
    pub fn reference(&self, request: &Request) -> Result<Response, ApiError> {
        self.page(request, REFERENCE)
    }

    /// The licences of the packages in the pages.
    ///
    /// # Errors
    /// 503 without pages.
    pub fn licences(&self, request: &Request) -> Result<Response, ApiError> {
        self.page(request, LICENCES)
    }

    fn page(&self, request: &Request, path: &str) -> Result<Response, ApiError> {
        let page = self.file(path).ok_or_else(ApiError::pages_not_built)?;
        Ok(guarded(response(request, page, NEVER), POLICY))
    }

    /// A file of the manual by its path, which is empty for the first page.
    ///
    /// # Errors
    /// 404 for a file that did not exist at the start, 503 without a manual.
    pub fn manual(&self, request: &Request, path: &str) -> Result<Response, ApiError> {
        let first = self.file(&format!("{MANUAL}{INDEX}")).ok_or_else(ApiError::manual_not_built)?;
        let page = match path {
            "" => first,
            path => self.file(&format!("{MANUAL}{path}")).ok_or_else(|| ApiError::not_found("page"))?,
        };
        Ok(guarded(response(request, page, FOR_MINUTES), POLICY))
    }
}

/// Whether a page is the best answer: browsers name `text/html` first when a person opens an address.
fn prefers_page(request: &Request) -> bool {
    let first = request.uri().path().split('/').nth(1).unwrap_or_default();
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    !OTHER_PATHS.contains(&first) && accept.is_some_and(|accept| accept.trim_start().starts_with("text/html"))
}

fn response(request: &Request, file: &File, cache: HeaderValue) -> Response {
    let packed = file.gzip().filter(|_| accepts_gzip(request.headers()));
    let mut response = Response::from(packed.unwrap_or(&file.plain).clone());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    headers.insert(CACHE_CONTROL, cache);
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if packed.is_some() {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn guarded(mut response: Response, policy: HeaderValue) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    // A page of another site that opened this one cannot replace it by an imitation.
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    response
}
