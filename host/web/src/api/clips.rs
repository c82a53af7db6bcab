//! Clips: a part of a stream as a file of its own.
//!
//! A clip is cut from the DVR window or a recording, and kept where the stream's recordings are. Making it is asynchronous.

use std::sync::Arc;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Enum, Object, OpenApi};
use satcast_plugin_api::recording::{About, FinishedFile};
use serde_json::{Value, json};

use super::app::{App, Tag};
use super::body::{Body, Kind, Place, body, flag, label, whole};
use super::caller::Caller;
use super::destinations::Done;
use super::elsewhere::Elsewhere;
use super::null::Null;
use super::page::{PageRequest, with_link};
use super::streams::owned;
use crate::base::{ApiError, Code};
use satcast_archive::{CLIP_SECS_MAX, ClipOrder, ClipPlan, ClipRange, DeleteError, NoClip};
use satcast_core::ids::{DestinationId, Msat, SessionId, StreamId};
use satcast_core::secret::new_uid;
use satcast_store::{ClipBegun, ClipCaps, ClipChange, ClipRecord, ClipState, NewClip, StreamView};

/// Most clips of one account that are being made or uploaded.
const CLIPS_MAKING_MAX: i64 = 20;
const MS_PER_SEC: i64 = 1_000;

body! {
    /// The part of the stream that a clip shows: `lastSeconds`, or `from` and `to`. The clip begins at the keyframe before it.
    pub(super) struct ClipInput: "ClipInput" {
        /// The newest seconds, 1 to 600.
        last_seconds "lastSeconds": Option<i64> = whole(seconds).optional(),
        /// Start, Unix milliseconds.
        from: Option<i64> = whole(time).optional(),
        /// End, Unix milliseconds; at most 600 seconds after `from`. The part that is not there yet is left out.
        to: Option<i64> = whole(time).optional(),
        /// Title.
        title: String = title().or(""),
    }
}

body! {
    /// Changes of a clip. An absent field stays unchanged.
    pub(super) struct ClipChangeInput: "ClipChange", one of ["title", "public"] or Code::NothingToChange {
        /// Title.
        title: Option<String> = title().optional(),
        /// Whether the public keys of the stream's self-hosted destinations can watch the clip.
        public: Option<bool> = flag().optional(),
    }
}

fn title() -> Kind<String> {
    label(0)
}

fn seconds(place: &Place) -> ApiError {
    place.malformed("must be a whole number of seconds")
}

fn time(place: &Place) -> ApiError {
    place.malformed("must be a time in Unix milliseconds")
}

impl ClipInput {
    /// The range.
    ///
    /// # Errors
    /// 422 for a range that no clip can have.
    fn range(&self) -> std::result::Result<ClipRange, ApiError> {
        let refused = |text: &str| Err(ApiError::refused(Code::ClipRangeRefused, text));
        match (self.last_seconds, self.from, self.to) {
            (Some(secs), None, None) if (1..=CLIP_SECS_MAX).contains(&secs) => Ok(ClipRange::Last(secs)),
            (Some(_), None, None) => {
                refused(&format!("Field `lastSeconds` must be a whole number from 1 to {CLIP_SECS_MAX}"))
            }
            (None, Some(from), Some(_)) if from < 0 => {
                refused("Field `from` must be a time in Unix milliseconds, which is not negative")
            }
            (None, Some(from), Some(to)) => match to.checked_sub(from) {
                Some(length) if (1..=CLIP_SECS_MAX * MS_PER_SEC).contains(&length) => {
                    Ok(ClipRange::Between(from, to))
                }
                _ => refused(&format!("Field `to` must be after `from`, by at most {CLIP_SECS_MAX} seconds")),
            },
            _ => refused("Send either `lastSeconds`, or both `from` and `to`"),
        }
    }
}

/// State of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "ClipState")]
pub(super) enum State {
    /// The clip is being cut or uploaded.
    Making,
    /// The store has the clip.
    Ready,
    /// The clip could not be made or uploaded. It costs nothing.
    Failed,
}

impl From<ClipState> for State {
    fn from(state: ClipState) -> Self {
        match state {
            ClipState::Making => Self::Making,
            ClipState::Ready => Self::Ready,
            ClipState::Failed => Self::Failed,
        }
    }
}

/// A clip.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Clip {
    /// Clip identifier.
    id: i64,
    /// Stream key identifier; null if the stream was deleted.
    stream_key_id: Null<i64>,
    /// Identifier of the session.
    session_id: String,
    /// Identifier of the destination for which the clip is kept.
    destination_id: i64,
    /// Title.
    title: String,
    /// State of the clip.
    state: State,
    /// Why the clip failed, or why its upload waits for its next attempt; null when nothing is wrong.
    error: Null<String>,
    /// Time of the first frame, Unix milliseconds; null before the clip is cut.
    started_at: Null<i64>,
    /// Length in seconds; null before the clip is cut.
    duration_seconds: Null<f64>,
    /// Size of the file; null before the clip is cut.
    size_bytes: Null<u64>,
    /// Location in the store (`s3://bucket/key`), or with `sign` an address that works for one hour; null before the clip is ready.
    url: Null<String>,
    /// Address of the file at this service, to play and to download it; null before the clip is ready. It works for a day without a
    /// key: give viewers the same address with `apiKey` instead of `token`, for a public clip.
    playback_url: Null<String>,
    /// Address of the first keyframe as an MP4 with one frame, which works like `playbackUrl`; null before the clip is ready, and for
    /// a clip without video.
    poster_url: Null<String>,
    /// Whether the public keys of the stream's self-hosted destinations can watch the clip.
    public: bool,
    /// Sats that the clip costs when it is ready, or that were charged for it.
    cost_sats: i64,
    /// Time of the request, Unix milliseconds.
    created_at: i64,
}

impl Clip {
    fn of(app: &App, clip: ClipRecord) -> Self {
        let archive = clip.archive.filter(|_| clip.state == ClipState::Ready);
        let paths = archive.map(|archive| app.playback.clip_paths(archive, clip.destination));
        let urls = paths.map(|paths| paths.map(|path| format!("{}{path}", app.config().public_base())));
        let (playback_url, poster_url) = urls.map(|[playback, poster]| (playback, poster)).unzip();
        let poster_url = poster_url.filter(|_| !clip.audio_only);
        Self {
            id: clip.id,
            stream_key_id: clip.stream.map(|stream| stream.0).into(),
            session_id: clip.session.0,
            destination_id: clip.destination.0,
            title: clip.title,
            state: clip.state.into(),
            error: clip.error.into(),
            started_at: clip.started_at.map(|at| at.0).into(),
            // A double holds the milliseconds of any clip exactly.
            duration_seconds: clip.duration_ms.map(|ms| ms as f64 / 1_000.0).into(),
            size_bytes: clip.size_bytes.into(),
            url: clip.url.into(),
            playback_url: playback_url.into(),
            poster_url: poster_url.into(),
            public: clip.public,
            cost_sats: clip.cost.to_sats_floor().0,
            created_at: clip.created_at.0,
        }
    }
}

/// The answer to the request for a clip.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct ClipCreated {
    /// `true`.
    success: bool,
    /// Clip identifier.
    id: i64,
    /// `making`.
    state: State,
    /// Sats that the clip costs when it is ready.
    cost_sats: i64,
}

/// Where a clip is kept.
struct Keeper {
    destination: DestinationId,
    driver: String,
    kind: String,
    config: Value,
}

/// Operations on clips.
pub(super) struct ClipsApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Archives")]
impl ClipsApi {
    /// Make a clip
    ///
    /// Cuts a part of the stream into an MP4 file without re-encoding it, and uploads the file to where the stream's recordings
    /// are: its `cloud-archive` destination, or the operator's store. The media comes from the DVR window of the live stream if
    /// that reaches the start of the range, else from the recording that has most of it; `lastSeconds` needs a live stream with a
    /// DVR window. The clip begins with a keyframe, at most one GOP early. Of a DVR window in which the encoder restarted or
    /// changed its codecs, only what follows counts, so a recording that goes on over the restart serves instead. The answer does
    /// not wait: the event `clip.ready` or `clip.failed` reports the result. The clip is charged when it is ready.
    #[oai(path = "/streams/:id/clips", method = "post", operation_id = "createClip")]
    async fn create(
        &self,
        app: Data<&Arc<App>>,
        request: &Request,
        caller: Caller,
        /// Stream key identifier.
        id: Path<i64>,
        body: Body<ClipInput>,
    ) -> Result<Json<ClipCreated>> {
        let range = body.0.range()?;
        let stream = owned(&app, &caller, id.0).await?;
        let Media { session, destination, plan } =
            media(&app, &caller, stream.stream.id, range, request).await?;
        let place = place(&app, &caller, stream.stream.id, destination).await?;
        let (app, title) = (Arc::clone(&app), body.0.title);
        let made =
            App::to_the_end(async move { begin(&app, &caller, (stream, session), place, title, plan).await });
        let (id, price) = made.await?;
        Ok(Json(ClipCreated { success: true, id, state: State::Making, cost_sats: price.to_sats_floor().0 }))
    }

    /// List clips
    ///
    /// Newest first. The `Link` header has the next page.
    #[oai(path = "/clips", method = "get", operation_id = "listClips")]
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
        /// If `true`, `url` of a ready clip is an address that anyone can download from for one hour.
        sign: Query<Option<bool>>,
    ) -> Result<Response<Json<Vec<Clip>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let records = app.store.clips_of(caller.account, page.to_store()).await;
        let mut records = records.map_err(ApiError::from)?;
        let address = format!("{}/api/clips", app.config().public_base());
        let link = page.finish_query(&mut records, &address, request.uri().query(), |record| record.id);
        if sign.0 == Some(true) {
            app.archive.sign_clips(&mut records).await;
        }
        Ok(with_link(Json(records.into_iter().map(|clip| Clip::of(&app, clip)).collect()), link))
    }

    /// Read a clip
    #[oai(path = "/clips/:id", method = "get", operation_id = "getClip")]
    async fn read(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Clip identifier.
        id: Path<i64>,
        /// If `true`, `url` of a ready clip is an address that anyone can download from for one hour.
        sign: Query<Option<bool>>,
    ) -> Result<Json<Clip>> {
        let mut clips = vec![found(&app, &caller, id.0).await?];
        if sign.0 == Some(true) {
            app.archive.sign_clips(&mut clips).await;
        }
        Ok(Json(Clip::of(&app, clips.remove(0))))
    }

    /// Change a clip
    #[oai(path = "/clips/:id", method = "patch", operation_id = "changeClip")]
    async fn change(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Clip identifier.
        id: Path<i64>,
        body: Body<ClipChangeInput>,
    ) -> Result<Json<Done>> {
        let ClipChangeInput { title, public } = body.0;
        let (store, actor) = (app.store.clone(), caller.actor(&app));
        App::to_the_end(
            async move { Ok(store.edit_clip(&actor, id.0, &ClipChange { title, public }).await?) },
        )
        .await?;
        Ok(Json(Done::new()))
    }

    /// Delete a clip
    ///
    /// Deletes the clip and its object in the store; if the store cannot be reached, nothing is deleted. With `remote=false` the object
    /// stays. A clip that is being made is given up.
    #[oai(path = "/clips/:id", method = "delete", operation_id = "deleteClip")]
    async fn delete(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Clip identifier.
        id: Path<i64>,
        /// If `false`, the object in the store stays.
        remote: Query<Option<bool>>,
    ) -> Result<Json<Done>> {
        let clip = found(&app, &caller, id.0).await?;
        let (book, actor, remote) = (app.archive.clone(), caller.actor(&app), remote.0.unwrap_or(true));
        App::to_the_end(async move {
            book.delete_clip(&actor, &clip, remote).await.map_err(|error| match error {
                DeleteError::Driver(error) => {
                    ApiError::archive_unavailable("and the clip is still listed", &error)
                }
                DeleteError::Store(error) => error.into(),
            })
        })
        .await?;
        Ok(Json(Done::new()))
    }
}

async fn found(app: &App, caller: &Caller, id: i64) -> std::result::Result<ClipRecord, ApiError> {
    app.store.clip(caller.account, id).await?.ok_or_else(|| ApiError::not_found("clip"))
}

/// What a clip is cut from: a DVR window or a recording, of this session and destination.
struct Media {
    session: SessionId,
    destination: DestinationId,
    plan: ClipPlan,
}

/// The media of a range at this node: the DVR window if it reaches the start of the range, else what has most of it.
async fn media(
    app: &App,
    caller: &Caller,
    stream: StreamId,
    range: ClipRange,
    request: &Request,
) -> std::result::Result<Media, ApiError> {
    let (mut best, is_live) = in_window(app, stream, range)?;
    let mut is_elsewhere = false;
    // Last seconds are those of a session: a recording has them from before a restart of the encoder.
    let (wanted, of_session) = match (range, &best) {
        (ClipRange::Between(from, to), _) => (Some((from, to)), None),
        (ClipRange::Last(_), Some(media)) => (Some(media.plan.range()), Some(media.session.clone())),
        (ClipRange::Last(_), None) => (None, None),
    };
    if let Some((from, to)) = wanted
        && best.as_ref().is_none_or(|media| !media.plan.is_whole())
    {
        for record in app.store.recordings_between(caller.account, stream, (from, to)).await? {
            if of_session.as_ref().is_some_and(|session| *session != record.report.session_id) {
                continue;
            }
            if !app.store.has_file_of(&record) {
                is_elsewhere = true;
                continue;
            }
            let Some(plan) = ClipPlan::of_recording(&record, from, to) else { continue };
            let is_better = best.as_ref().is_none_or(|media| media.plan.has_ms() < plan.has_ms());
            if is_better && !record.is_without_node() && app.playback.can_play(&record.report.driver).await {
                let (session, destination) = (record.report.session_id, record.report.destination_id);
                best = Some(Media { session, destination, plan });
            }
        }
    }
    if let Some(media) = best {
        return Ok(media);
    }
    let is_live_elsewhere =
        !is_live && Elsewhere::of(app, caller.account, request).await?.session(stream).is_some();
    Err(no_media(range, is_live, is_elsewhere || is_live_elsewhere))
}

/// The media of a range in the DVR window of the stream's session at this node, and whether there is such a session.
fn in_window(
    app: &App,
    stream: StreamId,
    range: ClipRange,
) -> std::result::Result<(Option<Media>, bool), ApiError> {
    let Some(session) = app.live.session(stream).map(|session| session.session_id) else {
        return Ok((None, false));
    };
    let Some(window) = app.live.window(&session) else { return Ok((None, true)) };
    match ClipPlan::of(&window, range) {
        Ok(plan) => Ok((Some(Media { session, destination: window.destination, plan }), true)),
        Err(NoClip::NoMedia) => Ok((None, true)),
        Err(NoClip::TooLong) => {
            let text = format!("A clip has at most {CLIP_SECS_MAX} seconds");
            Err(ApiError::refused(Code::ClipRangeRefused, text))
        }
    }
}

/// Why there is no media of a range at this node.
fn no_media(range: ClipRange, is_live: bool, is_elsewhere: bool) -> ApiError {
    if is_elsewhere {
        let text =
            "The stream is live at another node, or its recording is there; ask that node for the clip";
        return ApiError::conflict(Code::ClipElsewhere, text);
    }
    match range {
        ClipRange::Last(_) if is_live => {
            let text = "The stream has no DVR window; add a self-hosted destination with `dvrSeconds` and wait for its first media";
            ApiError::conflict(Code::ClipNoMedia, text)
        }
        ClipRange::Last(_) => {
            let text = "The stream is not live, so it has no last seconds; send `from` and `to` for a clip of a recording";
            ApiError::conflict(Code::ClipNoMedia, text)
        }
        ClipRange::Between(..) => {
            let text = "No DVR window and no recording of the stream has media of this range; choose a range that one of them has";
            ApiError::conflict(Code::ClipNoMedia, text)
        }
    }
}

/// Where clips of a stream are kept: with its recordings, or else in the operator's store, for the destination of the media.
async fn place(
    app: &App,
    caller: &Caller,
    stream: StreamId,
    source: DestinationId,
) -> std::result::Result<Keeper, ApiError> {
    for destination in app.store.destinations_of(stream).await?.into_iter().filter(|it| it.enabled) {
        if let Some(driver) = app.drivers.recorder(&destination.kind).await {
            let (kind, config) = (destination.kind, destination.config);
            return Ok(Keeper { destination: destination.id, driver, kind, config });
        }
    }
    for kind in app.drivers.known_types() {
        let Some(driver) = app.drivers.recorder(&kind).await else { continue };
        let config = json!({});
        if app.drivers.validate(caller.account, &kind, &config).await.is_ok() {
            return Ok(Keeper { destination: source, driver, kind, config });
        }
    }
    let text = "The stream has no place for a clip; add or enable a destination of type cloud-archive, or ask the operator for a store in [archive]";
    Err(ApiError::conflict(Code::ClipNoStore, text))
}

/// Writes the row of a clip and starts its making; returns its id and price.
async fn begin(
    app: &App,
    caller: &Caller,
    (stream, session): (StreamView, SessionId),
    place: Keeper,
    title: String,
    plan: ClipPlan,
) -> std::result::Result<(i64, Msat), ApiError> {
    let (stream, config) = (stream.stream, app.config());
    let file_name = format!("clips/{}.mp4", new_uid());
    let slot = app.archive.clip_slot(&file_name).ok_or_else(ApiError::clips_busy)?;
    let price = config.clip_price();
    let new = NewClip {
        stream: stream.id,
        session: session.clone(),
        destination: place.destination,
        driver: place.driver.clone(),
        file_name: file_name.clone(),
        title,
        price,
        caps: ClipCaps { clips: config.limits.clips_per_account, making: CLIPS_MAKING_MAX },
    };
    let id = match app.store.begin_clip(&caller.actor(app), &new).await? {
        ClipBegun::Begun(id) => id,
        ClipBegun::Busy => {
            let text =
                format!("{CLIPS_MAKING_MAX} clips of the account are being made; wait until some are ready");
            return Err(ApiError::conflict(Code::ClipsBusy, text));
        }
        ClipBegun::Insufficient(balance) => {
            let (price, balance) = (price.to_sats_floor().0, balance.to_sats_floor().0);
            return Err(ApiError::insufficient_funds(format!(
                "A clip costs {price} sats when it is ready, as does each that is being made, and the balance is {balance} sats; add credit first"
            )));
        }
    };
    let about = About {
        destination_id: place.destination.0,
        session_id: session.0,
        stream_key_id: stream.id.0,
        label: stream.label,
        account_id: caller.account.0,
        ..About::default()
    };
    let file = FinishedFile { file_name, about, ..FinishedFile::default() };
    let Keeper { driver, kind, config, .. } = place;
    app.archive.make_clip(slot, ClipOrder { id, account: caller.account, driver, kind, config, file }, plan);
    Ok((id, price))
}
