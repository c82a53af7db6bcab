//! Accounts and API keys.

use serde_json::json;
use sqlx::error::ErrorKind;

use super::audit::{self, record};
use super::engine::{self, Row, Tx};
use super::lock::{Lock, again};
use super::{Store, commit, db, ledger};
use crate::{
    AccountRecord, Actor, Change, KeyRecord, NewAccount, NewKey, Origin, Result, Scopes, StoreError,
    Transfer, TransferKind,
};
use satcast_core::ids::{AccountId, DestinationId, KeyId, UnixMillis};
use satcast_core::secret::{KeyKind, Redacted, key_hash, new_uid};

/// Characters of a key kept for display: its beginning.
const KEY_PREFIX_CHARS: usize = 7;
/// Characters of a key kept for display: its end.
const KEY_SUFFIX_CHARS: usize = 4;

const INSERT_ACCOUNT: &str = "INSERT INTO accounts (name, password_hash, operator, created_ms)
    VALUES ($1, $2, $3, $4) RETURNING id";
const SELECT_ACCOUNT: &str =
    "SELECT id, name, password_hash, operator, created_ms FROM accounts WHERE name = $1";
const COUNT_KEYS: &str = "SELECT COUNT(*) FROM api_keys k LEFT JOIN logins l ON l.id = k.login_id
    WHERE k.account_id = $1 AND k.revoked_ms IS NULL AND (k.login_id IS NULL OR l.id IS NOT NULL)";
const OWNED_DESTINATION: &str =
    "SELECT d.playback_path FROM destinations d JOIN streams s ON s.id = d.stream_id
    WHERE d.id = $1 AND s.account_id = $2 AND d.deleted_ms IS NULL";
const INSERT_KEY: &str =
    "INSERT INTO api_keys (uid, account_id, hash, kind, key_sealed, prefix, last4, scopes,
    destination_id, label, created_ms, login_id)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING id";
const SELECT_KEY: &str = "SELECT k.id, k.account_id, k.kind, k.scopes, k.destination_id, k.prefix, k.last4,
    k.last_used_ms, l.expires_ms FROM api_keys k LEFT JOIN destinations d ON d.id = k.destination_id
    LEFT JOIN logins l ON l.id = k.login_id
    WHERE k.hash = $1 AND k.revoked_ms IS NULL AND d.deleted_ms IS NULL AND (k.login_id IS NULL OR l.id IS NOT NULL)";
const TOUCH_KEY: &str = "UPDATE api_keys SET last_used_ms = $2
    WHERE id = $1 AND (last_used_ms IS NULL OR last_used_ms < $2)";

impl Store {
    /// Makes an account and posts its initial credit, if any, in the same transaction.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`].
    pub async fn create_account(&self, origin: &Origin, account: NewAccount) -> Result<AccountId> {
        let mut tx = self.begin().await?;
        let (id, noted) = insert_account(&mut tx, origin, account).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    /// The account with that name.
    pub async fn account_by_name(&self, name: &str) -> Result<Option<AccountRecord>> {
        let row = engine::query(SELECT_ACCOUNT).bind(name).fetch_optional(&self.0.readers).await;
        row.and_then(|row| row.map(account_record).transpose()).map_err(db("read the account"))
    }

    /// Number of accounts.
    pub async fn count_accounts(&self) -> Result<i64> {
        let count = engine::query_scalar("SELECT COUNT(*) FROM accounts").fetch_one(&self.0.readers);
        count.await.map_err(db("count the accounts"))
    }

    /// Stores a key: its hash, and for a public key the key itself, encrypted.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the destination is not the account's, [`StoreError::NoPlayback`] when a public
    /// key's destination is of a type without playback, [`StoreError::CapReached`].
    pub async fn create_key(&self, actor: &Actor, key: NewKey) -> Result<KeyId> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let id = self.insert_key(&mut tx, actor, &key).await?;
        let noted = record(&mut tx, actor, creation(id.0, &key)).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    /// The key with that SHA-256, unless revoked.
    pub async fn key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<KeyRecord>> {
        let row = engine::query(SELECT_KEY).bind(&hash[..]).fetch_optional(&self.0.readers).await;
        match row.map_err(db("read the key"))? {
            Some(row) => key_record(&row).map(Some),
            None => Ok(None),
        }
    }

    /// Notes when keys were used; an earlier time than the one that is known changes nothing.
    pub async fn touch_keys(&self, uses: &[(KeyId, UnixMillis)]) -> Result<()> {
        if uses.is_empty() {
            return Ok(());
        }
        let mut uses = uses.to_vec();
        uses.sort_unstable();
        again(|| self.try_touch(&uses)).await
    }
}

impl Store {
    async fn try_touch(&self, uses: &[(KeyId, UnixMillis)]) -> Result<()> {
        let mut tx = self.begin().await?;
        for (key, now) in uses {
            let touch = engine::query(TOUCH_KEY).bind(key.0).bind(now.0);
            touch.execute(&mut tx).await.map_err(db("note the use of the keys"))?;
        }
        commit(tx).await
    }

    /// Stores a key inside a transaction.
    pub(super) async fn insert_key(&self, tx: &mut Tx, actor: &Actor, key: &NewKey) -> Result<KeyId> {
        let failed = db("make the key");
        let count: i64 = engine::query_scalar(COUNT_KEYS)
            .bind(actor.account.0)
            .fetch_one(&mut *tx)
            .await
            .map_err(&failed)?;
        if count >= key.caps.keys_per_account {
            return Err(StoreError::CapReached {
                what: "keys per account",
                limit: key.caps.keys_per_account,
            });
        }
        if let Some(destination) = key.destination_id {
            let owned = engine::query_scalar(OWNED_DESTINATION).bind(destination.0).bind(actor.account.0);
            let owned: Option<Option<String>> = owned.fetch_optional(&mut *tx).await.map_err(&failed)?;
            let playback_path = owned.ok_or(StoreError::NotFound("destination"))?;
            if playback_path.is_none() {
                return Err(StoreError::NoPlayback(destination));
            }
        }
        let uid = new_uid();
        let text = key.key.expose();
        let sealed = (key.kind == KeyKind::Public).then(|| self.0.vault.seal(&uid, text.as_bytes()));
        let id: i64 = engine::query_scalar(INSERT_KEY)
            .bind(&uid)
            .bind(actor.account.0)
            .bind(&key_hash(text)[..])
            .bind(key.kind.as_str())
            .bind(sealed)
            .bind(text.get(..KEY_PREFIX_CHARS).unwrap_or_default())
            .bind(
                text.len()
                    .checked_sub(KEY_SUFFIX_CHARS)
                    .and_then(|start| text.get(start..))
                    .unwrap_or_default(),
            )
            .bind(key.scopes.to_text())
            .bind(key.destination_id.map(|id| id.0))
            .bind(&key.label)
            .bind(actor.now.0)
            .bind(key.login.map(|id| id.0))
            .fetch_one(&mut *tx)
            .await
            .map_err(&failed)?;
        Ok(KeyId(id))
    }
}

/// What the audit log says of a new key.
fn creation(id: i64, key: &NewKey) -> Change {
    let detail = json!({
        "type": key.kind.as_str(), "label": key.label, "scopes": key.scopes.to_text(),
        "destinationId": key.destination_id.map(|id| id.0)
    });
    Change::new("key.created", "key", id, detail)
}

/// Makes an account with its initial credit and its first entry in the audit log inside a transaction.
pub(super) async fn insert_account(
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
        Err(error) => return Err(db("make the account")(error)),
    };
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

pub(super) fn account_record(row: Row) -> sqlx::Result<AccountRecord> {
    Ok(AccountRecord {
        id: AccountId(row.try_get("id")?),
        name: row.try_get("name")?,
        operator: row.try_get::<i64>("operator")? != 0,
        password_hash: row.try_get::<Option<String>>("password_hash")?.map(Redacted::new),
        created_at: UnixMillis(row.try_get("created_ms")?),
    })
}

fn key_record(row: &Row) -> Result<KeyRecord> {
    let failed = db("read the key");
    let kind: String = row.try_get("kind").map_err(&failed)?;
    let scopes: String = row.try_get("scopes").map_err(&failed)?;
    Ok(KeyRecord {
        id: KeyId(row.try_get("id").map_err(&failed)?),
        account_id: AccountId(row.try_get("account_id").map_err(&failed)?),
        kind: KeyKind::parse(&kind).ok_or(StoreError::Unreadable { what: "api_keys.kind" })?,
        scopes: Scopes::parse(&scopes).ok_or(StoreError::Unreadable { what: "api_keys.scopes" })?,
        destination_id: row.try_get::<Option<i64>>("destination_id").map_err(&failed)?.map(DestinationId),
        prefix: row.try_get("prefix").map_err(&failed)?,
        last4: row.try_get("last4").map_err(&failed)?,
        last_used_at: row.try_get::<Option<i64>>("last_used_ms").map_err(&failed)?.map(UnixMillis),
        ends_at: row.try_get::<Option<i64>>("expires_ms").map_err(&failed)?.map(UnixMillis),
    })
}
