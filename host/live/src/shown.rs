//! What others see of sessions and their destinations.

use satcast_core::ids::{DestinationId, SessionId, StreamId, UnixMillis};

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Media comes in.
    Live,
    /// The encoder left less than the reconnect window ago.
    Reconnecting,
    /// The session is ending.
    Stopping,
}

/// A session as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSnapshot {
    /// Its id.
    pub session_id: SessionId,
    /// Time of the first media.
    pub started_at: UnixMillis,
    /// Its state.
    pub state: SessionState,
}

/// A session and the stream it belongs to.
#[derive(Clone, Debug)]
pub struct LiveSession {
    /// The stream.
    pub stream: StreamId,
    /// The session.
    pub session: SessionSnapshot,
}

/// A destination of a live session and the stream it belongs to.
#[derive(Clone, Debug)]
pub struct LiveDestination {
    /// The stream.
    pub stream: StreamId,
    /// Its number.
    pub id: DestinationId,
    /// Its type.
    pub kind: String,
    /// How it stands.
    pub shown: DestinationSnapshot,
    /// What its driver counts in the session that runs, by name.
    pub counters: Vec<(String, u64)>,
}

/// What a destination with a delay waits for, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delayed {
    /// It is enabled and starts then.
    StartsAt(UnixMillis),
    /// It is disabled and goes on until then.
    StopsAt(UnixMillis),
}

/// State of a destination of a live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestState {
    /// Being opened, or connected without media flowing.
    Connecting,
    /// Media was written or acknowledged within the last five seconds.
    Live,
    /// Waiting for the next try.
    Retrying,
    /// Not tried again until changed.
    Failed,
    /// Not running.
    Stopped,
}

impl DestState {
    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            DestState::Connecting => "connecting",
            DestState::Live => "live",
            DestState::Retrying => "retrying",
            DestState::Failed => "failed",
            DestState::Stopped => "stopped",
        }
    }
}

/// A destination as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationSnapshot {
    /// Its state.
    pub state: DestState,
    /// Why it is not live, without secrets.
    pub error: Option<String>,
    /// Tries since it last was live for a while; 0 while it is live.
    pub attempt: u32,
    /// Time of the next try.
    pub next_retry_at: Option<UnixMillis>,
    /// Bytes sent in this session.
    pub bytes_sent: u64,
    /// Bits per second, over the last five seconds.
    pub bitrate: u64,
    /// Packets left out in this session because the destination did not keep up.
    pub dropped_packets: u64,
    /// Since when it is live without a break.
    pub live_since: Option<UnixMillis>,
    /// Since when it is in its state.
    pub state_since: Option<UnixMillis>,
    /// The server it goes to now, where its driver says so.
    pub server: Option<String>,
}
