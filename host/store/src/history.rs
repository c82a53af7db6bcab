//! What was: sessions and what each destination did in them, bytes by hour, sats by time.

use async_trait::async_trait;

use super::Result;
use super::model::Page;
use satcast_core::ids::{AccountId, DestinationId, Msat, Sats, SessionId, StreamId, UnixMillis};

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

/// What was.
#[async_trait]
pub trait History: Send + Sync {
    /// Records that destinations take part in a session; repeated for the same pair it continues the first record.
    async fn begin_forwarding(
        &self,
        session: &SessionId,
        destinations: &[DestinationId],
        now: UnixMillis,
    ) -> Result<()>;
    /// Records that a destination no longer takes part in a session that goes on.
    async fn end_forwarding(
        &self,
        session: &SessionId,
        destination: DestinationId,
        now: UnixMillis,
    ) -> Result<()>;
    /// The history of an account, newest first, deleted streams and destinations included.
    async fn history(
        &self,
        account: AccountId,
        filter: HistoryFilter,
        page: Page,
    ) -> Result<Vec<HistoryEntry>>;
    /// Bytes sent to viewers of the account by UTC clock hour, for the hours that overlap `range`, deleted destinations
    /// included.
    async fn bandwidth_by_hour(&self, account: AccountId, range: TimeRange)
    -> Result<Vec<(UnixMillis, u64)>>;
    /// Milliseconds that sessions of the account ran inside `range`; a running one counts up to `now`.
    async fn streamed_millis(&self, account: AccountId, range: TimeRange, now: UnixMillis) -> Result<u64>;
    /// What a session was charged so far, for minutes and bandwidth.
    async fn session_charges(&self, session: &SessionId) -> Result<Msat>;
    /// What the account was charged for minutes inside `range`.
    async fn minute_charges(&self, account: AccountId, range: TimeRange) -> Result<Msat>;
}
