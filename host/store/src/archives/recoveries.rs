//! Paid retries of uploads.
//!
//! A row and its charge are written together, before the driver is asked. Each retry ends once: the charge is kept or
//! refunded.

use serde_json::json;

use crate::archives::state::ArchiveState;
use crate::audit::{Actor, Change, record};
use crate::charges::{KIND_REFUND, Posting, post, reverse, take};
use crate::engine::{self, Tx};
use crate::error::{Result, StoreError, db};
use crate::ledger::balance;
use crate::store::{Lock, Store};
use satcast_core::ids::{DestinationId, Msat, UnixMillis};

/// A retry that was requested from the driver, and whose answer is not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedRecovery {
    pub id: i64,
    pub archive: i64,
    pub file_name: String,
    /// Retries that the driver had started before.
    pub driver_attempt: u32,
}

/// A retry whose upload was opened and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedRecovery {
    pub id: i64,
    pub driver: String,
    pub file_name: String,
}

/// Result of a request for a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryBegun {
    /// It is charged, and has this id.
    Begun(i64),
    /// The recording has not failed.
    NotFailed(ArchiveState),
    /// Another retry has not ended.
    Running,
    /// The balance is too small: it has this much.
    Insufficient(Msat),
}

/// A failure of this class is a fault of the service, and its charge is refunded.
pub(crate) fn is_ours(class: Option<&str>) -> bool {
    matches!(class, Some("internal" | "panic"))
}

/// The kind of a charge for a retry.
const KIND_RECOVERY: &str = "recovery";

const ARCHIVE: &str = "SELECT a.state, a.destination_id, a.file_name,
    (SELECT COUNT(*) FROM archive_recoveries r WHERE r.archive_id = a.id AND r.state IN ('asked', 'opened')),
    (SELECT COUNT(*) FROM archive_recoveries r WHERE r.archive_id = a.id)
    FROM archives a WHERE a.id = $1 AND a.account_id = $2 AND a.deleted_ms IS NULL";
const INSERT: &str = "INSERT INTO archive_recoveries
    (archive_id, attempt, driver_attempt, state, charged_msat, created_ms, changed_ms)
    VALUES ($1, $2, $3, 'asked', $4, $5, $5) RETURNING id";
const OPENED: &str = "UPDATE archive_recoveries SET state = 'opened', changed_ms = $2
    WHERE id = $1 AND state = 'asked' RETURNING archive_id";
/// Refunds a retry in that state.
const GIVE_BACK: &str = "UPDATE archive_recoveries SET state = 'refunded', changed_ms = $2
    WHERE id = $1 AND state = $3 RETURNING archive_id, attempt, charged_msat";
/// The running retry of a recording; there is at most one.
const GIVE_RUNNING_BACK: &str = "UPDATE archive_recoveries SET state = 'refunded', changed_ms = $2
    WHERE archive_id = $1 AND state IN ('asked', 'opened') RETURNING archive_id, attempt, charged_msat";
const ALL_OPENED: &str = "SELECT r.id, a.driver, a.file_name FROM archive_recoveries r
    JOIN archives a ON a.id = r.archive_id WHERE r.state = 'opened' AND a.holder = COALESCE($1, a.holder) ORDER BY r.id";
/// The opened retry of a recording, when its driver reports the end.
const ENDED: &str = "SELECT r.id, r.attempt, r.charged_msat, a.state, a.error_class FROM archive_recoveries r
    JOIN archives a ON a.id = r.archive_id WHERE r.archive_id = $1 AND r.state = 'opened'
    AND (a.attempt > r.driver_attempt OR $2 = 1) AND a.state IN ('ready', 'failed')";
const SET_STATE: &str = "UPDATE archive_recoveries SET state = $2, changed_ms = $3 WHERE id = $1";
/// A retry that is only requested is ended, and refunded, by its caller.
const END: &str = "UPDATE archive_recoveries SET state = 'ended', changed_ms = $2
    WHERE archive_id = $1 AND state = 'opened'";
const ASKED: &str = "SELECT r.id, r.archive_id, a.file_name, r.driver_attempt FROM archive_recoveries r
    JOIN archives a ON a.id = r.archive_id WHERE a.driver = $1 AND r.state = 'asked'
    AND a.holder = COALESCE($2, a.holder) ORDER BY r.id";
const UNANSWERED: &str = "SELECT r.id, r.archive_id, a.file_name, r.driver_attempt FROM archive_recoveries r
    JOIN archives a ON a.id = r.archive_id WHERE r.created_ms < $1 AND r.state = 'asked'
    AND a.holder = COALESCE($2, a.holder) ORDER BY r.id";

/// The idempotency name of a retry's charge.
macro_rules! name {
    () => {
        "'recovery:' || CAST(r.archive_id AS TEXT) || ':' || CAST(r.attempt AS TEXT)"
    };
}

/// Every paid retry with its charge and refund, if these are correct.
const POSTED: &str = concat!(
    "SELECT r.id, r.charged_msat, r.state, c.amount_msat, b.amount_msat FROM archive_recoveries r ",
    "JOIN archives a ON a.id = r.archive_id JOIN ledger_accounts l ON l.account_id = a.account_id ",
    "LEFT JOIN transfers c ON c.idem = ",
    name!(),
    " AND c.kind = $1 AND c.debit_id = l.id ",
    "LEFT JOIN transfers b ON b.idem = 'refund:' || ",
    name!(),
    " AND b.kind = $2 AND b.credit_id = l.id ORDER BY r.id"
);
/// Charges and refunds of retries that belong to no row.
const UNEXPLAINED: &str = concat!(
    "SELECT t.id, t.amount_msat FROM transfers t WHERE (t.kind = $1 OR (t.kind = $2 AND t.idem LIKE 'refund:recovery:%')) ",
    "AND NOT EXISTS (SELECT 1 FROM archive_recoveries r WHERE t.idem = ",
    name!(),
    " OR t.idem = 'refund:' || ",
    name!(),
    ") ORDER BY t.id"
);

/// Id, charge, state, amount of the charge's transfer, amount of the refund's transfer.
type PostedRow = (i64, i64, String, Option<i64>, Option<i64>);

fn charge_name(archive: i64, attempt: i64) -> String {
    format!("recovery:{archive}:{attempt}")
}

impl Store {
    /// Charges a retry of a recording of the actor's account, unless another one has not ended. `driver_attempt` is the
    /// number of retries that the driver has counted so far. A charge of 0 posts nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a recording that is not the account's.
    pub async fn begin_recovery(
        &self,
        actor: &Actor,
        archive: i64,
        driver_attempt: u32,
        fee: Msat,
    ) -> Result<RecoveryBegun> {
        let failed = db("begin a paid retry");
        let (account, now) = (actor.account, actor.now);
        let mut tx = self.begin_holding(Lock::Account(account)).await?;
        let row = engine::query_as(ARCHIVE).bind(archive).bind(account.0).fetch_optional(&mut tx).await;
        let row: Option<(String, i64, String, i64, i64)> = row.map_err(&failed)?;
        let (state, destination, file_name, running, before) =
            row.ok_or(StoreError::NotFound("recording"))?;
        let state = ArchiveState::parse(&state).ok_or(StoreError::Unreadable { what: "archives.state" })?;
        if running > 0 {
            return Ok(RecoveryBegun::Running);
        }
        if state != ArchiveState::Failed {
            return Ok(RecoveryBegun::NotFailed(state));
        }
        let attempt = before + 1;
        let insert = engine::query_scalar(INSERT)
            .bind(archive)
            .bind(attempt)
            .bind(i64::from(driver_attempt))
            .bind(fee.0)
            .bind(now.0);
        let id: i64 = insert.fetch_one(&mut tx).await.map_err(&failed)?;
        if fee.0 > 0 {
            let posting = Posting {
                account,
                house: "revenue",
                amount: fee,
                kind: KIND_RECOVERY,
                idem: charge_name(archive, attempt),
                session: None,
                destination: Some(DestinationId(destination)),
                minute: None,
                hour: None,
                now,
            };
            // The name contains the id of the row, which is new: no transfer can have it.
            if !post(&mut tx, &posting).await? {
                return Err(StoreError::Unreadable { what: "transfers.idem of a recovery" });
            }
            // Dropping the transaction rolls back everything.
            if take(&mut tx, account, fee, self.0.low_balance, now).await?.is_none() {
                return Ok(RecoveryBegun::Insufficient(balance(&mut tx, account).await?));
            }
        }
        let detail = json!({"fileName": file_name, "attempt": attempt, "sats": fee.to_sats_floor().0});
        let noted =
            record(&mut tx, actor, Change::new("archive.recovery", "archive", archive, detail)).await?;
        self.commit_noted(tx, noted).await?;
        Ok(RecoveryBegun::Begun(id))
    }

    /// The store opened the upload: the charge stays, unless the upload fails through a fault of the service.
    pub async fn recovery_opened(&self, id: i64, now: UnixMillis) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Recovery(id)).await?;
        let opened = engine::query_scalar(OPENED).bind(id).bind(now.0).fetch_optional(&mut tx).await;
        let archive: Option<i64> = opened.map_err(db("record the start of an upload"))?;
        if let Some(archive) = archive {
            // The end may have been reported before the start.
            settle(&mut tx, archive, false, now).await?;
        }
        tx.commit().await
    }

    /// The upload was not opened: refunds the charge. Returns `false` if the retry is in another state by now.
    pub async fn recovery_refused(&self, id: i64, now: UnixMillis) -> Result<bool> {
        self.give_recovery_back(id, "asked", now).await
    }

    /// Nobody continues an upload that had started: refunds the charge, once.
    pub async fn recovery_abandoned(&self, id: i64, now: UnixMillis) -> Result<()> {
        self.give_recovery_back(id, "opened", now).await.map(drop)
    }

    /// Retries of recordings of this node whose upload continues.
    pub async fn opened_recoveries(&self) -> Result<Vec<OpenedRecovery>> {
        let rows = engine::query_as(ALL_OPENED).bind(self.node().files_of()).fetch_all(&self.0.readers).await;
        let rows: Vec<(i64, String, String)> = rows.map_err(db("read the paid retries"))?;
        Ok(rows.into_iter().map(|(id, driver, file_name)| OpenedRecovery { id, driver, file_name }).collect())
    }

    /// Requested retries of a driver's recordings of this node whose answer is not recorded.
    pub async fn asked_recoveries(&self, driver: &str) -> Result<Vec<AskedRecovery>> {
        let rows = engine::query_as(ASKED)
            .bind(driver)
            .bind(self.node().files_of())
            .fetch_all(&self.0.readers)
            .await;
        Ok(asked(rows.map_err(db("read the paid retries"))?))
    }

    /// The same for all drivers, for retries that started before a time.
    pub async fn unanswered_recoveries(&self, before: UnixMillis) -> Result<Vec<AskedRecovery>> {
        let rows = engine::query_as(UNANSWERED).bind(before.0).bind(self.node().files_of());
        let rows = rows.fetch_all(&self.0.readers).await;
        Ok(asked(rows.map_err(db("read the paid retries"))?))
    }

    /// Refunds a retry in this state; `false` if it is in another one.
    async fn give_recovery_back(&self, id: i64, state: &'static str, now: UnixMillis) -> Result<bool> {
        let mut tx = self.begin_holding(Lock::Recovery(id)).await?;
        let ended =
            engine::query_as(GIVE_BACK).bind(id).bind(now.0).bind(state).fetch_optional(&mut tx).await;
        let ended: Option<(i64, i64, i64)> = ended.map_err(db("refund a paid retry"))?;
        let Some((archive, attempt, charged)) = ended else { return Ok(false) };
        give_back(&mut tx, archive, attempt, charged, now).await?;
        tx.commit().await?;
        Ok(true)
    }
}

fn asked(rows: Vec<(i64, i64, String, i64)>) -> Vec<AskedRecovery> {
    let asked = rows.into_iter().map(|(id, archive, file_name, before)| AskedRecovery {
        id,
        archive,
        file_name,
        driver_attempt: u32::try_from(before).unwrap_or(u32::MAX),
    });
    asked.collect()
}

async fn give_back(tx: &mut Tx, archive: i64, attempt: i64, charged: i64, now: UnixMillis) -> Result<()> {
    if charged > 0 {
        // Only the update of the row's state leads here, and it happens once.
        reverse(tx, &charge_name(archive, attempt), now).await?;
    }
    Ok(())
}

/// Ends the opened retry of a recording if the driver's report is about it, or if the recording is lost. A failure that
/// is a fault of the service is refunded.
pub(crate) async fn settle(tx: &mut Tx, archive: i64, is_lost: bool, now: UnixMillis) -> Result<()> {
    let failed = db("end a paid retry");
    let ended = engine::query_as(ENDED).bind(archive).bind(i64::from(is_lost)).fetch_optional(&mut *tx).await;
    let ended: Option<(i64, i64, i64, String, Option<String>)> = ended.map_err(&failed)?;
    let Some((id, attempt, charged, state, class)) = ended else { return Ok(()) };
    let ours = state == ArchiveState::Failed.as_str() && is_ours(class.as_deref());
    let state = if ours { "refunded" } else { "ended" };
    let set = engine::query(SET_STATE).bind(id).bind(state).bind(now.0);
    set.execute(&mut *tx).await.map_err(&failed)?;
    if ours {
        give_back(tx, archive, attempt, charged, now).await?;
    }
    Ok(())
}

/// Refunds the retry of a recording that has not ended and never will; `false` if there is none.
pub(crate) async fn refund_unfinished(tx: &mut Tx, archive: i64, now: UnixMillis) -> Result<bool> {
    let ended = engine::query_as(GIVE_RUNNING_BACK).bind(archive).bind(now.0).fetch_optional(&mut *tx).await;
    let ended: Option<(i64, i64, i64)> = ended.map_err(db("refund a paid retry"))?;
    let Some((archive, attempt, charged)) = ended else { return Ok(false) };
    give_back(tx, archive, attempt, charged, now).await?;
    Ok(true)
}

/// Ends the running retry of a recording that its owner deletes, without a refund.
pub(crate) async fn end(tx: &mut Tx, archive: i64, now: UnixMillis) -> Result<()> {
    let end = engine::query(END).bind(archive).bind(now.0).execute(&mut *tx).await;
    end.map(drop).map_err(db("end a paid retry"))
}

/// Contradictions between retries and transfers, as texts.
pub(crate) async fn faults(tx: &mut Tx) -> Result<Vec<String>> {
    let failed = db("check the paid retries");
    let rows = engine::query_as(POSTED).bind(KIND_RECOVERY).bind(KIND_REFUND).fetch_all(&mut *tx).await;
    let rows: Vec<PostedRow> = rows.map_err(&failed)?;
    let mut faults = Vec::new();
    for (id, charged, state, taken, given) in rows {
        let (taken, given) = (taken.unwrap_or_default(), given.unwrap_or_default());
        if taken != charged {
            faults.push(format!(
                "recovery {id} was charged {charged} msat, and its transfer moves {taken} msat"
            ));
        }
        let back = if state == "refunded" { charged } else { 0 };
        if given != back {
            faults
                .push(format!("recovery {id} was refunded {back} msat, and its transfer moves {given} msat"));
        }
    }
    let unexplained = engine::query_as(UNEXPLAINED).bind(KIND_RECOVERY).bind(KIND_REFUND);
    let unexplained: Vec<(i64, i64)> = unexplained.fetch_all(&mut *tx).await.map_err(&failed)?;
    faults.extend(
        unexplained.into_iter().map(|(id, amount)| {
            format!("transfer {id} moves {amount} msat for a recovery that does not exist")
        }),
    );
    Ok(faults)
}
