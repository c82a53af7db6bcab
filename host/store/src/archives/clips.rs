//! Clips: parts of a stream as files of their own, kept by the driver that keeps its recordings.
//!
//! The file is a row of `archives` as well, once its driver reports it. A clip becomes ready, and is charged, in the
//! transaction of the report that the store has it.

use serde_json::{Value, json};

use crate::archives::state::ArchiveState;
use crate::audit::{Actor, Change, record};
use crate::charges::{Posting, post, take};
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::ledger::balance;
use crate::store::{Lock, Page, Store};
use crate::webhooks::EventType;
use crate::webhooks::events::{EVENT_ERROR_CHARS_MAX, emit_of_session};
use satcast_core::ids::{AccountId, DestinationId, Msat, SessionId, StreamId, UnixMillis};

/// State of a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClipState {
    /// It is being cut or uploaded.
    Making,
    /// The store has it.
    Ready,
    /// It could not be made or uploaded; it costs nothing.
    Failed,
}

impl ClipState {
    pub const ALL: [Self; 3] = [Self::Making, Self::Ready, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Making => "making",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// Limits of an account's clips.
#[derive(Clone, Copy, Debug)]
pub struct ClipCaps {
    /// Most clips.
    pub clips: i64,
    /// Most clips that are being made.
    pub making: i64,
}

/// A clip to be made.
#[derive(Clone, Debug)]
pub struct NewClip {
    pub stream: StreamId,
    pub session: SessionId,
    /// The destination of the stream for which the driver keeps it.
    pub destination: DestinationId,
    pub driver: String,
    /// Its name for the driver, unique.
    pub file_name: String,
    pub title: String,
    /// Charged when it is ready; zero or more.
    pub price: Msat,
    pub caps: ClipCaps,
}

/// Result of a request for a clip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClipBegun {
    /// It has this id.
    Begun(i64),
    /// So many clips of the account are being made that it must wait.
    Busy,
    /// The balance does not hold its price and that of the clips in the making: it has this much.
    Insufficient(Msat),
}

/// A change of a clip; `None` leaves a value as it is.
#[derive(Clone, Debug, Default)]
pub struct ClipChange {
    pub title: Option<String>,
    pub public: Option<bool>,
}

/// A clip, with what its driver reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClipRecord {
    pub id: i64,
    /// `None` if it was deleted.
    pub stream: Option<StreamId>,
    pub session: SessionId,
    pub destination: DestinationId,
    pub title: String,
    pub state: ClipState,
    /// Why it failed, or why its upload waits.
    pub error: Option<String>,
    pub public: bool,
    /// What was charged if it is ready, else what it will cost.
    pub cost: Msat,
    pub created_at: UnixMillis,
    /// The row of its file; the following values are there with it.
    pub archive: Option<i64>,
    /// Time of its first frame.
    pub started_at: Option<UnixMillis>,
    pub duration_ms: Option<u64>,
    pub size_bytes: Option<u64>,
    /// `s3://bucket/key` once it is ready.
    pub url: Option<String>,
    /// The file has no video.
    pub audio_only: bool,
}

/// A clip whose driver has not reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MakingClip {
    pub id: i64,
    pub file_name: String,
    pub created_at: UnixMillis,
}

/// The kind of a charge for a clip.
const KIND_CLIP: &str = "clip";
const MS_PER_SEC: f64 = 1_000.0;

/// The stream's account, if the destination is of that stream and the session, too.
const OWNED: &str = "SELECT s.id FROM streams s JOIN destinations d ON d.stream_id = s.id
    JOIN sessions e ON e.stream_id = s.id WHERE s.id = $1 AND s.account_id = $2 AND d.id = $3 AND e.id = $4";
const COUNT: &str =
    "SELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN state = 'making' THEN 1 ELSE 0 END), 0) AS BIGINT),
    CAST(COALESCE(SUM(CASE WHEN state = 'making' THEN price_msat ELSE 0 END), 0) AS BIGINT)
    FROM clips WHERE account_id = $1 AND deleted_ms IS NULL";
const INSERT: &str =
    "INSERT INTO clips (account_id, stream_id, session_id, destination_id, driver, holder, file_name,
    title, state, price_msat, created_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'making', $9, $10) RETURNING id";
/// The clip that a file of a driver is, also a deleted one.
const OF_FILE: &str = "SELECT id FROM clips WHERE account_id = $1 AND file_name = $2 AND driver = $3";
const READY: &str =
    "UPDATE clips SET state = 'ready' WHERE id = $1 AND state = 'making' AND deleted_ms IS NULL
    RETURNING account_id, stream_id, session_id, destination_id, title, price_msat";
const FAILED: &str = "UPDATE clips SET state = 'failed', error = $2
    WHERE id = $1 AND state = 'making' AND deleted_ms IS NULL
    RETURNING account_id, stream_id, session_id, destination_id, title, price_msat";
const INTERRUPTED: &str = "SELECT id FROM clips WHERE id = $1
    AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.clip_id = clips.id)";
const FORGET: &str =
    "UPDATE archives SET deleted_ms = $2 WHERE id = $1 AND clip_id IS NOT NULL AND deleted_ms IS NULL";
const CHARGED: &str = "UPDATE clips SET charged_msat = $2 WHERE id = $1";
const EDIT: &str = "UPDATE clips SET title = COALESCE($3, title), public = COALESCE($4, public)
    WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL RETURNING title";
/// The file of a clip is as public as the clip.
const PUBLISH: &str =
    "UPDATE archives SET is_public = (SELECT c.public FROM clips c WHERE c.id = $1) WHERE clip_id = $1";
const DELETE: &str =
    "UPDATE clips SET deleted_ms = $3 WHERE id = $1 AND account_id = $2 AND deleted_ms IS NULL
    RETURNING title";
const GONE: &str = "UPDATE clips SET deleted_ms = $2 WHERE deleted_ms IS NULL
    AND id = (SELECT a.clip_id FROM archives a WHERE a.id = $1)";
const UNREPORTED: &str = "SELECT c.id, c.file_name, c.created_ms FROM clips c
    WHERE c.driver = $1 AND c.state = 'making' AND c.deleted_ms IS NULL AND c.holder = COALESCE($2, c.holder)
    AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.clip_id = c.id) ORDER BY c.id";
const ALL_UNREPORTED: &str = "SELECT c.id, c.file_name, c.created_ms FROM clips c
    WHERE c.created_ms < $1 AND c.state = 'making' AND c.deleted_ms IS NULL
    AND (c.holder = COALESCE($2, c.holder) OR c.holder = 'removed')
    AND NOT EXISTS (SELECT 1 FROM archives a WHERE a.clip_id = c.id) ORDER BY c.id";
/// Files of clips that nobody can have any more.
const DISCARDED: &str = "SELECT a.id FROM archives a JOIN clips c ON c.id = a.clip_id
    WHERE a.driver = $1 AND a.deleted_ms IS NULL AND a.holder = COALESCE($2, a.holder)
    AND (c.deleted_ms IS NOT NULL OR c.state = 'failed') ORDER BY a.id";
const WANTED: &str = "SELECT id FROM clips WHERE id = $1 AND state = 'making' AND deleted_ms IS NULL";
const CHARGES: &str = "SELECT c.id, c.charged_msat, t.amount_msat FROM clips c
    JOIN ledger_accounts l ON l.account_id = c.account_id
    LEFT JOIN transfers t ON t.idem = 'clip:' || CAST(c.id AS TEXT) AND t.kind = $1 AND t.debit_id = l.id
    WHERE c.charged_msat > 0 OR t.id IS NOT NULL ORDER BY c.id";
const UNEXPLAINED: &str = "SELECT t.id, t.amount_msat FROM transfers t WHERE t.kind = $1
    AND NOT EXISTS (SELECT 1 FROM clips c WHERE c.id = CAST(SUBSTR(t.idem, 6) AS BIGINT)) ORDER BY t.id";

/// The columns of a clip; a condition follows.
macro_rules! select_clips {
    ($condition:literal) => {
        concat!(
            "SELECT c.id, (SELECT s.id FROM streams s WHERE s.id = c.stream_id AND s.deleted_ms IS NULL) ",
            "AS kept_stream_id, c.session_id, c.destination_id, c.title, c.state, c.error, c.public, ",
            "c.price_msat, c.charged_msat, c.created_ms, a.id AS archive_id, a.started_ms, a.duration_ms, ",
            "a.size_bytes, a.url, a.trouble, a.audio_only FROM clips c LEFT JOIN archives a ON a.clip_id = c.id AND a.deleted_ms IS NULL ",
            "WHERE c.deleted_ms IS NULL AND ",
            $condition
        )
    };
}

const SELECT_PAGE: &str = select_clips!("c.account_id = $1 AND c.id < $2 ORDER BY c.id DESC LIMIT $3");
const SELECT_OWN: &str = select_clips!("c.account_id = $1 AND c.id = $2");

/// The row of a clip whose state has changed.
type Settling = (i64, i64, String, i64, String, i64);

/// A clip whose state has changed: what its account is told after the commit.
pub(crate) struct Settled {
    pub(crate) account: AccountId,
    pub(crate) news: Value,
}

/// What a driver says of the file of a clip.
pub(crate) struct Told<'a> {
    pub(crate) state: ArchiveState,
    pub(crate) error: Option<&'a str>,
    pub(crate) size_bytes: u64,
    pub(crate) duration_ms: u64,
    pub(crate) url: Option<&'a str>,
}

/// The clip that a driver's file is, if it is one.
pub(crate) async fn of_file(tx: &mut Tx, account: i64, driver: &str, file_name: &str) -> Result<Option<i64>> {
    let found = engine::query_scalar(OF_FILE).bind(account).bind(file_name).bind(driver);
    found.fetch_optional(&mut *tx).await.map_err(db("find a clip"))
}

/// Lets the public watch the file of a clip, or not, as the clip says.
pub(crate) async fn publish(tx: &mut Tx, clip: i64) -> Result<()> {
    let published = engine::query(PUBLISH).bind(clip).execute(&mut *tx).await;
    published.map(drop).map_err(db("publish a clip"))
}

/// The file of an archive row is no longer there: its clip is hidden.
pub(crate) async fn gone(tx: &mut Tx, archive: i64, now: UnixMillis) -> Result<()> {
    let gone = engine::query(GONE).bind(archive).bind(now.0).execute(&mut *tx).await;
    gone.map(drop).map_err(db("hide a clip"))
}

/// Brings a clip to the state of its file: ready, charged once by its name, or failed and free. The event is in the same
/// transaction. `None` when nothing changes.
pub(crate) async fn settle(
    tx: &mut Tx,
    clip: i64,
    told: &Told<'_>,
    low_balance: Msat,
    now: UnixMillis,
) -> Result<Option<Settled>> {
    match told.state {
        ArchiveState::Recording | ArchiveState::Uploading => Ok(None),
        ArchiveState::Failed => fail(tx, clip, told.error.unwrap_or("the upload failed"), now).await,
        ArchiveState::Ready => {
            let ready = engine::query_as(READY).bind(clip).fetch_optional(&mut *tx).await;
            let ready: Option<Settling> = ready.map_err(db("end the making of a clip"))?;
            let Some((account, stream, session, destination, title, price)) = ready else { return Ok(None) };
            let account = AccountId(account);
            let charged = charge(tx, clip, account, destination, (Msat(price), low_balance), now).await?;
            let data = json!({
                "clipId": clip, "title": title, "sizeBytes": told.size_bytes,
                // Milliseconds of a clip are far below the largest integer that a double holds exactly.
                "durationSeconds": told.duration_ms as f64 / MS_PER_SEC, "url": told.url,
                "costSats": charged.to_sats_floor().0,
            });
            let session = SessionId(session);
            emit_of_session(tx, &session, EventType::ClipReady, data, (now, now)).await?;
            Ok(Some(settled(account, clip, (stream, &session), &title, ClipState::Ready, None)))
        }
    }
}

/// A clip that could not be made; `None` if it is not in the making.
async fn fail(tx: &mut Tx, clip: i64, error: &str, now: UnixMillis) -> Result<Option<Settled>> {
    let failed = engine::query_as(FAILED).bind(clip).bind(error).fetch_optional(&mut *tx).await;
    let failed: Option<Settling> = failed.map_err(db("note the failure of a clip"))?;
    let Some((account, stream, session, _, title, _)) = failed else { return Ok(None) };
    let text = error.chars().take(EVENT_ERROR_CHARS_MAX).collect::<String>();
    let data = json!({"clipId": clip, "title": title, "error": text});
    let session = SessionId(session);
    emit_of_session(tx, &session, EventType::ClipFailed, data, (now, now)).await?;
    Ok(Some(settled(AccountId(account), clip, (stream, &session), &title, ClipState::Failed, Some(error))))
}

fn settled(
    account: AccountId,
    clip: i64,
    (stream, session): (i64, &SessionId),
    title: &str,
    state: ClipState,
    error: Option<&str>,
) -> Settled {
    let news = json!({
        "clipId": clip, "streamKeyId": stream, "sessionId": session.as_str(), "title": title,
        "state": state.as_str(), "error": error,
    });
    Settled { account, news }
}

/// Takes the price, or what the balance has of it: minutes may have used credit since the clip was asked for, and what is
/// missing is never charged later.
async fn charge(
    tx: &mut Tx,
    clip: i64,
    account: AccountId,
    destination: i64,
    (price, low_balance): (Msat, Msat),
    now: UnixMillis,
) -> Result<Msat> {
    let amount = if price.0 > 0 { price.min(balance(&mut *tx, account).await?) } else { price };
    if amount.0 <= 0 {
        return Ok(Msat(0));
    }
    let posting = Posting {
        account,
        house: "revenue",
        amount,
        kind: KIND_CLIP,
        idem: format!("clip:{clip}"),
        session: None,
        destination: Some(DestinationId(destination)),
        minute: None,
        hour: None,
        now,
    };
    // The clip becomes ready once, so its name is new; the lock of the account holds the balance.
    if !post(tx, &posting).await? || take(tx, account, amount, low_balance, now).await?.is_none() {
        return Err(StoreError::Unreadable { what: "transfers.idem of a clip" });
    }
    let noted = engine::query(CHARGED).bind(clip).bind(amount.0).execute(&mut *tx).await;
    noted.map_err(db("note the charge of a clip"))?;
    Ok(amount)
}

impl Store {
    /// Begins a clip of the actor's stream. Nothing is charged yet.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a stream, session or destination that do not belong together;
    /// [`StoreError::CapReached`].
    pub async fn begin_clip(&self, actor: &Actor, new: &NewClip) -> Result<ClipBegun> {
        let failed = db("begin a clip");
        let account = actor.account;
        let mut tx = self.begin_holding(Lock::Account(account)).await?;
        let owned = engine::query(OWNED).bind(new.stream.0).bind(account.0).bind(new.destination.0);
        let owned = owned.bind(new.session.as_str()).fetch_optional(&mut tx).await.map_err(&failed)?;
        owned.ok_or(StoreError::NotFound("stream with that session and destination"))?;
        let counted = engine::query_as(COUNT).bind(account.0).fetch_one(&mut tx).await;
        let (clips, making, promised): (i64, i64, i64) = counted.map_err(&failed)?;
        if clips >= new.caps.clips {
            return Err(StoreError::CapReached { what: "clips", limit: new.caps.clips });
        }
        if making >= new.caps.making {
            return Ok(ClipBegun::Busy);
        }
        let balance = balance(&mut tx, account).await?;
        if new.price.0 > 0 && balance.0 < promised.saturating_add(new.price.0) {
            return Ok(ClipBegun::Insufficient(balance));
        }
        let insert = engine::query_scalar(INSERT)
            .bind(account.0)
            .bind(new.stream.0)
            .bind(new.session.as_str())
            .bind(new.destination.0)
            .bind(&new.driver)
            .bind(self.node().holder)
            .bind(&new.file_name)
            .bind(&new.title)
            .bind(new.price.0)
            .bind(actor.now.0);
        let id: i64 = insert.fetch_one(&mut tx).await.map_err(&failed)?;
        let detail =
            json!({"title": new.title, "streamKeyId": new.stream.0, "sats": new.price.to_sats_floor().0});
        let noted = record(&mut tx, actor, Change::new("clip.created", "clip", id, detail)).await?;
        self.commit_noted(tx, noted).await?;
        Ok(ClipBegun::Begun(id))
    }

    /// The clip could not be made because of `error`. A clip in another state does not change.
    pub async fn fail_clip(&self, clip: i64, error: &str, now: UnixMillis) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Clip(clip)).await?;
        let settled = fail(&mut tx, clip, error, now).await?;
        self.commit_clip(tx, settled, now).await
    }

    /// The same for a clip that nobody makes any more; false if its driver has reported it.
    pub async fn fail_interrupted_clip(&self, clip: i64, error: &str, now: UnixMillis) -> Result<bool> {
        let mut tx = self.begin_holding(Lock::Clip(clip)).await?;
        let found = engine::query(INTERRUPTED).bind(clip).fetch_optional(&mut tx).await;
        if found.map_err(db("read a clip"))?.is_none() {
            return Ok(false);
        }
        let settled = fail(&mut tx, clip, error, now).await?;
        let has_failed = settled.is_some();
        self.commit_clip(tx, settled, now).await?;
        Ok(has_failed)
    }

    /// The driver has removed the file of a clip.
    pub async fn forget_clip_file(&self, archive: i64, now: UnixMillis) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Archive(archive)).await?;
        let forget = engine::query(FORGET).bind(archive).bind(now.0).execute(&mut tx).await;
        forget.map_err(db("forget the file of a clip"))?;
        tx.commit().await
    }

    /// Commits a transaction that may have changed a clip, and tells its account.
    pub(crate) async fn commit_clip(&self, tx: Tx, settled: Option<Settled>, now: UnixMillis) -> Result<()> {
        tx.commit().await?;
        let Some(settled) = settled else { return Ok(()) };
        self.has_changed();
        self.wake_outbox();
        self.0.feed.send(settled.account, "clip.state", now, settled.news);
        Ok(())
    }

    /// Whether a clip is still to be made: it was not deleted, and has not failed.
    pub async fn is_clip_wanted(&self, clip: i64) -> Result<bool> {
        let found = engine::query(WANTED).bind(clip).fetch_optional(&self.0.readers).await;
        Ok(found.map_err(db("read a clip"))?.is_some())
    }

    /// Clips of this node that a driver is to keep and has not reported.
    pub async fn unreported_clips(&self, driver: &str) -> Result<Vec<MakingClip>> {
        let rows = engine::query_as(UNREPORTED).bind(driver).bind(self.node().files_of());
        let rows = rows.fetch_all(&self.0.readers).await;
        Ok(making(rows.map_err(db("read the clips"))?))
    }

    /// The same for all drivers, for clips that began before a time; also those of removed nodes.
    pub async fn unreported_clips_before(&self, before: UnixMillis) -> Result<Vec<MakingClip>> {
        let rows = engine::query_as(ALL_UNREPORTED).bind(before.0).bind(self.node().files_of());
        let rows = rows.fetch_all(&self.0.readers).await;
        Ok(making(rows.map_err(db("read the clips"))?))
    }

    /// The rows of files of a driver at this node whose clip was deleted or has failed.
    pub async fn discarded_clips(&self, driver: &str) -> Result<Vec<i64>> {
        let rows = engine::query_scalar(DISCARDED).bind(driver).bind(self.node().files_of());
        rows.fetch_all(&self.0.readers).await.map_err(db("read the clips"))
    }

    /// The account's clips, newest first.
    pub async fn clips_of(&self, account: AccountId, page: Page) -> Result<Vec<ClipRecord>> {
        let rows = engine::query(SELECT_PAGE).bind(account.0).bind(page.end()).bind(page.limit);
        let rows = rows.fetch_all(&self.0.readers).await.map_err(db("read the clips"))?;
        rows.iter().map(clip_record).collect()
    }

    /// One clip of the account.
    pub async fn clip(&self, account: AccountId, id: i64) -> Result<Option<ClipRecord>> {
        let row = engine::query(SELECT_OWN).bind(account.0).bind(id).fetch_optional(&self.0.readers).await;
        row.map_err(db("read a clip"))?.as_ref().map(clip_record).transpose()
    }

    /// Changes the title of a clip, or whether the public may watch it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn edit_clip(&self, actor: &Actor, id: i64, change: &ClipChange) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let edit = engine::query_scalar(EDIT)
            .bind(id)
            .bind(actor.account.0)
            .bind(change.title.as_deref())
            .bind(change.public.map(i64::from));
        let title: Option<String> = edit.fetch_optional(&mut tx).await.map_err(db("change a clip"))?;
        let title = title.ok_or(StoreError::NotFound("clip"))?;
        publish(&mut tx, id).await?;
        let mut detail = json!({"title": title});
        if let Some(public) = change.public {
            detail["public"] = json!(public);
        }
        let noted = record(&mut tx, actor, Change::new("clip.changed", "clip", id, detail)).await?;
        self.commit_noted(tx, noted).await
    }

    /// Hides a clip. Its file is removed at the next look at its driver, if it was not removed before.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn delete_clip(&self, actor: &Actor, id: i64) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let delete = engine::query_scalar(DELETE).bind(id).bind(actor.account.0).bind(actor.now.0);
        let title: Option<String> = delete.fetch_optional(&mut tx).await.map_err(db("delete a clip"))?;
        let title = title.ok_or(StoreError::NotFound("clip"))?;
        let detail = json!({"title": title});
        let noted = record(&mut tx, actor, Change::new("clip.deleted", "clip", id, detail)).await?;
        self.commit_noted(tx, noted).await
    }
}

fn making(rows: Vec<(i64, String, i64)>) -> Vec<MakingClip> {
    let making = |(id, file_name, created)| MakingClip { id, file_name, created_at: UnixMillis(created) };
    rows.into_iter().map(making).collect()
}

fn clip_record(row: &Row) -> Result<ClipRecord> {
    let failed = db("read a clip");
    let state = row.try_get::<String>("state").map_err(&failed)?;
    let state = ClipState::parse(&state).ok_or(StoreError::Unreadable { what: "clips.state" })?;
    read(row, state).map_err(&failed)
}

fn read(row: &Row, state: ClipState) -> sqlx::Result<ClipRecord> {
    let count = |name: &str| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>>(name)?.map(i64::unsigned_abs));
    let trouble: Option<String> = row.try_get("trouble")?;
    let cost = if state == ClipState::Ready { "charged_msat" } else { "price_msat" };
    Ok(ClipRecord {
        id: row.try_get("id")?,
        stream: row.try_get::<Option<i64>>("kept_stream_id")?.map(StreamId),
        session: SessionId(row.try_get("session_id")?),
        destination: DestinationId(row.try_get("destination_id")?),
        title: row.try_get("title")?,
        state,
        error: row.try_get::<Option<String>>("error")?.or(trouble.filter(|_| state == ClipState::Making)),
        public: row.try_get::<i64>("public")? != 0,
        cost: if state == ClipState::Failed { Msat(0) } else { Msat(row.try_get(cost)?) },
        created_at: UnixMillis(row.try_get("created_ms")?),
        archive: row.try_get("archive_id")?,
        started_at: row.try_get::<Option<i64>>("started_ms")?.map(UnixMillis),
        duration_ms: count("duration_ms")?,
        size_bytes: count("size_bytes")?,
        url: row.try_get("url")?,
        audio_only: row.try_get::<Option<i64>>("audio_only")?.is_some_and(|it| it != 0),
    })
}

/// Contradictions between clips and transfers, as texts.
pub(crate) async fn faults(tx: &mut Tx) -> Result<Vec<String>> {
    let failed = db("check the clips");
    let rows = engine::query_as(CHARGES).bind(KIND_CLIP).fetch_all(&mut *tx).await;
    let rows: Vec<(i64, i64, Option<i64>)> = rows.map_err(&failed)?;
    let differs = |(id, charged, taken): (i64, i64, Option<i64>)| {
        let taken = taken.unwrap_or_default();
        let text = || format!("clip {id} was charged {charged} msat, and its transfer moves {taken} msat");
        (taken != charged).then(text)
    };
    let mut faults: Vec<String> = rows.into_iter().filter_map(differs).collect();
    let unexplained = engine::query_as(UNEXPLAINED).bind(KIND_CLIP).fetch_all(&mut *tx).await;
    let unexplained: Vec<(i64, i64)> = unexplained.map_err(&failed)?;
    faults.extend(
        unexplained
            .into_iter()
            .map(|(id, amount)| format!("transfer {id} moves {amount} msat for a clip that does not exist")),
    );
    Ok(faults)
}
