//! Recordings in the cloud archive, as their driver last reported them.

pub(crate) mod clips;
mod expiry;
pub(crate) mod recoveries;
mod report;
pub(crate) mod state;
pub(crate) mod watched;

use serde_json::{Value, json};

use crate::archives::expiry::Expiry;
pub use crate::archives::report::ArchiveReport;
use crate::archives::state::ArchiveState;
use crate::audit::{self, Actor, By, Change};
use crate::engine::{self, Query, Row, Sql, Tx, timed};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Page, Store};
use satcast_core::ids::{AccountId, DestinationId, JSON_INTEGER_MAX, SessionId, StreamId, UnixMillis};

/// Longest name of a recording in characters. S3 allows keys of 1024 bytes; names made here are ASCII.
pub const ARCHIVE_NAME_CHARS_MAX: usize = 1_024;

/// Stands for the data folder of a node that was removed: no folder has this name.
pub(crate) const REMOVED: &str = "removed";
/// Error of a recording whose node was removed before the store had it.
const NODE_REMOVED: &str = "the node that recorded it is gone for good, and the local copy with it";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveRecord {
    pub id: i64,
    /// The last report.
    pub report: ArchiveReport,
    /// A retry was requested and has not ended.
    pub recovering: bool,
    /// The data folder that has its file; empty if a service that was alone recorded it.
    pub holder: String,
    /// The clip that the file is; `None` for a recording.
    pub clip: Option<i64>,
    /// Viewers with a public key of the stream may watch it.
    pub public: bool,
    /// The recorded stream; `None` if it was deleted.
    pub stream: Option<StreamId>,
}

impl ArchiveRecord {
    /// Whether its local copy, if there was one, is lost because its node was removed.
    pub fn is_without_node(&self) -> bool {
        self.holder == REMOVED
    }
}

/// What became of a recording whose node was removed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LostWithFolder {
    /// It was being made or uploaded.
    pub(crate) failed: bool,
    /// A paid retry had not ended.
    pub(crate) refunded: bool,
}

/// Result of recording a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is stored, for the recording of that id.
    Taken(i64),
    /// It changes nothing: it is older than the last report, or the recording was deleted.
    Late,
    /// The destination has a type for which the driver may not report.
    Foreign { kind: String },
    /// Another driver has, or had, a recording of that name.
    NameTaken { driver: String },
}

/// The part of a recording that shows whether its driver has newer data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownArchive {
    pub id: i64,
    pub file_name: String,
    pub state: ArchiveState,
    /// Time of the driver's last report.
    pub changed_at: UnixMillis,
}

/// A destination, for the driver that keeps its recordings.
#[derive(Clone, PartialEq)]
pub struct RecordedDestination {
    pub id: DestinationId,
    pub kind: String,
    /// The driver's configuration in clear; `None` if the destination was deleted.
    pub config: Option<Value>,
}

impl std::fmt::Debug for RecordedDestination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `config` holds secrets.
        f.debug_struct("RecordedDestination").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Account and type of the destination, if it took part in the session.
const OWNER: &str = "SELECT s.account_id, d.kind FROM destinations d JOIN streams s ON s.id = d.stream_id
    JOIN sessions e ON e.stream_id = s.id WHERE d.id = $1 AND e.id = $2";
const FIND: &str =
    "SELECT id, driver, destination_id, state, changed_ms, attempt, deleted_ms, holder, expires_ms, told_ms
    FROM archives WHERE account_id = $1 AND file_name = $2";
const INSERT: &str = "INSERT INTO archives (state, size_bytes, uploaded_bytes, duration_ms, error, error_class, url,
    changed_ms, attempt, attempt_opened, trouble, audio_only, account_id, destination_id, session_id, file_name, driver,
    started_ms, holder, clip_id)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) RETURNING id";
const UPDATE: &str =
    "UPDATE archives SET state = $1, size_bytes = $2, uploaded_bytes = $3, duration_ms = $4, error = $5,
    error_class = $6, url = $7, changed_ms = $8, attempt = $9, attempt_opened = $10, trouble = $11, audio_only = $12
    WHERE id = $13";
const KNOWN: &str = "SELECT id, file_name, state, changed_ms FROM archives
    WHERE driver = $1 AND holder = COALESCE($2, holder) AND deleted_ms IS NULL ORDER BY id";
/// Unless a node has the folder by now.
const LOSE_FOLDER: Sql = timed!(
    "UPDATE archives SET holder = $3 WHERE id = $1 AND holder = $2
    AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.holder = $2 AND n.lease_until_ms > ",
    ")"
);
const LOSE: &str =
    "UPDATE archives SET state = 'failed', error = $2, error_class = 'internal', trouble = NULL
    WHERE id = $1 AND state IN ('recording', 'uploading') AND deleted_ms IS NULL RETURNING account_id";
const GONE: &str =
    "UPDATE archives SET deleted_ms = $4 WHERE driver = $1 AND destination_id = $2 AND file_name = $3
    AND deleted_ms IS NULL RETURNING id, account_id";
const DELETE: &str =
    "UPDATE archives SET deleted_ms = $3 WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL
    RETURNING file_name";

/// The columns of a recording; a condition that finds it follows, or more columns, joined tables and the condition.
macro_rules! select_archives {
    ($condition:literal) => {
        select_archives!("", "", $condition)
    };
    ($columns:literal, $tables:literal, $condition:literal) => {
        concat!(
            "SELECT a.id, a.driver, a.destination_id, a.session_id, a.file_name, a.state, a.size_bytes, ",
            "a.uploaded_bytes, a.duration_ms, COALESCE(a.error, a.trouble) AS error, a.error_class, a.url, a.started_ms, a.changed_ms, a.attempt, ",
            "a.attempt_opened, a.holder, a.clip_id, a.is_public, a.expires_ms, a.audio_only, (SELECT s.id FROM sessions e ",
            "JOIN streams s ON s.id = e.stream_id WHERE e.id = a.session_id AND s.deleted_ms IS NULL) AS kept_stream_id, (SELECT COUNT(*) FROM archive_recoveries r WHERE r.archive_id = a.id ",
            "AND r.state IN ('asked', 'opened')) AS recovering",
            $columns,
            " FROM archives a",
            $tables,
            " WHERE ",
            $condition
        )
    };
}
use select_archives;

const SELECT_PAGE: &str = select_archives!(
    "a.account_id = $1 AND a.deleted_ms IS NULL AND a.clip_id IS NULL AND a.id < $2 ORDER BY a.id DESC LIMIT $3"
);
const SELECT_OWN: &str =
    select_archives!("a.account_id = $1 AND a.deleted_ms IS NULL AND a.clip_id IS NULL AND a.id = $2");
const SELECT_BY_NAME: &str =
    select_archives!("a.account_id = $1 AND a.deleted_ms IS NULL AND a.clip_id IS NULL AND a.file_name = $2");
const SELECT_BY_ID: &str = select_archives!("a.id = $1 AND a.deleted_ms IS NULL");
const CONFIGURED: &str = "SELECT uid, kind, config_sealed, deleted_ms FROM destinations WHERE id = $1";
const RECORDED: &str = "SELECT DISTINCT destination_id FROM archives
    WHERE driver = $1 AND deleted_ms IS NULL AND holder = COALESCE($2, holder) ORDER BY destination_id";

/// The stored state of a recording before a report.
struct Before {
    id: i64,
    driver: String,
    destination: i64,
    state: String,
    changed_ms: i64,
    attempt: i64,
    deleted_ms: Option<i64>,
    holder: String,
    expiry: Expiry,
}

impl Before {
    async fn find(tx: &mut Tx, account: i64, file_name: &str) -> Result<Option<Self>> {
        let row = engine::query(FIND).bind(account).bind(file_name).fetch_optional(&mut *tx).await;
        let row = row.map_err(db("find a recording"))?;
        row.as_ref().map(Self::read).transpose().map_err(db("find a recording"))
    }

    fn read(row: &Row) -> sqlx::Result<Self> {
        Ok(Self {
            id: row.try_get("id")?,
            driver: row.try_get("driver")?,
            destination: row.try_get("destination_id")?,
            state: row.try_get("state")?,
            changed_ms: row.try_get("changed_ms")?,
            attempt: row.try_get("attempt")?,
            deleted_ms: row.try_get("deleted_ms")?,
            holder: row.try_get("holder")?,
            expiry: Expiry { expires_ms: row.try_get("expires_ms")?, told_ms: row.try_get("told_ms")? },
        })
    }

    /// The report is about this recording, even if the types of its driver have changed since.
    fn is_own(&self, report: &ArchiveReport) -> bool {
        self.driver == report.driver && self.destination == report.destination_id.0
    }

    fn takes(&self, report: &ArchiveReport) -> bool {
        // What the removal of its node has settled stays, also when the data folder comes back.
        self.deleted_ms.is_none() && self.holder != REMOVED && report.changed_at.0 >= self.changed_ms
    }

    /// A new state, or the same end state of a later retry that had started.
    fn is_new_state(&self, report: &ArchiveReport) -> bool {
        // The store never opened this retry: the recording is failed as before.
        if report.state == ArchiveState::Failed && report.attempt > 0 && !report.attempt_opened {
            return false;
        }
        let again = report.attempt_opened && i64::from(report.attempt) > self.attempt;
        self.state != report.state.as_str() || (again && report.state == ArchiveState::Failed)
    }
}

impl Store {
    /// Records a driver's report, with the events of the new state and of a coming deletion, and ends the paid retry that the report is about.
    /// The account follows from the destination. `may_report` decides from the destination's type whether the driver
    /// may start a recording of it; a driver may end a recording that it started, even if its types have changed since.
    /// [`Recorded`] has the cases in which nothing changes.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a destination that has no such session.
    pub async fn record_archive(
        &self,
        report: ArchiveReport,
        may_report: &(dyn for<'k> Fn(&'k str) -> bool + Send + Sync),
        now: UnixMillis,
    ) -> Result<Recorded> {
        let failed = db("record the state of a recording");
        let mut tx = self.begin_holding(Lock::Destination(report.destination_id)).await?;
        let owner = engine::query_as(OWNER).bind(report.destination_id.0).bind(report.session_id.as_str());
        let owner: Option<(i64, String)> = owner.fetch_optional(&mut tx).await.map_err(&failed)?;
        let (account, kind) = owner.ok_or(StoreError::NotFound("destination with that session"))?;
        let before = Before::find(&mut tx, account, &report.file_name).await?;
        // A driver keeps a clip on request, perhaps for a destination of a type that it does not serve.
        let clip = clips::of_file(&mut tx, account, &report.driver, &report.file_name).await?;
        let is_known = clip.is_some() || before.as_ref().is_some_and(|before| before.is_own(&report));
        if !is_known && !may_report(&kind) {
            return Ok(Recorded::Foreign { kind });
        }
        let (id, has_new_state) = match &before {
            Some(before) if before.driver != report.driver => {
                return Ok(Recorded::NameTaken { driver: before.driver.clone() });
            }
            Some(before) if !before.takes(&report) => return Ok(Recorded::Late),
            Some(before) => {
                let update = changing(UPDATE, &report).bind(before.id);
                update.execute(&mut tx).await.map_err(&failed)?;
                (before.id, before.is_new_state(&report))
            }
            None => {
                let insert = changing(INSERT, &report)
                    .bind(account)
                    .bind(report.destination_id.0)
                    .bind(report.session_id.as_str())
                    .bind(&report.file_name)
                    .bind(&report.driver)
                    .bind(report.started_at.0)
                    .bind(self.node().holder)
                    .bind(clip);
                let row = insert.fetch_one(&mut tx).await.map_err(&failed)?;
                (row.try_get("id").map_err(&failed)?, true)
            }
        };
        recoveries::settle(&mut tx, id, false, now).await?;
        if let Some(clip) = clip {
            if before.is_none() {
                clips::publish(&mut tx, clip).await?;
            }
            self.commit_clip_of(tx, clip, &report, now).await?;
            return Ok(Recorded::Taken(id));
        }
        let expiry = before.map(|before| before.expiry).unwrap_or_default();
        let told = expiry.take(&mut tx, id, report.expires_at, report.notice).await?;
        if let Some(at) = told {
            report::emit_expiring(&mut tx, &report, at, now).await?;
        }
        let new_state = has_new_state.then_some((id, &report, report.changed_at));
        self.commit_state(tx, AccountId(account), new_state, now).await?;
        if told.is_some() {
            self.wake_outbox();
        }
        Ok(Recorded::Taken(id))
    }

    /// A driver reports that a recording is no longer in its store, because its retention time was over or, if the
    /// report has an error, for that reason. The recording is hidden, and the account's audit log has an entry. Deleted
    /// recordings and those of another driver do not change.
    ///
    /// # Errors
    /// The database failed.
    pub async fn archive_gone(&self, report: ArchiveReport, now: UnixMillis) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Destination(report.destination_id)).await?;
        let gone = engine::query_as(GONE)
            .bind(&report.driver)
            .bind(report.destination_id.0)
            .bind(&report.file_name)
            .bind(now.0);
        let gone: Option<(i64, i64)> =
            gone.fetch_optional(&mut tx).await.map_err(db("record the removal of a recording"))?;
        let Some((id, account)) = gone else { return Ok(()) };
        recoveries::end(&mut tx, id, now).await?;
        clips::gone(&mut tx, id, now).await?;
        if report.size_bytes == 0 {
            // Nothing expired: the recording never had any media.
            return tx.commit().await;
        }
        let actor = Actor { account: AccountId(account), by: By::Service, address: None, now };
        let mut detail = json!({"fileName": report.file_name});
        let action = match &report.error {
            None => "archive.expired",
            Some(why) => {
                detail["why"] = json!(why);
                "archive.deleted"
            }
        };
        let noted = audit::record(&mut tx, &actor, Change::new(action, "archive", id, detail)).await?;
        self.commit_noted(tx, noted).await
    }

    /// The last report about a recording; `None` if it is unknown or deleted.
    pub async fn archive_report(&self, id: i64) -> Result<Option<ArchiveReport>> {
        let row = engine::query(SELECT_BY_ID).bind(id).fetch_optional(&self.0.readers).await;
        let record = row.map_err(db("read a recording"))?.as_ref().map(record).transpose()?;
        Ok(record.map(|record| record.report))
    }

    /// Whether the file of a recording is at this node, if it is anywhere.
    pub fn has_file_of(&self, archive: &ArchiveRecord) -> bool {
        archive.is_without_node() || self.node().files_of().is_none_or(|holder| archive.holder == holder)
    }

    /// All recordings of a driver of this node that are not deleted.
    pub async fn known_archives(&self, driver: &str) -> Result<Vec<KnownArchive>> {
        let rows = engine::query_as(KNOWN).bind(driver).bind(self.node().files_of());
        let rows = rows.fetch_all(&self.0.readers).await;
        let rows: Vec<(i64, String, String, i64)> = rows.map_err(db("read the recordings"))?;
        let known = rows.into_iter().map(|(id, file_name, state, changed)| {
            let state = parse_state(&state)?;
            Ok(KnownArchive { id, file_name, state, changed_at: UnixMillis(changed) })
        });
        known.collect()
    }

    /// Marks a recording that is being made or uploaded as failed because of `error`, which is a fault of the service.
    /// Recordings in other states do not change.
    pub async fn lose_archive(&self, id: i64, error: &str, now: UnixMillis) -> Result<()> {
        let tx = self.begin_holding(Lock::Archive(id)).await?;
        self.commit_loss(tx, id, error, now).await.map(drop)
    }

    /// Settles a recording whose data folder is gone for good: it fails if it was being made or uploaded, and a paid retry
    /// that has not ended is refunded. Later reports about it change nothing. Does nothing if a node has the folder, or
    /// the recording is settled already.
    pub(crate) async fn lose_with_folder(
        &self,
        id: i64,
        holder: &str,
        now: UnixMillis,
    ) -> Result<LostWithFolder> {
        let mut tx = self.begin_holding(Lock::Archive(id)).await?;
        let lose = engine::query(LOSE_FOLDER).bind(id).bind(holder).bind(REMOVED).execute(&mut tx).await;
        if lose.map_err(db("mark a recording as lost"))? == 0 {
            return Ok(LostWithFolder::default());
        }
        let refunded = recoveries::refund_unfinished(&mut tx, id, now).await?;
        let failed = self.commit_loss(tx, id, NODE_REMOVED, now).await?;
        Ok(LostWithFolder { failed, refunded })
    }

    /// Marks a recording that is being made or uploaded as failed, and commits. Returns whether it was.
    async fn commit_loss(&self, mut tx: Tx, id: i64, error: &str, now: UnixMillis) -> Result<bool> {
        let failed = db("mark a recording as failed");
        let lost = engine::query_scalar(LOSE).bind(id).bind(error).fetch_optional(&mut tx).await;
        let Some(account) = lost.map_err(&failed)? else {
            tx.commit().await?;
            return Ok(false);
        };
        let row = engine::query(SELECT_BY_ID).bind(id).fetch_one(&mut tx).await.map_err(&failed)?;
        let ArchiveRecord { report, clip, .. } = record(&row)?;
        recoveries::settle(&mut tx, id, true, now).await?;
        if let Some(clip) = clip {
            self.commit_clip_of(tx, clip, &report, now).await?;
            return Ok(true);
        }
        self.commit_state(tx, AccountId(account), Some((id, &report, now)), now).await?;
        Ok(true)
    }

    /// The driver has forgotten a recording: it is hidden from now on.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn delete_archive(&self, actor: &Actor, id: i64, remote: bool) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let deleted = engine::query_scalar(DELETE).bind(id).bind(actor.account.0).bind(actor.now.0);
        let name: Option<String> = deleted.fetch_optional(&mut tx).await.map_err(db("delete a recording"))?;
        let name = name.ok_or(StoreError::NotFound("recording"))?;
        recoveries::end(&mut tx, id, actor.now).await?;
        clips::gone(&mut tx, id, actor.now).await?;
        let detail = json!({"fileName": name, "remote": remote});
        let noted =
            audit::record(&mut tx, actor, Change::new("archive.deleted", "archive", id, detail)).await?;
        self.commit_noted(tx, noted).await
    }

    /// The current data of a destination, deleted or not; `None` if it never existed or its configuration cannot be
    /// read.
    pub async fn recorded_destination(&self, id: DestinationId) -> Result<Option<RecordedDestination>> {
        let failed = db("read a destination");
        let row = engine::query_as(CONFIGURED).bind(id.0).fetch_optional(&self.0.readers).await;
        let row: Option<(String, String, Vec<u8>, Option<i64>)> = row.map_err(&failed)?;
        let Some((uid, kind, sealed, deleted)) = row else { return Ok(None) };
        if deleted.is_some() {
            return Ok(Some(RecordedDestination { id, kind, config: None }));
        }
        // An unreadable configuration is reported where it is used.
        let opened = self.0.vault.open(&uid, &sealed).ok();
        let config = opened.and_then(|config| serde_json::from_slice(config.expose()).ok());
        Ok(config.map(|config| RecordedDestination { id, kind, config: Some(config) }))
    }

    /// Every destination of which a driver has recordings that are not deleted.
    pub async fn recorded_destinations(&self, driver: &str) -> Result<Vec<DestinationId>> {
        let ids = engine::query_scalar(RECORDED).bind(driver).bind(self.node().files_of());
        let ids = ids.fetch_all(&self.0.readers).await;
        let ids: Vec<i64> = ids.map_err(db("read the destinations of recordings"))?;
        Ok(ids.into_iter().map(DestinationId).collect())
    }

    /// The account's recordings, newest first.
    pub async fn archives_of(&self, account: AccountId, page: Page) -> Result<Vec<ArchiveRecord>> {
        let rows = engine::query(SELECT_PAGE)
            .bind(account.0)
            .bind(page.end())
            .bind(page.limit)
            .fetch_all(&self.0.readers)
            .await
            .map_err(db("read the recordings"))?;
        rows.iter().map(record).collect()
    }

    /// One recording of the account.
    pub async fn archive(&self, account: AccountId, id: i64) -> Result<Option<ArchiveRecord>> {
        let row = engine::query(SELECT_OWN).bind(account.0).bind(id).fetch_optional(&self.0.readers).await;
        row.map_err(db("read a recording"))?.as_ref().map(record).transpose()
    }

    /// The account's recording of that name.
    pub async fn archive_by_name(
        &self,
        account: AccountId,
        file_name: &str,
    ) -> Result<Option<ArchiveRecord>> {
        let row = engine::query(SELECT_BY_NAME).bind(account.0).bind(file_name);
        let row = row.fetch_optional(&self.0.readers).await;
        row.map_err(db("read a recording"))?.as_ref().map(record).transpose()
    }

    /// The file of a clip.
    pub async fn clip_archive(&self, id: i64) -> Result<Option<ArchiveRecord>> {
        let row = engine::query(SELECT_BY_ID).bind(id).fetch_optional(&self.0.readers).await;
        let found = row.map_err(db("read the file of a clip"))?.as_ref().map(record).transpose()?;
        Ok(found.filter(|archive| archive.clip.is_some()))
    }

    /// Commits a report about the file of a clip, with the state that the clip has by it.
    async fn commit_clip_of(
        &self,
        mut tx: Tx,
        clip: i64,
        report: &ArchiveReport,
        now: UnixMillis,
    ) -> Result<()> {
        let told = clips::Told {
            state: report.state,
            error: report.error.as_deref(),
            size_bytes: report.size_bytes,
            duration_ms: report.duration_ms,
            url: report.url.as_deref(),
        };
        let settled = clips::settle(&mut tx, clip, &told, self.0.low_balance, now).await?;
        self.commit_clip(tx, settled, now).await
    }

    /// Commits a report. If the state changed, webhooks are notified in the same transaction, and the account's event
    /// feed after it.
    async fn commit_state(
        &self,
        mut tx: Tx,
        account: AccountId,
        new_state: Option<(i64, &ArchiveReport, UnixMillis)>,
        now: UnixMillis,
    ) -> Result<()> {
        let Some((id, report, at)) = new_state else { return tx.commit().await };
        report::emit_state(&mut tx, report, at, now).await?;
        tx.commit().await?;
        self.wake_outbox();
        let data = json!({
            "archiveId": id, "fileName": report.file_name, "state": report.state.as_str(),
            "destinationId": report.destination_id.0, "sessionId": report.session_id.as_str(),
            "error": report.error,
        });
        self.0.feed.send(account, "recording.state", at, data);
        Ok(())
    }
}

/// A statement that begins with the values that a report changes.
fn changing(sql: &'static str, report: &ArchiveReport) -> Query {
    let has_failed = report.state == ArchiveState::Failed;
    let why = |is_meant: bool| report.error.as_ref().filter(|_| is_meant);
    engine::query(sql)
        .bind(report.state.as_str())
        .bind(integer(report.size_bytes))
        .bind(integer(report.uploaded_bytes.min(report.size_bytes)))
        .bind(integer(report.duration_ms))
        .bind(why(has_failed))
        .bind(report.error_class.as_ref().filter(|_| has_failed))
        .bind(&report.url)
        .bind(report.changed_at.0)
        .bind(i64::from(report.attempt))
        .bind(i64::from(report.attempt_opened))
        .bind(why(!has_failed))
        .bind(i64::from(report.audio_only))
}

/// The number as the database stores it, at most the largest integer that every JSON reader supports.
fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(JSON_INTEGER_MAX).min(JSON_INTEGER_MAX)
}

fn record(row: &Row) -> Result<ArchiveRecord> {
    let state = row.try_get::<String>("state").map_err(db("read a recording"))?;
    read(row, parse_state(&state)?).map_err(db("read a recording"))
}

fn parse_state(name: &str) -> Result<ArchiveState> {
    ArchiveState::parse(name).ok_or(StoreError::Unreadable { what: "archives.state" })
}

fn read(row: &Row, state: ArchiveState) -> sqlx::Result<ArchiveRecord> {
    let count = |name: &str| row.try_get::<i64>(name).map(i64::unsigned_abs);
    let report = ArchiveReport {
        driver: row.try_get("driver")?,
        destination_id: DestinationId(row.try_get("destination_id")?),
        session_id: SessionId(row.try_get("session_id")?),
        file_name: row.try_get("file_name")?,
        state,
        size_bytes: count("size_bytes")?,
        uploaded_bytes: count("uploaded_bytes")?,
        duration_ms: count("duration_ms")?,
        error: row.try_get("error")?,
        error_class: row.try_get("error_class")?,
        url: row.try_get("url")?,
        started_at: UnixMillis(row.try_get("started_ms")?),
        changed_at: UnixMillis(row.try_get("changed_ms")?),
        attempt: u32::try_from(row.try_get::<i64>("attempt")?).unwrap_or(u32::MAX),
        attempt_opened: row.try_get::<i64>("attempt_opened")? != 0,
        expires_at: row.try_get::<Option<i64>>("expires_ms")?.map(UnixMillis),
        notice: None,
        audio_only: row.try_get::<i64>("audio_only")? != 0,
    };
    let recovering = row.try_get::<i64>("recovering")? > 0;
    let (id, holder, clip) = (row.try_get("id")?, row.try_get("holder")?, row.try_get("clip_id")?);
    let public = row.try_get::<i64>("is_public")? != 0;
    let stream = row.try_get::<Option<i64>>("kept_stream_id")?.map(StreamId);
    Ok(ArchiveRecord { id, report, recovering, holder, clip, public, stream })
}
