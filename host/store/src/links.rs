//! Links by which a person gets an account, or a password for an existing one.

use serde_json::json;

use crate::audit::{self, Actor, Change, Origin, record};
use crate::engine::{self, Tx};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Store};
use satcast_core::ids::{AccountId, UnixMillis};

/// Most unused links that make an account.
const INVITES_MAX: i64 = 100;

/// A link to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewLink {
    /// SHA-256 of its token.
    pub token_hash: [u8; 32],
    pub expires_at: UnixMillis,
}

/// A link that is neither used nor expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRecord {
    /// The account whose password it sets; `None` for a link that makes an account.
    pub account: Option<AccountId>,
}

const PRUNE_INVITES: &str = "DELETE FROM invites WHERE expires_ms <= $1";
const COUNT_INVITES: &str = "SELECT COUNT(*) FROM invites WHERE account_id IS NULL";
const INVITE: &str = "INSERT INTO invites (token_hash, operator, created_ms, expires_ms, account_id)
    VALUES ($1, $2, $3, $4, $5) RETURNING id";
pub(crate) const END_LINKS: &str = "DELETE FROM invites WHERE account_id = $1";
const END_LINK: &str = "DELETE FROM invites WHERE token_hash = $1";
/// Links that make an operator, while there is no operator but the new one.
const END_FIRST_LINKS: &str = "DELETE FROM invites WHERE operator = 1 AND account_id IS NULL
    AND NOT EXISTS (SELECT 1 FROM accounts WHERE operator = 1 AND id <> $1)";
const LINK: &str = "SELECT account_id FROM invites WHERE token_hash = $1 AND expires_ms > $2";
const USE_INVITE: &str = "DELETE FROM invites WHERE token_hash = $1 AND expires_ms > $2 RETURNING operator";

impl Store {
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
            .bind(None::<i64>)
            .fetch_one(&mut tx)
            .await
            .map_err(&failed)?;
        let detail = json!({"operator": operator, "expiresAt": expires_at.0});
        let noted =
            audit::insert(&mut tx, None, origin, Change::new("invite.created", "invite", id, detail)).await?;
        self.commit_noted(tx, noted).await
    }

    /// Ends a link that was not used.
    pub async fn end_link(&self, hash: &[u8; 32]) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Invites).await?;
        engine::query(END_LINK).bind(&hash[..]).execute(&mut tx).await.map_err(db("end the link"))?;
        tx.commit().await
    }

    /// The link with this token, unless it is unknown, used or expired.
    pub async fn link(&self, hash: &[u8; 32], now: UnixMillis) -> Result<Option<LinkRecord>> {
        let account = engine::query_scalar(LINK).bind(&hash[..]).bind(now.0).fetch_optional(&self.0.readers);
        let account: Option<Option<i64>> = account.await.map_err(db("read the link"))?;
        Ok(account.map(|account| LinkRecord { account: account.map(AccountId) }))
    }
}

/// Stores the one link of the actor's account inside a transaction.
pub(crate) async fn insert_link(tx: &mut Tx, actor: &Actor, link: &NewLink) -> Result<audit::Noted> {
    let failed = db("create the link");
    engine::query(END_LINKS).bind(actor.account.0).execute(&mut *tx).await.map_err(&failed)?;
    let insert = engine::query_scalar(INVITE)
        .bind(&link.token_hash[..])
        .bind(0_i64)
        .bind(actor.now.0)
        .bind(link.expires_at.0)
        .bind(actor.account.0);
    let id: i64 = insert.fetch_one(&mut *tx).await.map_err(&failed)?;
    let detail = json!({"expiresAt": link.expires_at.0});
    record(tx, actor, Change::new("account.link_created", "invite", id, detail)).await
}

/// Ends the links to the first operator, of which each node has one, inside the transaction that makes that account.
pub(crate) async fn end_first_links(tx: &mut Tx, first: AccountId) -> Result<()> {
    let ended = engine::query(END_FIRST_LINKS).bind(first.0).execute(&mut *tx).await;
    ended.map(drop).map_err(db("end the first links"))
}

/// Uses a link up inside a transaction; gives the operator rights of an account that it makes.
pub(crate) async fn take_link(tx: &mut Tx, hash: &[u8; 32], now: UnixMillis) -> Result<bool> {
    let operator = engine::query_scalar(USE_INVITE).bind(&hash[..]).bind(now.0).fetch_optional(&mut *tx);
    let operator: Option<i64> = operator.await.map_err(db("use the link"))?;
    Ok(operator.ok_or(StoreError::NotFound("link"))? != 0)
}
