//! Accounts.

use serde_json::json;
use sqlx::error::ErrorKind;

use crate::audit::{self, Actor, Change, Origin, record};
use crate::commands::{CommandTarget, NodeCommand};
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::ledger::{self, Transfer, TransferKind};
use crate::links::{NewLink, end_first_links, insert_link, take_link};
use crate::store::{Lock, Page, Store};
use satcast_core::ids::{AccountId, EndReason, Msat, Sats, UnixMillis};
use satcast_core::secret::{Redacted, new_uid};

#[derive(Clone, Debug)]
pub struct AccountRecord {
    pub id: AccountId,
    pub name: String,
    /// Whether the account has operator rights.
    pub operator: bool,
    /// Argon2id hash in PHC form; `None` without a password.
    pub password_hash: Option<Redacted<String>>,
    pub created_at: UnixMillis,
    /// When an operator disabled it; `None` while it is enabled.
    pub disabled_at: Option<UnixMillis>,
}

/// An account as operators see it.
#[derive(Clone, Debug)]
pub struct AccountView {
    pub account: AccountRecord,
    pub balance: Msat,
}

/// A change by an operator, all or nothing.
#[derive(Clone, Debug, Default)]
pub struct AccountChange {
    /// Prepaid credit to add.
    pub credit: Option<Sats>,
    /// Name of the request, under which credit is added once; `None`: each request adds it.
    pub request: Option<String>,
    /// Whether the account is disabled; `None` leaves it.
    pub disabled: Option<bool>,
    /// The operator, who must not be disabled at that time: two operators cannot disable each other.
    pub operator: Option<AccountId>,
    /// A link with which a person of the account sets a password. It replaces an earlier one.
    pub link: Option<NewLink>,
}

#[derive(Clone, Debug)]
pub struct NewAccount {
    pub name: String,
    /// Argon2id hash in PHC form.
    pub password_hash: Option<Redacted<String>>,
    /// Whether the account has operator rights.
    pub operator: bool,
    /// Credit posted as a promotion; zero posts nothing.
    pub initial_credit: Msat,
}

/// Ends the sessions of an account.
pub(crate) const END_LOGINS: &str = "DELETE FROM logins WHERE account_id = $1";
const INSERT_ACCOUNT: &str = "INSERT INTO accounts (name, password_hash, operator, created_ms)
    VALUES ($1, $2, $3, $4) RETURNING id";
const SELECT_ACCOUNT: &str =
    "SELECT id, name, password_hash, operator, created_ms, disabled_ms FROM accounts WHERE name = $1";
const SELECT_ACCOUNTS: &str = "SELECT a.id, a.name, a.password_hash, a.operator, a.created_ms, a.disabled_ms,
    l.balance_msat FROM accounts a JOIN ledger_accounts l ON l.account_id = a.id
    WHERE a.id < $1 ORDER BY a.id DESC LIMIT $2";
const DISABLED: &str = "SELECT disabled_ms FROM accounts WHERE id = $1";
const DISABLE: &str = "UPDATE accounts SET disabled_ms = $2 WHERE id = $1";
/// Changes nothing, and holds the row until the end of the transaction.
const STILL_ENABLED: &str =
    "UPDATE accounts SET operator = operator WHERE id = $1 AND disabled_ms IS NULL RETURNING id";
const PASSWORD_BY_LINK: &str =
    "UPDATE accounts SET password_hash = $2 WHERE id = $1 AND disabled_ms IS NULL RETURNING id";

impl Store {
    /// Creates an account and posts its initial credit, if any, in the same transaction.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`].
    pub async fn create_account(&self, origin: &Origin, account: NewAccount) -> Result<AccountId> {
        let mut tx = self.begin().await?;
        let (id, noted) = insert_account(&mut tx, origin, account).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    /// As [`Store::create_account`], with a link for its person.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`], [`StoreError::Amount`].
    pub async fn create_linked_account(
        &self,
        origin: &Origin,
        account: NewAccount,
        link: &NewLink,
    ) -> Result<AccountId> {
        let mut tx = self.begin().await?;
        let (id, created) = insert_account(&mut tx, origin, account).await?;
        let linked = insert_link(&mut tx, &origin.acting_for(id), link).await?;
        self.commit_all(tx, vec![created, linked]).await?;
        Ok(id)
    }

    /// Every account with its balance, newest first.
    pub async fn accounts(&self, page: Page) -> Result<Vec<AccountView>> {
        let failed = db("read the accounts");
        let rows = engine::query(SELECT_ACCOUNTS).bind(page.end()).bind(page.limit);
        let rows = rows.fetch_all(&self.0.readers).await.map_err(&failed)?;
        let view = |row: Row| -> sqlx::Result<AccountView> {
            let balance = Msat(row.try_get("balance_msat")?);
            Ok(AccountView { account: account_record(row)?, balance })
        };
        rows.into_iter().map(view).collect::<sqlx::Result<_>>().map_err(&failed)
    }

    /// Changes the account of `actor`; returns its balance after that.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Amount`], [`StoreError::AccountDisabled`] if that of the operator is.
    pub async fn change_account(&self, actor: &Actor, change: AccountChange) -> Result<Msat> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let failed = db("change the account");
        let disabled = engine::query_scalar(DISABLED).bind(actor.account.0).fetch_optional(&mut tx).await;
        let disabled: Option<Option<i64>> = disabled.map_err(&failed)?;
        let is_disabled = disabled.ok_or(StoreError::NotFound("account"))?.is_some();
        if let Some(operator) = change.operator {
            let enabled = engine::query(STILL_ENABLED).bind(operator.0).fetch_optional(&mut tx).await;
            enabled.map_err(&failed)?.ok_or(StoreError::AccountDisabled)?;
        }
        let mut noted = Vec::new();
        if let Some(sats) = change.credit {
            let name = change.request.unwrap_or_else(new_uid);
            noted.extend(ledger::credit(&mut tx, actor, sats, format!("prepaid:{name}")).await?);
        }
        if let Some(disable) = change.disabled.filter(|disable| *disable != is_disabled) {
            let disabled_at = disable.then_some(actor.now.0);
            let set = engine::query(DISABLE).bind(actor.account.0).bind(disabled_at);
            set.execute(&mut tx).await.map_err(&failed)?;
            let action = if disable { "account.disabled" } else { "account.enabled" };
            let change = Change::new(action, "account", actor.account.0, json!({}));
            noted.push(record(&mut tx, actor, change).await?);
        }
        if change.disabled == Some(true) {
            let (target, stop) =
                (CommandTarget::Account(actor.account), NodeCommand::Stop(EndReason::AccountDisabled));
            self.command_in(&mut tx, target, stop, actor.now).await?;
        }
        if let Some(link) = &change.link {
            noted.push(insert_link(&mut tx, actor, link).await?);
        }
        let balance = ledger::balance(&mut tx, actor.account).await?;
        self.commit_all(tx, noted).await?;
        Ok(balance)
    }

    /// Uses a link up. A link of an account sets the password of `account` there and ends the sessions of that account. Any other link creates `account`, and decides whether it has operator rights.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a link that is unknown, used or expired. These two keep the link:
    /// [`StoreError::NameTaken`], [`StoreError::AccountDisabled`].
    pub async fn use_invite(
        &self,
        origin: &Origin,
        hash: &[u8; 32],
        mut account: NewAccount,
    ) -> Result<AccountId> {
        let link = self.link(hash, origin.now).await?.ok_or(StoreError::NotFound("link"))?;
        let mut tx = match link.account {
            Some(owner) => self.begin_holding(Lock::Account(owner)).await?,
            None => self.begin().await?,
        };
        account.operator = take_link(&mut tx, hash, origin.now).await?;
        let (id, noted) = match link.account {
            Some(owner) => {
                let actor = origin.acting_for(owner);
                (owner, set_password(&mut tx, &actor, account.password_hash.as_ref()).await?)
            }
            None => insert_account(&mut tx, origin, account).await?,
        };
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    pub async fn account_by_name(&self, name: &str) -> Result<Option<AccountRecord>> {
        let row = engine::query(SELECT_ACCOUNT).bind(name).fetch_optional(&self.0.readers).await;
        row.and_then(|row| row.map(account_record).transpose()).map_err(db("read the account"))
    }

    pub async fn count_accounts(&self) -> Result<i64> {
        let count = engine::query_scalar("SELECT COUNT(*) FROM accounts").fetch_one(&self.0.readers);
        count.await.map_err(db("count the accounts"))
    }
}

/// Creates an account with its initial credit and its first audit entry inside a transaction.
pub(crate) async fn insert_account(
    tx: &mut Tx,
    origin: &Origin,
    account: NewAccount,
) -> Result<(AccountId, audit::Noted)> {
    let inserted = engine::query_scalar(INSERT_ACCOUNT)
        .bind(&account.name)
        .bind(account.password_hash.as_ref().map(Redacted::expose))
        .bind(i64::from(account.operator))
        .bind(origin.now.0)
        .fetch_one(&mut *tx)
        .await;
    let id = match inserted {
        Ok(id) => AccountId(id),
        Err(sqlx::Error::Database(error)) if error.kind() == ErrorKind::UniqueViolation => {
            return Err(StoreError::NameTaken(account.name));
        }
        Err(error) => return Err(db("create the account")(error)),
    };
    if account.operator {
        end_first_links(tx, id).await?;
    }
    ledger::open_customer(tx, id).await?;
    if account.initial_credit.0 != 0 {
        let credit = Transfer {
            account_id: id,
            kind: TransferKind::Promotion,
            amount: account.initial_credit,
            idem: format!("promotion:{id}"),
            now: origin.now,
        };
        ledger::post(tx, &credit).await?;
    }
    let detail = json!({
        "name": account.name, "operator": account.operator,
        "initialSats": account.initial_credit.to_sats_floor().0
    });
    let change = Change::new("account.created", "account", id.0, detail);
    Ok((id, record(tx, &origin.acting_for(id), change).await?))
}

/// Sets the password of the actor's account for the person with its link.
async fn set_password(tx: &mut Tx, actor: &Actor, hash: Option<&Redacted<String>>) -> Result<audit::Noted> {
    let set = engine::query(PASSWORD_BY_LINK).bind(actor.account.0).bind(hash.map(Redacted::expose));
    let set = set.fetch_optional(&mut *tx).await.map_err(db("set the password"))?;
    set.ok_or(StoreError::AccountDisabled)?;
    let ended = engine::query(END_LOGINS).bind(actor.account.0).execute(&mut *tx).await;
    let ended = ended.map_err(db("end the sessions"))?;
    let detail = json!({"endedSessions": ended});
    record(tx, actor, Change::new("account.password_changed", "account", actor.account.0, detail)).await
}

pub(crate) fn account_record(row: Row) -> sqlx::Result<AccountRecord> {
    Ok(AccountRecord {
        id: AccountId(row.try_get("id")?),
        name: row.try_get("name")?,
        operator: row.try_get::<i64>("operator")? != 0,
        password_hash: row.try_get::<Option<String>>("password_hash")?.map(Redacted::new),
        created_at: UnixMillis(row.try_get("created_ms")?),
        disabled_at: row.try_get::<Option<i64>>("disabled_ms")?.map(UnixMillis),
    })
}
