//! The public state of sessions and their destinations.

use super::health::Figures;
use satcast_core::ids::{DestinationId, SessionId, StreamId, UnixMillis};

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// The encoder sends media.
    Live,
    /// The encoder left less than the reconnect window ago.
    Reconnecting,
    /// The session is ending.
    Stopping,
}

/// The current state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSnapshot {
    pub session_id: SessionId,
    /// Time of the first media.
    pub started_at: UnixMillis,
    pub state: SessionState,
}

/// The place of an encoder in its stream, by the key that it publishes with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncoderRole {
    /// With the stream key.
    #[default]
    Primary,
    /// With the backup key.
    Backup,
}

impl EncoderRole {
    pub const ALL: [EncoderRole; 2] = [EncoderRole::Primary, EncoderRole::Backup];

    pub fn as_str(self) -> &'static str {
        match self {
            EncoderRole::Primary => "primary",
            EncoderRole::Backup => "backup",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            EncoderRole::Primary => EncoderRole::Backup,
            EncoderRole::Backup => EncoderRole::Primary,
        }
    }

    /// Its place in [`EncoderRole::ALL`].
    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// A connected encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct EncoderSnapshot {
    pub role: EncoderRole,
    /// Its media goes out; otherwise it is on standby.
    pub is_active: bool,
    pub connected_at: UnixMillis,
    /// Measurements of its media.
    pub figures: Figures,
}

/// A session and the stream it belongs to.
#[derive(Clone, Debug)]
pub struct LiveSession {
    pub stream: StreamId,
    pub session: SessionSnapshot,
}

/// A destination of a live session and the stream it belongs to.
#[derive(Clone, Debug)]
pub struct LiveDestination {
    pub stream: StreamId,
    pub id: DestinationId,
    pub kind: String,
    pub shown: DestinationSnapshot,
    /// Counters of its driver in this session, by name.
    pub counters: Vec<(String, u64)>,
    pub waiting: Waiting,
}

/// Packets that wait for a destination, in memory and on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub packets: u64,
    pub bytes: u64,
}

/// Why a delayed destination waits, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delayed {
    /// Enabled; starts at this time.
    StartsAt(UnixMillis),
    /// Disabled; runs until this time.
    StopsAt(UnixMillis),
}

/// State of a destination of a live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestState {
    /// Being opened, or connected without media flowing.
    Connecting,
    /// Media was written or acknowledged within the last five seconds.
    Live,
    /// Waiting for the next attempt.
    Retrying,
    /// Not retried until its configuration or a codec changes.
    Failed,
    /// Not running.
    Stopped,
}

impl DestState {
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

/// The current state of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationSnapshot {
    pub state: DestState,
    /// Why it is not live, or live but slow; no secrets.
    pub error: Option<String>,
    /// Attempts since it was last live for a while; 0 while it is live.
    pub attempt: u32,
    /// Time of the next attempt.
    pub next_retry_at: Option<UnixMillis>,
    /// Bytes sent in this session.
    pub bytes_sent: u64,
    /// Bits per second, over the last five seconds.
    pub bitrate: u64,
    /// Packets dropped in this session because the destination did not keep up.
    pub dropped_packets: u64,
    pub live_since: Option<UnixMillis>,
    pub state_since: Option<UnixMillis>,
    /// The server that it is connected to, if its driver reports one.
    pub server: Option<String>,
}
