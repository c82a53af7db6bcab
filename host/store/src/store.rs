//! The handle of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::{self, Pool, Tx, postgres, sqlite};
use crate::error::{Result, db};
use satcast_core::feed::Feed;
use satcast_core::ids::Msat;
use satcast_core::secret::Vault;

/// Longest wait for the health check of the database.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// The database and its event feed; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) writer: Pool,
    pub(crate) readers: Pool,
    pub(crate) vault: Vault,
    pub(crate) feed: Feed,
    pub(crate) outbox: Arc<Notify>,
    pub(crate) generation: AtomicU64,
    pub(crate) low_balance: Msat,
}

impl Store {
    /// Events of changes made through this store; live sessions send to it as well.
    pub fn feed(&self) -> &Feed {
        &self.0.feed
    }

    /// Increases with every change of account data and every count of bytes through this store. While it is unchanged,
    /// data that was read before is current, except for changes by other processes.
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// A read that checks that the database answers.
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

    /// The only start of a writing transaction. It is rolled back when dropped without a commit.
    pub(crate) async fn begin(&self) -> Result<Tx> {
        Ok(match &self.0.writer {
            Pool::Sqlite(writer) => Tx::Sqlite(sqlite::begin(writer).await?),
            Pool::Postgres(writer) => Tx::Postgres(postgres::begin(writer).await?),
        })
    }

    /// Marks data that was read before a commit as outdated.
    pub(crate) fn has_changed(&self) {
        self.0.generation.fetch_add(1, Ordering::Release);
    }
}
