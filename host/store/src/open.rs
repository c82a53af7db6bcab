//! Opens a database: to run on it, or to inspect it, which creates and migrates nothing and needs no key.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::address::Address;
use crate::engine::{self, Pool, Tx, migrations, postgres, sqlite};
use crate::error::{Result, StoreError, db};
use crate::key_check;
use crate::ledger::check::{LedgerReport, check};
use crate::nodes::{self, NodeView};
use crate::store::{Inner, Store};
use satcast_core::config::Durability;
use satcast_core::feed::Feed;
use satcast_core::ids::Msat;
use satcast_core::secret::{Redacted, Vault, new_uid};

const SCHEMA_VERSION: &str =
    "SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM _sqlx_migrations WHERE success";

/// Whether a service ever ran on the database of a server.
const IS_MADE: &str = "SELECT to_regclass('_sqlx_migrations') IS NOT NULL";

/// Settings for opening a store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// `sqlite:FILE` or `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    pub url: Redacted<String>,
    /// Durability of commits.
    pub durability: Durability,
    /// Encrypts and decrypts stored secrets.
    pub vault: Vault,
    /// A transfer that takes an account's balance below this emits `balance.low`; 0 = never.
    pub low_balance: Msat,
}

/// Opens the database, creates a missing file, and migrates the schema. Several processes may do so at the same time.
///
/// # Errors
/// The address is refused, the file cannot be opened, the server cannot be reached, or the schema is newer than this release.
pub async fn open(options: OpenOptions) -> Result<Store> {
    let OpenOptions { url, durability, vault, low_balance } = options;
    let (writer, readers) = match Address::parse(url.expose())? {
        Address::File(path) => sqlite::open(&path, durability).await?,
        Address::Server(server) => postgres::open(&server, durability).await?,
    };
    key_check::claim(&writer, &vault).await?;
    let (feed, outbox, generation) = (Feed::new(new_uid()), Arc::default(), AtomicU64::new(0));
    let node = Default::default();
    Ok(Store(Arc::new(Inner { writer, readers, vault, feed, outbox, generation, low_balance, node })))
}

/// An existing database, opened for reading only; a service may be running on it.
#[derive(Debug)]
pub struct Inspector {
    reader: Pool,
}

impl Inspector {
    /// Opens the database, which must exist.
    ///
    /// # Errors
    /// The database cannot be opened, or the file is no database.
    pub async fn open(address: &Address) -> Result<Self> {
        let reader = match address {
            Address::File(path) => Pool::Sqlite(sqlite::open_to_look(path).await?),
            Address::Server(server) => postgres::open_to_look(server).await?,
        };
        Ok(Self { reader })
    }

    /// The version of the schema, and the newest version that this release knows. Version 0 is a server's database
    /// without tables.
    ///
    /// # Errors
    /// It is not a database of this program.
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

    /// Whether this release can use a database whose schema has that version: an older one is migrated, and one of a
    /// newer release with the same major version has only more.
    pub fn accepts(version: i64) -> bool {
        migrations::is_usable(version)
    }

    /// Whether the database can be used with one key only.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn needs_key(&self) -> Result<bool> {
        key_check::is_needed(&mut self.begin().await?).await
    }

    /// Checks that the key belongs to the database.
    ///
    /// # Errors
    /// The key does not belong to it, or the database cannot be read.
    pub async fn check_key(&self, vault: &Vault) -> Result<()> {
        key_check::check(&mut self.begin().await?, vault).await.map(drop)
    }

    async fn begin(&self) -> Result<Tx> {
        self.reader.begin_snapshot().await.map_err(db("check the key"))
    }

    /// Recomputes the ledger and reports its faults.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn check_ledger(&self) -> Result<LedgerReport> {
        check(&self.reader).await
    }

    /// The nodes that ever used the database, by name.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn nodes(&self) -> Result<Vec<NodeView>> {
        nodes::list(&self.reader).await
    }

    /// Writes a consistent copy of a SQLite database to a new file with mode 600.
    ///
    /// # Errors
    /// The file exists or cannot be written, in which case nothing is left behind; or the database is on a PostgreSQL
    /// server, which has its own tools.
    pub async fn backup(&self, target: &Path) -> Result<()> {
        match &self.reader {
            Pool::Sqlite(reader) => sqlite::backup(reader, target).await,
            Pool::Postgres(_) => Err(StoreError::ServerBackup),
        }
    }

    pub async fn close(self) {
        self.reader.close().await;
    }
}
