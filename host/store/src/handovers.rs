//! Sessions that their node gives up, so that another node goes on with them when the encoder returns there.
//!
//! Such a session has neither an owner nor an end. The first node that takes it over owns it. When nobody does in time,
//! any node ends it, as its owner would have done ([`Store::close_interrupted_sessions`]).

use std::time::Duration;

use crate::engine::{self, Sql, timed};
use crate::error::{Result, db};
use crate::sessions::Terms;
use crate::store::{Lock, Store};
use satcast_core::ids::{Msat, SessionId, StreamId, UnixMillis};

/// What a node leaves to the next owner of a session.
#[derive(Clone, Copy, Debug)]
pub struct Handover {
    /// Time of the last media: when the session ends if its encoder does not return.
    pub last_media_at: UnixMillis,
    /// Time since the first media.
    pub lasted: Duration,
    /// The present time on the timeline.
    pub position: Duration,
    /// How long the encoder may still return.
    pub window: Duration,
}

/// A session without an owner, whose encoder may return. Durations are those of the moment when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returning {
    pub session: SessionId,
    /// Time of the first media.
    pub started_at: UnixMillis,
    pub terms: Terms,
    /// Charged to the session so far.
    pub charged: Msat,
    /// Time since the first media.
    pub lasted: Duration,
    /// The present time on the timeline, which no packet has reached.
    pub position: Duration,
    /// Tells two handovers of one session apart.
    pub until_ms: i64,
}

const GIVE_UP: Sql = timed!(
    "UPDATE sessions SET former_node = node, node = '', epoch = 0, heartbeat_ms = $2, began_ms = ",
    " - $3, timeline_zero_ms = ",
    " - $4, returns_until_ms = ",
    " + $5 WHERE id = $1 AND ended_ms IS NULL"
);
const RETURNING: Sql = timed!(
    "SELECT id, started_ms, price_msat, free_slots, charged_msat, ",
    " - began_ms, ",
    " - timeline_zero_ms, returns_until_ms FROM sessions WHERE stream_id = $1 AND ended_ms IS NULL AND returns_until_ms > ",
    " ORDER BY started_ms DESC, id DESC LIMIT 1"
);
const TAKE_OVER: Sql = timed!(
    "UPDATE sessions SET node = $2, epoch = $3, returns_until_ms = NULL
    WHERE id = $1 AND ended_ms IS NULL AND returns_until_ms = $4
    AND EXISTS (SELECT 1 FROM nodes n WHERE n.name = $2 AND n.epoch = $3 AND n.lease_until_ms > ",
    ")"
);
/// What the node before has not done is for the new owner.
const MOVE_COMMANDS: &str = "UPDATE node_commands SET node = $2 WHERE session_id = $1 AND gives_up = 0";
/// Id, start, price, free slots, charged, time since the first media, position of the timeline, end of the window.
type ReturningRow = (String, i64, i64, i64, i64, i64, i64, i64);

impl Store {
    /// Gives up a session of this node: from now on any node may take it over.
    ///
    /// # Errors
    /// [`StoreError::OwnershipLost`](crate::StoreError::OwnershipLost).
    pub async fn give_up_session(&self, session: &SessionId, handover: Handover) -> Result<()> {
        let failed = db("give up the session");
        let mut tx = self.begin_owning(session).await?;
        // Rounded up: the timeline must not go back.
        let position = millis(handover.position).saturating_add(1);
        let give_up = engine::query(GIVE_UP)
            .bind(session.as_str())
            .bind(handover.last_media_at.0)
            .bind(millis(handover.lasted))
            .bind(position)
            .bind(millis(handover.window));
        give_up.execute(&mut tx).await.map_err(&failed)?;
        tx.commit().await
    }

    /// The session that goes on when an encoder of the stream comes now, if its node has given it up.
    pub async fn returning(&self, stream: StreamId) -> Result<Option<Returning>> {
        if self.node().is_alone() {
            return Ok(None);
        }
        let row = engine::query_as(RETURNING).bind(stream.0).fetch_optional(&self.0.readers).await;
        let row: Option<ReturningRow> = row.map_err(db("look for a session that waits for its encoder"))?;
        Ok(row.map(|(id, started, price, free, charged, lasted, position, until_ms)| Returning {
            session: SessionId(id),
            started_at: UnixMillis(started),
            terms: Terms { price: Msat(price), free: u32::try_from(free).unwrap_or(u32::MAX) },
            charged: Msat(charged),
            lasted: duration(lasted),
            position: duration(position),
            until_ms,
        }))
    }

    /// Makes this node the owner of a session without one. `false` if another node was first, the session has ended, or
    /// this node has no lease.
    pub async fn take_over_session(&self, returning: &Returning) -> Result<bool> {
        let failed = db("take over the session");
        let node = self.node();
        let mut tx = self.begin_holding(Lock::Session(&returning.session)).await?;
        let take = engine::query(TAKE_OVER)
            .bind(returning.session.as_str())
            .bind(&node.name)
            .bind(node.epoch)
            .bind(returning.until_ms);
        if take.execute(&mut tx).await.map_err(&failed)? == 0 {
            return Ok(false);
        }
        let commands = engine::query(MOVE_COMMANDS).bind(returning.session.as_str()).bind(&node.name);
        commands.execute(&mut tx).await.map_err(&failed)?;
        tx.commit().await?;
        Ok(true)
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}
