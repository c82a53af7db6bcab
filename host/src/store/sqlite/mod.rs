//! The store on SQLite: write-ahead log, one writing connection, four reading ones.
//!
//! Every writing transaction goes through [`SqliteStore::begin`], which takes the write lock at once: a deferred
//! transaction that reads and then writes fails under contention whatever the busy timeout. The statements keep to
//! the subset of SQL that PostgreSQL understands too.

mod accounts;
mod archives;
mod audit;
mod charges;
mod check;
mod edits;
mod events;
mod history;
mod idempotency;
mod inspect;
mod invoices;
mod ledger;
mod logins;
mod notices;
mod outbox;
mod overage;
mod playback;
mod prune;
mod sessions;
mod streams;
#[cfg(test)]
mod tests;
mod wallets;
mod webhooks;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{SqlSafeStr as _, Sqlite, Transaction};
use tokio::sync::Notify;

#[cfg(test)]
pub(super) use self::idempotency::ROWS_PER_ACCOUNT_MAX as IDEMPOTENCY_ROWS_MAX;
pub use self::inspect::Inspector;
use super::{Result, StoreApi, StoreError};
use crate::config::Durability;
use crate::feed::Feed;
use crate::secret::{Vault, new_uid};

/// Takes the write lock at once.
const BEGIN: &str = "BEGIN IMMEDIATE";
/// Connections that read.
const READERS_MAX: u32 = 4;
/// How long a statement waits for another process's write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a caller waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// The write-ahead log is cut back to this size.
const JOURNAL_SIZE_MAX_BYTES: &str = "67108864";

/// Every migration in order; a released one is never edited.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "first light", include_str!("../../../migrations/sqlite/0001_first_light.sql")),
    (2, "idempotency", include_str!("../../../migrations/sqlite/0002_idempotency.sql")),
    (3, "playback", include_str!("../../../migrations/sqlite/0003_playback.sql")),
    (4, "history", include_str!("../../../migrations/sqlite/0004_history.sql")),
    (5, "logins", include_str!("../../../migrations/sqlite/0005_logins.sql")),
    (6, "audit", include_str!("../../../migrations/sqlite/0006_audit.sql")),
    (7, "webhooks", include_str!("../../../migrations/sqlite/0007_webhooks.sql")),
    (8, "archives", include_str!("../../../migrations/sqlite/0008_archives.sql")),
    (9, "charges", include_str!("../../../migrations/sqlite/0009_charges.sql")),
    (10, "history order", include_str!("../../../migrations/sqlite/0010_history_order.sql")),
    (11, "webhook pending", include_str!("../../../migrations/sqlite/0011_webhook_pending.sql")),
    (12, "session keys", include_str!("../../../migrations/sqlite/0012_session_keys.sql")),
    (13, "wallets", include_str!("../../../migrations/sqlite/0013_wallets.sql")),
];

/// A store in one SQLite file.
#[derive(Debug)]
pub(super) struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
    vault: Vault,
    feed: Feed,
    outbox: Arc<Notify>,
    generation: AtomicU64,
}

impl SqliteStore {
    pub(super) async fn open(path: &Path, durability: Durability, vault: Vault) -> Result<Self> {
        let synchronous = match durability {
            Durability::Full => SqliteSynchronous::Full,
            Durability::Normal => SqliteSynchronous::Normal,
        };
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(synchronous)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .pragma("journal_size_limit", JOURNAL_SIZE_MAX_BYTES);
        let lock = lock_for_migration(path.to_owned()).await?;
        make_private(path)?;
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options.clone())
            .await
            .map_err(db("open the file"))?;
        migrator().run(&writer).await?;
        drop(lock);
        check_key(&writer, &vault).await?;
        webhooks::check_key(&writer, &vault).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS_MAX)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_lazy_with(options.create_if_missing(false).read_only(true));
        let (feed, outbox) = (Feed::new(new_uid()), Arc::new(Notify::new()));
        Ok(Self { writer, readers, vault, feed, outbox, generation: AtomicU64::new(0) })
    }

    /// The only start of a writing transaction. Dropped without a commit it is rolled back.
    ///
    /// SQLite ends a transaction by itself when the disk is full; the driver's own count of open transactions then stays
    /// above zero for ever, and the connection refuses every further one. Such a connection is given up for a new one.
    async fn begin(&self) -> Result<Transaction<'static, Sqlite>> {
        let failed = db("begin a transaction");
        match self.writer.begin_with(BEGIN).await {
            Ok(transaction) => return Ok(transaction),
            Err(error @ (sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed)) => return Err(failed(error)),
            Err(error) => tracing::warn!(%error, "the writing connection to the database is made anew"),
        }
        let broken = self.writer.acquire().await.map_err(&failed)?;
        // What closing it says does not matter: it is gone either way.
        let _ = broken.close().await;
        self.writer.begin_with(BEGIN).await.map_err(failed)
    }
}

impl SqliteStore {
    /// Makes what others read before a commit old.
    fn has_changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }
}

/// Names what was tried in an error of the engine.
fn db(action: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |source| StoreError::Database { action, source }
}

async fn commit(transaction: Transaction<'static, Sqlite>) -> Result<()> {
    transaction.commit().await.map_err(db("commit"))
}

fn migrator() -> Migrator {
    let migration = |(version, name, sql): (i64, &'static str, &'static str)| {
        Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(MIGRATIONS.iter().copied().map(migration).collect())
}

/// Holds other processes back while the schema is made: SQLite's migrations have no lock of their own.
async fn lock_for_migration(database: PathBuf) -> Result<File> {
    let mut name = database.into_os_string();
    name.push("-migrate");
    let path = PathBuf::from(name);
    let failed = {
        let path = path.display().to_string();
        move |source| StoreError::File { action: "lock", path: path.clone(), source }
    };
    let locking = tokio::task::spawn_blocking(move || {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        file.lock()?;
        Ok(file)
    });
    locking.await.map_err(|error| failed(std::io::Error::other(error)))?.map_err(failed)
}

/// Makes a missing database file readable by nobody else; SQLite gives its other files the same permissions.
fn make_private(path: &Path) -> Result<()> {
    let failed = |source| StoreError::File { action: "open", path: path.display().to_string(), source };
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop).map_err(failed)
}

/// Refuses a key that does not belong to the database, before anything is sealed with it: a lost key file is made
/// anew without a word, and a database with the secrets of two keys cannot be mended.
async fn check_key(pool: &SqlitePool, vault: &Vault) -> Result<()> {
    match first_secret(pool).await? {
        Some((uid, sealed)) => Ok(vault.open(&uid, &sealed).map(drop)?),
        None => Ok(()),
    }
}

/// The row uid and the sealed value of the oldest secret that is stored.
async fn first_secret(pool: &SqlitePool) -> Result<Option<(String, Vec<u8>)>> {
    let row = sqlx::query_as("SELECT uid, key_sealed FROM streams ORDER BY id LIMIT 1").fetch_optional(pool);
    row.await.map_err(db("check the key"))
}

#[async_trait]
impl StoreApi for SqliteStore {
    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    async fn ping(&self) -> Result<()> {
        let read = sqlx::query("SELECT id FROM accounts LIMIT 1").fetch_optional(&self.readers);
        read.await.map(|_| ()).map_err(db("read"))
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
