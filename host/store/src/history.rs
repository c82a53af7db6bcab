//! What was: sessions and what each destination did in them, bytes by hour, sats by time.

use satcast_core::ids::{Msat, Sats, SessionId, StreamId, UnixMillis};

/// A stretch of time, half open; an absent end is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The first moment in it.
    pub from: Option<UnixMillis>,
    /// The first moment after it.
    pub to: Option<UnixMillis>,
}

/// What one destination did in one session that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// Its id.
    pub id: i64,
    /// The stream.
    pub stream_id: StreamId,
    /// The stream's name for people.
    pub stream_label: String,
    /// The session.
    pub session_id: SessionId,
    /// Platform name of the destination.
    pub platform: String,
    /// When the destination began to take part.
    pub started_at: UnixMillis,
    /// When it ceased to.
    pub ended_at: UnixMillis,
    /// Its share of what the session cost.
    pub cost: Msat,
}

/// Which entries of the history are wanted; an absent field matches all.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    /// Begun in this time.
    pub range: TimeRange,
    /// At least so much, in whole sats as they are shown.
    pub min_cost: Option<Sats>,
    /// At most so much, in whole sats as they are shown.
    pub max_cost: Option<Sats>,
    /// Platform name.
    pub platform: Option<String>,
    /// Stream.
    pub stream: Option<StreamId>,
}
