//! Login sessions, and invite links for new accounts.

use serde_json::json;

use crate::accounts::{AccountRecord, NewAccount, account_record, insert_account};
use crate::audit::{self, Actor, By, Change, Origin, record};
use crate::engine::lock::Lock;
use crate::engine::{self, Row, Sql};
use crate::error::{Result, StoreError, db};
use crate::store::Store;
use satcast_core::ids::{AccountId, LoginId, UnixMillis};
use satcast_core::secret::Redacted;

/// Most sessions of one account; another one ends the oldest.
pub(crate) const LOGINS_PER_ACCOUNT_MAX: i64 = 50;
/// Most unused links.
pub(crate) const INVITES_MAX: i64 = 100;

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
}

const PASSWORD_HASH: &str = "SELECT password_hash FROM accounts WHERE id = $1";
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
const BY_HASH: &str = "SELECT id, account_id, client, created_ms, last_used_ms, expires_ms FROM logins
    WHERE token_hash = $1 AND expires_ms > $2";
const RENEW: &str = "UPDATE logins SET last_used_ms = $2, expires_ms = $3 WHERE id = $1";
const OF_ACCOUNT: &str = "SELECT id, account_id, client, created_ms, last_used_ms, expires_ms FROM logins
    WHERE account_id = $1 AND expires_ms > $2 ORDER BY id DESC";
const END: &str = "DELETE FROM logins WHERE id = $1 AND account_id = $2 RETURNING id";
const END_ALL: &str = "DELETE FROM logins WHERE account_id = $1";
const ACCOUNT: &str = "SELECT id, name, password_hash, operator, created_ms FROM accounts WHERE id = $1";
const PASSWORD: &str = "UPDATE accounts SET password_hash = $2 WHERE id = $1 RETURNING id";
const PRUNE_INVITES: &str = "DELETE FROM invites WHERE expires_ms <= $1";
const COUNT_INVITES: &str = "SELECT COUNT(*) FROM invites";
const INVITE: &str =
    "INSERT INTO invites (token_hash, operator, created_ms, expires_ms) VALUES ($1, $2, $3, $4)
    RETURNING id";
const USE_INVITE: &str = "DELETE FROM invites WHERE token_hash = $1 AND expires_ms > $2 RETURNING operator";

impl Store {
    /// Starts a session for the account of the origin; deletes expired sessions of all accounts.
    ///
    /// # Errors
    /// [`StoreError::PasswordChanged`] if the checked hash is no longer the account's.
    pub async fn begin_login(&self, origin: &Origin, account: AccountId, login: NewLogin) -> Result<LoginId> {
        let mut tx = self.begin_holding(Lock::Account(account)).await?;
        let failed = db("begin the login session");
        if let Some(verified) = &login.verified {
            let hash = engine::query_scalar(PASSWORD_HASH).bind(account.0).fetch_optional(&mut tx).await;
            let hash: Option<Option<String>> = hash.map_err(&failed)?;
            if hash.flatten().as_ref() != Some(verified.expose()) {
                return Err(StoreError::PasswordChanged);
            }
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

    /// Changes the password of an account and ends all its sessions.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn change_password(&self, actor: &Actor, hash: &Redacted<String>) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let failed = db("change the password");
        let changed = engine::query(PASSWORD).bind(actor.account.0).bind(hash.expose());
        let changed = changed.fetch_optional(&mut tx).await.map_err(&failed)?;
        changed.ok_or(StoreError::NotFound("account"))?;
        let ended = engine::query(END_ALL).bind(actor.account.0).execute(&mut tx).await.map_err(&failed)?;
        let detail = json!({"endedSessions": ended});
        let change = Change::new("account.password_changed", "account", actor.account.0, detail);
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    /// Stores a link that creates one account until `expires_at`.
    ///
    /// # Errors
    /// [`StoreError::CapReached`].
    pub async fn create_invite(
        &self,
        origin: &Origin,
        hash: &[u8; 32],
        operator: bool,
        expires_at: UnixMillis,
    ) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Invites).await?;
        let failed = db("create the link");
        engine::query(PRUNE_INVITES).bind(origin.now.0).execute(&mut tx).await.map_err(&failed)?;
        let count: i64 = engine::query_scalar(COUNT_INVITES).fetch_one(&mut tx).await.map_err(&failed)?;
        if count >= INVITES_MAX {
            return Err(StoreError::CapReached { what: "unused links", limit: INVITES_MAX });
        }
        let id: i64 = engine::query_scalar(INVITE)
            .bind(&hash[..])
            .bind(i64::from(operator))
            .bind(origin.now.0)
            .bind(expires_at.0)
            .fetch_one(&mut tx)
            .await
            .map_err(&failed)?;
        let detail = json!({"operator": operator, "expiresAt": expires_at.0});
        let noted =
            audit::insert(&mut tx, None, origin, Change::new("invite.created", "invite", id, detail)).await?;
        self.commit_noted(tx, noted).await
    }

    /// Creates the account of a link and uses the link up. The link decides whether the account has operator rights.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a link that is unknown, used or expired; [`StoreError::NameTaken`], which keeps the
    /// link.
    pub async fn use_invite(
        &self,
        origin: &Origin,
        hash: &[u8; 32],
        mut account: NewAccount,
    ) -> Result<AccountId> {
        let mut tx = self.begin().await?;
        let used: Option<i64> = engine::query_scalar(USE_INVITE)
            .bind(&hash[..])
            .bind(origin.now.0)
            .fetch_optional(&mut tx)
            .await
            .map_err(db("use the link"))?;
        account.operator = used.ok_or(StoreError::NotFound("link"))? != 0;
        let (id, noted) = insert_account(&mut tx, origin, account).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
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
    })
}
