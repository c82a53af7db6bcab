//! A database that is only looked at: nothing is made, nothing is migrated, and no key is needed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use super::{ACQUIRE_TIMEOUT, BUSY_TIMEOUT, MIGRATIONS, check, check_key, db, first_secret};
use crate::secret::Vault;
use crate::store::{LedgerReport, Result, StoreError};

const SCHEMA_VERSION: &str =
    "SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM _sqlx_migrations WHERE success";

/// An existing database, open for reading only, beside a running service too.
#[derive(Debug)]
pub struct Inspector {
    reader: SqlitePool,
}

impl Inspector {
    /// Opens the file, which must exist.
    ///
    /// # Errors
    /// It cannot be opened, or is no database.
    pub async fn open(file: &Path) -> Result<Self> {
        let options = SqliteConnectOptions::new()
            .filename(file)
            .create_if_missing(false)
            .read_only(true)
            .busy_timeout(BUSY_TIMEOUT);
        let reader = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options)
            .await
            .map_err(db("open the file"))?;
        Ok(Self { reader })
    }

    /// The schema's version and the newest this release knows.
    ///
    /// # Errors
    /// The file is no database of this program.
    pub async fn schema_version(&self) -> Result<(i64, i64)> {
        let current = sqlx::query_scalar(SCHEMA_VERSION).fetch_one(&self.reader).await;
        Ok((current.map_err(db("read the schema"))?, MIGRATIONS[MIGRATIONS.len() - 1].0))
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

    /// Writes a consistent copy of the database to a file that must not exist, with mode 600.
    ///
    /// # Errors
    /// The file exists or cannot be written; nothing is left behind then.
    pub async fn backup(&self, target: &Path) -> Result<()> {
        let failed =
            |source| StoreError::File { action: "write", path: target.display().to_string(), source };
        // An empty file with mode 600 is made first; VACUUM INTO fills it and refuses a file with content.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(target).map_err(failed)?;
        let text = target.to_str().ok_or_else(|| failed(std::io::Error::other("the name is not UTF-8")))?;
        let copied = sqlx::query("VACUUM INTO $1").bind(text).execute(&self.reader).await;
        if copied.is_err() {
            std::fs::remove_file(target).map_err(failed)?;
        }
        copied.map_err(db("write the backup"))?;
        File::open(target).and_then(|file| file.sync_all()).map_err(failed)
    }

    /// Closes the file.
    pub async fn close(self) {
        self.reader.close().await;
    }
}
