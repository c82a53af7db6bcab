//! A database that is only looked at: nothing is made, nothing is migrated, and no key is needed.

use std::path::Path;

use super::engine::{self, Pool};
use super::{check, check_key, db, first_secret, migrations, postgres, sqlite};
use crate::{Address, LedgerReport, Result, StoreError};
use satcast_core::secret::Vault;

const SCHEMA_VERSION: &str =
    "SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM _sqlx_migrations WHERE success";

/// Whether there ever was a service on a server's database.
const IS_MADE: &str = "SELECT to_regclass('_sqlx_migrations') IS NOT NULL";

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
        check::check(&self.reader).await
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
