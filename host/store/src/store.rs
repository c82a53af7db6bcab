//! The handle that everything else holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::{self, Pool, Tx, postgres, sqlite};
use crate::error::{Result, db};
use satcast_core::feed::Feed;
use satcast_core::ids::Msat;
use satcast_core::secret::Vault;

/// How long a database may take to prove that it answers: whoever asks wants to know soon.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// The database, and what goes with it; cheap to clone.
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
    pub(crate) async fn begin(&self) -> Result<Tx> {
        Ok(match &self.0.writer {
            Pool::Sqlite(writer) => Tx::Sqlite(sqlite::begin(writer).await?),
            Pool::Postgres(writer) => Tx::Postgres(postgres::begin(writer).await?),
        })
    }

    /// Makes what others read before a commit old.
    pub(crate) fn has_changed(&self) {
        self.0.generation.fetch_add(1, Ordering::Release);
    }
}
