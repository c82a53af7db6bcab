//! The player page: `GET /watch/<playback_path>?apiKey=...`, to be opened or embedded in a frame of a website, and
//! `GET /watch/vod/<id>?apiKey=...` for a recording, or with the `token` of its owner.
//!
//! The page is one of the built [`crate::pages`]. Only four slots of it differ between viewers ([`template`]), and none of them
//! holds the key. The page's script takes the key from the page's URL and sends it only with the index playlist or the file of a clip; the policies below prevent
//! requests to other origins than the store of a recording, to which the service redirects its viewers.

mod template;
#[cfg(test)]
mod tests;

use poem::http::StatusCode;
use poem::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    HeaderValue,
};
use poem::{Request, Response};
use serde_json::json;

use crate::auth::presented_key;
use crate::base::{ApiError, RequestContext};
use crate::pages::Pages;
use crate::playback::{Admission, Playback};
use template::{Slot, Template};

/// The page among the built ones.
const FILE: &str = "watch.html";
const ROBOTS: HeaderName = HeaderName::from_static("x-robots-tag");
/// Title of a page without a stream.
const NO_LABEL: &str = "Player";

/// Headlines shown instead of a player.
pub(crate) const INCOMPLETE: &str = "The address of this player is not complete";
pub(crate) const WRONG_KEY: &str = "This key does not open this stream";
pub(crate) const TOO_MANY_KEYS: &str = "Too many wrong keys came from your network";
pub(crate) const NO_LOOK_UP: &str = "The service cannot look this address up at present";
const NO_RECORDING: &str = "The recording is not here";
const OLD_ADDRESS: &str = "This address does not open the recording";

/// What a player page shows.
#[derive(Clone, Copy, Debug)]
pub enum Shown<'a> {
    /// The stream of a self-hosted destination, by its playback path.
    Stream(&'a str),
    /// A recording or clip, by the id of its recording.
    Recording(i64),
}

impl Shown<'_> {
    fn kind(self) -> &'static str {
        match self {
            Self::Stream(_) => "stream",
            Self::Recording(_) => "recording",
        }
    }
}

/// The player page; `None` if it was not built.
#[derive(Debug)]
pub struct Watch(Option<Template>);

impl Watch {
    /// The page among the built ones. A page of another version is not served, with a warning in the log.
    pub fn of(pages: &Pages) -> Self {
        let page = pages.text(FILE).map(Template::parse).transpose();
        if let Err(error) = &page {
            tracing::warn!(%error, file = FILE, "the player page is of another version and is not served; build the pages again");
        }
        Self(page.unwrap_or_default())
    }

    /// The player page for viewers with a key of it; without a valid key, the page shows the error.
    ///
    /// # Errors
    /// 503 without the page.
    pub async fn answer(
        &self,
        playback: &Playback,
        request: &Request,
        shown: Shown<'_>,
    ) -> Result<Response, ApiError> {
        let page = self.0.as_ref().ok_or_else(ApiError::pages_not_built)?;
        let context = RequestContext::of(request);
        let admitted = match (shown, presented_key(request)) {
            (Shown::Stream(path), Some(key)) => playback.admit(&context, path, &key).await,
            (Shown::Stream(_), None) => Err(ApiError::public_key_required()),
            (Shown::Recording(id), _) => playback.admit_recording(request, &context, id).await,
        };
        let (status, view) = match admitted {
            Ok(admission) => (StatusCode::OK, View::player(admission, shown)),
            Err(error) => (error.http_status(), View::problem(&error, shown)),
        };
        let mut response = Response::from(page.fill(|slot| match slot {
            Slot::Label => &view.label,
            Slot::Kind => view.kind,
            Slot::State => view.state,
            Slot::Headline => view.headline,
            Slot::Advice => view.advice,
        }));
        response.set_status(status);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // The URL contains a key.
        headers.insert(ROBOTS, HeaderValue::from_static("noindex, nofollow"));
        let policy = policy(&view.stores, &view.origins);
        headers.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::try_from(policy).map_err(|_| ApiError::internal())?,
        );
        Ok(response)
    }
}

/// Number of viewers, for a page that shows it. The stream status is not used, because its rate limit is for the site.
///
/// # Errors
/// 400 without a key, 401 for a wrong key, 429 after too many of these, 502 from the store.
pub(crate) async fn viewers(
    playback: &Playback,
    request: &Request,
    path: &str,
) -> Result<Response, ApiError> {
    let key = presented_key(request).ok_or_else(ApiError::public_key_required)?;
    let admission = playback.admit(&RequestContext::of(request), path, &key).await?;
    let count = playback.viewers(admission.destination);
    let mut response = Response::from(json!({ "viewers": count }).to_string());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A sandboxed frame has an opaque origin and sends a cross-origin request.
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    Ok(response)
}

/// Content of the page.
struct View {
    label: String,
    origins: Vec<String>,
    stores: Vec<String>,
    kind: &'static str,
    state: &'static str,
    headline: &'static str,
    advice: &'static str,
}

impl View {
    fn player(admission: Admission, shown: Shown<'_>) -> Self {
        let Admission { label, origins, stores, is_clip, .. } = admission;
        let kind = if is_clip { "clip" } else { shown.kind() };
        Self { label, origins, stores, kind, state: "starting", headline: "Loading…", advice: "" }
    }

    fn problem(error: &ApiError, shown: Shown<'_>) -> Self {
        let is_stream = matches!(shown, Shown::Stream(_));
        let (headline, advice) = match error.http_status() {
            StatusCode::BAD_REQUEST if is_stream => (
                INCOMPLETE,
                "The address must end in ?apiKey= and a key. Ask the person who gave it to you for the complete address.",
            ),
            StatusCode::BAD_REQUEST => (
                INCOMPLETE,
                "The address must end in ?apiKey= and a key, or in ?token= and a token. Ask the person who gave it to you for the complete address.",
            ),
            StatusCode::TOO_MANY_REQUESTS => {
                (TOO_MANY_KEYS, "Wait a minute, then try again with the address exactly as you got it.")
            }
            status if status.is_server_error() => {
                (NO_LOOK_UP, "The problem is in the service, not in the address. Try again in a moment.")
            }
            StatusCode::NOT_FOUND if !is_stream => (
                NO_RECORDING,
                "It was deleted, or its owner made it private. Ask the person who gave you the address.",
            ),
            _ if !is_stream => (
                OLD_ADDRESS,
                "The address of an owner works for a day, and a key can be revoked. Ask the person who gave you the address for a new one.",
            ),
            _ => (
                WRONG_KEY,
                "The key was mistyped or revoked, or the stream was switched off. Ask the person who gave you the address for a new one.",
            ),
        };
        let (label, kind) = (NO_LABEL.to_owned(), shown.kind());
        Self { label, origins: Vec::new(), stores: Vec::new(), kind, state: "problem", headline, advice }
    }
}

/// The policy of a page: nothing from other origins than these stores, no inline script or style, and frames in these origins. hls.js
/// feeds the video through `blob:`.
fn policy(stores: &[String], origins: &[String]) -> String {
    let stores: String = stores.iter().map(|origin| format!(" {origin}")).collect();
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:{stores}; \
         connect-src 'self'{stores}; base-uri 'none'; form-action 'none'; frame-ancestors {}",
        ancestors(origins)
    )
}

/// Origins that may embed the page in a frame: those that may play; by default all.
fn ancestors(origins: &[String]) -> String {
    if origins.is_empty() {
        return "*".to_owned();
    }
    // A text that could end the list or start another directive is not an origin.
    let is_origin = |origin: &&String| {
        origin.contains("://")
            && origin.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b',' | b'\''))
    };
    let listed = origins.iter().filter(is_origin).map(|origin| origin.trim_end_matches('/'));
    listed.fold("'self'".to_owned(), |list, origin| format!("{list} {origin}"))
}
