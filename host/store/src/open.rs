//! Ways to open a database: to run on it, or to look at it while nothing is made, nothing is migrated, and no key is needed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::address::Address;
use crate::engine::{self, Pool, migrations, postgres, sqlite};
use crate::error::{Result, StoreError, db};
use crate::ledger::check::{LedgerReport, check};
use crate::store::{Inner, Store};
use crate::webhooks;
use satcast_core::config::Durability;
use satcast_core::feed::Feed;
use satcast_core::ids::Msat;
use satcast_core::secret::{Redacted, Vault, new_uid};

const SCHEMA_VERSION: &str =
    "SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM _sqlx_migrations WHERE success";

/// Whether there ever was a service on a server's database.
const IS_MADE: &str = "SELECT to_regclass('_sqlx_migrations') IS NOT NULL";

/// What a store needs to open.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// `sqlite:FILE` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    pub url: Redacted<String>,
    /// What a commit survives.
    pub durability: Durability,
    /// Encrypts and decrypts stored secrets.
    pub vault: Vault,
    /// An entry that takes an account's balance below this is told as `balance.low`; 0 = none is.
    pub low_balance: Msat,
}

/// Opens the database, makes a missing file, and brings its schema up to date. Several processes may do so at the same time.
///
/// # Errors
/// The address is refused, the file cannot be opened, the server cannot be reached, or the schema is newer than this release.
pub async fn open(options: OpenOptions) -> Result<Store> {
    let OpenOptions { url, durability, vault, low_balance } = options;
    let (writer, readers) = match Address::parse(url.expose())? {
        Address::File(path) => sqlite::open(&path, durability).await?,
        Address::Server(server) => postgres::open(&server, durability).await?,
    };
    check_key(&writer, &vault).await?;
    webhooks::check_key(&writer, &vault).await?;
    let (feed, outbox, generation) = (Feed::new(new_uid()), Arc::default(), AtomicU64::new(0));
    Ok(Store(Arc::new(Inner { writer, readers, vault, feed, outbox, generation, low_balance })))
}

/// Refuses a key that does not belong to the database, before anything is sealed with it: a lost key file is made
/// anew without a word, and a database with the secrets of two keys cannot be mended.
async fn check_key(pool: &Pool, vault: &Vault) -> Result<()> {
    match first_secret(pool).await? {
        Some((uid, sealed)) => Ok(vault.open(&uid, &sealed).map(drop)?),
        None => Ok(()),
    }
}

/// The row uid and the sealed value of the oldest secret that is stored.
async fn first_secret(pool: &Pool) -> Result<Option<(String, Vec<u8>)>> {
    let row =
        engine::query_as("SELECT uid, key_sealed FROM streams ORDER BY id LIMIT 1").fetch_optional(pool);
    row.await.map_err(db("check the key"))
}

/// An existing database, open for reading only, beside a running service too.
#[derive(Debug)]
pub struct Inspector {
    reader: Pool,
}

impl Inspector {
    /// Opens the database, which must exist.
    ///
    /// # Errors
    /// It cannot be opened, or is no database.
    pub async fn open(address: &Address) -> Result<Self> {
        let reader = match address {
            Address::File(path) => sqlite::open_to_look(path).await?,
            Address::Server(server) => postgres::open_to_look(server).await?,
        };
        Ok(Self { reader })
    }

    /// The schema's version and the newest this release knows; version 0 is a database of a server without any table.
    ///
    /// # Errors
    /// It is no database of this program.
    pub async fn schema_version(&self) -> Result<(i64, i64)> {
        if let Pool::Postgres(_) = &self.reader {
            let made = engine::query_scalar(IS_MADE).fetch_one(&self.reader).await;
            let made: bool = made.map_err(db("read the schema"))?;
            if !made {
                return Ok((0, migrations::NEWEST));
            }
        }
        let current = engine::query_scalar(SCHEMA_VERSION).fetch_one(&self.reader).await;
        Ok((current.map_err(db("read the schema"))?, migrations::NEWEST))
    }

    /// Whether secrets are stored that only their key can open.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn has_secrets(&self) -> Result<bool> {
        Ok(first_secret(&self.reader).await?.is_some())
    }

    /// Proves that the key belongs to the database, as far as a secret is stored.
    ///
    /// # Errors
    /// It does not, or the database cannot be read.
    pub async fn check_key(&self, vault: &Vault) -> Result<()> {
        check_key(&self.reader, vault).await
    }

    /// Recomputes the ledger and says where it is wrong.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn check_ledger(&self) -> Result<LedgerReport> {
        check(&self.reader).await
    }

    /// Writes a consistent copy of a SQLite database to a file that must not exist, with mode 600.
    ///
    /// # Errors
    /// The file exists or cannot be written, and nothing is left behind; or the database is on a PostgreSQL server, which has
    /// tools of its own.
    pub async fn backup(&self, target: &Path) -> Result<()> {
        match &self.reader {
            Pool::Sqlite(reader) => sqlite::backup(reader, target).await,
            Pool::Postgres(_) => Err(StoreError::ServerBackup),
        }
    }

    /// Closes the database.
    pub async fn close(self) {
        self.reader.close().await;
    }
}
