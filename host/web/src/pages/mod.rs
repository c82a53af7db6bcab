//! The built pages: the folder `web` beside the binary, read and compressed once when the service starts ([`files`]). Only files
//! found then are served.
//!
//! `assets/` holds scripts and styles, whose names contain the hash of their content; `docs.html` is the API reference; `manual/`
//! is the manual, which only `cargo xtask docs` and a release make; `watch.html` is a template of [`crate::watch`].

mod files;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use poem::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderValue, VARY,
};
use poem::{Request, Response};

pub use files::{FILE_BYTES_MAX, FILES_MAX, PagesError};

use crate::base::ApiError;
use crate::playback::accepts_gzip;
use files::{File, Files};

/// Name of the folder beside the binary.
const FOLDER_NAME: &str = "web";
/// The API reference.
const REFERENCE: &str = "docs.html";
/// Folder of the manual.
const MANUAL: &str = "manual/";
/// Page of a folder of the manual.
const INDEX: &str = "index.html";
/// Nothing from other origins, no inline script or style, no frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
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

    /// The API reference.
    ///
    /// # Errors
    /// 503 without pages.
    pub fn reference(&self, request: &Request) -> Result<Response, ApiError> {
        let page = self.file(REFERENCE).ok_or_else(ApiError::pages_not_built)?;
        Ok(guarded(response(request, page, NEVER)))
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
        Ok(guarded(response(request, page, FOR_MINUTES)))
    }
}

fn response(request: &Request, file: &File, cache: HeaderValue) -> Response {
    let packed = file.gzip.as_ref().filter(|_| accepts_gzip(request.headers()));
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

fn guarded(mut response: Response) -> Response {
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, POLICY);
    response
}
