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

use async_trait::async_trait;
use tokio::sync::Notify;

use self::engine::{Pool, Tx};
#[cfg(any(test, feature = "testing"))]
pub(super) use self::idempotency::ROWS_PER_ACCOUNT_MAX as IDEMPOTENCY_ROWS_MAX;
pub use self::inspect::Inspector;
pub use self::owner::Owner;
use super::Address;
use super::{Result, StoreApi, StoreError};
use satcast_core::config::Durability;
use satcast_core::feed::Feed;
use satcast_core::ids::Msat;
use satcast_core::secret::{Vault, new_uid};

/// How long a caller waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a database may take to prove that it answers: whoever asks wants to know soon.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// A store in one database.
#[derive(Debug)]
pub(super) struct SqlStore {
    writer: Pool,
    readers: Pool,
    vault: Vault,
    feed: Feed,
    outbox: Arc<Notify>,
    generation: AtomicU64,
    /// An entry that takes a balance below this is told.
    low_balance: Msat,
}

impl SqlStore {
    pub(super) async fn open(address: &Address, durability: Durability, vault: Vault) -> Result<Self> {
        let (writer, readers) = match address {
            Address::File(path) => sqlite::open(path, durability).await?,
            Address::Server(server) => postgres::open(server, durability).await?,
        };
        check_key(&writer, &vault).await?;
        webhooks::check_key(&writer, &vault).await?;
        let (feed, outbox) = (Feed::new(new_uid()), Arc::new(Notify::new()));
        Ok(Self { writer, readers, vault, feed, outbox, generation: AtomicU64::new(0), low_balance: Msat(0) })
    }

    /// The same, telling of balances that an entry takes below `low_balance`.
    pub(super) fn telling_below(self, low_balance: Msat) -> Self {
        Self { low_balance, ..self }
    }

    /// The only start of a writing transaction. Dropped without a commit it is rolled back.
    async fn begin(&self) -> Result<Tx> {
        Ok(match &self.writer {
            Pool::Sqlite(writer) => Tx::Sqlite(sqlite::begin(writer).await?),
            Pool::Postgres(writer) => Tx::Postgres(postgres::begin(writer).await?),
        })
    }

    /// Makes what others read before a commit old.
    fn has_changed(&self) {
        self.generation.fetch_add(1, Ordering::Release);
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

#[async_trait]
impl StoreApi for SqlStore {
    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    async fn ping(&self) -> Result<()> {
        let read = engine::query("SELECT id FROM accounts LIMIT 1").fetch_optional(&self.readers);
        let read = tokio::time::timeout(PING_TIMEOUT, read).await;
        read.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map(drop).map_err(db("read"))
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
