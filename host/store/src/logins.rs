//! Sessions of people who logged in, and links by which accounts are made.

use async_trait::async_trait;

use super::Result;
use super::audit::{Actor, Origin};
use super::model::{AccountRecord, NewAccount};
use satcast_core::ids::{AccountId, LoginId, UnixMillis};
use satcast_core::secret::Redacted;

/// Most sessions of one account; a further one ends the oldest.
pub const LOGINS_PER_ACCOUNT_MAX: i64 = 50;
/// Most links that wait for somebody.
pub const INVITES_MAX: i64 = 100;

/// A session that begins.
#[derive(Clone, Debug)]
pub struct NewLogin {
    /// SHA-256 of its token.
    pub token_hash: [u8; 32],
    /// When it ends unless it is used.
    pub expires_at: UnixMillis,
    /// The password hash that was checked; `None` for an account that was just made.
    pub verified: Option<Redacted<String>>,
}

/// A session that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginRecord {
    /// Its id.
    pub id: LoginId,
    /// Whose it is.
    pub account_id: AccountId,
    /// Network address it was made from.
    pub client: String,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it was last used, to the minute.
    pub last_used_at: UnixMillis,
    /// When it ends unless it is used.
    pub expires_at: UnixMillis,
}

/// Sessions of people, and links by which accounts are made.
#[async_trait]
pub trait Logins: Send + Sync {
    /// Begins a session of the origin's person; those of everyone that have ended are cleared away.
    ///
    /// # Errors
    /// [`StoreError::PasswordChanged`](super::StoreError) when the checked hash is no longer the account's.
    async fn begin_login(&self, origin: &Origin, account: AccountId, login: NewLogin) -> Result<LoginId>;
    /// The session with that token, unless it has ended by `now`.
    async fn login_by_hash(&self, hash: &[u8; 32], now: UnixMillis) -> Result<Option<LoginRecord>>;
    /// Notes that a session was used, and when it ends now.
    async fn renew_login(&self, login: LoginId, now: UnixMillis, expires_at: UnixMillis) -> Result<()>;
    /// The account's sessions, newest first.
    async fn logins_of(&self, account: AccountId, now: UnixMillis) -> Result<Vec<LoginRecord>>;
    /// Ends a session of the account.
    ///
    /// # Errors
    /// [`StoreError::NotFound`](super::StoreError::NotFound).
    async fn end_login(&self, actor: &Actor, login: LoginId) -> Result<()>;
    /// The account.
    async fn account(&self, account: AccountId) -> Result<Option<AccountRecord>>;
    /// Gives the account another password and ends all its sessions.
    ///
    /// # Errors
    /// [`StoreError::NotFound`](super::StoreError::NotFound).
    async fn change_password(&self, actor: &Actor, hash: &Redacted<String>) -> Result<()>;
    /// Keeps a link that makes one account until `expires_at`.
    ///
    /// # Errors
    /// [`StoreError::CapReached`](super::StoreError::CapReached).
    async fn create_invite(
        &self,
        origin: &Origin,
        hash: &[u8; 32],
        operator: bool,
        expires_at: UnixMillis,
    ) -> Result<()>;
    /// Makes the account of a link, which is used up with it; whether it may operate the service is the link's to say.
    ///
    /// # Errors
    /// [`StoreError::NotFound`](super::StoreError::NotFound) for a link that is unknown, used or too old;
    /// [`StoreError::NameTaken`](super::StoreError::NameTaken), which leaves the link.
    async fn use_invite(&self, origin: &Origin, hash: &[u8; 32], account: NewAccount) -> Result<AccountId>;
}
