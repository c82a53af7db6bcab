//! Who did what: a log that is only ever added to.
//!
//! A change that somebody asked for and its entry are one transaction: neither is there without the other. Entries are
//! kept for ever; one takes about 200 bytes.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::bounds::{Page, TimeRange};
use crate::engine::lock::Lock;
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::store::Store;
use satcast_core::ids::{AccountId, HOUR_MS, KeyId, LoginId, UnixMillis};

/// Largest detail of an entry in bytes of its JSON. A larger one is left out, and the entry says so.
pub(crate) const AUDIT_DETAIL_BYTES_MAX: usize = 2_048;
/// Failed logins of one account that get an entry within an hour; further ones are in the service's log alone, so that a
/// guesser cannot fill the disk.
pub(crate) const FAILED_LOGINS_PER_HOUR_MAX: i64 = 20;
/// The same for all names together that no account has.
pub(crate) const UNKNOWN_LOGINS_PER_HOUR_MAX: i64 = 100;

/// What asked for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A permanent API key.
    Key(KeyId),
    /// Somebody who logged in.
    Login(LoginId),
    /// Somebody over the network who is not known yet: who tries to log in, or makes an account.
    Visitor,
    /// A command of the operator on the machine itself.
    Command,
    /// The service by itself.
    Service,
}

impl By {
    /// The name in the database and in the API.
    pub fn kind(self) -> &'static str {
        match self {
            By::Key(_) => "key",
            By::Login(_) => "session",
            By::Visitor => "visitor",
            By::Command => "command",
            By::Service => "service",
        }
    }

    /// Which key or session it is.
    pub fn id(self) -> Option<i64> {
        match self {
            By::Key(id) => Some(id.0),
            By::Login(id) => Some(id.0),
            By::Visitor | By::Command | By::Service => None,
        }
    }

    /// Reads the stored form; `None` for one that this release does not know.
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

/// Where a change comes from, whoever's things it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// What asked for it.
    pub by: By,
    /// The network address it came from; `None` for a command and for the service.
    pub address: Option<IpAddr>,
    /// When.
    pub now: UnixMillis,
}

impl Origin {
    /// A command of the operator.
    pub fn command(now: UnixMillis) -> Self {
        Self { by: By::Command, address: None, now }
    }

    /// The same for the things of one account.
    pub fn acting_for(self, account: AccountId) -> Actor {
        Actor { account, by: self.by, address: self.address, now: self.now }
    }
}

/// Who changes something of an account. Everything of another account is unknown to the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Whose things it changes, and in whose log the entry stands.
    pub account: AccountId,
    /// What asked for it.
    pub by: By,
    /// The network address it came from; `None` for a command and for the service.
    pub address: Option<IpAddr>,
    /// When.
    pub now: UnixMillis,
}

impl Actor {
    /// A command of the operator.
    pub fn command(account: AccountId, now: UnixMillis) -> Self {
        Origin::command(now).acting_for(account)
    }

    /// Where the change comes from.
    pub fn origin(&self) -> Origin {
        Origin { by: self.by, address: self.address, now: self.now }
    }
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its name, `<thing>.<done>`: `stream.created`.
    pub action: &'static str,
    /// The kind of thing that was changed, and which it was.
    pub target: (&'static str, Option<i64>),
    /// A JSON object with more; before and after for a change. Never a secret.
    pub detail: Value,
}

impl Change {
    /// A change of the thing with that id.
    pub fn new(action: &'static str, target: &'static str, id: i64, detail: Value) -> Self {
        Self { action, target: (target, Some(id)), detail }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Its id.
    pub id: i64,
    /// When it was done.
    pub at: UnixMillis,
    /// In whose log it stands; `None` when it belongs to no account.
    pub account_id: Option<AccountId>,
    /// What asked for it.
    pub by: By,
    /// The name of what was done.
    pub action: String,
    /// The kind of thing.
    pub target_kind: String,
    /// Which it was.
    pub target_id: Option<i64>,
    /// More, as a JSON object.
    pub detail: Value,
    /// The network address it came from.
    pub address: Option<String>,
}

/// Which entries are wanted; an absent field matches all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// In the log of this account; `None` for all accounts and what belongs to none.
    pub account: Option<AccountId>,
    /// The name of what was done.
    pub action: Option<String>,
    /// Done in this time.
    pub range: TimeRange,
}

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
pub(crate) struct Noted(pub(crate) AuditEntry);

/// Writes the entry of a change of the actor's account.
pub(crate) async fn record(tx: &mut Tx, actor: &Actor, change: Change) -> Result<Noted> {
    insert(tx, Some(actor.account), &actor.origin(), change).await
}

/// Writes an entry in the log of `account`, or of nobody.
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
    pub(crate) async fn commit_noted(&self, tx: Tx, noted: Noted) -> Result<()> {
        let committed = tx.commit().await;
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

    /// Adds an entry about something that changes nothing in the database.
    pub async fn record(&self, actor: &Actor, change: Change) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// Adds an entry about a login that failed, of `account` if the name is one's; `false` when there were too many of these
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
