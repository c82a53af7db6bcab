//! History: sessions and their destinations, bytes by hour, charges by time.

use crate::engine::{self, Row};
use crate::error::{Result, StoreError, db};
use crate::store::{Page, Store, TimeRange};
use satcast_core::ids::{AccountId, DestinationId, Msat, Sats, SessionId, StreamId, UnixMillis};

/// The part of one destination in one ended session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    pub id: i64,
    pub stream_id: StreamId,
    /// The stream's label.
    pub stream_label: String,
    pub session_id: SessionId,
    pub platform: String,
    /// Start of the destination.
    pub started_at: UnixMillis,
    /// End of the destination.
    pub ended_at: UnixMillis,
    /// The destination's share of the session's cost.
    pub cost: Msat,
}

/// A filter for the history; an absent field matches all.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    /// Start of the destination.
    pub range: TimeRange,
    /// Least cost, in whole sats as displayed.
    pub min_cost: Option<Sats>,
    /// Largest cost, in whole sats as displayed.
    pub max_cost: Option<Sats>,
    pub platform: Option<String>,
    pub stream: Option<StreamId>,
}

/// Millisats of a sat.
const MSAT_PER_SAT: i64 = 1_000;

const BEGIN: &str = "INSERT INTO session_destinations (session_id, destination_id, account_id, stream_id,
    platform, started_ms) SELECT $1, d.id, s.account_id, s.id, d.platform, $3
    FROM destinations d JOIN streams s ON s.id = d.stream_id WHERE d.id = $2
    ON CONFLICT (session_id, destination_id) DO UPDATE SET ended_ms = NULL";
const END: &str = "UPDATE session_destinations SET ended_ms = $3
    WHERE session_id = $1 AND destination_id = $2 AND ended_ms IS NULL";

/// A page of the history. One statement with optional filters would use no index if few rows match. So there is one
/// statement for all streams and one for a single stream, each from the newest entry and from a given entry on.
macro_rules! select {
    ($stream:literal, $page:literal) => {
        concat!(
            "SELECT h.id, h.stream_id, s.label, h.session_id, h.platform, h.started_ms, h.ended_ms, h.cost_msat ",
            "FROM session_destinations h JOIN streams s ON s.id = h.stream_id JOIN sessions e ON e.id = h.session_id ",
            "WHERE ",
            $stream,
            " AND h.started_ms >= $3 AND h.started_ms < $4 AND ",
            $page,
            " AND h.cost_msat >= $6 AND h.cost_msat <= $7 AND ($8 IS NULL OR h.platform = $8) ",
            "AND e.ended_ms IS NOT NULL ORDER BY h.started_ms DESC, h.id DESC LIMIT $9"
        )
    };
}

const SELECT_NEWEST: &str = select!("h.account_id = $1 AND $2 IS NULL", "$5 IS NULL");
const SELECT_OLDER: &str = select!(
    "h.account_id = $1 AND $2 IS NULL",
    "(h.started_ms, h.id) < (SELECT started_ms, id FROM session_destinations
        WHERE id = $5 AND account_id = $1)"
);
const SELECT_NEWEST_OF_STREAM: &str = select!("h.stream_id = $2 AND s.account_id = $1", "$5 IS NULL");
const SELECT_OLDER_OF_STREAM: &str = select!(
    "h.stream_id = $2 AND s.account_id = $1",
    "(h.started_ms, h.id) < (SELECT started_ms, id FROM session_destinations
        WHERE id = $5 AND account_id = $1)"
);
const BY_HOUR: &str = "SELECT hour_ms, CAST(SUM(bytes) AS BIGINT) AS bytes FROM bandwidth
    WHERE account_id = $1 AND hour_ms >= $2 AND hour_ms < $3 GROUP BY hour_ms ORDER BY hour_ms";
/// The part of each session inside the range; the functions `MIN` and `MAX` of two values differ between the engines.
const STREAMED: &str = "SELECT CAST(COALESCE(SUM(
    CASE WHEN COALESCE(e.ended_ms, $4) < $3 THEN COALESCE(e.ended_ms, $4) ELSE $3 END
    - CASE WHEN e.started_ms > $2 THEN e.started_ms ELSE $2 END), 0) AS BIGINT)
    FROM sessions e JOIN streams s ON s.id = e.stream_id
    WHERE s.account_id = $1 AND e.started_ms < $3 AND COALESCE(e.ended_ms, $4) > $2 AND e.started_ms < $4";
const MINUTES: &str = "SELECT CAST(COALESCE(SUM(t.amount_msat), 0) AS BIGINT) FROM transfers t
    JOIN ledger_accounts l ON l.id = t.debit_id
    WHERE l.account_id = $1 AND t.kind = 'minute' AND t.created_ms >= $2 AND t.created_ms < $3";

pub(crate) const SESSION_CHARGES: &str = "SELECT charged_msat FROM sessions WHERE id = $1";

impl Store {
    /// Records that destinations take part in a session; a repeat for the same pair continues the first record.
    pub async fn begin_forwarding(
        &self,
        session: &SessionId,
        destinations: &[DestinationId],
        now: UnixMillis,
    ) -> Result<()> {
        if destinations.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin_owning(session).await?;
        for destination in destinations {
            let begin = engine::query(BEGIN).bind(session.as_str()).bind(destination.0).bind(now.0);
            begin.execute(&mut tx).await.map_err(db("record the destinations of a session"))?;
        }
        tx.commit().await
    }

    /// Records that a destination left a session that goes on.
    pub async fn end_forwarding(
        &self,
        session: &SessionId,
        destination: DestinationId,
        now: UnixMillis,
    ) -> Result<()> {
        let mut tx = self.begin_owning(session).await?;
        let end = engine::query(END).bind(session.as_str()).bind(destination.0).bind(now.0);
        end.execute(&mut tx).await.map_err(db("record the end of a destination"))?;
        tx.commit().await
    }

    /// The history of an account, newest first, deleted streams and destinations included.
    pub async fn history(
        &self,
        account: AccountId,
        filter: HistoryFilter,
        page: Page,
    ) -> Result<Vec<HistoryEntry>> {
        let (from, to) = filter.range.bounds();
        // Costs are shown rounded down, and filters apply to the shown values.
        let min = filter.min_cost.map_or(0, |sats| sats.0.saturating_mul(MSAT_PER_SAT));
        let max = filter
            .max_cost
            .map_or(i64::MAX, |sats| sats.0.saturating_mul(MSAT_PER_SAT).saturating_add(MSAT_PER_SAT - 1));
        let select = match (filter.stream, page.before) {
            (None, None) => SELECT_NEWEST,
            (None, Some(_)) => SELECT_OLDER,
            (Some(_), None) => SELECT_NEWEST_OF_STREAM,
            (Some(_), Some(_)) => SELECT_OLDER_OF_STREAM,
        };
        let rows = engine::query(select)
            .bind(account.0)
            .bind(filter.stream.map(|id| id.0))
            .bind(from)
            .bind(to)
            .bind(page.before)
            .bind(min)
            .bind(max)
            .bind(filter.platform)
            .bind(page.limit)
            .fetch_all(&self.0.readers)
            .await
            .map_err(db("read the history"))?;
        rows.iter().map(entry).collect::<sqlx::Result<_>>().map_err(db("read the history"))
    }

    /// Bytes sent to viewers of the account by UTC clock hour, for the hours that overlap `range`, deleted destinations
    /// included.
    pub async fn bandwidth_by_hour(
        &self,
        account: AccountId,
        range: TimeRange,
    ) -> Result<Vec<(UnixMillis, u64)>> {
        let (from, to) = range.hours();
        let rows =
            engine::query(BY_HOUR).bind(account.0).bind(from).bind(to).fetch_all(&self.0.readers).await;
        let failed = db("read the bandwidth");
        let rows = rows.map_err(&failed)?;
        let unreadable = || StoreError::Unreadable { what: "bandwidth.bytes" };
        let mut hours = Vec::with_capacity(rows.len());
        for row in &rows {
            let bytes: i64 = row.try_get("bytes").map_err(&failed)?;
            let hour = UnixMillis(row.try_get("hour_ms").map_err(&failed)?);
            hours.push((hour, u64::try_from(bytes).map_err(|_| unreadable())?));
        }
        Ok(hours)
    }

    /// Milliseconds in which sessions of the account ran inside `range`; a running one counts up to `now`.
    pub async fn streamed_millis(
        &self,
        account: AccountId,
        range: TimeRange,
        now: UnixMillis,
    ) -> Result<u64> {
        let (from, to) = range.bounds();
        let sum: i64 = engine::query_scalar(STREAMED)
            .bind(account.0)
            .bind(from)
            .bind(to)
            .bind(now.0)
            .fetch_one(&self.0.readers)
            .await
            .map_err(db("sum the minutes"))?;
        u64::try_from(sum).map_err(|_| StoreError::Unreadable { what: "sessions.ended_ms" })
    }

    /// Charges of a session so far, for minutes and bandwidth.
    pub async fn session_charges(&self, session: &SessionId) -> Result<Msat> {
        let sum = engine::query_scalar(SESSION_CHARGES)
            .bind(session.as_str())
            .fetch_optional(&self.0.readers)
            .await;
        let sum = sum.map_err(db("read the session's charges"))?;
        Ok(Msat(sum.unwrap_or(0)))
    }

    /// Charges of the account for minutes inside `range`.
    pub async fn minute_charges(&self, account: AccountId, range: TimeRange) -> Result<Msat> {
        let (from, to) = range.bounds();
        let sum = engine::query_scalar(MINUTES).bind(account.0).bind(from).bind(to);
        sum.fetch_one(&self.0.readers).await.map(Msat).map_err(db("sum the charges"))
    }
}

fn entry(row: &Row) -> sqlx::Result<HistoryEntry> {
    let started_at = UnixMillis(row.try_get("started_ms")?);
    Ok(HistoryEntry {
        id: row.try_get("id")?,
        stream_id: StreamId(row.try_get("stream_id")?),
        stream_label: row.try_get("label")?,
        session_id: SessionId(row.try_get("session_id")?),
        platform: row.try_get("platform")?,
        started_at,
        // A crash between two writes leaves the end out; the duration is unknown and counts as zero.
        ended_at: row.try_get::<Option<i64>>("ended_ms")?.map_or(started_at, UnixMillis),
        cost: Msat(row.try_get("cost_msat")?),
    })
}
