//! Figures of the database and its contents for operators.

use std::time::Duration;

use crate::archives::state::ArchiveState;
use crate::engine;
use crate::engine::timing::{self, Timing};
use crate::error::{Result, db};
use crate::store::Store;
use satcast_core::ids::{Msat, UnixMillis};

/// Sums over all accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Deliveries of webhooks that wait for an attempt.
    pub outbox: u64,
    /// When the oldest of them was made.
    pub outbox_since: Option<UnixMillis>,
    /// Customers with a balance, and the sum of their balances.
    pub balances: u64,
    pub balance_sum: Msat,
    /// Recordings that are not deleted, for every state.
    pub archives: [ArchiveFigures; ArchiveState::ALL.len()],
}

/// Recordings in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveFigures {
    pub state: ArchiveState,
    pub count: u64,
    pub bytes: u64,
    /// Bytes that the store has confirmed.
    pub uploaded_bytes: u64,
}

/// Work of this process on databases since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseFigures {
    /// Statements that ended, and their time, the wait for a connection included.
    pub statements: (u64, Duration),
    /// Statements that failed.
    pub failed: u64,
    /// Writing transactions that began, and their wait for a connection and for the lock of the writer.
    pub transactions: (u64, Duration),
}

/// Connections of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// `writer` or `readers`.
    pub kind: &'static str,
    pub open: u64,
    pub idle: u64,
}

const OUTBOX: &str = "SELECT COUNT(*), MIN(created_ms) FROM webhook_deliveries WHERE state = 'pending'";
const BALANCES: &str = "SELECT COUNT(*), CAST(COALESCE(SUM(balance_msat), 0) AS BIGINT) FROM ledger_accounts
    WHERE account_id IS NOT NULL";
const ARCHIVES: &str =
    "SELECT state, COUNT(*), CAST(SUM(size_bytes) AS BIGINT), CAST(SUM(uploaded_bytes) AS BIGINT)
    FROM archives WHERE deleted_ms IS NULL GROUP BY state";

impl Store {
    /// Sums over all accounts, at nearly one moment.
    pub async fn figures(&self) -> Result<Figures> {
        let (readers, failed) = (&self.0.readers, db("read the figures"));
        let outbox = engine::query_as(OUTBOX).fetch_one(readers).await;
        let (outbox, since): (i64, Option<i64>) = outbox.map_err(&failed)?;
        let balances = engine::query_as(BALANCES).fetch_one(readers).await;
        let (balances, sum): (i64, i64) = balances.map_err(&failed)?;
        let archives = engine::query_as(ARCHIVES).fetch_all(readers).await;
        let archives: Vec<(String, i64, i64, i64)> = archives.map_err(&failed)?;
        // A state that has none has no row.
        let archives = ArchiveState::ALL.map(|state| {
            let row = archives.iter().find(|(name, ..)| name == state.as_str());
            let (count, bytes, uploaded) = row.map_or((0, 0, 0), |row| (row.1, row.2, row.3));
            ArchiveFigures {
                state,
                count: count.unsigned_abs(),
                bytes: bytes.unsigned_abs(),
                uploaded_bytes: uploaded.unsigned_abs(),
            }
        });
        Ok(Figures {
            outbox: outbox.unsigned_abs(),
            outbox_since: since.map(UnixMillis),
            balances: balances.unsigned_abs(),
            balance_sum: Msat(sum),
            archives,
        })
    }

    /// Connections to the database now.
    pub fn connections(&self) -> [Connections; 2] {
        [("writer", &self.0.writer), ("readers", &self.0.readers)].map(|(kind, pool)| {
            let (open, idle) = pool.counts();
            Connections { kind, open: open.into(), idle: idle as u64 }
        })
    }

    /// What this process has done on databases.
    pub fn database_figures(&self) -> DatabaseFigures {
        let read = |timing: &Timing| (timing.count(), timing.sum());
        DatabaseFigures {
            statements: read(&timing::STATEMENTS),
            failed: timing::STATEMENTS.failed(),
            transactions: read(&timing::TRANSACTIONS),
        }
    }
}
