//! The audit log: an entry is written in the transaction of the change it tells of.

use serde_json::json;

use super::engine::{self, Row, Tx};
use super::lock::Lock;
use super::{Store, commit, db};
use crate::{
    AUDIT_DETAIL_BYTES_MAX, Actor, AuditEntry, AuditFilter, By, Change, FAILED_LOGINS_PER_HOUR_MAX, Origin,
    Page, Result, StoreError, UNKNOWN_LOGINS_PER_HOUR_MAX,
};
use satcast_core::ids::{AccountId, HOUR_MS, UnixMillis};

/// The name of a login that failed; the index of the table knows it too.
const LOGIN_FAILED: &str = "login.failed";

const INSERT: &str = "INSERT INTO audit (account_id, actor_kind, actor_id, action, target_kind, target_id,
    detail, address, created_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id";
macro_rules! select {
    ($account:literal) => {
        concat!(
            "SELECT id, account_id, actor_kind, actor_id, action, target_kind, target_id, detail, address, ",
            "created_ms FROM audit WHERE ",
            $account,
            " AND id < $2 AND ($3 IS NULL OR action = $3) AND created_ms >= $4 AND created_ms < $5 ",
            "ORDER BY id DESC LIMIT $6"
        )
    };
}
/// Two statements, as one with a condition on the parameter would use no index.
const SELECT_OWN: &str = select!("account_id = $1");
const SELECT_ALL: &str = select!("$1 IS NULL");
const COUNT_FAILED: &str =
    "SELECT COUNT(*) FROM audit WHERE action = 'login.failed' AND account_id = $1 AND created_ms > $2";
const COUNT_UNKNOWN: &str =
    "SELECT COUNT(*) FROM audit WHERE action = 'login.failed' AND account_id IS NULL AND created_ms > $1";

/// An entry that stands with its transaction: [`Store::commit_noted`] ends both.
#[must_use = "commit it with commit_noted"]
pub(super) struct Noted(pub(super) AuditEntry);

/// Writes the entry of a change of the actor's account.
pub(super) async fn record(tx: &mut Tx, actor: &Actor, change: Change) -> Result<Noted> {
    insert(tx, Some(actor.account), &actor.origin(), change).await
}

/// Writes an entry in the log of `account`, or of nobody.
pub(super) async fn insert(
    tx: &mut Tx,
    account: Option<AccountId>,
    origin: &Origin,
    change: Change,
) -> Result<Noted> {
    let (mut detail, mut text) = (change.detail, String::new());
    if detail.is_object() {
        text = detail.to_string();
    }
    if text.is_empty() || text.len() > AUDIT_DETAIL_BYTES_MAX {
        tracing::warn!(
            action = change.action,
            bytes = text.len(),
            "the detail of an audit entry is left out"
        );
        detail = json!({"omitted": true});
        text = detail.to_string();
    }
    let address = origin.address.map(|address| address.to_string());
    let (target_kind, target_id) = change.target;
    let id = engine::query_scalar(INSERT)
        .bind(account.map(|id| id.0))
        .bind(origin.by.kind())
        .bind(origin.by.id())
        .bind(change.action)
        .bind(target_kind)
        .bind(target_id)
        .bind(text)
        .bind(&address)
        .bind(origin.now.0)
        .fetch_one(&mut *tx)
        .await
        .map_err(db("write the audit log"))?;
    Ok(Noted(AuditEntry {
        id,
        at: origin.now,
        account_id: account,
        by: origin.by,
        action: change.action.to_owned(),
        target_kind: target_kind.to_owned(),
        target_id,
        detail,
        address,
    }))
}

impl Store {
    /// Commits a change together with its entry, and tells those who watch the account. What another process commits is
    /// told to nobody here.
    pub(super) async fn commit_noted(&self, tx: Tx, noted: Noted) -> Result<()> {
        let committed = commit(tx).await;
        // Whatever became of it: a commit whose answer was lost may stand.
        self.has_changed();
        committed?;
        let Noted(entry) = noted;
        if let Some(account) = entry.account_id {
            let data = json!({
                "auditId": entry.id,
                "actor": {"type": entry.by.kind(), "id": entry.by.id()},
                "target": {"type": entry.target_kind, "id": entry.target_id},
                "detail": entry.detail,
            });
            self.0.feed.send(account, &entry.action, entry.at, data);
        }
        Ok(())
    }
}

impl Store {
    /// Adds an entry about something that changes nothing in the database.
    pub async fn record(&self, actor: &Actor, change: Change) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// Adds an entry about a login that failed, of `account` if the name is one's; `false` when there were
    /// [`FAILED_LOGINS_PER_HOUR_MAX`] or [`UNKNOWN_LOGINS_PER_HOUR_MAX`] already.
    pub async fn record_failed_login(&self, origin: &Origin, account: Option<AccountId>) -> Result<bool> {
        let lock = account.map_or(Lock::UnknownLogins, Lock::Account);
        let mut tx = self.begin_holding(lock).await?;
        let since = origin.now.0.saturating_sub(HOUR_MS);
        let (count, max) = match account {
            Some(account) => {
                (engine::query_scalar(COUNT_FAILED).bind(account.0).bind(since), FAILED_LOGINS_PER_HOUR_MAX)
            }
            None => (engine::query_scalar(COUNT_UNKNOWN).bind(since), UNKNOWN_LOGINS_PER_HOUR_MAX),
        };
        let count: i64 = count.fetch_one(&mut tx).await.map_err(db("count failed logins"))?;
        if count >= max {
            return Ok(false);
        }
        let target = ("account", account.map(|id| id.0));
        let change = Change { action: LOGIN_FAILED, target, detail: json!({}) };
        let noted = insert(&mut tx, account, origin, change).await?;
        self.commit_noted(tx, noted).await?;
        Ok(true)
    }

    /// The entries, newest first.
    pub async fn audit(&self, filter: AuditFilter, page: Page) -> Result<Vec<AuditEntry>> {
        let select = if filter.account.is_some() { SELECT_OWN } else { SELECT_ALL };
        let rows = engine::query(select)
            .bind(filter.account.map(|id| id.0))
            .bind(page.before.unwrap_or(i64::MAX))
            .bind(filter.action)
            .bind(filter.range.from.map_or(i64::MIN, |time| time.0))
            .bind(filter.range.to.map_or(i64::MAX, |time| time.0))
            .bind(page.limit)
            .fetch_all(&self.0.readers)
            .await
            .map_err(db("read the audit log"))?;
        rows.iter().map(entry).collect()
    }
}

fn entry(row: &Row) -> Result<AuditEntry> {
    let failed = db("read the audit log");
    let kind: String = row.try_get("actor_kind").map_err(&failed)?;
    let detail: String = row.try_get("detail").map_err(&failed)?;
    let by = By::parse(&kind, row.try_get("actor_id").map_err(&failed)?);
    Ok(AuditEntry {
        id: row.try_get("id").map_err(&failed)?,
        at: UnixMillis(row.try_get("created_ms").map_err(&failed)?),
        account_id: row.try_get::<Option<i64>>("account_id").map_err(&failed)?.map(AccountId),
        by: by.ok_or(StoreError::Unreadable { what: "audit.actor_kind" })?,
        action: row.try_get("action").map_err(&failed)?,
        target_kind: row.try_get("target_kind").map_err(&failed)?,
        target_id: row.try_get("target_id").map_err(&failed)?,
        detail: serde_json::from_str(&detail).map_err(|_| StoreError::Unreadable { what: "audit.detail" })?,
        address: row.try_get("address").map_err(&failed)?,
    })
}
