//! Live sessions.

use crate::engine::{self, Row};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Store, again};
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
    "INSERT INTO sessions (id, stream_id, started_ms, heartbeat_ms, bytes_before, price_msat, free_slots)
    VALUES ($1, $2, $3, $3, $4, $5, $6)";
const HEARTBEAT: &str =
    "UPDATE sessions SET heartbeat_ms = $2 WHERE id = $1 AND ended_ms IS NULL AND heartbeat_ms < $2";
const END: &str = "UPDATE sessions SET ended_ms = $2, end_reason = $3 WHERE id = $1 AND ended_ms IS NULL";
const END_DESTINATIONS: &str =
    "UPDATE session_destinations SET ended_ms = CASE WHEN started_ms > $2 THEN started_ms ELSE $2 END
    WHERE session_id = $1 AND ended_ms IS NULL";
const INTERRUPT_DESTINATIONS: &str = "UPDATE session_destinations SET ended_ms =
    (SELECT CASE WHEN session_destinations.started_ms > e.ended_ms THEN session_destinations.started_ms
    ELSE e.ended_ms END FROM sessions e WHERE e.id = session_destinations.session_id)
    WHERE ended_ms IS NULL AND session_id IN (SELECT e.id FROM sessions e WHERE e.ended_ms IS NOT NULL)";
const INTERRUPT: &str = "UPDATE sessions SET end_reason = $2,
    ended_ms = CASE WHEN heartbeat_ms < $1 THEN heartbeat_ms ELSE $1 END WHERE ended_ms IS NULL RETURNING id";
const LAST: &str = "SELECT id, stream_id, started_ms, heartbeat_ms, ended_ms, end_reason FROM sessions
    WHERE stream_id = $1 ORDER BY started_ms DESC, id DESC LIMIT 1";

impl Store {
    /// Records that a session began.
    pub async fn begin_session(&self, session: NewSession) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Stream(session.stream_id)).await?;
        let insert = engine::query(INSERT)
            .bind(session.id.as_str())
            .bind(session.stream_id.0)
            .bind(session.started_at.0)
            .bind(stream_bytes(&mut tx, session.stream_id).await?)
            .bind(session.terms.price.0)
            .bind(i64::from(session.terms.free));
        insert.execute(&mut tx).await.map_err(db("begin the session"))?;
        session_started(&mut tx, &session.id, session.started_at).await?;
        tx.commit().await?;
        self.wake_outbox();
        Ok(())
    }

    /// Records that sessions are alive at `now`; ended ones do not change.
    pub async fn heartbeat_sessions(&self, sessions: &[SessionId], now: UnixMillis) -> Result<()> {
        if sessions.is_empty() {
            return Ok(());
        }
        let mut sessions = sessions.to_vec();
        sessions.sort_unstable();
        again(|| self.try_heartbeat(&sessions, now)).await
    }

    /// Records the end of a session; only the first call has an effect.
    pub async fn end_session(
        &self,
        session: &SessionId,
        ended_at: UnixMillis,
        reason: EndReason,
    ) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Session(session)).await?;
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

    /// Ends every session without an end as interrupted, at its last heartbeat; called once at start.
    pub async fn close_interrupted_sessions(&self, now: UnixMillis) -> Result<Vec<SessionId>> {
        let mut tx = self.begin().await?;
        let ids: Vec<String> = engine::query_scalar(INTERRUPT)
            .bind(now.0)
            .bind(EndReason::Interrupted.as_str())
            .fetch_all(&mut tx)
            .await
            .map_err(db("end interrupted sessions"))?;
        let rest = engine::query(INTERRUPT_DESTINATIONS).execute(&mut tx).await;
        rest.map_err(db("end interrupted sessions"))?;
        let ids: Vec<SessionId> = ids.into_iter().map(SessionId).collect();
        for session in &ids {
            session_ended(&mut tx, session, now).await?;
        }
        tx.commit().await?;
        self.wake_outbox();
        Ok(ids)
    }

    /// The newest session of a stream.
    pub async fn last_session(&self, stream: StreamId) -> Result<Option<SessionRecord>> {
        let row = engine::query(LAST).bind(stream.0).fetch_optional(&self.0.readers).await;
        row.map_err(db("read the session"))?.map(|row| session_record(&row)).transpose()
    }

    async fn try_heartbeat(&self, sessions: &[SessionId], now: UnixMillis) -> Result<()> {
        let mut tx = self.begin().await?;
        for session in sessions {
            let beat = engine::query(HEARTBEAT).bind(session.as_str()).bind(now.0);
            beat.execute(&mut tx).await.map_err(db("record the heartbeat"))?;
        }
        tx.commit().await
    }
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
