//! Serves playback requests: parses the path, checks access, sends the bytes.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use poem::http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    HeaderName, HeaderValue, VARY,
};
use poem::http::{Method, StatusCode};
use poem::{Body, Request, Response};
use satcast_plugin_api::Audience;
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use tokio::time::sleep;
use url::form_urlencoded;

use super::access::{Access, Age, Question};
use super::body::{Chain, ResponseBody, Slice};
use super::entry::{self, text};
use super::follow::{Asked, Current, START_WAIT, follow};
use super::headers::{self, Keep, Readers, Span};
use super::recordings::state as recording;
use super::relay::{Content, What};
use super::token::{Grant, Ticket};
use super::{PREFIX, Playback, RATE_PREVIEW};
use crate::auth::{presented_key, presents_header};
use crate::base::{ApiError, Code, RequestContext};
use satcast_core::ids::{DestinationId, KeyId};
use satcast_core::networks::Network;
use satcast_core::secret::{KeyKind, Redacted, api_key_kind, key_hash};
use satcast_drivers::published::{Opening, Published};
use satcast_live::{POSTER_NAME, POSTER_SECS};
use satcast_net::http::Sent;

/// File name of the entry playlist in the URL.
const INDEX: &str = "index.m3u8";
/// Longest caching of the entry, which carries a token of the session.
const INDEX_MAX_AGE_SECS: u32 = 1;
/// Pause between two looks for a session that is between two nodes.
const MOVE_PAUSE: Duration = Duration::from_millis(250);
/// Headers of most responses: room for them is made once.
const HEADERS: usize = 14;

/// An error response.
#[derive(Debug)]
pub(super) struct Refused {
    error: ApiError,
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Refused {
    pub(super) fn response(self, context: &RequestContext) -> Response {
        let mut response = context.error_response(&self.error);
        response.headers_mut().extend(self.header.map(|header| *header));
        response
    }

    pub(super) fn out_of_bounds(size: u64) -> Self {
        let range = HeaderValue::try_from(format!("bytes */{size}")).ok();
        Self {
            error: ApiError::range_not_satisfiable(),
            header: range.map(|range| Box::new((CONTENT_RANGE, range))),
        }
    }
}

impl From<ApiError> for Refused {
    fn from(error: ApiError) -> Self {
        Self { error, header: None }
    }
}

/// The response, and the origins that may read it.
pub(super) type Answer = Result<(Response, Readers), Refused>;

/// The target of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted<'a> {
    Index {
        path: &'a str,
    },
    Poster {
        path: &'a str,
    },
    /// A path that a driver may answer, requested with a key.
    Asked {
        path: &'a str,
        rest: &'a str,
    },
    Asset {
        path: &'a str,
        token: &'a str,
        name: &'a str,
    },
}

impl<'a> Wanted<'a> {
    fn parse(path: &'a str) -> Option<Self> {
        let (path, rest) = path.strip_prefix(PREFIX)?.split_once('/')?;
        if path.is_empty() || rest.is_empty() {
            return None;
        }
        match rest.split_once('/') {
            _ if rest == INDEX => Some(Wanted::Index { path }),
            _ if rest == POSTER_NAME => Some(Wanted::Poster { path }),
            Some(("t", asset)) => {
                let (token, name) = asset.split_once('/').filter(|(_, name)| !name.is_empty())?;
                Some(Wanted::Asset { path, token, name })
            }
            _ => Some(Wanted::Asked { path, rest }),
        }
    }
}

/// An asset, or a text made for this request, with its headers and metering.
pub(super) struct Found {
    pub(super) opening: Arc<Opening>,
    pub(super) keep: Keep,
    /// Subject for metering; `None` = not metered.
    pub(super) counted: Option<Arc<Access>>,
}

impl Playback {
    /// The response, and the origins that may read it.
    pub(super) async fn route(&self, request: &Request, context: &RequestContext) -> Answer {
        let path = request.uri().path();
        let recording = recording::Wanted::parse(path);
        let wanted = Wanted::parse(path);
        if recording.is_none() && wanted.is_none() {
            return Err(ApiError::not_found("path").into());
        }
        match *request.method() {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => return Ok((preflight(), Readers::All)),
            _ => {
                let header = Some(Box::new((ALLOW, headers::METHODS)));
                return Err(Refused { error: ApiError::method_not_allowed(), header });
            }
        }
        if let Some(recording) = recording {
            return self.recording(request, context, recording).await;
        }
        match wanted.ok_or_else(|| ApiError::not_found("path"))? {
            Wanted::Asset { path, token, name } => self.asset(request, context, path, token, name).await,
            Wanted::Asked { path, rest } => {
                let key = presented_key(request).ok_or_else(|| ApiError::not_found("path"))?;
                self.asked(request, context, path, &key, rest).await
            }
            Wanted::Index { path } => match (presented_key(request), preview_token(request)) {
                (Some(key), _) => self.index(request, context, path, &key).await,
                (None, Some(token)) => self.preview_index(request, context, path, &token).await,
                (None, None) => Err(ApiError::public_key_required().into()),
            },
            Wanted::Poster { path } => self.poster(request, context, path).await,
        }
    }

    /// The newest keyframe of a live destination, with the access of its playlist.
    async fn poster(&self, request: &Request, context: &RequestContext, path: &str) -> Answer {
        let (access, ticket, keep) = match (presented_key(request), preview_token(request)) {
            (Some(key), _) => {
                let (access, _) = self.keyed(context, path, &key).await?;
                let secs = if presents_header(request) { 0 } else { POSTER_SECS };
                (access, None, Keep::Playlist(secs))
            }
            (None, Some(token)) => {
                let ticket = self.preview_ticket(path, &token)?;
                (self.preview(context, path, &ticket).await?, Some(ticket), Keep::Preview)
            }
            (None, None) => return Err(ApiError::public_key_required().into()),
        };
        let readers = readers(request, &access)?;
        let session = ticket.as_ref().map(|ticket| ticket.session.as_str());
        let resource = access.resource(session, Audience::Hosted, What::Poster);
        let content = self.content(access.account, &resource).await?;
        let poster = content.published()?;
        let counted = (keep != Keep::Preview).then_some(access);
        let found = Found { opening: content.opening, keep, counted };
        Ok((self.deliver(request, poster, found).await?, readers))
    }

    /// The entry playlist for viewers with a key.
    async fn index(
        &self,
        request: &Request,
        context: &RequestContext,
        path: &str,
        key: &Redacted<String>,
    ) -> Answer {
        let (access, key) = self.keyed(context, path, key).await?;
        let readers = readers(request, &access)?;
        let resource = access.resource(None, Audience::Hosted, What::Entry);
        let content = self.content(access.account, &resource).await?;
        let session = content.opening.session.as_str();
        let token = self.mint.token(Grant::Key(key), access.destination, session, path);
        // A key in a header is not part of the URL, which caches use as their key.
        let own = presents_header(request);
        let keep = Keep::Playlist(if own { 0 } else { INDEX_MAX_AGE_SECS });
        let found = Found { opening: content.opening.clone(), keep, counted: Some(access) };
        Ok((self.entry(request, &*content.published()?, &token, &found)?, readers))
    }

    /// The entry playlist for viewers of the preview.
    async fn preview_index(
        &self,
        request: &Request,
        context: &RequestContext,
        path: &str,
        token: &str,
    ) -> Answer {
        let ticket = self.preview_ticket(path, token)?;
        let access = self.preview(context, path, &ticket).await?;
        let readers = readers(request, &access)?;
        let resource = access.resource(Some(&ticket.session), Audience::Preview, What::Entry);
        let content = self.content(access.account, &resource).await?;
        let found = Found { opening: content.opening.clone(), keep: Keep::Preview, counted: None };
        Ok((self.entry(request, &*content.published()?, token, &found)?, readers))
    }

    fn preview_ticket(&self, path: &str, token: &str) -> Result<Ticket, ApiError> {
        let ticket = self.mint.read(token, path).filter(|ticket| ticket.grant == Grant::Preview);
        ticket.ok_or_else(ApiError::invalid_public_key)
    }

    /// Counts a preview request, then checks that the destination is enabled.
    async fn preview(
        &self,
        context: &RequestContext,
        path: &str,
        ticket: &Ticket,
    ) -> Result<Arc<Access>, ApiError> {
        let everywhere = match &self.relay {
            Some(relay) => relay.hit(RATE_PREVIEW, ticket.mac).await,
            None => None,
        };
        let verdict = everywhere.unwrap_or_else(|| self.previews.hit(ticket.mac, self.clock.monotonic()));
        context.count(verdict)?;
        let access = self.accesses.find(Question::Path(path.to_owned()), Age::Fresh).await?;
        let allowed = access.filter(|access| access.enabled && access.destination == ticket.destination);
        allowed.ok_or_else(ApiError::invalid_public_key)
    }

    /// A published playlist with the token in front of its URIs.
    fn entry(
        &self,
        request: &Request,
        asset: &Published,
        token: &str,
        found: &Found,
    ) -> Result<Response, Refused> {
        let text = text(asset).ok_or_else(|| {
            tracing::warn!(name = asset.name, "the entry of a destination is not a playlist in memory");
            ApiError::offline()
        })?;
        let bytes = entry::with_token(text, token).into();
        let mut response = self.response(request, asset, found, [Slice::Memory(bytes)]);
        response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        Ok(response)
    }

    /// Any path below a token.
    async fn asset(
        &self,
        request: &Request,
        context: &RequestContext,
        path: &str,
        token: &str,
        name: &str,
    ) -> Answer {
        let ticket = self.mint.read(token, path).ok_or_else(ApiError::invalid_public_key)?;
        let Grant::Key(key) = ticket.grant else {
            return self.preview_asset(request, context, path, &ticket, name).await;
        };
        let (mut access, readers, content) = self.hosted_asset(request, &ticket, key, name).await?;
        if content.waited {
            // The key may have been revoked during the wait.
            access = self.allowed(&ticket, key, Age::Fresh).await?;
        }
        let response = if let Some(asset) = content.asset {
            let secs = content.max_age_secs.unwrap_or(asset.max_age_secs);
            let keep = if asset.is_playlist() { Keep::Playlist(secs) } else { Keep::Media(secs) };
            let found = Found { opening: content.opening, keep, counted: Some(access) };
            self.deliver(request, asset, found).await?
        } else {
            let (session, keep) = (Some(ticket.session.as_str()), Keep::Playlist(0));
            self.ask_driver(request, access, session, Audience::Hosted, name, keep).await?
        };
        self.note_viewer(ticket.destination, context.client, request, &response);
        Ok((response, readers))
    }

    /// A hosted asset of this node or another one. While the session is between two nodes, neither has it, and the viewer waits: players
    /// take 404 as the end.
    async fn hosted_asset(
        &self,
        request: &Request,
        ticket: &Ticket,
        key: KeyId,
        name: &str,
    ) -> Result<(Arc<Access>, Readers, Content), ApiError> {
        let until = self.clock.monotonic() + START_WAIT;
        let mut waits = None;
        loop {
            let found = match self.relayed_asset(request, ticket, key, name).await {
                Ok(None) => self.own_asset(request, ticket, key, name).await,
                Ok(Some(relayed)) => Ok(relayed),
                Err(error) => Err(error),
            };
            let (Some(relay), Err(error)) = (&self.relay, &found) else { return found };
            if error.http_status() != StatusCode::NOT_FOUND {
                return found;
            }
            let access = self.allowed(ticket, key, Age::Fresh).await?;
            let here = self.live.session(access.stream);
            let is_here = here.is_some_and(|here| here.session_id.as_str() == ticket.session);
            if !relay.may_move(access.stream, &ticket.session, is_here).await {
                return found;
            }
            if waits.is_none() {
                waits = relay.waiting.try_take(access.account, 1).ok();
            }
            if waits.is_none() || self.clock.monotonic() >= until {
                return Err(ApiError::not_in_time());
            }
            sleep(MOVE_PAUSE).await;
        }
    }

    /// A hosted asset of this node, with the access of the key and the origins that may read it.
    async fn own_asset(
        &self,
        request: &Request,
        ticket: &Ticket,
        key: KeyId,
        name: &str,
    ) -> Result<(Arc<Access>, Readers, Content), ApiError> {
        let opening = self.live.opening_of(ticket.destination, &ticket.session, name);
        let opening = opening.ok_or_else(ApiError::offline)?;
        let asset = opening.assets().get(name).filter(|asset| asset.audience.is_hosted());
        let is_playlist = asset.as_ref().is_none_or(|asset| asset.is_playlist());
        let age = if is_playlist { Age::Fresh } else { Age::Known };
        let access = self.allowed(ticket, key, age).await?;
        let readers = readers(request, &access)?;
        let query = request.uri().query().unwrap_or_default();
        let asked = Asked { query, headers: request.headers(), waited: Duration::ZERO };
        let Current { asset, max_age_secs, waited } = follow(asked, &opening, name, asset).await?;
        Ok((access, readers, Content { opening, asset, max_age_secs, waited }))
    }

    /// The same from the owner of the session, or from the node before; `None` if the session belongs to this node, or to none, or if
    /// only this node has the asset, from the time when the session was here.
    async fn relayed_asset(
        &self,
        request: &Request,
        ticket: &Ticket,
        key: KeyId,
        name: &str,
    ) -> Result<Option<(Arc<Access>, Readers, Content)>, ApiError> {
        if self.relay_for(ticket.destination).is_none() {
            return Ok(None);
        }
        let access = self.allowed(ticket, key, Age::Fresh).await?;
        let readers = readers(request, &access)?;
        let query = request.uri().query().unwrap_or_default();
        let resource = self.asset_resource(&access, &ticket.session, name, query, request.headers());
        let here = || self.live.opening_of(ticket.destination, &ticket.session, name);
        match self.relayed(access.account, &resource).await {
            Ok(Some(content)) if content.asset.is_none() && here().is_some() => Ok(None),
            Ok(content) => Ok(content.map(|content| (access, readers, content))),
            Err(error) if error.http_status() == StatusCode::NOT_FOUND && here().is_some() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An asset of the preview.
    async fn preview_asset(
        &self,
        request: &Request,
        context: &RequestContext,
        path: &str,
        ticket: &Ticket,
        name: &str,
    ) -> Answer {
        let access = self.preview(context, path, ticket).await?;
        let readers = readers(request, &access)?;
        let what = What::Asset { name, query: "", player: false };
        let resource = access.resource(Some(&ticket.session), Audience::Preview, what);
        let content = self.content(access.account, &resource).await?;
        let response = match content.asset {
            Some(asset) => {
                let found = Found { opening: content.opening, keep: Keep::Preview, counted: None };
                self.deliver(request, asset, found).await?
            }
            None => {
                let (session, keep) = (Some(ticket.session.as_str()), Keep::Preview);
                self.ask_driver(request, access, session, Audience::Preview, name, keep).await?
            }
        };
        Ok((response, readers))
    }

    /// Counts the player if the response is a playlist.
    fn note_viewer(
        &self,
        destination: DestinationId,
        client: IpAddr,
        request: &Request,
        response: &Response,
    ) {
        let is_playlist = response.headers().get(CONTENT_TYPE).is_some_and(|is| is == PLAYLIST_TYPE);
        if is_playlist && response.status() == StatusCode::OK && request.method() == Method::GET {
            self.viewers.saw(destination, client, request.headers(), self.clock.monotonic());
        }
    }

    /// The access of a key, if the key belongs to this playback path.
    pub(super) async fn keyed(
        &self,
        context: &RequestContext,
        path: &str,
        key: &Redacted<String>,
    ) -> Result<(Arc<Access>, KeyId), ApiError> {
        let (access, key) = self.key_access(context, key).await?;
        let is_its = access.path == path && access.enabled;
        if is_its { Ok((access, key)) } else { Err(ApiError::invalid_public_key()) }
    }

    /// The access of a public key, whose destination may be disabled.
    pub(super) async fn key_access(
        &self,
        context: &RequestContext,
        key: &Redacted<String>,
    ) -> Result<(Arc<Access>, KeyId), ApiError> {
        let access = match api_key_kind(key.expose()) {
            Some(KeyKind::Public) => {
                self.accesses.find(Question::Hash(key_hash(key.expose())), Age::Fresh).await?
            }
            Some(KeyKind::Permanent) | None => None,
        };
        let Some(access) = access else {
            context.count(self.invalid_keys.hit(Network::from(context.client), self.clock.monotonic()))?;
            return Err(ApiError::invalid_public_key());
        };
        let key = access.key.ok_or_else(ApiError::invalid_public_key)?;
        Ok((access, key))
    }

    /// The access of a token's key, if the key still belongs to this destination.
    async fn allowed(&self, ticket: &Ticket, key: KeyId, age: Age) -> Result<Arc<Access>, ApiError> {
        let access = self.accesses.find(Question::Key(key), age).await?;
        let allowed = access.filter(|access| access.enabled && access.destination == ticket.destination);
        allowed.ok_or_else(ApiError::invalid_public_key)
    }

    /// 404 for a file that is gone, as can happen at the end of the DVR window; 503 for a file that cannot be read, with at most one log
    /// line a second.
    pub(super) fn unreadable(&self, error: &io::Error, opening: &Opening) -> ApiError {
        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) {
            return ApiError::not_found("asset");
        }
        if let Some(left_out) = self.unreadable.admit(self.clock.monotonic()) {
            tracing::warn!(%error, destination = %opening.destination, left_out, "a published file cannot be read");
        }
        ApiError::asset_unreadable()
    }

    /// An asset as published: playlists whole, with gzip if accepted; media whole or one range.
    pub(super) async fn deliver(
        &self,
        request: &Request,
        asset: Arc<Published>,
        found: Found,
    ) -> Result<Response, Refused> {
        let headers = request.headers();
        if asset.is_playlist()
            && headers::accepts_gzip(headers)
            && let Some(packed) = asset.gzip()
        {
            let mut response = self.response(request, &asset, &found, [Slice::Memory(packed)]);
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            return Ok(response);
        }
        let chain = Chain::of(&found.opening, &asset).ok_or_else(|| ApiError::not_found("asset"))?;
        let is_media = !asset.is_playlist();
        let span = match *request.method() {
            Method::GET if is_media => Span::asked(headers, chain.size, None),
            _ => Span::Whole,
        };
        let (first, len) = match span {
            Span::Whole => (0, chain.size),
            Span::Part { first, len } => (first, len),
            Span::OutOfBounds => return Err(Refused::out_of_bounds(chain.size)),
        };
        // Previews are few, and answers of drivers are made for one request.
        let shared = found.counted.as_ref().filter(|_| *request.method() == Method::GET);
        let shared = shared.map(|access| (&self.cache, access.account));
        let cut = chain.cut(first, len, shared).await;
        let slices = cut.map_err(|error| self.unreadable(&error, &found.opening))?;
        let mut response = self.response(request, &asset, &found, slices);
        let headers = response.headers_mut();
        if is_media {
            headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        } else {
            headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        if let Span::Part { first, len } = span {
            let text = format!("bytes {first}-{}/{}", first + len - 1, chain.size);
            headers.extend(HeaderValue::try_from(text).ok().map(|range| (CONTENT_RANGE, range)));
            response.set_status(StatusCode::PARTIAL_CONTENT);
        }
        Ok(response)
    }

    /// The response with these bytes, metered unless there is no subject or the request is HEAD.
    pub(super) fn response(
        &self,
        request: &Request,
        asset: &Published,
        found: &Found,
        slices: impl IntoIterator<Item = Slice>,
    ) -> Response {
        let counted = found.counted.as_ref().filter(|_| request.method() == Method::GET);
        let sent = || request.extensions().get::<Sent>().cloned();
        let count = counted.map(|access| self.meter.count(access.account, access.destination, sent()));
        let body = ResponseBody::new(slices, count).with_frames_of(request.version());
        let mut response = Response::default();
        let headers = response.headers_mut();
        headers.reserve(HEADERS);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.left()));
        headers.insert(CACHE_CONTROL, headers::cache_control(found.keep));
        if let Ok(content_type) = HeaderValue::from_str(&asset.content_type)
            && !content_type.is_empty()
        {
            headers.insert(CONTENT_TYPE, content_type);
        }
        response.set_body(Body::from(http_body_util::combinators::BoxBody::new(body)));
        response
    }
}

fn preflight() -> Response {
    let mut response = Response::from(StatusCode::NO_CONTENT);
    headers::preflight(response.headers_mut());
    response
}

/// Query parameter of a preview token.
const TOKEN_PARAMETER: &str = "token";

pub(super) fn preview_token(request: &Request) -> Option<String> {
    let mut pairs = form_urlencoded::parse(request.uri().query()?.as_bytes());
    pairs
        .find(|(name, value)| name == TOKEN_PARAMETER && !value.is_empty())
        .map(|(_, value)| value.into_owned())
}

pub(super) fn readers(request: &Request, access: &Access) -> Result<Readers, ApiError> {
    Readers::of(request.headers(), &access.origins).ok_or_else(|| {
        let text =
            "Pages of this origin may not play this stream; the stream's owner can add it to the allowed origins";
        ApiError::forbidden(Code::OriginNotAllowed, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_four_url_forms_are_parsed() {
        assert_eq!(Wanted::parse("/hls/p/index.m3u8"), Some(Wanted::Index { path: "p" }));
        assert_eq!(Wanted::parse("/hls/p/poster.mp4"), Some(Wanted::Poster { path: "p" }));
        let asset = Wanted::Asset { path: "p", token: "T", name: "a.m4s" };
        assert_eq!(Wanted::parse("/hls/p/t/T/a.m4s"), Some(asset));
        let deep = Wanted::Asset { path: "p", token: "T", name: "a/b" };
        assert_eq!(Wanted::parse("/hls/p/t/T/a/b"), Some(deep), "below a route");
        for rest in ["media.m3u8", "index.m3u8/", "poster.mp4/", "thumb/1.jpg", "t"] {
            let asked = Some(Wanted::Asked { path: "p", rest });
            assert_eq!(Wanted::parse(&format!("/hls/p/{rest}")), asked);
        }
        for other in [
            "/hls/",
            "/hls/p",
            "/hls/p/",
            "/hls/p/t/T",
            "/hls/p/t/T/",
            "/hls//p/index.m3u8",
            "/api/hls/p/index.m3u8",
        ] {
            assert_eq!(Wanted::parse(other), None, "{other}");
        }
    }
}
