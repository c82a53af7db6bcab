//! Sessions of people who logged in, and links by which accounts are made.

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
