//! Recordings in the cloud archive: list, change, delete, recover a failed upload.
//!
//! The rows hold what drivers reported; operations on a recording are done by the driver that made it.

use std::collections::HashSet;
use std::sync::Arc;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Enum, Object, OpenApi};

use super::app::{App, Tag};
use super::body::{Body, Kind, body, checked_text, flag};
use super::caller::Caller;
use super::destinations::Done;
use super::null::Null;
use super::page::{PageRequest, with_link};
use crate::base::{ApiError, Code, RequestContext};
use satcast_archive::{DeleteError, RecoveryError};
use satcast_core::ids::Msat;
use satcast_store::{ARCHIVE_NAME_CHARS_MAX, ArchiveRecord, ArchiveState};

/// Continuations of error texts: the effect of a failed driver or store.
pub(super) const STILL_LISTED: &str = "and the recording is still listed";
pub(super) const NOT_CHARGED: &str = "and nothing is charged";

/// State of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "ArchiveState")]
pub(super) enum State {
    /// The session is being recorded.
    Recording,
    /// The session has ended and the upload continues.
    Uploading,
    /// The store confirmed the upload.
    Ready,
    /// The upload was given up. The local copy is kept for a while and can be recovered.
    Failed,
}

impl From<ArchiveState> for State {
    fn from(state: ArchiveState) -> Self {
        match state {
            ArchiveState::Recording => Self::Recording,
            ArchiveState::Uploading => Self::Uploading,
            ArchiveState::Ready => Self::Ready,
            ArchiveState::Failed => Self::Failed,
        }
    }
}

/// A recording in the cloud archive.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Archive {
    /// Recording identifier.
    id: i64,
    /// The object's key below the prefix of its store; unique in the account.
    file_name: String,
    /// State of the recording.
    state: State,
    /// Identifier of the destination that made the recording.
    destination_id: i64,
    /// Identifier of the recorded session.
    session_id: String,
    /// Identifier of the recorded stream, for a clip of the recording; null if the stream was deleted.
    stream_key_id: Null<i64>,
    /// Bytes recorded.
    size_bytes: u64,
    /// Bytes that the store has confirmed.
    uploaded_bytes: u64,
    /// Length in seconds.
    duration_seconds: f64,
    /// Why the recording failed, or why a running upload waits for its next attempt; null when nothing is wrong.
    error: Null<String>,
    /// Location in the store (`s3://bucket/key`), or with `sign` an address that works for one hour; null before the upload is
    /// complete.
    url: Null<String>,
    /// Address of a playlist that plays the recording, together with those of the same session and destination; null while there is
    /// nothing to play. It works for a day without a key: give viewers the same address with `apiKey` instead of `token`, for a
    /// public recording.
    playback_url: Null<String>,
    /// Address of the first keyframe as an MP4 with one frame, which works like `playbackUrl`; null while there is nothing to play,
    /// and for a recording without video.
    poster_url: Null<String>,
    /// Whether viewers with a public key of the stream may watch it.
    public: bool,
    /// Time of the first media, Unix milliseconds.
    started_at: i64,
    /// Time of the last change, Unix milliseconds.
    updated_at: i64,
    /// When `retentionDays` or `maxGigabytes` of the destination deletes it at the store, Unix milliseconds; null while it stays.
    expires_at: Null<i64>,
}

impl Archive {
    fn new(record: ArchiveRecord, urls: Option<[String; 2]>) -> Self {
        let report = record.report;
        let (playback_url, poster_url) = urls.map(|[playback, poster]| (playback, poster)).unzip();
        let poster_url = poster_url.filter(|_| !report.audio_only);
        Self {
            id: record.id,
            file_name: report.file_name,
            state: report.state.into(),
            destination_id: report.destination_id.0,
            session_id: report.session_id.0,
            stream_key_id: record.stream.map(|stream| stream.0).into(),
            size_bytes: report.size_bytes,
            uploaded_bytes: report.uploaded_bytes,
            // A double holds the milliseconds of any recording exactly.
            duration_seconds: report.duration_ms as f64 / 1_000.0,
            error: report.error.into(),
            url: report.url.into(),
            playback_url: playback_url.into(),
            poster_url: poster_url.into(),
            public: record.public,
            started_at: report.started_at.0,
            updated_at: report.changed_at.0,
            expires_at: report.expires_at.map(|at| at.0).into(),
        }
    }
}

/// Recordings as they are shown, with the addresses at which their owner watches them.
async fn shown(app: &App, records: Vec<ArchiveRecord>) -> Vec<Archive> {
    let mut drivers: Vec<&str> = records.iter().map(|record| record.report.driver.as_str()).collect();
    drivers.sort_unstable();
    drivers.dedup();
    let mut players = HashSet::new();
    for driver in drivers {
        if app.playback.can_play(driver).await {
            players.insert(driver.to_owned());
        }
    }
    let config = app.config();
    let base = config.public_base();
    let shown = records.into_iter().map(|record| {
        let paths = app.playback.recording_paths(&record);
        let paths = paths.filter(|_| players.contains(&record.report.driver));
        Archive::new(record, paths.map(|paths| paths.map(|path| format!("{base}{path}"))))
    });
    shown.collect()
}

body! {
    /// Changes of a recording.
    pub(super) struct ArchiveChangeInput: "ArchiveChange" {
        /// Whether viewers with a public key of the stream may watch it.
        public: bool = flag(),
    }
}

body! {
    /// The recording to recover.
    pub(super) struct Recovery: "Recovery" {
        /// `fileName` of the recording, from the list.
        file_name "fileName": String = file_name(),
    }
}

fn file_name() -> Kind<String> {
    let name = checked_text(|name, place| {
        let fits = (1..=ARCHIVE_NAME_CHARS_MAX).contains(&name.chars().count());
        let fault = || place.malformed(&format!("must have 1 to {ARCHIVE_NAME_CHARS_MAX} characters"));
        fits.then_some(name).ok_or_else(fault)
    });
    name.length(1, ARCHIVE_NAME_CHARS_MAX)
}

/// The answer to a recovery.
#[derive(Clone, Debug, Object)]
pub(super) struct Recovered {
    /// `true`.
    success: bool,
    /// Description of what was done.
    message: String,
}

/// Operations on recordings.
pub(super) struct ArchivesApi;

#[OpenApi(prefix_path = "/api/archives", tag = "Tag::Archives")]
impl ArchivesApi {
    /// List recordings
    ///
    /// Newest first. The `Link` header has the next page.
    #[oai(path = "/", method = "get", operation_id = "listArchives")]
    async fn list(
        &self,
        app: Data<&Arc<App>>,
        request: &Request,
        caller: Caller,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Position of the page, from a `Link` header.
        cursor: Query<Option<String>>,
        /// If `true`, `url` of an uploaded recording is an address that anyone can download from for one hour.
        sign: Query<Option<bool>>,
    ) -> Result<Response<Json<Vec<Archive>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let records = app.store.archives_of(caller.account, page.to_store()).await;
        let mut records = records.map_err(ApiError::from)?;
        let address = format!("{}/api/archives", app.config().public_base());
        let link = page.finish_query(&mut records, &address, request.uri().query(), |record| record.id);
        if sign.0 == Some(true) {
            app.archive.sign(&mut records).await;
        }
        Ok(with_link(Json(shown(&app, records).await), link))
    }

    /// Read a recording
    #[oai(path = "/:id", method = "get", operation_id = "getArchive")]
    async fn get(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Recording identifier.
        id: Path<i64>,
        /// If `true`, `url` of an uploaded recording is an address that anyone can download from for one hour.
        sign: Query<Option<bool>>,
    ) -> Result<Json<Archive>> {
        let found = app.store.archive(caller.account, id.0).await.map_err(ApiError::from)?;
        let mut records = vec![found.ok_or_else(|| ApiError::not_found("recording"))?];
        if sign.0 == Some(true) {
            app.archive.sign(&mut records).await;
        }
        let archive = shown(&app, records).await.pop();
        Ok(Json(archive.ok_or_else(ApiError::internal)?))
    }

    /// Change a recording
    ///
    /// Recordings are private at first: only their owner can watch them. Viewers of a public recording use a public key of any
    /// self-hosted destination of the same stream.
    #[oai(path = "/:id", method = "patch", operation_id = "changeArchive")]
    async fn change(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Recording identifier.
        id: Path<i64>,
        body: Body<ArchiveChangeInput>,
    ) -> Result<Json<Done>> {
        let (app, public) = (Arc::clone(&app), body.0.public);
        App::to_the_end(async move {
            app.store.set_archive_public(&caller.actor(&app), id.0, public).await?;
            Ok(())
        })
        .await?;
        Ok(Json(Done::new()))
    }

    /// Delete a recording
    ///
    /// Removes the recording from the list and deletes the local copy. With `remote`, the object in the store is deleted first; if
    /// the store cannot be reached, nothing is deleted. Without `remote`, a running upload is aborted afterwards. A recording
    /// that is still being made cannot be deleted.
    #[oai(path = "/:id", method = "delete", operation_id = "deleteArchive")]
    async fn delete(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Recording identifier.
        id: Path<i64>,
        /// If `true`, the object in the store is deleted too.
        remote: Query<Option<bool>>,
    ) -> Result<Json<Done>> {
        let found = app.store.archive(caller.account, id.0).await.map_err(ApiError::from)?;
        let archive = found.ok_or_else(|| ApiError::not_found("recording"))?;
        if archive.report.state == ArchiveState::Recording {
            let text = "The recording is still being made; stop the stream or delete its destination first";
            return Err(ApiError::conflict(Code::ArchiveRecording, text).into());
        }
        let (book, actor, remote) = (app.archive.clone(), caller.actor(&app), remote.0.unwrap_or_default());
        App::to_the_end(async move {
            let deleted = book.delete(&actor, &archive, remote).await;
            deleted.map_err(|error| match error {
                DeleteError::Driver(error) => ApiError::archive_unavailable(STILL_LISTED, &error),
                DeleteError::Store(error) => error.into(),
            })
        })
        .await?;
        Ok(Json(Done::new()))
    }

    /// Recover a failed upload
    ///
    /// Repeats an upload that was given up. Each attempt that starts costs the configured fee, and continues in the background
    /// after the response. If the store already has the recording, nothing is charged.
    #[oai(path = "/recover-pay", method = "post", operation_id = "recoverArchive")]
    async fn recover(
        &self,
        app: Data<&Arc<App>>,
        request: &Request,
        caller: Caller,
        body: Body<Recovery>,
    ) -> Result<Json<Recovered>> {
        let context = RequestContext::of(request);
        app.count(&context, request, &app.limits.recoveries, caller.subject).await?;
        let found = app.store.archive_by_name(caller.account, &body.0.file_name).await;
        let archive = found.map_err(ApiError::from)?.ok_or_else(|| ApiError::not_found("recording"))?;
        if archive.report.state != ArchiveState::Failed || archive.recovering {
            return Err(not_failed(Some(archive.report.state)).into());
        }
        app.archive.check_copy(&archive).await.map_err(|error| match error {
            RecoveryError::Lost => lost(),
            _ => no_copy(),
        })?;
        let fee = check_funds(&app, &caller).await?;
        let (book, actor) = (app.archive.clone(), caller.actor(&app));
        App::to_the_end(async move {
            let recovered = book.recover(&actor, &archive, fee).await;
            recovered.map_err(|error| match error {
                RecoveryError::NotFailed => not_failed(None),
                RecoveryError::NoCopy => no_copy(),
                RecoveryError::Insufficient(balance) => too_little(fee, balance),
                RecoveryError::Lost => lost(),
                RecoveryError::Driver(error) => ApiError::archive_unavailable(NOT_CHARGED, &error),
                RecoveryError::Store(error) => error.into(),
            })
        })
        .await?;
        let message =
            "The upload has started again; the event recording.ready or recording.failed reports the result"
                .to_owned();
        Ok(Json(Recovered { success: true, message }))
    }
}

/// Error for a recording that has not failed, or is already being recovered.
fn not_failed(state: Option<ArchiveState>) -> ApiError {
    let text = match state {
        Some(ArchiveState::Ready) => "The recording is already uploaded; there is nothing to recover",
        _ => "The recording is still being made or uploaded; wait until it ends",
    };
    ApiError::conflict(Code::ArchiveNotFailed, text)
}

pub(super) fn no_copy() -> ApiError {
    let text = "The local copy of the recording is gone, so it cannot be uploaded again; nothing is charged";
    ApiError::conflict(Code::ArchiveNoCopy, text)
}

pub(super) fn lost() -> ApiError {
    let text = "The driver that made the recording no longer knows it, so it cannot be uploaded again; nothing is charged. \
    Delete it from the list";
    ApiError::conflict(Code::ArchiveLost, text)
}

/// The fee of an attempt, after checking that the account can pay it.
async fn check_funds(app: &App, caller: &Caller) -> std::result::Result<Msat, ApiError> {
    let fee = app.config().recovery_fee();
    let balance = app.store.balance(caller.account).await?;
    if balance >= fee { Ok(fee) } else { Err(too_little(fee, balance)) }
}

pub(super) fn too_little(fee: Msat, balance: Msat) -> ApiError {
    let (fee, balance) = (fee.to_sats_floor().0, balance.to_sats_floor().0);
    ApiError::insufficient_funds(format!(
        "Recovering a recording costs {fee} sats and the balance is {balance} sats; add credit first"
    ))
}
