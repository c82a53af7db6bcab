//! Recordings in the cloud archive.

use async_trait::async_trait;

use super::engine::{self, Row};
use super::{SqlStore, commit, db};
use crate::ids::{AccountId, DestinationId, JSON_INTEGER_MAX, SessionId, UnixMillis};
use crate::store::{ArchiveRecord, ArchiveReport, ArchiveState, Archives, Page, Result, StoreError};

/// A report that is older than the one before it changes nothing; the row's id comes back either way.
const RECORD: &str = "INSERT INTO archives (account_id, destination_id, session_id, file_name, state, size_bytes,
    uploaded_bytes, duration_ms, error, url, started_ms, changed_ms)
    SELECT s.account_id, d.id, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
    FROM destinations d JOIN streams s ON s.id = d.stream_id WHERE d.id = $1
    ON CONFLICT (account_id, file_name) DO UPDATE SET state = excluded.state, size_bytes = excluded.size_bytes,
    uploaded_bytes = excluded.uploaded_bytes, duration_ms = excluded.duration_ms, error = excluded.error,
    url = excluded.url, changed_ms = excluded.changed_ms WHERE excluded.changed_ms >= archives.changed_ms
    RETURNING id";
const FIND: &str = "SELECT a.id FROM archives a JOIN streams s ON s.account_id = a.account_id
    JOIN destinations d ON d.stream_id = s.id WHERE d.id = $1 AND a.file_name = $2";

/// The columns of a recording and the condition that finds it.
macro_rules! select_archives {
    ($condition:literal) => {
        concat!(
            "SELECT id, destination_id, session_id, file_name, state, size_bytes, uploaded_bytes, duration_ms, ",
            "error, url, started_ms, changed_ms FROM archives WHERE account_id = $1 AND ",
            $condition
        )
    };
}
const SELECT_PAGE: &str = select_archives!("id < $2 ORDER BY id DESC LIMIT $3");
const SELECT_BY_ID: &str = select_archives!("id = $2");
const SELECT_BY_NAME: &str = select_archives!("file_name = $2");

#[async_trait]
impl Archives for SqlStore {
    async fn record_archive(&self, report: ArchiveReport) -> Result<i64> {
        let failed = db("record what became of a recording");
        let mut tx = self.begin().await?;
        let recorded: Option<i64> = engine::query_scalar(RECORD)
            .bind(report.destination_id.0)
            .bind(report.session_id.as_str())
            .bind(&report.file_name)
            .bind(report.state.as_str())
            .bind(integer(report.size_bytes))
            .bind(integer(report.uploaded_bytes.min(report.size_bytes)))
            .bind(integer(report.duration_ms))
            .bind(&report.error)
            .bind(&report.url)
            .bind(report.started_at.0)
            .bind(report.changed_at.0)
            .fetch_optional(&mut tx)
            .await
            .map_err(&failed)?;
        let id = match recorded {
            Some(id) => id,
            None => {
                let find = engine::query_scalar(FIND).bind(report.destination_id.0).bind(&report.file_name);
                let known: Option<i64> = find.fetch_optional(&mut tx).await.map_err(&failed)?;
                known.ok_or(StoreError::NotFound("destination"))?
            }
        };
        commit(tx).await?;
        Ok(id)
    }

    async fn archives_of(&self, account: AccountId, page: Page) -> Result<Vec<ArchiveRecord>> {
        let rows = engine::query(SELECT_PAGE)
            .bind(account.0)
            .bind(page.before.unwrap_or(i64::MAX))
            .bind(page.limit)
            .fetch_all(&self.readers)
            .await
            .map_err(db("read the recordings"))?;
        rows.iter().map(record).collect()
    }

    async fn archive(&self, account: AccountId, id: i64) -> Result<Option<ArchiveRecord>> {
        let row = engine::query(SELECT_BY_ID).bind(account.0).bind(id).fetch_optional(&self.readers).await;
        row.map_err(db("read a recording"))?.as_ref().map(record).transpose()
    }

    async fn archive_by_name(&self, account: AccountId, file_name: &str) -> Result<Option<ArchiveRecord>> {
        let row = engine::query(SELECT_BY_NAME).bind(account.0).bind(file_name);
        let row = row.fetch_optional(&self.readers).await;
        row.map_err(db("read a recording"))?.as_ref().map(record).transpose()
    }
}

/// The number as the database holds it, at most what every JSON reader does.
fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(JSON_INTEGER_MAX).min(JSON_INTEGER_MAX)
}

fn record(row: &Row) -> Result<ArchiveRecord> {
    let state = row.try_get::<String>("state").map_err(db("read a recording"))?;
    let state = ArchiveState::parse(&state).ok_or(StoreError::Unreadable { what: "archives.state" })?;
    read(row, state).map_err(db("read a recording"))
}

fn read(row: &Row, state: ArchiveState) -> sqlx::Result<ArchiveRecord> {
    let count = |name: &str| row.try_get::<i64>(name).map(i64::unsigned_abs);
    let report = ArchiveReport {
        destination_id: DestinationId(row.try_get("destination_id")?),
        session_id: SessionId(row.try_get("session_id")?),
        file_name: row.try_get("file_name")?,
        state,
        size_bytes: count("size_bytes")?,
        uploaded_bytes: count("uploaded_bytes")?,
        duration_ms: count("duration_ms")?,
        error: row.try_get("error")?,
        url: row.try_get("url")?,
        started_at: UnixMillis(row.try_get("started_ms")?),
        changed_at: UnixMillis(row.try_get("changed_ms")?),
    };
    Ok(ArchiveRecord { id: row.try_get("id")?, report })
}
