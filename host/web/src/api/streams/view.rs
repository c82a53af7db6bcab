//! Stream keys as the API shows them.

use poem_openapi::{Enum, Object};

use crate::api::app::App;
use crate::api::destinations::Destination;
use crate::api::health::StreamHealth;
use crate::api::null::Null;
use crate::api::playback::StreamPlayback;
use satcast_live::{SessionSnapshot, SessionState};
use satcast_store::{DestinationView, StreamLimits, StreamView};

/// Whether a session runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase")]
pub(in crate::api) enum Status {
    /// No session runs.
    Idle,
    /// A session runs.
    Active,
}

/// State of a stream key, in more detail than `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[oai(rename_all = "lowercase", rename = "StreamState")]
pub(in crate::api) enum State {
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
pub(in crate::api) struct Limits {
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
pub(in crate::api) struct Stream {
    /// Stream key identifier.
    id: i64,
    /// The key for publishing; secret.
    stream_key: String,
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
}

impl Stream {
    /// `session` must have been looked up before `view` was read: the end reason is stored before the session is removed, so if the
    /// session is gone, `view` has the reason.
    pub(super) fn of(session: Option<&SessionSnapshot>, view: StreamView) -> Self {
        let (status, state, _) = stream_state(session);
        Self {
            id: view.stream.id.0,
            stream_key: view.stream_key.into_inner(),
            label: view.stream.label,
            status,
            state,
            last_end_reason: view.last_end_reason.map(|reason| reason.as_str().to_owned()).into(),
            created_at: view.stream.created_at.0,
        }
    }
}

/// A stream key with its destinations.
#[derive(Clone, Object)]
#[oai(rename_all = "camelCase")]
pub(in crate::api) struct StreamDetail {
    /// Stream key identifier.
    id: i64,
    /// The key for publishing; secret.
    stream_key: String,
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
    /// Networks from which the stream key may be used; empty for all.
    allowed_addresses: Vec<String>,
}

impl StreamDetail {
    /// As [`Stream::of`], with its destinations.
    pub(super) fn of(
        app: &App,
        session: Option<&SessionSnapshot>,
        view: StreamView,
        destinations: &[DestinationView],
    ) -> Self {
        let (status, state, started_at) = stream_state(session);
        Self {
            id: view.stream.id.0,
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
            allowed_addresses: view.stream.allowed.to_texts(),
        }
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
