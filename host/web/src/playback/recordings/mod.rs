//! Recordings for viewers: `/vod/<id>/index.m3u8` is the playlist of a recording, with byte ranges into
//! `/vod/<id>/t/<token>/media.mp4`; `/vod/<id>/poster.mp4` is the first keyframe ([`poster`]).
//!
//! Nothing is copied or coded again: the driver that keeps a recording says where its fragments are ([`index`]) and gives their bytes
//! ([`body`]), from its local copy or from the store, at this node or at the one that has the file ([`source`]), or from memory
//! ([`ranges`]). Recordings of one session and destination are one playlist ([`playlist`]). The
//! owner watches with a token of the API, everyone else with a public key of the stream, if the owner made the recording public
//! ([`access`]). A clip is an ordinary file, `/vod/<id>/clip.mp4`. Bytes are metered like those of live playback, for the destination that made the recording.

mod access;
mod body;
mod given;
pub(super) mod index;
mod playlist;
pub(super) mod poster;
pub(super) mod ranges;
mod source;
pub(super) mod state;

use bytes::Bytes;
use poem::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderValue, LOCATION, VARY,
};
use poem::http::{Method, StatusCode};
use poem::{Body, Request, Response};
use satcast_plugin_api::playback::PLAYLIST_TYPE;
use satcast_plugin_api::{Asset, AssetBody, Audience};
use tokio::task::spawn_blocking;

use super::Playback;
use super::body::{ResponseBody, Slice};
use super::headers::{self, Keep, Span};
use super::serve::{Answer, Refused};
use crate::base::{ApiError, RequestContext};
use access::Viewer;
use body::RecordingBody;
use playlist::File;
use satcast_drivers::published::Published;
use satcast_net::http::Sent;
use satcast_store::{ArchiveState, WatchedArchive};
use source::Source;
use state::{INDEX, MEDIA, Wanted, nothing_to_play};

/// Seconds for which a browser may keep a part of a public recording that no longer grows.
const MEDIA_MAX_AGE_SECS: u32 = 3_600;

impl Playback {
    /// Answers a request for a recording.
    pub(super) async fn recording(
        &self,
        request: &Request,
        context: &RequestContext,
        wanted: Wanted<'_>,
    ) -> Answer {
        match wanted {
            Wanted::Index { id } => self.recording_index(request, context, id).await,
            Wanted::Poster { id } => self.recording_poster(request, context, id).await,
            Wanted::Clip { id } => self.clip_file(request, context, id).await,
            Wanted::Media { id, token } => self.recording_media(request, context, id, token).await,
        }
    }

    /// The playlist of a recording and of those that play with it.
    async fn recording_index(&self, request: &Request, context: &RequestContext, id: i64) -> Answer {
        let (viewer, group) = self.viewer_of_index(request, context, id).await?;
        let own = group.iter().find(|watched| watched.record.id == id).ok_or_else(nothing_to_play)?;
        if own.record.report.size_bytes == 0 || own.record.clip.is_some() {
            return Err(nothing_to_play().into());
        }
        let grows = group.iter().any(|watched| watched.grows);
        let mut files = Vec::new();
        for watched in group.iter().filter(|watched| viewer.may_watch(watched)) {
            let index = match self.recordings.index(watched).await {
                Ok(index) => index,
                // The others play without one that is gone, and without one of a node that does not answer.
                Err(error) if watched.record.id != id && is_left_out(&error, grows) => continue,
                Err(error) => return Err(error.into()),
            };
            let token = viewer.token(&self.mint, watched);
            files.push(File {
                uri: format!("../{}/t/{token}/{MEDIA}", watched.record.id),
                is_own: watched.record.id == id,
                started_at: watched.record.report.started_at,
                index,
            });
        }
        let is_indexed = files.iter().all(|file| file.index.is_complete);
        if !grows && !is_indexed && group.iter().all(|one| one.record.report.state != ArchiveState::Recording)
        {
            // A recording of an earlier version: its index is being made.
            return Err(ApiError::asset_unreadable().into());
        }
        let is_over = is_indexed && !grows;
        // That of a day has megabytes.
        let permit = self.recordings.responses.try_take(own.account, 1);
        let permit = permit.map_err(|_| ApiError::too_many_readers())?;
        let is_packed = headers::accepts_gzip(request.headers());
        let rendered = spawn_blocking(move || {
            let _permit = permit;
            Some(packed(playlist::render(&files, is_over)?, is_packed))
        });
        let rendered = rendered.await.map_err(|_| ApiError::internal())?.ok_or_else(nothing_to_play)?;
        Ok((self.recording_playlist(request, rendered, &viewer, own), viewer.readers))
    }

    fn recording_playlist(
        &self,
        request: &Request,
        (bytes, is_packed): (Bytes, bool),
        viewer: &Viewer,
        own: &WatchedArchive,
    ) -> Response {
        let destination = own.record.report.destination_id;
        let count = (*request.method() == Method::GET)
            .then(|| self.meter.count(own.account, destination, sent(request)));
        let body = ResponseBody::new([Slice::Memory(bytes)], count);
        let mut response = Response::default();
        let headers = response.headers_mut();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.left()));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PLAYLIST_TYPE));
        headers.insert(CACHE_CONTROL, headers::cache_control(viewer.keep(0)));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        if is_packed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response.set_body(Body::from(http_body_util::combinators::BoxBody::new(body)));
        response
    }

    /// The bytes of a recording, or one range of them.
    async fn recording_media(
        &self,
        request: &Request,
        context: &RequestContext,
        id: i64,
        token: &str,
    ) -> Answer {
        let (viewer, group) = self.viewer_of_media(request, id, token).await?;
        let is_it = |watched: &&WatchedArchive| watched.record.id == id && watched.record.clip.is_none();
        let watched = group.iter().find(is_it).ok_or_else(nothing_to_play)?;
        let source = self.recordings.source(watched).await?;
        if let Some(address) = self.signed(request, &source, watched).await {
            return Ok((redirect(&address), viewer.readers));
        }
        let index = self.recordings.index_of(&source, watched).await?;
        let of = (index.bytes, index.is_complete);
        let response = self.recording_bytes(request, context, source, watched, of, &viewer).await?;
        Ok((response, viewer.readers))
    }

    /// The file of a clip, or one range of it.
    async fn clip_file(&self, request: &Request, context: &RequestContext, id: i64) -> Answer {
        let (viewer, group) = self.viewer_of_index(request, context, id).await?;
        let is_it = |watched: &&WatchedArchive| watched.record.id == id && watched.record.clip.is_some();
        let watched = group.iter().find(is_it).ok_or_else(nothing_to_play)?;
        if watched.record.report.state != ArchiveState::Ready {
            return Err(nothing_to_play().into());
        }
        let source = self.recordings.source(watched).await?;
        if let Some(address) = self.signed(request, &source, watched).await {
            return Ok((redirect(&address), viewer.readers));
        }
        let of = (watched.record.report.size_bytes, true);
        let response = self.recording_bytes(request, context, source, watched, of, &viewer).await?;
        Ok((response, viewer.readers))
    }

    /// A signed address of the store, if viewers get uploaded recordings from it. It works for GET alone.
    async fn signed(&self, request: &Request, source: &Source, watched: &WatchedArchive) -> Option<String> {
        let is_in_store = watched.record.report.state == ArchiveState::Ready;
        let is_signed = self.recordings.signs && is_in_store && *request.method() == Method::GET;
        if is_signed { source.sign().await } else { None }
    }

    async fn recording_bytes(
        &self,
        request: &Request,
        context: &RequestContext,
        source: Source,
        watched: &WatchedArchive,
        (size, is_complete): (u64, bool),
        viewer: &Viewer,
    ) -> Result<Response, Refused> {
        let is_get = *request.method() == Method::GET;
        let etag = HeaderValue::try_from(format!("\"{}-{size}\"", watched.record.id)).ok();
        let span = if is_get { Span::asked(request.headers(), size, etag.as_ref()) } else { Span::Whole };
        let (first, len) = match span {
            Span::Whole => (0, size),
            Span::Part { first, len } => (first, len),
            Span::OutOfBounds => return Err(Refused::out_of_bounds(size)),
        };
        let mut response = Response::default();
        let headers = response.headers_mut();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("video/mp4"));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        let secs = if is_complete { MEDIA_MAX_AGE_SECS } else { 0 };
        headers.insert(CACHE_CONTROL, headers::cache_control(viewer.keep(secs)));
        headers.extend(etag.map(|etag| (ETAG, etag)));
        if span != Span::Whole {
            let text = format!("bytes {first}-{}/{size}", first + len - 1);
            headers.extend(HeaderValue::try_from(text).ok().map(|range| (CONTENT_RANGE, range)));
            response.set_status(StatusCode::PARTIAL_CONTENT);
        }
        if is_get && len > 0 {
            let full = |_| ApiError::too_many_readers();
            let network = self.recordings.networks.try_take(context.client.into(), 1).map_err(full)?;
            let account = self.recordings.responses.try_take(watched.account, 1).map_err(full)?;
            let permits = (account, network);
            let count =
                self.meter.count(watched.account, watched.record.report.destination_id, sent(request));
            let (ranges, version) = (self.recordings.ranges.clone(), request.version());
            let body = RecordingBody::begin(ranges, source, first, len, count, permits, version).await?;
            response.set_body(Body::from(http_body_util::combinators::BoxBody::new(body)));
        }
        Ok(response)
    }
}

/// The bytes of a playlist, and whether they are packed.
fn packed(text: String, is_packed: bool) -> (Bytes, bool) {
    let text = Bytes::from(text);
    let body = AssetBody::Memory(text.clone());
    let asset = Published::uncounted(Asset::new(INDEX, PLAYLIST_TYPE, Audience::Both, body));
    let packed = if is_packed { asset.gzip() } else { None };
    packed.map_or((text, false), |packed| (packed, true))
}

/// A playlist that grows must not lose its beginning while a node restarts: its players try again.
fn is_left_out(error: &ApiError, grows: bool) -> bool {
    let of_nodes = [ApiError::recording_elsewhere(), ApiError::node_silent()];
    let is_of_node = of_nodes.iter().any(|other| other.code() == error.code());
    error.http_status() == StatusCode::NOT_FOUND || (is_of_node && !grows)
}

fn sent(request: &Request) -> Option<Sent> {
    request.extensions().get::<Sent>().cloned()
}

fn redirect(address: &str) -> Response {
    let mut response = Response::default();
    if let Ok(address) = HeaderValue::from_str(address) {
        response.set_status(StatusCode::TEMPORARY_REDIRECT);
        let headers = response.headers_mut();
        headers.insert(LOCATION, address);
        headers.insert(CACHE_CONTROL, headers::cache_control(Keep::Preview));
    }
    response
}
