//! The handle of the database: its transactions and their locks, and the bounds that its methods take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::engine::timing::TRANSACTIONS;
use crate::engine::{Pool, Query, Sql, Tx, postgres, query, sqlite, timed};
use crate::error::{Result, StoreError, db};
use satcast_core::feed::Feed;
use satcast_core::ids::{AccountId, DestinationId, HOUR_MS, Msat, SessionId, StreamId, UnixMillis};
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
    pub(crate) node: RwLock<Node>,
}

/// The node that a store works for; the default is a service that uses its database alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// Empty if the service is alone.
    pub(crate) name: String,
    /// Its data folder; empty if the service is alone.
    pub(crate) holder: String,
    /// The epoch of its lease.
    pub(crate) epoch: i64,
}

impl Node {
    pub(crate) fn is_alone(&self) -> bool {
        self.name.is_empty()
    }

    /// The data folder whose recordings belong to the node; `None` for a service that is alone, to which all of them
    /// belong: their files are on its disk or lost.
    pub(crate) fn files_of(&self) -> Option<&str> {
        (!self.is_alone()).then_some(self.holder.as_str())
    }
}

/// The session belongs to the node, in the epoch of a lease that is not over.
const OWNED: Sql = timed!(
    "SELECT e.id FROM sessions e JOIN nodes n ON n.name = e.node AND n.epoch = e.epoch
    WHERE e.id = $1 AND e.node = $2 AND n.lease_until_ms > ",
    ""
);

impl Store {
    /// Events of changes made through this store; live sessions send to it as well.
    pub fn feed(&self) -> &Feed {
        &self.0.feed
    }

    /// Increases with every change of account data, every count of bytes and every charge for them through this
    /// store. While it is unchanged, data that was read before is current, except for changes by other processes.
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// A read that checks that the database answers.
    pub async fn ping(&self) -> Result<()> {
        let read = query("SELECT id FROM accounts LIMIT 1").fetch_optional(&self.0.readers);
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
            Pool::Sqlite(writer) => Tx::Sqlite(TRANSACTIONS.of(sqlite::begin(writer)).await?),
            Pool::Postgres(writer) => Tx::Postgres(TRANSACTIONS.of(postgres::begin(writer)).await?),
        })
    }

    /// Begins a writing transaction that decides from what it reads.
    pub(crate) async fn begin_holding(&self, lock: Lock<'_>) -> Result<Tx> {
        let mut tx = self.begin().await?;
        if let Tx::Postgres(_) = &tx {
            lock.query().execute(&mut tx).await.map_err(db("take a lock"))?;
        }
        Ok(tx)
    }

    /// Begins a writing transaction that changes a session or charges for it. It holds the lock of the account, so that
    /// no other node can settle the session before its end.
    ///
    /// # Errors
    /// [`StoreError::OwnershipLost`]: the session is not, or no longer, of this node.
    pub(crate) async fn begin_owning(&self, session: &SessionId) -> Result<Tx> {
        let mut tx = self.begin_holding(Lock::Session(session)).await?;
        let node = self.node();
        if !node.is_alone() {
            let owned = query(OWNED).bind(session.as_str()).bind(&node.name).fetch_optional(&mut tx).await;
            owned.map_err(db("check the owner of the session"))?.ok_or(StoreError::OwnershipLost)?;
        }
        Ok(tx)
    }

    /// Whether other nodes may share the database.
    pub fn is_node(&self) -> bool {
        !self.node().is_alone()
    }

    /// The node that this store works for.
    pub(crate) fn node(&self) -> Node {
        self.0.node.read().clone()
    }

    /// Marks data that was read before a commit as outdated.
    pub(crate) fn has_changed(&self) {
        self.0.generation.fetch_add(1, Ordering::Release);
    }
}

// Locks keep PostgreSQL transactions from deciding on data that others are changing. SQLite has one writer. On PostgreSQL
// transactions run in parallel, so a transaction that reads and then writes takes a lock first: exactly one, before anything else.
// Two transactions with one lock each cannot deadlock. Nearly all take the lock of their account. So the data of an account changes
// in one order, its balance and caps are exact, and its ids are in commit order. Transactions that change rows of many accounts do
// it in the order of the row ids, and run `again` if the server still reports a deadlock.

/// Most runs of a transaction that the server aborts in favour of another.
pub(crate) const TRIES_MAX: u32 = 5;
/// Wait before the second try; it grows by this much with each further one.
const PAUSE: Duration = Duration::from_millis(10);
/// SQLSTATE of a deadlock, and of a serialization failure.
const CONFLICTS: [&str; 2] = ["40P01", "40001"];

/// Accounts have positive numbers; locks that belong to no account have these.
const INVITES: i64 = -1;
const OUTBOX: i64 = -2;
const UNKNOWN_LOGINS: i64 = -3;
const INVOICES: i64 = -4;
const NODES: i64 = -5;

const OF_NUMBER: &str = "SELECT pg_advisory_xact_lock($1)";
const OF_STREAM: &str = "SELECT pg_advisory_xact_lock(account_id) FROM streams WHERE id = $1";
const OF_SESSION: &str = "SELECT pg_advisory_xact_lock(s.account_id) FROM sessions e
    JOIN streams s ON s.id = e.stream_id WHERE e.id = $1";
const OF_DESTINATION: &str = "SELECT pg_advisory_xact_lock(s.account_id) FROM destinations d
    JOIN streams s ON s.id = d.stream_id WHERE d.id = $1";
const OF_ARCHIVE: &str = "SELECT pg_advisory_xact_lock(account_id) FROM archives WHERE id = $1";
const OF_CLIP: &str = "SELECT pg_advisory_xact_lock(account_id) FROM clips WHERE id = $1";
const OF_RECOVERY: &str = "SELECT pg_advisory_xact_lock(a.account_id) FROM archive_recoveries r
    JOIN archives a ON a.id = r.archive_id WHERE r.id = $1";
const OF_INVOICE: &str = "SELECT pg_advisory_xact_lock(account_id) FROM wallet_invoices WHERE id = $1";
const OF_CHARGE: &str = "SELECT pg_advisory_xact_lock(l.account_id) FROM transfers t
    JOIN ledger_accounts l ON l.id = t.debit_id WHERE t.idem = $1 AND l.account_id IS NOT NULL";

/// A lock on data that nobody else changes until the end of the transaction. Most belong to an account and take its
/// lock.
pub(crate) enum Lock<'a> {
    Account(AccountId),
    Stream(StreamId),
    Session(&'a SessionId),
    Destination(DestinationId),
    Archive(i64),
    Clip(i64),
    /// A paid retry of an upload.
    Recovery(i64),
    /// An invoice of the receiving wallet.
    Invoice(i64),
    /// The choice of invoices that are looked up.
    Invoices,
    /// An account by its unique name.
    Charge(&'a str),
    Invites,
    /// The table of nodes.
    Nodes,
    /// Claims of deliveries and their results.
    Outbox,
    /// Failed logins under names that belong to no account.
    UnknownLogins,
}

impl Lock<'_> {
    fn query(&self) -> Query {
        match self {
            Self::Account(id) => query(OF_NUMBER).bind(id.0),
            Self::Stream(id) => query(OF_STREAM).bind(id.0),
            Self::Session(id) => query(OF_SESSION).bind(id.as_str()),
            Self::Destination(id) => query(OF_DESTINATION).bind(id.0),
            Self::Archive(id) => query(OF_ARCHIVE).bind(*id),
            Self::Clip(id) => query(OF_CLIP).bind(*id),
            Self::Recovery(id) => query(OF_RECOVERY).bind(*id),
            Self::Invoice(id) => query(OF_INVOICE).bind(*id),
            Self::Charge(name) => query(OF_CHARGE).bind(*name),
            Self::Invites => query(OF_NUMBER).bind(INVITES),
            Self::Nodes => query(OF_NUMBER).bind(NODES),
            Self::Outbox => query(OF_NUMBER).bind(OUTBOX),
            Self::Invoices => query(OF_NUMBER).bind(INVOICES),
            Self::UnknownLogins => query(OF_NUMBER).bind(UNKNOWN_LOGINS),
        }
    }
}

/// Runs a transaction again when the server aborts it in favour of another, [`TRIES_MAX`] times in all.
pub(crate) async fn again<T, F: Future<Output = Result<T>>>(run: impl Fn() -> F) -> Result<T> {
    for tries in 1..TRIES_MAX {
        match run().await {
            Err(error) if is_conflict(&error) => {
                tracing::debug!(%error, tries, "a transaction is retried");
                tokio::time::sleep(PAUSE * tries).await;
            }
            done => return done,
        }
    }
    run().await
}

fn is_conflict(error: &StoreError) -> bool {
    let StoreError::Database { source: sqlx::Error::Database(error), .. } = error else { return false };
    error.code().is_some_and(|code| CONFLICTS.contains(&&*code))
}

/// One page of a list that runs from the newest to the oldest.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only rows with a smaller id; `None` starts at the newest.
    pub before: Option<i64>,
    /// At most this many rows.
    pub limit: i64,
}

impl Page {
    /// All rows; for lists that a cap keeps short.
    pub const ALL: Page = Page { before: None, limit: i64::MAX };

    /// The id that all rows of the page are below.
    pub(crate) fn end(self) -> i64 {
        self.before.unwrap_or(i64::MAX)
    }
}

/// A half-open range of time; an absent end is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The first moment in it.
    pub from: Option<UnixMillis>,
    /// The first moment after it.
    pub to: Option<UnixMillis>,
}

impl TimeRange {
    /// The bounds as parameters of a statement.
    pub(crate) fn bounds(self) -> (i64, i64) {
        (self.from.map_or(i64::MIN, |time| time.0), self.to.map_or(i64::MAX, |time| time.0))
    }

    /// The same for starts of clock hours: the hour that contains `from` overlaps the range as well.
    pub(crate) fn hours(self) -> (i64, i64) {
        let (from, to) = self.bounds();
        (from.saturating_sub(from.rem_euclid(HOUR_MS)), to)
    }
}

/// Caps that writes check inside their transaction.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// Most destinations of one stream.
    pub destinations_per_stream: i64,
    /// Most streams of one account.
    pub streams_per_account: i64,
    /// Most API keys of one account.
    pub keys_per_account: i64,
}
