//! Live sessions.

use crate::engine::{self, Row, Sql, Tx, timed};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Node, Store, again};
use crate::webhooks::events::{session_ended, session_started, stream_bytes};
use satcast_core::ids::{EndReason, Msat, SessionId, StreamId, UnixMillis};

/// The prices of a session. The default costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Price of a paid destination and minute, zero or more.
    pub price: Msat,
    /// Destinations without charge.
    pub free: u32,
}

/// A new session.
#[derive(Clone, Debug)]
pub struct NewSession {
    pub id: SessionId,
    pub stream_id: StreamId,
    /// Time of the first media.
    pub started_at: UnixMillis,
    /// The prices of this session.
    pub terms: Terms,
}

#[derive(Clone, Debug)]
pub struct SessionRecord {
    pub id: SessionId,
    pub stream_id: StreamId,
    /// Time of the first media.
    pub started_at: UnixMillis,
    /// Time of its last heartbeat.
    pub heartbeat_at: UnixMillis,
    /// When it ended.
    pub ended_at: Option<UnixMillis>,
    /// Why it ended.
    pub end_reason: Option<EndReason>,
}

const INSERT: &str =
    "INSERT INTO sessions (id, stream_id, started_ms, heartbeat_ms, bytes_before, price_msat, free_slots, node, epoch)
    VALUES ($1, $2, $3, $3, $4, $5, $6, $7, $8)";
/// Whether the node has its lease, and how many sessions of the stream other nodes have.
const MAY_BEGIN: Sql = timed!(
    "SELECT (SELECT COUNT(*) FROM nodes n WHERE n.name = $2 AND n.epoch = $3 AND n.lease_until_ms > ",
    "), (SELECT COUNT(*) FROM sessions e JOIN nodes n ON n.name = e.node AND n.epoch = e.epoch
    WHERE e.stream_id = $1 AND e.ended_ms IS NULL AND e.node <> $2 AND n.lease_until_ms > ",
    ")"
);
const HEARTBEAT: &str = "UPDATE sessions SET heartbeat_ms = $2
    WHERE id = $1 AND ended_ms IS NULL AND heartbeat_ms < $2 AND node = $3 AND epoch = $4";
const END: &str = "UPDATE sessions SET ended_ms = $2, end_reason = $3 WHERE id = $1 AND ended_ms IS NULL";
const END_DESTINATIONS: &str =
    "UPDATE session_destinations SET ended_ms = CASE WHEN started_ms > $2 THEN started_ms ELSE $2 END
    WHERE session_id = $1 AND ended_ms IS NULL";
/// Sessions without an end whose owner has no lease, of one stream or of all. A service that is alone has none either.
/// With `$2 = 0` not those that wait for their encoder.
const LOST: Sql = timed!(
    "SELECT id FROM sessions WHERE ended_ms IS NULL AND stream_id = COALESCE($1, stream_id)
    AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.name = sessions.node AND n.epoch = sessions.epoch AND n.lease_until_ms > ",
    ") AND ($2 > 0 OR COALESCE(returns_until_ms, 0) <= ",
    ") ORDER BY id"
);
/// A session that waited for its encoder ends as if its owner had waited.
const INTERRUPT: Sql = timed!(
    "UPDATE sessions SET ended_ms = CASE WHEN heartbeat_ms < $2 THEN heartbeat_ms ELSE $2 END,
    end_reason = COALESCE($3, CASE WHEN returns_until_ms IS NULL THEN 'interrupted' ELSE 'unpublished' END)
    WHERE id = $1 AND ended_ms IS NULL AND NOT EXISTS (SELECT 1 FROM nodes n
    WHERE n.name = sessions.node AND n.epoch = sessions.epoch AND n.lease_until_ms > ",
    ") AND ($4 > 0 OR COALESCE(returns_until_ms, 0) <= ",
    ") RETURNING ended_ms"
);
/// Nobody carries them out any more: their owner may never come back.
const FORGET_COMMANDS: &str = "DELETE FROM node_commands WHERE session_id = $1";
const LAST: &str = "SELECT id, stream_id, started_ms, heartbeat_ms, ended_ms, end_reason FROM sessions
    WHERE stream_id = $1 ORDER BY started_ms DESC, id DESC LIMIT 1";

/// How a session without an owner ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Unless it waits for its encoder.
    InTime,
    /// Also if it waits for its encoder.
    AtOnce,
    /// At once, for this reason.
    Ordered(EndReason),
}

impl Ending {
    fn at_once(self) -> i64 {
        i64::from(self != Self::InTime)
    }

    fn reason(self) -> Option<&'static str> {
        match self {
            Self::Ordered(reason) => Some(reason.as_str()),
            Self::InTime | Self::AtOnce => None,
        }
    }
}

impl Store {
    /// Records that a session began, which belongs to this node. Sessions of the stream that a lost node left are ended
    /// as interrupted in the same transaction, so that webhooks hear of their end first.
    ///
    /// # Errors
    /// [`StoreError::LiveElsewhere`], [`StoreError::OwnershipLost`] if this node has no lease.
    pub async fn begin_session(&self, session: NewSession) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Stream(session.stream_id)).await?;
        let node = self.node();
        may_begin(&mut tx, session.stream_id, &node).await?;
        // A service that is alone has settled what another process left, and may still record an end of its own.
        if !node.is_alone() {
            interrupt_lost(&mut tx, session.stream_id, session.started_at).await?;
        }
        let insert = engine::query(INSERT)
            .bind(session.id.as_str())
            .bind(session.stream_id.0)
            .bind(session.started_at.0)
            .bind(stream_bytes(&mut tx, session.stream_id).await?)
            .bind(session.terms.price.0)
            .bind(i64::from(session.terms.free))
            .bind(&node.name)
            .bind(node.epoch);
        insert.execute(&mut tx).await.map_err(db("begin the session"))?;
        session_started(&mut tx, &session.id, session.started_at).await?;
        tx.commit().await?;
        self.wake_outbox();
        Ok(())
    }

    /// Whether another node has a live session of the stream.
    pub async fn is_live_elsewhere(&self, stream: StreamId) -> Result<bool> {
        let node = self.node();
        if node.is_alone() {
            return Ok(false);
        }
        let counts = engine::query_as(MAY_BEGIN).bind(stream.0).bind(&node.name).bind(node.epoch);
        let counts = counts.fetch_one(&self.0.readers).await;
        let (_, others): (i64, i64) = counts.map_err(db("look for the stream at other nodes"))?;
        Ok(others > 0)
    }

    /// Records that sessions of this node are alive at `now`; ended ones do not change.
    pub async fn heartbeat_sessions(&self, sessions: &[SessionId], now: UnixMillis) -> Result<()> {
        if sessions.is_empty() {
            return Ok(());
        }
        let mut sessions = sessions.to_vec();
        sessions.sort_unstable();
        again(|| self.try_heartbeat(&sessions, now)).await
    }

    /// Records the end of a session of this node; only the first call has an effect.
    ///
    /// # Errors
    /// [`StoreError::OwnershipLost`]: a node records the end as an interruption.
    pub async fn end_session(
        &self,
        session: &SessionId,
        ended_at: UnixMillis,
        reason: EndReason,
    ) -> Result<()> {
        let mut tx = self.begin_owning(session).await?;
        let end = engine::query(END).bind(session.as_str()).bind(ended_at.0).bind(reason.as_str());
        let ended = end.execute(&mut tx).await.map_err(db("end the session"))?;
        let rest = engine::query(END_DESTINATIONS).bind(session.as_str()).bind(ended_at.0);
        rest.execute(&mut tx).await.map_err(db("end the session"))?;
        // The first end is kept, and only that one emits an event.
        if ended > 0 {
            session_ended(&mut tx, session, ended_at).await?;
        }
        tx.commit().await?;
        self.wake_outbox();
        Ok(())
    }

    /// Ends every session whose owner has lost it as interrupted, at its last heartbeat, and returns those that this
    /// call ended. The owner of a session has lost it when its lease is over, when it has taken another one since, or
    /// when this service has the database alone. A session that its node gave up ends as unpublished, at its last media,
    /// when its encoder has not returned in time.
    ///
    /// Nodes may call it at the same time. Each session is one transaction under the lock of its account: charges of
    /// its owner come before or are refused, and a second node finds the session ended.
    pub async fn close_interrupted_sessions(&self, now: UnixMillis) -> Result<Vec<SessionId>> {
        let mut ending = Ending::InTime;
        if self.node().is_alone() {
            self.end_leases().await?;
            // It looks once, and no other node is there.
            ending = Ending::AtOnce;
        }
        let lost = engine::query_scalar(LOST).bind(None::<i64>).bind(ending.at_once());
        let lost = lost.fetch_all(&self.0.readers).await;
        let lost: Vec<String> = lost.map_err(db("find interrupted sessions"))?;
        let mut closed = Vec::new();
        for session in lost.into_iter().map(SessionId) {
            if self.close_interrupted(&session, now, ending).await? {
                closed.push(session);
            }
        }
        Ok(closed)
    }

    /// Ends one of them; `false` if it has an end or an owner, or waits.
    pub(crate) async fn close_interrupted(
        &self,
        session: &SessionId,
        now: UnixMillis,
        ending: Ending,
    ) -> Result<bool> {
        let mut tx = self.begin_holding(Lock::Session(session)).await?;
        if !interrupt(&mut tx, session, now, ending).await? {
            return Ok(false);
        }
        tx.commit().await?;
        self.wake_outbox();
        Ok(true)
    }

    /// The newest session of a stream.
    pub async fn last_session(&self, stream: StreamId) -> Result<Option<SessionRecord>> {
        let row = engine::query(LAST).bind(stream.0).fetch_optional(&self.0.readers).await;
        row.map_err(db("read the session"))?.map(|row| session_record(&row)).transpose()
    }

    async fn try_heartbeat(&self, sessions: &[SessionId], now: UnixMillis) -> Result<()> {
        let (mut tx, node) = (self.begin().await?, self.node());
        for session in sessions {
            let beat = engine::query(HEARTBEAT).bind(session.as_str()).bind(now.0);
            let beat = beat.bind(&node.name).bind(node.epoch);
            beat.execute(&mut tx).await.map_err(db("record the heartbeat"))?;
        }
        tx.commit().await
    }
}

/// Checks that a node may begin a session of the stream, whose lock the caller holds.
async fn may_begin(tx: &mut Tx, stream: StreamId, node: &Node) -> Result<()> {
    if node.is_alone() {
        return Ok(());
    }
    let counts = engine::query_as(MAY_BEGIN).bind(stream.0).bind(&node.name).bind(node.epoch);
    let counts = counts.fetch_one(&mut *tx).await;
    let (leases, others): (i64, i64) = counts.map_err(db("look for the stream at other nodes"))?;
    match (leases, others) {
        (0, _) => Err(StoreError::OwnershipLost),
        (_, 0) => Ok(()),
        _ => Err(StoreError::LiveElsewhere),
    }
}

/// Ends the lost sessions of a stream, whose lock the caller holds.
async fn interrupt_lost(tx: &mut Tx, stream: StreamId, now: UnixMillis) -> Result<()> {
    let lost = engine::query_scalar(LOST).bind(stream.0).bind(Ending::AtOnce.at_once());
    let lost = lost.fetch_all(&mut *tx).await;
    let lost: Vec<String> = lost.map_err(db("find interrupted sessions"))?;
    for session in lost.into_iter().map(SessionId) {
        if interrupt(tx, &session, now, Ending::AtOnce).await? {
            tracing::warn!(%session, "the session of a lost node was ended at its last heartbeat");
        }
    }
    Ok(())
}

/// Ends a session without an owner, whose lock the caller holds; `false` if it has an end or an owner, or waits.
pub(crate) async fn interrupt(
    tx: &mut Tx,
    session: &SessionId,
    now: UnixMillis,
    ending: Ending,
) -> Result<bool> {
    let failed = db("end an interrupted session");
    let end = engine::query_scalar(INTERRUPT).bind(session.as_str()).bind(now.0);
    let end = end.bind(ending.reason()).bind(ending.at_once()).fetch_optional(&mut *tx).await;
    let ended_ms: Option<i64> = end.map_err(&failed)?;
    let Some(ended_ms) = ended_ms else { return Ok(false) };
    let rest = engine::query(END_DESTINATIONS).bind(session.as_str()).bind(ended_ms);
    rest.execute(&mut *tx).await.map_err(&failed)?;
    let forget = engine::query(FORGET_COMMANDS).bind(session.as_str()).execute(&mut *tx).await;
    forget.map_err(&failed)?;
    session_ended(tx, session, now).await?;
    Ok(true)
}

fn session_record(row: &Row) -> Result<SessionRecord> {
    let failed = db("read the session");
    let reason: Option<String> = row.try_get("end_reason").map_err(&failed)?;
    let unreadable = StoreError::Unreadable { what: "sessions.end_reason" };
    Ok(SessionRecord {
        id: SessionId(row.try_get("id").map_err(&failed)?),
        stream_id: StreamId(row.try_get("stream_id").map_err(&failed)?),
        started_at: UnixMillis(row.try_get("started_ms").map_err(&failed)?),
        heartbeat_at: UnixMillis(row.try_get("heartbeat_ms").map_err(&failed)?),
        ended_at: row.try_get::<Option<i64>>("ended_ms").map_err(&failed)?.map(UnixMillis),
        end_reason: match reason {
            Some(name) => Some(EndReason::parse(&name).ok_or(unreadable)?),
            None => None,
        },
    })
}
