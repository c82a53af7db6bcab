//! Code for SQLite: one file, a write-ahead log, one writing connection, four reading ones.
//!
//! Every writing transaction takes the write lock at once: a deferred transaction that reads and then writes fails
//! under contention, whatever the busy timeout.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::Transaction;
use sqlx::sqlite::{
    Sqlite, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use super::migrations::{self, migrator};
use super::{ACQUIRE_TIMEOUT, Pool};
use crate::error::{Result, StoreError, db};
use satcast_core::config::Durability;

/// Takes the write lock at once.
const BEGIN: &str = "BEGIN IMMEDIATE";
const READERS_MAX: u32 = 4;
/// How long a statement waits for a write of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The write-ahead log is cut back to this size.
const JOURNAL_SIZE_MAX_BYTES: &str = "67108864";

/// Opens the file, creates it if it is missing, and migrates the schema: the writing connection, the reading ones.
///
/// Connections are not tested before their use: a file cannot go away as a server can, a connection is tested when it is given back,
/// and each test takes a switch to its thread and back.
pub(crate) async fn open(path: &Path, durability: Durability) -> Result<(Pool, Pool)> {
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
        .test_before_acquire(false)
        .connect_with(options.clone())
        .await
        .map_err(db("open the file"))?;
    migrator(|step| step.sqlite).run(&writer).await?;
    let applied: i64 =
        sqlx::query_scalar(migrations::APPLIED).fetch_one(&writer).await.map_err(db("read the schema"))?;
    migrations::check(applied)?;
    drop(lock);
    let readers = SqlitePoolOptions::new()
        .max_connections(READERS_MAX)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .connect_lazy_with(options.create_if_missing(false).read_only(true));
    Ok((Pool::Sqlite(writer), Pool::Sqlite(readers)))
}

/// Opens an existing file for inspection.
pub(crate) async fn open_to_look(path: &Path) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .read_only(true)
        .busy_timeout(BUSY_TIMEOUT);
    let reader = SqlitePoolOptions::new().max_connections(1).acquire_timeout(ACQUIRE_TIMEOUT);
    reader.connect_with(options).await.map_err(db("open the file"))
}

/// Begins a writing transaction.
///
/// SQLite ends a transaction by itself when the disk is full. The driver's own count of open transactions then stays
/// above zero, and the connection refuses every further one. Such a connection is replaced.
pub(crate) async fn begin(writer: &SqlitePool) -> Result<Transaction<'static, Sqlite>> {
    let failed = db("begin a transaction");
    match writer.begin_with(BEGIN).await {
        Ok(transaction) => return Ok(transaction),
        Err(error @ (sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed)) => return Err(failed(error)),
        Err(error) => tracing::warn!(%error, "the writing connection to the database is replaced"),
    }
    let broken = writer.acquire().await.map_err(&failed)?;
    // The result of closing it does not matter.
    let _ = broken.close().await;
    writer.begin_with(BEGIN).await.map_err(failed)
}

/// Writes a consistent copy to a new file with mode 600.
pub(crate) async fn backup(reader: &SqlitePool, target: &Path) -> Result<()> {
    let failed = |source| StoreError::File { action: "write", path: target.display().to_string(), source };
    // An empty file with mode 600 is created first; VACUUM INTO fills it and refuses a file with content.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(target).map_err(failed)?;
    let text = target.to_str().ok_or_else(|| failed(std::io::Error::other("the name is not UTF-8")))?;
    let copied = sqlx::query("VACUUM INTO $1").bind(text).execute(reader).await;
    if copied.is_err() {
        std::fs::remove_file(target).map_err(failed)?;
    }
    copied.map_err(db("write the backup"))?;
    File::open(target).and_then(|file| file.sync_all()).map_err(failed)
}

/// Blocks other processes while the schema is created: SQLite's migrations have no lock of their own.
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

/// Creates a missing database file that only its owner can read; SQLite gives its other files the same permissions.
fn make_private(path: &Path) -> Result<()> {
    let failed = |source| StoreError::File { action: "open", path: path.display().to_string(), source };
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop).map_err(failed)
}
