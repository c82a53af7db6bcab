//! The key of the stored secrets. A database has one key from its first start on: services that share a database share the
//! key file.

use crate::engine::{self, Pool, Sql, Tx};
use crate::error::{Result, db};
use crate::webhooks;
use satcast_core::secret::{Vault, VaultError};

/// Label of the check value among the secrets that are derived from the key.
const LABEL: &str = "key check of the database";

const HAS_TABLE: Sql = Sql {
    sqlite: "SELECT COUNT(*) > 0 FROM sqlite_master WHERE name = 'key_check'",
    postgres: "SELECT to_regclass('key_check') IS NOT NULL",
};
const VALUE: &str = "SELECT value FROM key_check";
const CLAIM: &str = "INSERT INTO key_check (id, value) VALUES (1, $1) ON CONFLICT (id) DO NOTHING";
const FIRST_SECRET: &str = "SELECT uid, key_sealed FROM streams ORDER BY id LIMIT 1";

/// Refuses a key that does not belong to the database, before anything is encrypted with it: a database with secrets under two
/// keys cannot be repaired. A database without a check value gets that of the key.
pub(crate) async fn claim(pool: &Pool, vault: &Vault) -> Result<()> {
    if is_checked(pool, vault).await? {
        return Ok(());
    }
    let value = vault.derive(LABEL);
    let claim = engine::query(CLAIM).bind(&value.expose()[..]).execute(pool).await;
    claim.map_err(db("write the check value of the key"))?;
    // Another service may have been first, with another key.
    is_checked(pool, vault).await.map(drop)
}

async fn is_checked(pool: &Pool, vault: &Vault) -> Result<bool> {
    let mut tx = pool.begin_snapshot().await.map_err(db("check the key"))?;
    check(&mut tx, vault).await
}

/// Compares the key with the check value of the database, if it has one (`true`), otherwise with the oldest secrets.
///
/// # Errors
/// [`VaultError::OtherKey`]; [`VaultError::Damaged`] for an old secret.
pub(crate) async fn check(tx: &mut Tx, vault: &Vault) -> Result<bool> {
    match value(tx).await? {
        Some(value) if value == vault.derive(LABEL).expose()[..] => return Ok(true),
        Some(_) => return Err(VaultError::OtherKey.into()),
        None => {}
    }
    if let Some((uid, sealed)) = first_secret(tx).await? {
        vault.open(&uid, &sealed)?;
    }
    webhooks::check_key(tx, vault).await?;
    Ok(false)
}

/// Whether the database can be used with one key only.
pub(crate) async fn is_needed(tx: &mut Tx) -> Result<bool> {
    Ok(value(tx).await?.is_some() || first_secret(tx).await?.is_some())
}

/// The check value; `None` when no release that writes it has started on the database.
async fn value(tx: &mut Tx) -> Result<Option<Vec<u8>>> {
    let failed = db("read the check value of the key");
    let known: bool = engine::query_scalar(HAS_TABLE).fetch_one(&mut *tx).await.map_err(&failed)?;
    if !known {
        return Ok(None);
    }
    engine::query_scalar(VALUE).fetch_optional(tx).await.map_err(failed)
}

/// Row uid and encrypted value of the oldest stored secret.
async fn first_secret(tx: &mut Tx) -> Result<Option<(String, Vec<u8>)>> {
    engine::query_as(FIRST_SECRET).fetch_optional(tx).await.map_err(db("check the key"))
}
