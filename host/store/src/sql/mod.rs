//! The store on SQLite and on PostgreSQL: every statement once, in the SQL that both understand.
//!
//! [`engine`] runs a statement on the pool there is; what only one of them has stands in [`sqlite`] and [`postgres`].
//! SQLite has one writer, so nothing changes between a read and a write of one transaction. On PostgreSQL transactions run
//! beside each other: one that decides from what it read takes a [`lock`] first, mostly that of its account.

mod accounts;
mod archives;
mod audit;
mod charges;
mod check;
mod edits;
mod engine;
mod events;
mod history;
mod idempotency;
mod inspect;
mod invoices;
mod ledger;
mod lock;
mod logins;
mod migrations;
mod notices;
mod outbox;
mod overage;
mod owner;
mod playback;
mod postgres;
mod prune;
mod recoveries;
mod sessions;
mod sqlite;
mod streams;
#[cfg(test)]
mod tests;
mod wallets;
mod webhooks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use self::engine::{Pool, Tx};
#[cfg(any(test, feature = "testing"))]
pub(super) use self::idempotency::ROWS_PER_ACCOUNT_MAX as IDEMPOTENCY_ROWS_MAX;
pub use self::inspect::Inspector;
pub use self::owner::Owner;
use super::{Address, OpenOptions, Result, StoreError};
use satcast_core::feed::Feed;
use satcast_core::ids::Msat;
use satcast_core::secret::{Vault, new_uid};

/// How long a caller waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a database may take to prove that it answers: whoever asks wants to know soon.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// The database, and what goes with it; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Pool,
    readers: Pool,
    vault: Vault,
    feed: Feed,
    outbox: Arc<Notify>,
    generation: AtomicU64,
    low_balance: Msat,
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

impl Store {
    /// What was changed through this store, as it happens; live sessions send to it as well.
    pub fn feed(&self) -> &Feed {
        &self.0.feed
    }

    /// Grows with every change through this store of what belongs to accounts, and with every count of bytes: while it stays,
    /// what was read stays true, as far as other processes go.
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// A read that proves the database answers.
    pub async fn ping(&self) -> Result<()> {
        let read = engine::query("SELECT id FROM accounts LIMIT 1").fetch_optional(&self.0.readers);
        let read = tokio::time::timeout(PING_TIMEOUT, read).await;
        read.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map(drop).map_err(db("read"))
    }

    /// Finishes running statements and closes every connection.
    pub async fn close(&self) {
        self.0.readers.close().await;
        self.0.writer.close().await;
    }

    /// The only start of a writing transaction. Dropped without a commit it is rolled back.
    async fn begin(&self) -> Result<Tx> {
        Ok(match &self.0.writer {
            Pool::Sqlite(writer) => Tx::Sqlite(sqlite::begin(writer).await?),
            Pool::Postgres(writer) => Tx::Postgres(postgres::begin(writer).await?),
        })
    }

    /// Makes what others read before a commit old.
    fn has_changed(&self) {
        self.0.generation.fetch_add(1, Ordering::Release);
    }
}

/// Names what was tried in an error of the engine.
fn db(action: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |source| StoreError::Database { action, source }
}

async fn commit(transaction: Tx) -> Result<()> {
    transaction.commit().await.map_err(db("commit"))
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
