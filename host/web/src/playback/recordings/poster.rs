//! Posters of recordings and clips: the first keyframe as an MP4 with one frame, in its codec. Nothing is decoded.

use std::collections::HashMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use poem::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue,
};
use poem::http::{Method, StatusCode};
use poem::{Body, Request, Response};
use satcast_media::Packet;
use satcast_media::fmp4::{
    BoxHeader, FirstFrame, Fmp4Error, INIT_BYTES_MAX, first_frame, first_poster, poster,
};
use satcast_plugin_api::recording::READ_RANGE_BYTES_MAX;
use satcast_quota::Quota;
use tokio::time::timeout;

use super::super::Playback;
use super::super::body::{ResponseBody, Slice};
use super::super::headers::{self, Span};
use super::super::serve::{Answer, Refused};
use super::sent;
use super::source::Source;
use super::state::nothing_to_play;
use crate::base::{ApiError, RequestContext};
use satcast_core::ids::AccountId;
use satcast_store::{ArchiveState, WatchedArchive};

/// Largest fragment, or frame of a clip, that a poster is made from; a fragment has less than a second.
const FRAGMENT_BYTES_MAX: u32 = 4 * 1024 * 1024;
/// Largest part of a clip before its media that is read for a poster; the tables of ten minutes have half of it.
const HEAD_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Bytes of that part which are read at first; they often are all of it.
const HEAD_BYTES: u64 = 128 * 1024;
/// Most bytes of all kept posters, and most of them. The ones that were not used for longest leave first.
pub const POSTERS_BYTES_MAX: usize = 32 * 1024 * 1024;
pub const POSTERS_MAX: usize = 4_096;
/// Most posters that are made at a time, and those of one account; each holds up to 12 MiB.
const POSTERS_AT_ONCE: u64 = 16;
const POSTERS_AT_ONCE_OF_ACCOUNT: u64 = 4;
/// Longest wait for a place among them.
const POSTER_WAIT: Duration = Duration::from_secs(5);
/// Seconds for which a browser may keep the poster of a public recording.
const POSTER_MAX_AGE_SECS: u32 = 3_600;

/// A poster; `None` for a recording that has none.
type Poster = Option<Bytes>;

/// The posters that somebody looked at.
pub(super) struct Posters {
    kept: Mutex<HashMap<i64, (Poster, Duration)>>,
    making: Quota<AccountId>,
}

impl Default for Posters {
    fn default() -> Self {
        Self { kept: Mutex::default(), making: Quota::new(POSTERS_AT_ONCE, POSTERS_AT_ONCE_OF_ACCOUNT) }
    }
}

impl Posters {
    fn kept(&self, id: i64, now: Duration) -> Option<Poster> {
        let mut all = self.kept.lock();
        let (poster, used) = all.get_mut(&id)?;
        *used = now;
        Some(poster.clone())
    }

    fn keep(&self, id: i64, poster: Poster, now: Duration) {
        let mut all = self.kept.lock();
        all.insert(id, (poster, now));
        let bytes = |poster: &Poster| poster.as_ref().map_or(0, Bytes::len);
        let is_over = |all: &HashMap<i64, (Poster, Duration)>| {
            let held: usize = all.values().map(|(poster, _)| bytes(poster)).sum();
            all.len() > POSTERS_MAX || held > POSTERS_BYTES_MAX
        };
        while is_over(&all) {
            let oldest = all.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id);
            let Some(oldest) = oldest else { break };
            all.remove(&oldest);
        }
    }
}

/// Makes a poster; `None` while the recording has no fragment with a keyframe yet.
///
/// # Errors
/// As [`Source::index`].
async fn make(source: &Source, watched: &WatchedArchive) -> Result<Option<Poster>, ApiError> {
    if watched.record.clip.is_some() {
        return of_clip(source, watched.record.report.size_bytes).await.map(Some);
    }
    let page = source.index(0).await?;
    let Some(first) = page.fragments.iter().find(|fragment| fragment.is_keyframe) else { return Ok(None) };
    let init_bytes = u32::try_from(page.init_bytes).unwrap_or(u32::MAX);
    if init_bytes as usize > INIT_BYTES_MAX || first.bytes > FRAGMENT_BYTES_MAX {
        return Ok(Some(None));
    }
    let init = read(source, 0, init_bytes).await?;
    let fragment = read(source, first.offset, first.bytes).await?;
    let made = first_poster(&init, &fragment);
    Ok(Some(made.inspect_err(|error| no_poster(source, error)).ok().flatten()))
}

/// The poster of a clip of `size` bytes: its tables say where its first frame is.
async fn of_clip(source: &Source, size: u64) -> Result<Poster, ApiError> {
    // Both are far below the largest number of 32 bits.
    let upto = |end: u64| u32::try_from(end.min(size)).unwrap_or(u32::MAX);
    let mut head = read(source, 0, upto(HEAD_BYTES)).await?;
    let Some(end) = moov_end(&head).filter(|end| *end <= HEAD_BYTES_MAX) else { return Ok(None) };
    if end > head.len() as u64 {
        head = read(source, 0, upto(end)).await?;
    }
    let found = first_frame(&head).inspect_err(|error| no_poster(source, error)).ok().flatten();
    let is_near = |frame: &FirstFrame| {
        (1..=FRAGMENT_BYTES_MAX).contains(&frame.bytes)
            && frame.offset.saturating_add(u64::from(frame.bytes)) <= size
    };
    let Some(FirstFrame { config, offset, bytes }) = found.filter(is_near) else { return Ok(None) };
    let keyframe = Packet::media(config.codec, true, 0, 0, read(source, offset, bytes).await?);
    Ok(poster(&config, &keyframe).inspect_err(|error| no_poster(source, error)).ok())
}

/// The end of `moov`, which may be behind these bytes.
fn moov_end(head: &[u8]) -> Option<u64> {
    let mut at: u64 = 0;
    loop {
        let header = BoxHeader::parse(head.get(usize::try_from(at).ok()?..)?)?;
        at = at.checked_add(header.bytes)?;
        if &header.kind == b"moov" {
            return Some(at);
        }
    }
}

fn no_poster(source: &Source, error: &Fmp4Error) {
    tracing::debug!(recording = source.id, %error, "cannot make the poster of a recording");
}

async fn read(source: &Source, from: u64, len: u32) -> Result<Bytes, ApiError> {
    let mut bytes = BytesMut::new();
    while bytes.len() < len as usize {
        let (at, left) = (from + bytes.len() as u64, len - bytes.len() as u32);
        bytes.extend(source.read(at, left.min(READ_RANGE_BYTES_MAX)).await?);
    }
    Ok(bytes.freeze())
}

impl Playback {
    /// The poster of a recording or a ready clip, with the access of its playlist or file.
    pub(super) async fn recording_poster(
        &self,
        request: &Request,
        context: &RequestContext,
        id: i64,
    ) -> Answer {
        let (viewer, group) = self.viewer_of_index(request, context, id).await?;
        let watched = group.iter().find(|watched| watched.record.id == id).ok_or_else(nothing_to_play)?;
        if watched.record.clip.is_some() && watched.record.report.state != ArchiveState::Ready {
            return Err(nothing_to_play().into());
        }
        let poster = self.poster_of(watched).await?.ok_or_else(|| ApiError::not_found("poster"))?;
        let (size, is_get) = (poster.len() as u64, *request.method() == Method::GET);
        let span = if is_get { Span::asked(request.headers(), size, None) } else { Span::Whole };
        let (first, len) = match span {
            Span::Whole => (0, size),
            Span::Part { first, len } => (first, len),
            Span::OutOfBounds => return Err(Refused::out_of_bounds(size)),
        };
        let destination = watched.record.report.destination_id;
        let count = is_get.then(|| self.meter.count(watched.account, destination, sent(request)));
        // The range is within the poster, which is in memory.
        let body =
            ResponseBody::new([Slice::Memory(poster.slice(first as usize..(first + len) as usize))], count);
        let mut response = Response::default();
        let headers = response.headers_mut();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("video/mp4"));
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(CACHE_CONTROL, headers::cache_control(viewer.keep(POSTER_MAX_AGE_SECS)));
        if span != Span::Whole {
            let text = format!("bytes {first}-{}/{size}", first + len - 1);
            headers.extend(HeaderValue::try_from(text).ok().map(|range| (CONTENT_RANGE, range)));
            response.set_status(StatusCode::PARTIAL_CONTENT);
        }
        response.set_body(Body::from(http_body_util::combinators::BoxBody::new(body)));
        Ok((response, viewer.readers))
    }

    /// The poster of a recording, kept or made now; `None` if it has none.
    async fn poster_of(&self, watched: &WatchedArchive) -> Result<Poster, ApiError> {
        let (recordings, id, now) = (&self.recordings, watched.record.id, self.clock.monotonic());
        if let Some(poster) = recordings.posters.kept(id, now) {
            return Ok(poster);
        }
        let source = recordings.source(watched).await?;
        let permit = timeout(POSTER_WAIT, recordings.posters.making.take(watched.account, 1)).await;
        let _permit = permit.map_err(|_| ApiError::too_many_readers())?;
        // Another viewer may have waited for the same one.
        if let Some(poster) = recordings.posters.kept(id, now) {
            return Ok(poster);
        }
        let poster = make(&source, watched).await?.ok_or_else(ApiError::starting)?;
        recordings.posters.keep(id, poster.clone(), now);
        Ok(poster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_posters_are_bounded_and_the_oldest_leave_first() {
        let posters = Posters::default();
        let large = || Some(Bytes::from(vec![0; POSTERS_BYTES_MAX / 2]));
        let at = Duration::from_secs;
        posters.keep(1, large(), at(1));
        posters.keep(2, large(), at(2));
        assert!(posters.kept(1, at(3)).is_some(), "both fit");
        posters.keep(3, large(), at(4));
        assert_eq!(posters.kept(2, at(5)), None, "the other one was used later");
        assert!(posters.kept(1, at(5)).is_some() && posters.kept(3, at(5)).is_some());
        let many = Posters::default();
        for id in 0..POSTERS_MAX as i64 + 1 {
            many.keep(id, None, at(id.unsigned_abs()));
        }
        assert_eq!((many.kept(0, at(0)), many.kept(1, at(0))), (None, Some(None)));
    }
}
