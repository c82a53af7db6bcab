//! Clips: a part of a live stream as a file of its own.
//!
//! A clip is cut from the DVR window, and kept where the stream's recordings are. Making it is asynchronous.

use std::sync::Arc;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Enum, Object, OpenApi};
use satcast_plugin_api::recording::{About, FinishedFile};
use serde_json::{Value, json};

use super::app::{App, Tag};
use super::archives::STILL_LISTED;
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
use satcast_drivers::published::Opening;
use satcast_store::{ClipBegun, ClipCaps, ClipChange, ClipRecord, ClipState, NewClip, StreamView};

/// Most clips of one account that are being made or uploaded.
const CLIPS_MAKING_MAX: i64 = 20;
const MS_PER_SEC: i64 = 1_000;

body! {
    /// The part of the stream that a clip shows: `lastSeconds`, or `from` and `to`. The clip begins at the keyframe before it.
    pub(super) struct ClipInput: "ClipInput", one of ["lastSeconds", "from"] or Code::ClipRangeRefused {
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
            (None, Some(from), Some(to)) => match to.checked_sub(from) {
                Some(length) if (1..=CLIP_SECS_MAX * MS_PER_SEC).contains(&length) && from >= 0 => {
                    Ok(ClipRange::Between(from, to))
                }
                _ => refused(&format!("Field `to` must be after `from`, by at most {CLIP_SECS_MAX} seconds")),
            },
            _ => refused("Send `lastSeconds`, or `from` and `to`"),
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
    /// Stream key identifier.
    stream_key_id: i64,
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
        let path = archive.map(|archive| app.playback.clip_path(archive, clip.destination));
        let playback_url = path.map(|path| format!("{}{path}", app.config().public_base()));
        Self {
            id: clip.id,
            stream_key_id: clip.stream.0,
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
    /// Cuts a part of the stream's DVR window into an MP4 file without re-encoding it, and uploads the file to where the stream's
    /// recordings are: its `cloud-archive` destination, or the operator's store. The clip begins with a keyframe, at most one GOP
    /// early. If the encoder restarted or changed its codecs inside the range, the clip begins after that. The answer does not
    /// wait: the event `clip.ready` or `clip.failed` reports the result. The clip is charged when it is ready.
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
        let (session, window) = window(&app, &caller, stream.stream.id, request).await?;
        let plan = ClipPlan::of(&window, range).map_err(no_clip)?;
        let place = place(&app, &caller, stream.stream.id, &window).await?;
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
                DeleteError::Driver(error) => ApiError::archive_unavailable(STILL_LISTED, &error),
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

/// The DVR window of the stream's session at this node.
async fn window(
    app: &App,
    caller: &Caller,
    stream: StreamId,
    request: &Request,
) -> std::result::Result<(SessionId, Arc<Opening>), ApiError> {
    let Some(session) = app.live.session(stream) else {
        let elsewhere = Elsewhere::of(app, caller.account, request).await?;
        return Err(match elsewhere.session(stream) {
            Some(_) => {
                let text = "The stream is live at another node; ask that node for the clip";
                ApiError::conflict(Code::ClipElsewhere, text)
            }
            None => {
                let text = "The stream is not live, so it has no DVR window to make a clip from";
                ApiError::conflict(Code::ClipNoMedia, text)
            }
        });
    };
    let window = app.live.window(&session.session_id).ok_or_else(|| {
        let text = "The stream has no DVR window; add a self-hosted destination with `dvrSeconds` and wait for its first media";
        ApiError::conflict(Code::ClipNoMedia, text)
    })?;
    Ok((session.session_id, window))
}

fn no_clip(why: NoClip) -> ApiError {
    match why {
        NoClip::NoMedia => {
            let text = "The DVR window has no media of this range; choose a range that it holds";
            ApiError::conflict(Code::ClipNoMedia, text)
        }
        NoClip::TooLong => {
            let text = format!("A clip has at most {CLIP_SECS_MAX} seconds");
            ApiError::refused(Code::ClipRangeRefused, text)
        }
    }
}

/// Where clips of a stream are kept: with its recordings, or else in the operator's store.
async fn place(
    app: &App,
    caller: &Caller,
    stream: StreamId,
    window: &Opening,
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
            return Ok(Keeper { destination: window.destination, driver, kind, config });
        }
    }
    let text = "The stream has no place for a clip; add a destination of type cloud-archive, or ask the operator for a store in [archive]";
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
