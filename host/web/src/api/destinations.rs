//! Destinations: list, add, delete (by both paths), and the checks before one is created or changed: by its driver, the address
//! guard and its store.

use std::sync::Arc;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::{Json, Response};
use poem_openapi::registry::MetaSchema;
use poem_openapi::{Object, OpenApi};
use serde_json::{Value, json};

use super::app::{App, STORE_CHECK_WAIT, Tag};
use super::body::{Body, Kind, any_object, body, flag, text};
use super::caller::Caller;
use super::elsewhere::Elsewhere;
use super::null::{AnyFields, Null, any_fields};
use super::page::{PageRequest, with_link};
use crate::base::{ApiError, Code};
use satcast_core::ids::{AccountId, DestinationId, StreamId};
use satcast_core::troubles::Trouble;
use satcast_drivers::{ConfigRefused, ProbeError, ValidateError};
use satcast_live::{Delayed, DestState};
use satcast_store::{DELAY_SECS_MAX, Delays, DestinationView, NewDestination};

/// Error shown at a destination whose stored configuration is damaged.
pub(super) const UNREADABLE: &str =
    "The stored configuration cannot be read; delete this destination and add it again";

/// The last error of a destination.
#[derive(Clone, Debug, Object)]
#[oai(rename = "DestinationLastError")]
pub(super) struct LastError {
    /// The text that was shown as `error`.
    message: String,
    /// Time of the error, Unix milliseconds.
    at: i64,
}

impl From<Trouble<String>> for LastError {
    fn from(trouble: Trouble<String>) -> Self {
        Self { message: trouble.what, at: trouble.at.0 }
    }
}

/// A destination.
#[derive(Clone, Debug, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Destination {
    /// Destination identifier.
    id: i64,
    /// Destination type.
    #[oai(rename = "type")]
    kind: String,
    /// Platform name.
    platform: String,
    /// Whether the destination takes part in sessions.
    enabled: bool,
    /// Target address, partly masked; for a self-hosted destination the playback URL without a key. Empty when the stored
    /// configuration cannot be read.
    url: String,
    /// Configuration with masked secrets. A masked secret that is sent back in a change keeps its stored value. Null when the
    /// configuration cannot be read.
    config: Null<AnyFields>,
    /// State: `connecting`, `live`, `retrying`, `failed` or `stopped`.
    state: String,
    /// Why the destination is not live, or a problem while it is live; null when there is none.
    error: Null<String>,
    /// The last error; kept when the destination is live again and after the session. Null if there was none since the service
    /// started.
    last_error: Null<LastError>,
    /// Connection attempts since the destination was last live.
    attempt: u32,
    /// Time of the next attempt, Unix milliseconds; null when none is planned.
    next_retry_at: Null<i64>,
    /// Bytes sent in the running session. Disabling the destination resets the count.
    bytes_sent: u64,
    /// Bits per second over the last five seconds.
    bitrate: u64,
    /// Packets dropped because the destination was too slow.
    dropped_packets: u64,
    /// Time since which the destination is live, Unix milliseconds; null when it is not live.
    live_since: Null<i64>,
    /// Time of the last change of `state`, Unix milliseconds; null without a running session.
    state_since: Null<i64>,
    /// Server that accepted the stream, as host and port, if the driver reports it: a platform may have several servers, or a backup.
    /// Null while there is none.
    server: Null<String>,
    /// Seconds until the destination starts, counted from the start of the session, or from when it was added or enabled.
    start_delay_seconds: u32,
    /// Seconds for which the destination continues after it was disabled.
    stop_delay_seconds: u32,
    /// Start time, Unix milliseconds; null unless the destination waits for its start delay.
    starts_at: Null<i64>,
    /// Stop time, Unix milliseconds; null unless the destination was disabled and waits for its stop delay.
    stops_at: Null<i64>,
}

impl Destination {
    /// A destination as its owner sees it: secrets masked, with the state of the running session.
    pub(super) fn of(app: &App, record: &DestinationView) -> Self {
        let live = app.live.destination(record.stream_id, record.id);
        let (idle, fault) = match record.config {
            Some(_) => (DestState::Stopped, None),
            None => (DestState::Failed, Some(UNREADABLE.to_owned())),
        };
        let state = live.as_ref().map_or(idle, |live| live.state);
        let playback_url = record.playback_path.as_deref().map(|path| app.playback_url(path));
        let (starts_at, stops_at) = match app.live.delayed(record.stream_id, record.id) {
            Some(Delayed::StartsAt(at)) => (Some(at.0), None),
            Some(Delayed::StopsAt(at)) => (None, Some(at.0)),
            None => (None, None),
        };
        let url = |config| app.drivers.shown_address(&record.kind, config);
        let shown_config = |config| any_fields(app.drivers.shown_config(&record.kind, config));
        Self {
            id: record.id.0,
            kind: record.kind.clone(),
            platform: record.platform.clone(),
            enabled: record.enabled,
            url: playback_url.or_else(|| record.config.as_ref().map(url)).unwrap_or_default(),
            config: record.config.as_ref().map(shown_config).into(),
            state: state.as_str().to_owned(),
            error: live
                .as_ref()
                .and_then(|live| live.error.clone())
                .or(fault)
                .or_else(|| app.archive.trouble(record.id))
                .into(),
            last_error: app.live.last_trouble(record.id).map(LastError::from).into(),
            attempt: live.as_ref().map_or(0, |live| live.attempt),
            next_retry_at: live.as_ref().and_then(|live| live.next_retry_at).map(|time| time.0).into(),
            bytes_sent: live.as_ref().map_or(0, |live| live.bytes_sent),
            bitrate: live.as_ref().map_or(0, |live| live.bitrate),
            dropped_packets: live.as_ref().map_or(0, |live| live.dropped_packets),
            live_since: live.as_ref().and_then(|live| live.live_since).map(|time| time.0).into(),
            state_since: live.as_ref().and_then(|live| live.state_since).map(|time| time.0).into(),
            server: live.as_ref().and_then(|live| live.server.clone()).into(),
            start_delay_seconds: record.delays.start_secs,
            stop_delay_seconds: record.delays.stop_secs,
            starts_at: starts_at.into(),
            stops_at: stops_at.into(),
        }
    }
}

/// A new destination.
#[derive(Clone, Debug, Object)]
pub(super) struct DestinationCreated {
    /// `true`.
    success: bool,
    /// Destination identifier.
    id: i64,
}

/// Success.
#[derive(Clone, Debug, Object)]
pub(super) struct Done {
    /// `true`.
    success: bool,
}

impl Done {
    pub(super) fn new() -> Self {
        Self { success: true }
    }
}

/// Operations on destinations.
pub(super) struct DestinationsApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Destinations")]
impl DestinationsApi {
    /// List destinations
    ///
    /// Newest first. The `Link` header has the next page.
    #[oai(path = "/streams/:id/destinations", method = "get", operation_id = "listDestinations")]
    async fn list(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        request: &Request,
        /// Stream key identifier.
        id: Path<i64>,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Position of the page, from a `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<Destination>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let records = app.store.destinations_page(caller.account, StreamId(id.0), page.to_store()).await;
        let mut records = records.map_err(ApiError::from)?.ok_or_else(|| ApiError::not_found("stream"))?;
        let address = format!("{}/api/streams/{}/destinations", app.config().public_base(), id.0);
        let link = page.finish(&mut records, &address, |record| record.id.0);
        let elsewhere = Elsewhere::of(&app, caller.account, request).await?;
        let shown = elsewhere.stream(&app, StreamId(id.0), request).await.and_then(|(_, shown)| shown);
        let destinations =
            shown.unwrap_or_else(|| records.iter().map(|record| Destination::of(&app, record)).collect());
        Ok(with_link(Json(destinations), link))
    }

    /// Add a destination
    ///
    /// If the stream is live, the destination starts at once or after its delay, at a keyframe. Other destinations are not
    /// affected.
    #[oai(path = "/streams/:id/destinations", method = "post", operation_id = "addDestination")]
    async fn add(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Stream key identifier.
        id: Path<i64>,
        body: Body<DestinationInput>,
    ) -> Result<Json<DestinationCreated>> {
        let (app, stream) = (Arc::clone(&app), StreamId(id.0));
        let Accepted { destination, trouble } = accept(&app, caller.account, body.0, "").await?;
        let id = App::to_the_end(async move {
            let actor = caller.actor(&app);
            let id = app.store.add_destination(&actor, stream, destination, app.caps()).await?;
            app.archive.note_trouble(id, trouble);
            app.live.destinations_changed(stream).await;
            Ok(id)
        })
        .await?;
        Ok(Json(DestinationCreated { success: true, id: id.0 }))
    }

    /// Delete a destination of a stream key
    ///
    /// The recommended path, because it checks that the destination belongs to the stream key.
    #[oai(
        path = "/streams/:id/destinations/:destId",
        method = "delete",
        operation_id = "deleteStreamDestination"
    )]
    async fn delete_of_stream(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Stream key identifier.
        id: Path<i64>,
        /// Destination identifier.
        #[oai(name = "destId")]
        dest_id: Path<i64>,
    ) -> Result<Json<Done>> {
        delete(&app, caller, Some(StreamId(id.0)), DestinationId(dest_id.0)).await
    }

    /// Delete a destination
    #[oai(path = "/destinations/:id", method = "delete", operation_id = "deleteDestination")]
    async fn delete(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Destination identifier.
        id: Path<i64>,
    ) -> Result<Json<Done>> {
        delete(&app, caller, None, DestinationId(id.0)).await
    }
}

async fn delete(
    app: &Arc<App>,
    caller: Caller,
    stream: Option<StreamId>,
    destination: DestinationId,
) -> Result<Json<Done>> {
    let app = Arc::clone(app);
    App::to_the_end(async move {
        let stream = app.store.delete_destination(&caller.actor(&app), stream, destination).await?;
        app.live.destinations_changed(stream).await;
        app.archive.destination_changed(destination).await;
        Ok(())
    })
    .await?;
    Ok(Json(Done::new()))
}

/// 409: the stream has too many destinations.
pub(super) fn too_many(app: &App) -> ApiError {
    let limit = app.caps().destinations_per_stream;
    ApiError::conflict(Code::CapReached, format!("A stream can have {limit} destinations; send fewer"))
}

body! {
    /// A destination to create.
    pub(super) struct DestinationInput: "NewDestination" {
        /// Destination type, such as `rtmp`.
        kind "type": String = text(),
        /// Configuration of the type; for `rtmp`: `url` and optionally `key`.
        config: Value = any_object().or(json!({})),
        /// Seconds until the destination starts, counted from the start of the session, or from when it is added or enabled.
        start_delay_seconds "startDelaySeconds": u32 = delay().or(0),
        /// Seconds for which the destination continues after it was disabled. It stops without delay when the session ends, a limit
        /// is reached, or it is deleted.
        stop_delay_seconds "stopDelaySeconds": u32 = delay().or(0),
        /// For types that record: whether to test the store first. If the store refuses, the request fails. `false` skips the test.
        check_store "checkStore": bool = flag().or(true),
    }
}

/// A delay in seconds.
pub(super) fn delay() -> Kind<u32> {
    let delay = Kind::of::<u32>(|value, place| {
        let secs = value.as_u64().and_then(|secs| u32::try_from(secs).ok());
        secs.filter(|secs| *secs <= DELAY_SECS_MAX).ok_or_else(|| {
            let fault = format!("must be a whole number of seconds from 0 to {DELAY_SECS_MAX}");
            place.refused(Code::DelayRefused, &fault)
        })
    });
    delay.noted(MetaSchema { maximum: Some(DELAY_SECS_MAX.into()), ..MetaSchema::ANY })
}

impl DestinationInput {
    /// A destination without delays.
    pub(super) fn new(kind: String, config: Value, check_store: bool) -> Self {
        Self { kind, config, start_delay_seconds: 0, stop_delay_seconds: 0, check_store }
    }
}

/// Error shown at a destination whose store could not be tested in time.
pub(super) const NOT_ASKED: &str = "the store was not tested, because too many other tests are running; save the destination again later, \
or start recording, which tests it";

/// A destination that passed the checks.
pub(super) struct Accepted {
    pub(super) destination: NewDestination,
    /// Why its store could not be reached or was not tested.
    pub(super) trouble: Option<String>,
}

/// Checks a destination with the driver of its type, the address guard and the store; `path` is the prefix of field names.
///
/// # Errors
/// 422 naming the field and the reason, never the value; 503 when the driver does not answer.
pub(super) async fn accept(
    app: &App,
    account: AccountId,
    input: DestinationInput,
    path: &str,
) -> std::result::Result<Accepted, ApiError> {
    if let Err(error) = app.drivers.validate(account, &input.kind, &input.config).await {
        return Err(refusal(app, error, path));
    }
    // Host names are resolved only when the destination connects.
    for (name, value) in input.config.as_object().into_iter().flatten() {
        app.guard.check_url(value.as_str().unwrap_or_default()).map_err(|refused| {
            ApiError::refused(Code::AddressRefused, format!("Field `{path}config.{name}`: {refused}"))
        })?;
    }
    let platform = input.kind.clone();
    let has_playback = app.drivers.has_playback(&input.kind);
    let delays = Delays { start_secs: input.start_delay_seconds, stop_secs: input.stop_delay_seconds };
    let trouble = if input.check_store { check_store(app, account, &input, path).await? } else { None };
    let destination =
        NewDestination { kind: input.kind, platform, config: input.config, has_playback, delays };
    Ok(Accepted { destination, trouble })
}

/// Tests the store; returns the reason if it could not be reached or tested.
async fn check_store(
    app: &App,
    account: AccountId,
    input: &DestinationInput,
    path: &str,
) -> std::result::Result<Option<String>, ApiError> {
    if !app.drivers.keeps_recordings(&input.kind).await {
        return Ok(None);
    }
    let permit = app.clock.timeout(STORE_CHECK_WAIT, app.limits.store_checks.take(account, 1)).await;
    let Some(_permit) = permit else { return Ok(Some(NOT_ASKED.to_owned())) };
    match app.drivers.probe(&input.kind, &input.config).await {
        Ok(()) => Ok(None),
        Err(ProbeError::Refused(refused)) => Err(config_refused(&refused, path)),
        Err(ProbeError::Unreachable(why)) => Ok(Some(why)),
    }
}

fn refusal(app: &App, error: ValidateError, path: &str) -> ApiError {
    match error {
        ValidateError::UnknownType => {
            let known = app.drivers.known_types().join(", ");
            let text =
                format!("Field `{path}type` is not a destination type of this service; known types: {known}");
            ApiError::refused(Code::UnknownDestinationType, text)
        }
        ValidateError::Config(refused) => config_refused(&refused, path),
        ValidateError::SetAside(reason) => ApiError::driver_unavailable(Some(&reason)),
        ValidateError::Driver(reason) => {
            tracing::error!(reason, "a driver cannot check a configuration");
            ApiError::driver_unavailable(None)
        }
    }
}

/// 422 for a configuration; `path` is the prefix of the field's name.
pub(super) fn config_refused(refused: &ConfigRefused, path: &str) -> ApiError {
    let field = if refused.field.is_empty() { String::new() } else { format!(".{}", refused.field) };
    ApiError::refused(Code::ConfigRefused, format!("Field `{path}config{field}`: {}", refused.reason))
}
