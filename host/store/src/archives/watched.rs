//! Recordings for viewers: those of a session that play as one, those of a range, and whether the public may watch them.

use serde_json::json;

use super::{ArchiveRecord, record, select_archives};
use crate::audit::{self, Actor, Change};
use crate::engine::{self, Row};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Store};
use satcast_core::ids::{AccountId, StreamId};

/// Most recordings of one session and destination that play as one; later ones are left out.
pub const WATCHED_TOGETHER_MAX: i64 = 1_000;

/// Most recordings that are looked at for a clip.
pub const RECORDINGS_OF_RANGE_MAX: i64 = 100;

/// A recording, for its viewers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedArchive {
    pub record: ArchiveRecord,
    pub account: AccountId,
    /// The recorded stream.
    pub stream: StreamId,
    /// Title of a clip that has one; otherwise the label of the stream.
    pub label: String,
    /// Its session goes on, so other recordings may follow.
    pub grows: bool,
}

const TOGETHER: &str = select_archives!(
    ", a.account_id, e.stream_id, COALESCE(NULLIF((SELECT t.title FROM clips t WHERE t.id = a.clip_id), ''), s.label) AS label, \
    CAST(CASE WHEN e.ended_ms IS NULL THEN 1 ELSE 0 END AS BIGINT) AS grows",
    " JOIN archives w ON w.session_id = a.session_id AND w.destination_id = a.destination_id \
    JOIN sessions e ON e.id = a.session_id JOIN streams s ON s.id = e.stream_id JOIN accounts c ON c.id = a.account_id",
    "w.id = $1 AND (a.id = w.id OR (a.clip_id IS NULL AND w.clip_id IS NULL)) AND w.deleted_ms IS NULL AND a.deleted_ms IS NULL AND c.disabled_ms IS NULL \
    ORDER BY a.started_ms, a.id LIMIT $2"
);
const BETWEEN: &str = select_archives!(
    "",
    " JOIN sessions e ON e.id = a.session_id",
    "a.account_id = $1 AND e.stream_id = $2 AND a.started_ms < $4 AND a.started_ms > $3 - a.duration_ms AND a.size_bytes > 0 \
    AND a.state <> 'failed' AND a.clip_id IS NULL AND a.deleted_ms IS NULL ORDER BY a.id LIMIT $5"
);
const SET_PUBLIC: &str = "UPDATE archives SET is_public = $3 WHERE id = $1 AND account_id = $2
    AND clip_id IS NULL AND deleted_ms IS NULL RETURNING file_name";

impl Store {
    /// The recording of this id and all others of its session and destination, in the order of their start; empty if it is
    /// unknown or deleted, or its account is disabled.
    pub async fn archives_together(&self, id: i64) -> Result<Vec<WatchedArchive>> {
        let rows = engine::query(TOGETHER).bind(id).bind(WATCHED_TOGETHER_MAX);
        let rows = rows.fetch_all(&self.0.readers).await.map_err(db("read the recordings of a session"))?;
        rows.iter().map(watched).collect()
    }

    /// The recordings of a stream that have media of a range, in milliseconds since 1970, oldest first. Failed ones are left
    /// out.
    pub async fn recordings_between(
        &self,
        account: AccountId,
        stream: StreamId,
        (from_ms, to_ms): (i64, i64),
    ) -> Result<Vec<ArchiveRecord>> {
        let rows = engine::query(BETWEEN).bind(account.0).bind(stream.0).bind(from_ms).bind(to_ms);
        let rows = rows.bind(RECORDINGS_OF_RANGE_MAX).fetch_all(&self.0.readers).await;
        rows.map_err(db("read the recordings of a range"))?.iter().map(record).collect()
    }

    /// Lets viewers with a public key of the stream watch a recording, or no longer.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn set_archive_public(&self, actor: &Actor, id: i64, public: bool) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let set = engine::query_scalar(SET_PUBLIC).bind(id).bind(actor.account.0).bind(i64::from(public));
        let name: Option<String> = set.fetch_optional(&mut tx).await.map_err(db("change a recording"))?;
        let name = name.ok_or(StoreError::NotFound("recording"))?;
        let detail = json!({"fileName": name, "public": public});
        let noted =
            audit::record(&mut tx, actor, Change::new("archive.changed", "archive", id, detail)).await?;
        self.commit_noted(tx, noted).await
    }
}

fn watched(row: &Row) -> Result<WatchedArchive> {
    let failed = db("read a recording");
    Ok(WatchedArchive {
        record: record(row)?,
        account: AccountId(row.try_get("account_id").map_err(&failed)?),
        stream: StreamId(row.try_get("stream_id").map_err(&failed)?),
        label: row.try_get("label").map_err(&failed)?,
        grows: row.try_get::<i64>("grows").map_err(&failed)? != 0,
    })
}
