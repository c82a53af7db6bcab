//! Login sessions.

use serde_json::json;

use crate::accounts::{AccountRecord, END_LOGINS, account_record};
use crate::audit::{Actor, By, Change, Origin, record};
use crate::engine::{self, Row, Sql};
use crate::error::{Result, StoreError, db};
use crate::links::END_LINKS;
use crate::store::{Lock, Store};
use satcast_core::ids::{AccountId, LoginId, UnixMillis};
use satcast_core::secret::Redacted;

/// Most sessions of one account; another one ends the oldest.
pub(crate) const LOGINS_PER_ACCOUNT_MAX: i64 = 50;

/// A new session.
#[derive(Clone, Debug)]
pub struct NewLogin {
    /// SHA-256 of its token.
    pub token_hash: [u8; 32],
    /// When it expires unless it is used.
    pub expires_at: UnixMillis,
    /// The password hash that was checked; `None` for a new account.
    pub verified: Option<Redacted<String>>,
}

/// A session that has not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginRecord {
    pub id: LoginId,
    /// The account that owns it.
    pub account_id: AccountId,
    /// Network address of the login.
    pub client: String,
    pub created_at: UnixMillis,
    /// When it was last used, to the minute.
    pub last_used_at: UnixMillis,
    /// When it expires unless it is used.
    pub expires_at: UnixMillis,
    /// Whether an operator disabled the account.
    pub account_disabled: bool,
}

const PASSWORD_HASH: &str = "SELECT password_hash, disabled_ms FROM accounts WHERE id = $1";
/// Rows that another login is deleting are skipped.
const PRUNE: Sql = Sql {
    sqlite: "DELETE FROM logins WHERE expires_ms <= $1",
    postgres: "DELETE FROM logins WHERE id IN
        (SELECT id FROM logins WHERE expires_ms <= $1 FOR UPDATE SKIP LOCKED)",
};
const INSERT: &str =
    "INSERT INTO logins (account_id, token_hash, client, created_ms, last_used_ms, expires_ms)
    VALUES ($1, $2, $3, $4, $4, $5) RETURNING id";
const CUT: &str = "DELETE FROM logins WHERE account_id = $1 AND id NOT IN
    (SELECT id FROM logins WHERE account_id = $1 ORDER BY id DESC LIMIT $2)";
macro_rules! select_login {
    ($rest:literal) => {
        concat!(
            "SELECT l.id, l.account_id, l.client, l.created_ms, l.last_used_ms, l.expires_ms, a.disabled_ms ",
            "FROM logins l JOIN accounts a ON a.id = l.account_id WHERE ",
            $rest
        )
    };
}
const BY_HASH: &str = select_login!("l.token_hash = $1 AND l.expires_ms > $2");
const RENEW: &str = "UPDATE logins SET last_used_ms = $2, expires_ms = $3 WHERE id = $1";
const OF_ACCOUNT: &str = select_login!("l.account_id = $1 AND l.expires_ms > $2 ORDER BY l.id DESC");
const END: &str = "DELETE FROM logins WHERE id = $1 AND account_id = $2 RETURNING id";
const ACCOUNT: &str =
    "SELECT id, name, password_hash, operator, created_ms, disabled_ms FROM accounts WHERE id = $1";
const PASSWORD: &str = "UPDATE accounts SET password_hash = $2 WHERE id = $1 RETURNING id";

impl Store {
    /// Starts a session for the account of the origin; deletes expired sessions of all accounts.
    ///
    /// # Errors
    /// [`StoreError::PasswordChanged`] if the checked hash is no longer the account's; [`StoreError::AccountDisabled`].
    pub async fn begin_login(&self, origin: &Origin, account: AccountId, login: NewLogin) -> Result<LoginId> {
        let mut tx = self.begin_holding(Lock::Account(account)).await?;
        let failed = db("begin the login session");
        let known = engine::query_as(PASSWORD_HASH).bind(account.0).fetch_optional(&mut tx).await;
        let known: Option<(Option<String>, Option<i64>)> = known.map_err(&failed)?;
        let (hash, disabled_ms) = known.ok_or(StoreError::NotFound("account"))?;
        if login.verified.as_ref().is_some_and(|verified| hash.as_ref() != Some(verified.expose())) {
            return Err(StoreError::PasswordChanged);
        }
        if disabled_ms.is_some() {
            return Err(StoreError::AccountDisabled);
        }
        engine::query(PRUNE).bind(origin.now.0).execute(&mut tx).await.map_err(&failed)?;
        let id = engine::query_scalar(INSERT)
            .bind(account.0)
            .bind(&login.token_hash[..])
            .bind(origin.address.map(|address| address.to_string()).unwrap_or_default())
            .bind(origin.now.0)
            .bind(login.expires_at.0)
            .fetch_one(&mut tx)
            .await
            .map(LoginId)
            .map_err(&failed)?;
        let cut = engine::query(CUT).bind(account.0).bind(LOGINS_PER_ACCOUNT_MAX);
        let cut = cut.execute(&mut tx).await.map_err(&failed)?;
        let actor = Actor { by: By::Login(id), ..origin.acting_for(account) };
        let change = Change::new("login.began", "session", id.0, json!({"endedSessions": cut}));
        let noted = record(&mut tx, &actor, change).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    /// The session with that token, unless it has expired at `now`.
    pub async fn login_by_hash(&self, hash: &[u8; 32], now: UnixMillis) -> Result<Option<LoginRecord>> {
        let row = engine::query(BY_HASH).bind(&hash[..]).bind(now.0).fetch_optional(&self.0.readers).await;
        row.and_then(|row| row.as_ref().map(login_record).transpose()).map_err(db("read the login session"))
    }

    /// Records that a session was used, and its new expiry.
    pub async fn renew_login(&self, login: LoginId, now: UnixMillis, expires_at: UnixMillis) -> Result<()> {
        let mut tx = self.begin().await?;
        let renew = engine::query(RENEW).bind(login.0).bind(now.0).bind(expires_at.0);
        renew.execute(&mut tx).await.map_err(db("renew the login session"))?;
        tx.commit().await
    }

    /// The account's sessions, newest first.
    pub async fn logins_of(&self, account: AccountId, now: UnixMillis) -> Result<Vec<LoginRecord>> {
        let rows = engine::query(OF_ACCOUNT).bind(account.0).bind(now.0).fetch_all(&self.0.readers).await;
        rows.and_then(|rows| rows.iter().map(login_record).collect()).map_err(db("read the login sessions"))
    }

    /// Ends a session of the account.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn end_login(&self, actor: &Actor, login: LoginId) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let ended = engine::query(END).bind(login.0).bind(actor.account.0).fetch_optional(&mut tx).await;
        ended.map_err(db("end the login session"))?.ok_or(StoreError::NotFound("session"))?;
        let change = Change::new("login.ended", "session", login.0, json!({}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    pub async fn account(&self, account: AccountId) -> Result<Option<AccountRecord>> {
        let row = engine::query(ACCOUNT).bind(account.0).fetch_optional(&self.0.readers).await;
        row.and_then(|row| row.map(account_record).transpose()).map_err(db("read the account"))
    }

    /// Changes the password of an account, and ends all its sessions and its login link.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn change_password(&self, actor: &Actor, hash: &Redacted<String>) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let failed = db("change the password");
        let changed = engine::query(PASSWORD).bind(actor.account.0).bind(hash.expose());
        let changed = changed.fetch_optional(&mut tx).await.map_err(&failed)?;
        changed.ok_or(StoreError::NotFound("account"))?;
        let ended =
            engine::query(END_LOGINS).bind(actor.account.0).execute(&mut tx).await.map_err(&failed)?;
        engine::query(END_LINKS).bind(actor.account.0).execute(&mut tx).await.map_err(&failed)?;
        let detail = json!({"endedSessions": ended});
        let change = Change::new("account.password_changed", "account", actor.account.0, detail);
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }
}

fn login_record(row: &Row) -> sqlx::Result<LoginRecord> {
    Ok(LoginRecord {
        id: LoginId(row.try_get("id")?),
        account_id: AccountId(row.try_get("account_id")?),
        client: row.try_get("client")?,
        created_at: UnixMillis(row.try_get("created_ms")?),
        last_used_at: UnixMillis(row.try_get("last_used_ms")?),
        expires_at: UnixMillis(row.try_get("expires_ms")?),
        account_disabled: row.try_get::<Option<i64>>("disabled_ms")?.is_some(),
    })
}
