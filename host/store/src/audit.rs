//! The audit log of changes and their actors. Entries are only added.
//!
//! A change and its entry are written in one transaction. Entries are kept for ever; one takes about 200 bytes.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Page, Store, TimeRange};
use satcast_core::ids::{AccountId, HOUR_MS, KeyId, LoginId, UnixMillis};

/// Largest detail of an entry in bytes of its JSON. A larger one is left out, and the entry records that.
pub(crate) const AUDIT_DETAIL_BYTES_MAX: usize = 2_048;
/// Failed logins of one account that get an entry within an hour. Further ones are only in the service's log, so that
/// guessing passwords cannot fill the disk.
pub(crate) const FAILED_LOGINS_PER_HOUR_MAX: i64 = 20;
/// The same limit for all names together that belong to no account.
pub(crate) const UNKNOWN_LOGINS_PER_HOUR_MAX: i64 = 100;

/// The actor of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A permanent API key.
    Key(KeyId),
    /// A person with a login session.
    Login(LoginId),
    /// An unauthenticated client: it tries to log in or creates an account.
    Visitor,
    /// A command of the operator on the machine itself.
    Command,
    /// The service itself.
    Service,
}

impl By {
    pub fn kind(self) -> &'static str {
        match self {
            By::Key(_) => "key",
            By::Login(_) => "session",
            By::Visitor => "visitor",
            By::Command => "command",
            By::Service => "service",
        }
    }

    /// Id of the key or session.
    pub fn id(self) -> Option<i64> {
        match self {
            By::Key(id) => Some(id.0),
            By::Login(id) => Some(id.0),
            By::Visitor | By::Command | By::Service => None,
        }
    }

    /// Reads the stored form; `None` for a form that this release does not know.
    pub fn parse(kind: &str, id: Option<i64>) -> Option<Self> {
        match (kind, id) {
            ("key", Some(id)) => Some(By::Key(KeyId(id))),
            ("session", Some(id)) => Some(By::Login(LoginId(id))),
            ("visitor", None) => Some(By::Visitor),
            ("command", None) => Some(By::Command),
            ("service", None) => Some(By::Service),
            _ => None,
        }
    }
}

/// The origin of a change, whichever account it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub by: By,
    /// The client's network address; `None` for a command and for the service.
    pub address: Option<IpAddr>,
    pub now: UnixMillis,
}

impl Origin {
    /// A command of the operator.
    pub fn command(now: UnixMillis) -> Self {
        Self { by: By::Command, address: None, now }
    }

    /// A command of the operator about one account.
    pub fn acting_for(self, account: AccountId) -> Actor {
        Actor { account, by: self.by, address: self.address, now: self.now }
    }
}

/// The actor and the account that a change belongs to. Data of other accounts is invisible to the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The account that is changed, and whose log has the entry.
    pub account: AccountId,
    pub by: By,
    /// The client's network address; `None` for a command and for the service.
    pub address: Option<IpAddr>,
    pub now: UnixMillis,
}

impl Actor {
    /// A command of the operator.
    pub fn command(account: AccountId, now: UnixMillis) -> Self {
        Origin::command(now).acting_for(account)
    }

    pub fn origin(&self) -> Origin {
        Origin { by: self.by, address: self.address, now: self.now }
    }
}

/// A change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its name, `<thing>.<done>`: `stream.created`.
    pub action: &'static str,
    /// Kind and id of the changed thing.
    pub target: (&'static str, Option<i64>),
    /// Details as a JSON object; before and after for a change. Never a secret.
    pub detail: Value,
}

impl Change {
    pub fn new(action: &'static str, target: &'static str, id: i64, detail: Value) -> Self {
        Self { action, target: (target, Some(id)), detail }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    pub id: i64,
    pub at: UnixMillis,
    /// The account whose log has the entry; `None` if it belongs to no account.
    pub account_id: Option<AccountId>,
    pub by: By,
    pub action: String,
    pub target_kind: String,
    pub target_id: Option<i64>,
    /// Details as a JSON object.
    pub detail: Value,
    /// The client's network address.
    pub address: Option<String>,
}

/// A filter for entries; an absent field matches all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// The account whose log is read; `None` reads all accounts and entries that belong to none.
    pub account: Option<AccountId>,
    /// Name of the change.
    pub action: Option<String>,
    pub range: TimeRange,
}

/// The name of a failed login; the index of the table contains it too.
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
/// Two statements, because one with a condition on the parameter would use no index.
const SELECT_OWN: &str = select!("account_id = $1");
const SELECT_ALL: &str = select!("$1 IS NULL");
const COUNT_FAILED: &str =
    "SELECT COUNT(*) FROM audit WHERE action = 'login.failed' AND account_id = $1 AND created_ms > $2";
const COUNT_UNKNOWN: &str =
    "SELECT COUNT(*) FROM audit WHERE action = 'login.failed' AND account_id IS NULL AND created_ms > $1";

/// An entry that is committed with its transaction: [`Store::commit_noted`] ends both.
#[must_use = "commit it with commit_noted"]
pub(crate) struct Noted(pub(crate) AuditEntry);

pub(crate) async fn record(tx: &mut Tx, actor: &Actor, change: Change) -> Result<Noted> {
    insert(tx, Some(actor.account), &actor.origin(), change).await
}

/// Writes an entry in the log of `account`, or in that of no account.
pub(crate) async fn insert(
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
            "the detail of an audit entry is too large and was left out"
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
    /// Commits a change together with its entry, and publishes it on the account's event feed. Changes committed by
    /// another process do not appear on this feed.
    pub(crate) async fn commit_noted(&self, tx: Tx, noted: Noted) -> Result<()> {
        self.commit_all(tx, vec![noted]).await
    }

    /// As [`Store::commit_noted`], for a transaction with any number of entries.
    pub(crate) async fn commit_all(&self, tx: Tx, noted: Vec<Noted>) -> Result<()> {
        let committed = tx.commit().await;
        // Also after an error: a commit whose answer was lost may have succeeded.
        self.has_changed();
        committed?;
        for Noted(entry) in noted {
            if let Some(account) = entry.account_id {
                let data = json!({
                    "auditId": entry.id,
                    "actor": {"type": entry.by.kind(), "id": entry.by.id()},
                    "target": {"type": entry.target_kind, "id": entry.target_id},
                    "detail": entry.detail,
                });
                self.0.feed.send(account, &entry.action, entry.at, data);
            }
        }
        Ok(())
    }

    /// Adds an entry about an action that changes nothing in the database.
    pub async fn record(&self, actor: &Actor, change: Change) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// Adds an entry about a failed login, of `account` if the name belongs to one; `false` if there were too many
    /// within an hour.
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
        let (from, to) = filter.range.bounds();
        let rows = engine::query(select)
            .bind(filter.account.map(|id| id.0))
            .bind(page.end())
            .bind(filter.action)
            .bind(from)
            .bind(to)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actors_survive_their_stored_form_and_unknown_ones_are_refused() {
        let all = [By::Key(KeyId(7)), By::Login(LoginId(8)), By::Visitor, By::Command, By::Service];
        for by in all {
            assert_eq!(By::parse(by.kind(), by.id()), Some(by));
        }
        assert_eq!((By::parse("key", None), By::parse("wizard", None)), (None, None));
    }
}
