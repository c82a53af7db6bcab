//! Stream keys: create, list, read, stop, delete, and how they are shown.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use poem::web::Data;
use poem::{Request, Result};
use poem_openapi::param::{Path, Query};
use poem_openapi::payload::{Json, Response};
use poem_openapi::{Enum, Object, OpenApi, Union};
use serde_json::json;

use super::app::{App, Tag};
use super::body::{Body, NoBody, addresses, body, label, list, passphrase};
use super::caller::Caller;
use super::destinations::{self, Destination, DestinationInput, Done};
use super::elsewhere::Elsewhere;
use super::encoders::StreamEncoder;
use super::health::StreamHealth;
use super::null::Null;
use super::page::{PageRequest, with_link};
use super::playback::StreamPlayback;
use super::slate::StreamSlate;
use crate::base::ApiError;
use satcast_core::ids::{EndReason, StreamId};
use satcast_core::networks::Networks;
use satcast_core::secret::{Redacted, backup_key, new_stream_key};
use satcast_live::{self as live, SessionSnapshot, SessionState};
use satcast_store::{
    Change, CommandTarget, DestinationView, NewStream, Page, SlateRecord, StreamLimits, StreamView,
};

/// Longest time that a stop request waits for the end of the session.
const STOP_ANSWER_WAIT: Duration = Duration::from_secs(1);

body! {
    /// A stream key to create.
    pub(super) struct StreamInput: "NewStream" {
        /// Label.
        label: String = label(1),
        /// Destinations to create with the stream key: all or none.
        destinations: Vec<DestinationInput> = list().or(json!([])),
        /// Addresses or CIDR networks from which the stream key may be used; empty for all.
        allowed_addresses "allowedAddresses": Networks = addresses().or(json!([])),
        /// Passphrase for encoders that connect by SRT, which must then encrypt with it; absent or `null` for none. Never shown
        /// again.
        srt_passphrase "srtPassphrase": Option<Redacted<String>> = passphrase().or(json!(null)),
    }
}

/// Whether a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase")]
pub(super) enum Status {
    /// No session runs.
    Idle,
    /// A session runs.
    Active,
}

/// State of a stream key, in more detail than `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "StreamState")]
pub(super) enum State {
    /// No session runs.
    Idle,
    /// The encoder sends media.
    Live,
    /// The encoder disconnected and may return within the reconnect window.
    Reconnecting,
    /// The session is ending.
    Stopping,
}

/// Hard limits. A limit that is not set is absent.
#[derive(Clone, Copy, Debug, Object)]
#[oai(rename_all = "camelCase", skip_serializing_if_is_none)]
pub(super) struct Limits {
    /// Largest cost of one session in sats.
    max_sats: Option<i64>,
    /// Longest duration of one session in minutes.
    max_duration_minutes: Option<i64>,
}

impl From<StreamLimits> for Limits {
    fn from(limits: StreamLimits) -> Self {
        Self { max_sats: limits.max_sats, max_duration_minutes: limits.max_duration_minutes }
    }
}

/// A stream key in a list.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct Stream {
    /// Stream key identifier.
    id: i64,
    /// The key for publishing; secret.
    stream_key: String,
    /// The key for the backup encoder; secret. It changes with the stream key.
    backup_key: String,
    /// Label.
    label: String,
    /// Whether a session runs.
    status: Status,
    /// State of the stream key, in more detail.
    state: State,
    /// Why the last session ended; null before the end of the first session.
    last_end_reason: Null<String>,
    /// Creation time, Unix milliseconds.
    created_at: i64,
    /// Start of the running session, Unix milliseconds; absent when idle.
    #[oai(skip_serializing_if_is_none)]
    started_at: Option<i64>,
}

impl Stream {
    /// `session` must have been looked up before `view` was read: the end reason is stored before the session is removed, so if the
    /// session is gone, `view` has the reason.
    fn of(session: Option<&SessionSnapshot>, view: StreamView) -> Self {
        let (status, state, started_at) = stream_state(session);
        Self {
            id: view.stream.id.0,
            backup_key: backup_key(view.stream_key.expose()).into_inner(),
            stream_key: view.stream_key.into_inner(),
            label: view.stream.label,
            status,
            state,
            last_end_reason: view.last_end_reason.map(|reason| reason.as_str().to_owned()).into(),
            created_at: view.stream.created_at.0,
            started_at,
        }
    }
}

/// A stream key with its destinations.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct StreamDetail {
    /// Stream key identifier.
    id: i64,
    /// The key for publishing; secret.
    stream_key: String,
    /// The key for the backup encoder; secret. It changes with the stream key.
    backup_key: String,
    /// Label.
    label: String,
    /// Whether a session runs.
    status: Status,
    /// State of the stream key, in more detail.
    state: State,
    /// Why the last session ended; null before the end of the first session.
    last_end_reason: Null<String>,
    /// Creation time, Unix milliseconds.
    created_at: i64,
    /// Start of the running session, Unix milliseconds; absent when idle.
    #[oai(skip_serializing_if_is_none)]
    started_at: Option<i64>,
    /// Hard limits.
    limits: Limits,
    /// Destinations, newest first.
    destinations: Vec<Destination>,
    /// Playback of the self-hosted destinations, newest first.
    playback: Vec<StreamPlayback>,
    /// Health of the stream; null unless the encoder is connected.
    health: Null<StreamHealth>,
    /// Connected encoders, the primary one first; empty when there are none.
    encoders: Vec<StreamEncoder>,
    /// The slate, which plays while no encoder sends; null when there is none.
    slate: Null<StreamSlate>,
    /// Since when the slate is on air, Unix milliseconds; null when it is not.
    slate_since: Null<i64>,
    /// Networks from which the stream key may be used; empty for all.
    allowed_addresses: Vec<String>,
    /// Whether encoders that connect by SRT need the passphrase of the stream.
    has_srt_passphrase: bool,
    /// The newest 5 refusals of encoders that sent the stream key, newest first. A restart of the service forgets them.
    refusals: Vec<EncoderRefusal>,
}

/// The refusal of an encoder that sent the right stream key.
#[derive(Clone, Object)]
struct EncoderRefusal {
    /// Time of the refusal, Unix milliseconds.
    at: i64,
    /// RTMP status code that the encoder got; `SRT.BadSecret` or `SRT.Unsecure` for a passphrase that does
    /// not fit; `WHIP.Offer` or `WHIP.NoCodec` for an offer that cannot be used.
    code: String,
    /// Text that the encoder got.
    error: String,
}

impl EncoderRefusal {
    /// Those at this node, newest first.
    fn of(app: &App, stream: StreamId) -> impl Iterator<Item = Self> {
        app.live.refusals(stream).into_iter().map(Self::from)
    }
}

impl From<live::EncoderRefusal> for EncoderRefusal {
    fn from(refusal: live::EncoderRefusal) -> Self {
        Self { at: refusal.at.0, code: refusal.code.to_owned(), error: refusal.reason }
    }
}

impl StreamDetail {
    /// As [`Stream::of`], with its destinations.
    fn of(
        app: &App,
        session: Option<&SessionSnapshot>,
        view: StreamView,
        slate: Option<SlateRecord>,
        destinations: &[DestinationView],
    ) -> Self {
        let (status, state, started_at) = stream_state(session);
        Self {
            id: view.stream.id.0,
            backup_key: backup_key(view.stream_key.expose()).into_inner(),
            stream_key: view.stream_key.into_inner(),
            label: view.stream.label,
            status,
            state,
            last_end_reason: view.last_end_reason.map(|reason| reason.as_str().to_owned()).into(),
            created_at: view.stream.created_at.0,
            started_at,
            limits: view.stream.limits.into(),
            destinations: destinations.iter().map(|record| Destination::of(app, record)).collect(),
            playback: destinations.iter().filter_map(|record| StreamPlayback::of(app, record)).collect(),
            health: StreamHealth::of(app, view.stream.id).into(),
            encoders: StreamEncoder::of(app, view.stream.id),
            slate: slate.map(StreamSlate::from).into(),
            slate_since: app.live.slate_since(view.stream.id).map(|at| at.0).into(),
            allowed_addresses: view.stream.allowed.to_texts(),
            has_srt_passphrase: view.stream.srt_passphrase.is_some(),
            refusals: EncoderRefusal::of(app, view.stream.id).collect(),
        }
    }

    /// What another node shows, with the refusals of both.
    fn with_refusals(mut self, app: &App) -> Self {
        self.refusals.extend(EncoderRefusal::of(app, StreamId(self.id)));
        self.refusals.sort_by_key(|refusal| Reverse(refusal.at));
        self.refusals.truncate(live::REFUSALS_PER_STREAM_MAX);
        self
    }
}

/// `status`, `state` and start time of a stream.
fn stream_state(session: Option<&SessionSnapshot>) -> (Status, State, Option<i64>) {
    match session {
        None => (Status::Idle, State::Idle, None),
        Some(session) => {
            let state = match session.state {
                SessionState::Live => State::Live,
                SessionState::Reconnecting => State::Reconnecting,
                SessionState::Stopping => State::Stopping,
            };
            (Status::Active, state, Some(session.started_at.0))
        }
    }
}

/// A new stream key without destinations.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct StreamCreated {
    /// Stream key identifier.
    id: i64,
    /// The key for publishing; secret.
    stream_key: String,
    /// Label.
    label: String,
    /// `idle`.
    status: Status,
    /// Empty: no limits are set.
    limits: Limits,
}

/// A new stream key with destinations.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(super) struct StreamCreatedWithDestinations {
    /// Stream key identifier.
    id: i64,
    /// The key for publishing; secret.
    stream_key: String,
    /// Label.
    label: String,
    /// Number of destinations created.
    destinations_count: u32,
}

/// The answer depends on whether destinations were given.
#[derive(Clone, Union)]
#[oai(one_of)]
pub(super) enum Created {
    /// Without destinations.
    Plain(StreamCreated),
    /// With destinations.
    WithDestinations(StreamCreatedWithDestinations),
}

/// The answer to a stop.
#[derive(Clone, Debug, Object)]
pub(super) struct Stopped {
    /// `true`.
    success: bool,
    /// Description of what was done.
    message: String,
}

/// Operations on stream keys.
pub(super) struct StreamsApi;

#[OpenApi(prefix_path = "/api", tag = "Tag::Streams")]
impl StreamsApi {
    /// List stream keys
    ///
    /// Newest first. The `Link` header has the next page.
    #[oai(path = "/streams", method = "get", operation_id = "listStreams")]
    async fn list(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        request: &Request,
        /// Entries per page, 1 to 1000.
        #[oai(validator(minimum(value = "1"), maximum(value = "1000")))]
        limit: Query<Option<u32>>,
        /// Position of the page, from a `Link` header.
        cursor: Query<Option<String>>,
    ) -> Result<Response<Json<Vec<Stream>>>> {
        let page = PageRequest::new(limit.0, cursor.0.as_deref())?;
        let elsewhere = Elsewhere::of(&app, caller.account, request).await?;
        let (shown, silent) = elsewhere.all::<Vec<Stream>>(&app, request).await;
        let shown = shown.into_iter().flatten().filter(|stream| stream.status == Status::Active);
        let mut shown: HashMap<_, _> = shown.map(|stream| (stream.id, stream)).collect();
        let sessions = app.live.sessions_of(caller.account).into_iter().chain(silent);
        let sessions: HashMap<_, _> = sessions.map(|live| (live.stream, live.session)).collect();
        let mut views =
            app.store.streams_of(caller.account, page.to_store()).await.map_err(ApiError::from)?;
        let address = format!("{}/api/streams", app.config().public_base());
        let link = page.finish(&mut views, &address, |view| view.stream.id.0);
        let streams = views.into_iter().map(|view| match (shown.remove(&view.stream.id.0), view) {
            (Some(shown), _) => shown,
            (None, view) => Stream::of(sessions.get(&view.stream.id), view),
        });
        let streams = streams.collect();
        Ok(with_link(Json(streams), link))
    }

    /// Create a stream key
    ///
    /// If one of the destinations is refused, nothing is created, and the error names the destination and the reason.
    #[oai(path = "/streams", method = "post", operation_id = "createStream")]
    async fn create(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        body: Body<StreamInput>,
    ) -> Result<Json<Created>> {
        let StreamInput { label, destinations, allowed_addresses: allowed, srt_passphrase } = body.0;
        if i64::try_from(destinations.len()).unwrap_or(i64::MAX) > app.caps().destinations_per_stream {
            return Err(destinations::too_many(&app).into());
        }
        // Concurrently, because each check may wait for a store.
        let accepting = destinations.into_iter().enumerate().map(|(index, destination)| {
            let (app, account) = (&app, caller.account);
            async move {
                destinations::accept(app, account, destination, &format!("destinations[{index}].")).await
            }
        });
        let accepted = futures_util::future::join_all(accepting).await.into_iter();
        let accepted = accepted.collect::<std::result::Result<Vec<_>, ApiError>>()?;
        let count = accepted.len();
        let (accepted, troubles): (Vec<_>, Vec<_>) =
            accepted.into_iter().map(|accepted| (accepted.destination, accepted.trouble)).unzip();
        let stream_key = new_stream_key();
        let new = NewStream {
            label: label.clone(),
            stream_key: stream_key.clone(),
            srt_passphrase,
            destinations: accepted,
            allowed,
            caps: app.caps(),
        };
        let (store, actor) = (app.store.clone(), caller.actor(&app));
        let (id, made) = App::to_the_end(async move { Ok(store.create_stream(&actor, new).await?) }).await?;
        for (destination, trouble) in made.into_iter().zip(troubles) {
            app.archive.note_trouble(destination, trouble);
        }
        let (id, stream_key) = (id.0, stream_key.into_inner());
        Ok(Json(if count == 0 {
            let limits = StreamLimits::default().into();
            Created::Plain(StreamCreated { id, stream_key, label, status: Status::Idle, limits })
        } else {
            let destinations_count = u32::try_from(count).unwrap_or(u32::MAX);
            Created::WithDestinations(StreamCreatedWithDestinations {
                id,
                stream_key,
                label,
                destinations_count,
            })
        }))
    }

    /// Read a stream key
    #[oai(path = "/streams/:id", method = "get", operation_id = "getStream")]
    async fn read(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        request: &Request,
        /// Stream key identifier.
        id: Path<i64>,
    ) -> Result<Json<StreamDetail>> {
        let elsewhere = Elsewhere::of(&app, caller.account, request).await?;
        let session = match elsewhere.stream::<StreamDetail>(&app, StreamId(id.0), request).await {
            Some((_, Some(shown))) => return Ok(Json(shown.with_refusals(&app))),
            Some((session, None)) => Some(session),
            None => app.live.session(StreamId(id.0)),
        };
        let view = owned(&app, &caller, id.0).await?;
        let records = app.store.destinations_page(caller.account, view.stream.id, Page::ALL).await;
        let records = records.map_err(ApiError::from)?.ok_or_else(|| ApiError::not_found("stream"))?;
        let slate = app.store.slate(view.stream.id).await.map_err(ApiError::from)?;
        Ok(Json(StreamDetail::of(&app, session.as_ref(), view, slate, &records)))
    }

    /// Stop a stream
    ///
    /// Ends the running session, if there is one. Destinations that must send all queued data may need some seconds after the
    /// response. The encoder is refused until it has stopped trying for a while (the cooldown).
    #[oai(path = "/streams/:id/stop", method = "post", operation_id = "stopStream")]
    async fn stop(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        _none: NoBody,
        /// Stream key identifier.
        id: Path<i64>,
    ) -> Result<Json<Stopped>> {
        let stream = owned(&app, &caller, id.0).await?.stream.id;
        let app = Arc::clone(&app);
        let stopped = App::to_the_end(async move {
            let ended =
                tokio::time::timeout(STOP_ANSWER_WAIT, app.live.stop(stream, EndReason::Stopped)).await;
            // A session that takes longer has got the stop signal too.
            let stopped = ended.unwrap_or(true);
            if stopped {
                let change = Change::new("stream.stopped", "stream", stream.0, json!({}));
                // A stream that costs money is stopped even if the log cannot be written.
                if let Err(error) = app.store.record(&caller.actor(&app), change).await {
                    tracing::error!(%error, %stream, "cannot write a stop to the audit log");
                }
            }
            Ok(stopped)
        })
        .await?;
        let message = if stopped { "Stop signal sent" } else { "No active session" };
        Ok(Json(Stopped { success: true, message: message.to_owned() }))
    }

    /// Delete a stream key
    ///
    /// Ends the running session. History and metering are kept.
    #[oai(path = "/streams/:id", method = "delete", operation_id = "deleteStream")]
    async fn delete(
        &self,
        app: Data<&Arc<App>>,
        caller: Caller,
        /// Stream key identifier.
        id: Path<i64>,
    ) -> Result<Json<Done>> {
        let (app, stream) = (Arc::clone(&app), StreamId(id.0));
        App::to_the_end(async move {
            app.store.delete_stream(&caller.actor(&app), stream).await?;
            app.live.revoked(CommandTarget::Stream(stream), EndReason::KeyRevoked).await;
            app.live.destinations_changed(stream).await;
            app.archive.destinations_changed();
            Ok(())
        })
        .await?;
        Ok(Json(Done::new()))
    }
}

/// The caller's stream, or 404.
pub(super) async fn owned(app: &App, caller: &Caller, id: i64) -> std::result::Result<StreamView, ApiError> {
    let view = app.store.stream_of(caller.account, StreamId(id)).await?;
    view.ok_or_else(|| ApiError::not_found("stream"))
}
