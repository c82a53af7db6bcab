//! API keys.

use serde_json::json;

use crate::audit::{Actor, Change, record};
use crate::engine::{self, Row, Tx};
use crate::error::{Result, StoreError, db};
use crate::store::{Caps, Lock, Page, Store, again};
use satcast_core::ids::{AccountId, DestinationId, KeyId, LoginId, UnixMillis};
use satcast_core::secret::{KeyKind, Redacted, key_hash, new_uid};

/// Leading characters of a key that are kept for display.
const KEY_PREFIX_CHARS: usize = 7;
/// Trailing characters of a key that are kept for display.
const KEY_SUFFIX_CHARS: usize = 4;

/// Rights of a permanent key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scopes {
    /// Read the account's data.
    pub read: bool,
    /// Change the account's data.
    pub manage: bool,
    /// Manage webhooks.
    pub webhooks: bool,
}

impl Scopes {
    /// All rights, the default of a permanent key.
    pub const ALL: Scopes = Scopes { read: true, manage: true, webhooks: true };
    /// No rights, as for public keys.
    pub const NONE: Scopes = Scopes { read: false, manage: false, webhooks: false };

    /// The stored form: names in a fixed order with commas between them.
    pub fn to_text(self) -> String {
        let named = [(self.read, "read"), (self.manage, "manage"), (self.webhooks, "webhooks")];
        let names: Vec<&str> = named.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect();
        names.join(",")
    }

    /// Reads the stored form; `None` for a name that this release does not know.
    pub fn parse(text: &str) -> Option<Self> {
        let mut scopes = Self::NONE;
        for name in text.split(',').filter(|name| !name.is_empty()) {
            match name {
                "read" => scopes.read = true,
                "manage" => scopes.manage = true,
                "webhooks" => scopes.webhooks = true,
                _ => return None,
            }
        }
        Some(scopes)
    }
}

/// An API key as it is found by its hash.
#[derive(Clone, Debug)]
pub struct KeyRecord {
    pub id: KeyId,
    /// The account that owns it.
    pub account_id: AccountId,
    /// Public or permanent.
    pub kind: KeyKind,
    pub scopes: Scopes,
    /// The destination of a public key.
    pub destination_id: Option<DestinationId>,
    /// The first characters, for display.
    pub prefix: String,
    /// The last four characters, for display.
    pub last4: String,
    /// When it was last used, to the minute.
    pub last_used_at: Option<UnixMillis>,
    /// End of the login session that the key is bound to, unless the session is used.
    pub ends_at: Option<UnixMillis>,
    /// Whether an operator disabled the account.
    pub account_disabled: bool,
}

/// An API key to be stored.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Public or permanent.
    pub kind: KeyKind,
    pub key: Redacted<String>,
    pub scopes: Scopes,
    /// The destination of a public key.
    pub destination_id: Option<DestinationId>,
    /// The login session that the key is bound to: the key ends with it.
    pub login: Option<LoginId>,
    pub label: String,
    /// Caps in force.
    pub caps: Caps,
}

/// An API key as its owner sees it in a list.
#[derive(Clone, Debug)]
pub struct KeyView {
    pub id: KeyId,
    /// Public or permanent.
    pub kind: KeyKind,
    /// The key itself, stored for public keys only.
    pub key: Option<Redacted<String>>,
    pub prefix: String,
    /// The last four characters.
    pub last4: String,
    pub scopes: Scopes,
    /// The destination of a public key.
    pub destination_id: Option<DestinationId>,
    /// The login session that the key is bound to: the key ends with it.
    pub login: Option<LoginId>,
    pub label: String,
    pub created_at: UnixMillis,
    /// When it was last used, to the minute.
    pub last_used_at: Option<UnixMillis>,
}

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
    k.last_used_ms, l.expires_ms, a.disabled_ms FROM api_keys k JOIN accounts a ON a.id = k.account_id
    LEFT JOIN destinations d ON d.id = k.destination_id LEFT JOIN logins l ON l.id = k.login_id
    WHERE k.hash = $1 AND k.revoked_ms IS NULL AND d.deleted_ms IS NULL AND (k.login_id IS NULL OR l.id IS NOT NULL)";
const TOUCH_KEY: &str = "UPDATE api_keys SET last_used_ms = $2
    WHERE id = $1 AND (last_used_ms IS NULL OR last_used_ms < $2)";
const SELECT_KEYS: &str = "SELECT k.id, k.uid, k.kind, k.key_sealed, k.prefix, k.last4, k.scopes,
    k.destination_id, k.label, k.created_ms, k.last_used_ms, k.login_id
    FROM api_keys k LEFT JOIN destinations d ON d.id = k.destination_id LEFT JOIN logins l ON l.id = k.login_id
    WHERE k.account_id = $1 AND k.revoked_ms IS NULL AND d.deleted_ms IS NULL AND k.id < $2
    AND (k.login_id IS NULL OR l.id IS NOT NULL)
    ORDER BY k.id DESC LIMIT $3";
const REVOKE_KEY: &str = "UPDATE api_keys SET revoked_ms = $3
    WHERE id = $1 AND account_id = $2 AND revoked_ms IS NULL RETURNING kind, label";

impl Store {
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

    pub async fn key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<KeyRecord>> {
        let row = engine::query(SELECT_KEY).bind(&hash[..]).fetch_optional(&self.0.readers).await;
        match row.map_err(db("read the key"))? {
            Some(row) => key_record(&row).map(Some),
            None => Ok(None),
        }
    }

    /// Records when keys were used; a time earlier than the stored one changes nothing.
    pub async fn touch_keys(&self, uses: &[(KeyId, UnixMillis)]) -> Result<()> {
        if uses.is_empty() {
            return Ok(());
        }
        let mut uses = uses.to_vec();
        uses.sort_unstable();
        again(|| self.try_touch(&uses)).await
    }

    async fn try_touch(&self, uses: &[(KeyId, UnixMillis)]) -> Result<()> {
        let mut tx = self.begin().await?;
        for (key, now) in uses {
            let touch = engine::query(TOUCH_KEY).bind(key.0).bind(now.0);
            touch.execute(&mut tx).await.map_err(db("record the use of the keys"))?;
        }
        tx.commit().await
    }

    /// Stores a key inside a transaction.
    pub(crate) async fn insert_key(&self, tx: &mut Tx, actor: &Actor, key: &NewKey) -> Result<KeyId> {
        let failed = db("create the key");
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

    /// The account's keys that are not revoked, newest first.
    pub async fn keys_of(&self, account: AccountId, page: Page) -> Result<Vec<KeyView>> {
        let rows = engine::query(SELECT_KEYS)
            .bind(account.0)
            .bind(page.end())
            .bind(page.limit)
            .fetch_all(&self.0.readers)
            .await
            .map_err(db("read the keys"))?;
        rows.iter().map(|row| self.key_view(row)).collect()
    }

    pub async fn key_of(&self, account: AccountId, key: KeyId) -> Result<Option<KeyView>> {
        let page = Page { before: Some(key.0.saturating_add(1)), limit: 1 };
        let found = self.keys_of(account, page).await?;
        Ok(found.into_iter().find(|view| view.id == key))
    }

    /// Revokes a key for ever and stores its replacement, all or nothing.
    pub async fn replace_key(&self, actor: &Actor, key: KeyId, new: NewKey) -> Result<KeyId> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let (kind, label) = revoke(&mut tx, actor, key).await?;
        let id = self.insert_key(&mut tx, actor, &new).await?;
        let detail = json!({"type": kind, "label": label, "replaces": key.0});
        let noted = record(&mut tx, actor, Change::new("key.replaced", "key", id.0, detail)).await?;
        self.commit_noted(tx, noted).await?;
        Ok(id)
    }

    /// Revokes a key for ever.
    pub async fn revoke_key(&self, actor: &Actor, key: KeyId) -> Result<()> {
        let mut tx = self.begin_holding(Lock::Account(actor.account)).await?;
        let (kind, label) = revoke(&mut tx, actor, key).await?;
        let change = Change::new("key.revoked", "key", key.0, json!({"type": kind, "label": label}));
        let noted = record(&mut tx, actor, change).await?;
        self.commit_noted(tx, noted).await
    }

    fn key_view(&self, row: &Row) -> Result<KeyView> {
        let failed = db("read the keys");
        let kind: String = row.try_get("kind").map_err(&failed)?;
        let scopes: String = row.try_get("scopes").map_err(&failed)?;
        let uid: String = row.try_get("uid").map_err(&failed)?;
        let sealed: Option<Vec<u8>> = row.try_get("key_sealed").map_err(&failed)?;
        Ok(KeyView {
            id: KeyId(row.try_get("id").map_err(&failed)?),
            kind: KeyKind::parse(&kind).ok_or(StoreError::Unreadable { what: "api_keys.kind" })?,
            key: sealed.map(|sealed| self.0.vault.open_text(&uid, &sealed)).transpose()?,
            prefix: row.try_get("prefix").map_err(&failed)?,
            last4: row.try_get("last4").map_err(&failed)?,
            scopes: Scopes::parse(&scopes).ok_or(StoreError::Unreadable { what: "api_keys.scopes" })?,
            destination_id: row.try_get::<Option<i64>>("destination_id").map_err(&failed)?.map(DestinationId),
            login: row.try_get::<Option<i64>>("login_id").map_err(&failed)?.map(LoginId),
            label: row.try_get("label").map_err(&failed)?,
            created_at: UnixMillis(row.try_get("created_ms").map_err(&failed)?),
            last_used_at: row.try_get::<Option<i64>>("last_used_ms").map_err(&failed)?.map(UnixMillis),
        })
    }
}

/// The audit details of a new key.
fn creation(id: i64, key: &NewKey) -> Change {
    let detail = json!({
        "type": key.kind.as_str(), "label": key.label, "scopes": key.scopes.to_text(),
        "destinationId": key.destination_id.map(|id| id.0)
    });
    Change::new("key.created", "key", id, detail)
}

/// Revokes a key; returns its kind and label.
async fn revoke(tx: &mut Tx, actor: &Actor, key: KeyId) -> Result<(String, String)> {
    let revoked = engine::query_as(REVOKE_KEY).bind(key.0).bind(actor.account.0).bind(actor.now.0);
    let revoked = revoked.fetch_optional(&mut *tx).await.map_err(db("revoke the key"))?;
    revoked.ok_or(StoreError::NotFound("key"))
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
        account_disabled: row.try_get::<Option<i64>>("disabled_ms").map_err(&failed)?.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_survive_their_text_and_unknown_ones_are_refused() {
        for scopes in [Scopes::ALL, Scopes::NONE, Scopes { manage: false, ..Scopes::ALL }] {
            assert_eq!(Scopes::parse(&scopes.to_text()), Some(scopes));
        }
        assert_eq!(Scopes::parse("read,admin"), None);
    }
}
