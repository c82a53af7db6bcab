//! Locks that keep PostgreSQL transactions from deciding on data that others are changing.
//!
//! SQLite has one writer. On PostgreSQL transactions run in parallel, so a transaction that reads and then writes takes
//! a lock first: exactly one, before anything else. Two transactions with one lock each cannot deadlock. Nearly all
//! take the lock of their account. So the data of an account changes in one order, its balance and caps are exact, and
//! its ids are in commit order. Transactions that change rows of many accounts do it in the order of the row ids, and
//! run [`again`] if the server still reports a deadlock.

use std::time::Duration;

use super::{Query, Tx, query};
use crate::error::{Result, StoreError, db};
use crate::store::Store;
use satcast_core::ids::{AccountId, DestinationId, SessionId, StreamId};

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

const OF_NUMBER: &str = "SELECT pg_advisory_xact_lock($1)";
const OF_STREAM: &str = "SELECT pg_advisory_xact_lock(account_id) FROM streams WHERE id = $1";
const OF_SESSION: &str = "SELECT pg_advisory_xact_lock(s.account_id) FROM sessions e
    JOIN streams s ON s.id = e.stream_id WHERE e.id = $1";
const OF_DESTINATION: &str = "SELECT pg_advisory_xact_lock(s.account_id) FROM destinations d
    JOIN streams s ON s.id = d.stream_id WHERE d.id = $1";
const OF_ARCHIVE: &str = "SELECT pg_advisory_xact_lock(account_id) FROM archives WHERE id = $1";
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
    /// A paid retry of an upload.
    Recovery(i64),
    /// An invoice of the receiving wallet.
    Invoice(i64),
    /// The choice of invoices that are looked up.
    Invoices,
    /// An account by its unique name.
    Charge(&'a str),
    Invites,
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
            Self::Recovery(id) => query(OF_RECOVERY).bind(*id),
            Self::Invoice(id) => query(OF_INVOICE).bind(*id),
            Self::Charge(name) => query(OF_CHARGE).bind(*name),
            Self::Invites => query(OF_NUMBER).bind(INVITES),
            Self::Outbox => query(OF_NUMBER).bind(OUTBOX),
            Self::Invoices => query(OF_NUMBER).bind(INVOICES),
            Self::UnknownLogins => query(OF_NUMBER).bind(UNKNOWN_LOGINS),
        }
    }
}

impl Store {
    /// Begins a writing transaction that decides from what it reads.
    pub(crate) async fn begin_holding(&self, lock: Lock<'_>) -> Result<Tx> {
        let mut tx = self.begin().await?;
        if let Tx::Postgres(_) = &tx {
            lock.query().execute(&mut tx).await.map_err(db("take a lock"))?;
        }
        Ok(tx)
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
