//! Which stream is live.

use crate::ids::{DestinationId, EndReason, SessionId, StreamId, UnixMillis};

/// The live sessions; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Live;

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
#[derive(Clone, Debug)]
pub struct SessionSnapshot {
    /// Its id.
    pub session_id: SessionId,
    /// Time of the first media.
    pub started_at: UnixMillis,
    /// Its state.
    pub state: SessionState,
}

/// State of a destination of a live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestState {
    /// Being opened.
    Connecting,
    /// Media leaves.
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
#[derive(Clone, Debug)]
pub struct DestinationSnapshot {
    /// Its state.
    pub state: DestState,
    /// Why it is not live.
    pub error: Option<String>,
    /// Tries since it was last live.
    pub attempt: u32,
    /// Time of the next try.
    pub next_retry_at: Option<UnixMillis>,
    /// Bytes sent in this session.
    pub bytes_sent: u64,
    /// Bits per second.
    pub bitrate: u64,
    /// Packets left out.
    pub dropped_packets: u64,
    /// Since when it is live.
    pub live_since: Option<UnixMillis>,
}

impl Live {
    /// The session of a stream.
    pub fn session(&self, stream: StreamId) -> Option<SessionSnapshot> {
        let _ = stream;
        None
    }

    /// A destination of a live session.
    pub fn destination(&self, stream: StreamId, destination: DestinationId) -> Option<DestinationSnapshot> {
        let _ = (stream, destination);
        None
    }

    /// Ends the session of a stream; `false` when there is none.
    pub async fn stop(&self, stream: StreamId, reason: EndReason) -> bool {
        let _ = (stream, reason);
        false
    }

    /// Reads the destinations of a stream again and starts and stops what changed.
    pub async fn destinations_changed(&self, stream: StreamId) {
        let _ = stream;
    }
}
