//! The service's database from outside: figures that the API rounds, and generated history for benchmarks.

use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::runtime::{Builder, Runtime};

use crate::api::Stream;

const BUSY_LIMIT: Duration = Duration::from_secs(10);

/// A connection beside the running service.
#[derive(Debug)]
pub struct Database {
    runtime: Runtime,
    connection: SqliteConnection,
}

impl Database {
    /// Opens the database of a service that works in `folder`.
    ///
    /// # Panics
    /// When it is not there.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let file = folder.join("data/satcast.db");
        let options = SqliteConnectOptions::new().filename(file).busy_timeout(BUSY_LIMIT);
        let connection =
            runtime.block_on(SqliteConnection::connect_with(&options)).expect("the service's database");
        Self { runtime, connection }
    }

    /// Bytes that are stored as sent to viewers of a destination, over all hours.
    ///
    /// # Panics
    /// When they cannot be read.
    #[must_use]
    pub fn bytes_sent(&mut self, destination: i64) -> u64 {
        let sum = "SELECT coalesce(sum(bytes), 0) FROM bandwidth WHERE destination_id = ?";
        let query = sqlx::query(sum).bind(destination).fetch_one(&mut self.connection);
        let bytes: i64 = self.runtime.block_on(query).expect("the metered bytes").get(0);
        u64::try_from(bytes).expect("a count")
    }

    /// The same in the hour that begins at `hour_ms`, in milliseconds since 1970.
    ///
    /// # Panics
    /// When they cannot be read.
    #[must_use]
    pub fn bytes_sent_in(&mut self, destination: i64, hour_ms: i64) -> u64 {
        let sum = "SELECT coalesce(sum(bytes), 0) FROM bandwidth WHERE destination_id = ? AND hour_ms = ?";
        let query = sqlx::query(sum).bind(destination).bind(hour_ms).fetch_one(&mut self.connection);
        let bytes: i64 = self.runtime.block_on(query).expect("the metered bytes").get(0);
        u64::try_from(bytes).expect("a count")
    }

    /// Gives a destination more public keys than it can get by the API.
    ///
    /// # Panics
    /// When it has none to copy.
    pub fn add_public_keys(&mut self, destination: i64, keys: &[String]) {
        let copy = "INSERT INTO api_keys (uid, account_id, hash, kind, key_sealed, prefix, last4, scopes, destination_id,
            label, created_ms) SELECT uid || ?, account_id, ?, kind, key_sealed, prefix, last4, scopes, destination_id,
            label, created_ms FROM api_keys WHERE destination_id = ? ORDER BY id LIMIT 1";
        self.runtime.block_on(async {
            let mut tx = self.connection.begin().await.expect("a transaction");
            for (number, key) in keys.iter().enumerate() {
                let hash = Sha256::digest(key.as_bytes()).to_vec();
                let copied = sqlx::query(copy).bind(number.to_string()).bind(hash).bind(destination);
                let copied = copied.execute(&mut *tx).await.expect("a key that can be copied");
                assert_eq!(copied.rows_affected(), 1, "there is no key to copy");
            }
            tx.commit().await.expect("a commit");
        });
    }

    /// Runs statements, for a state that takes days to come by itself.
    ///
    /// # Panics
    /// When the database refuses one.
    pub fn write(&mut self, statements: String) {
        let written = sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut self.connection);
        self.runtime.block_on(written).expect("statements that the database takes");
    }

    /// Makes `each` events, and a delivery of each of them to every webhook that is due at `due_ms`.
    ///
    /// # Panics
    /// When the database refuses.
    pub fn make_deliveries(&mut self, each: i64, due_ms: i64) {
        let events = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1)
            INSERT INTO webhook_events (uid, account_id, type, body, created_ms)
            SELECT 'evt_' || $2 || '_' || i, (SELECT MIN(account_id) FROM webhooks), 'stream.started',
            CAST('{\"id\":\"evt\",\"type\":\"stream.started\",\"data\":{\"label\":\"a stream\"}}' AS BLOB), $2 FROM n WHERE $1 > 0";
        let deliveries = "INSERT INTO webhook_deliveries (event_id, webhook_id, state, due_ms, created_ms)
            SELECT e.id, w.id, 'pending', $1, $1 FROM webhook_events e, webhooks w WHERE e.uid LIKE 'evt_' || $1 || '_%'";
        self.runtime.block_on(async {
            let mut tx = self.connection.begin().await.expect("a transaction");
            let made = sqlx::query(events).bind(each).bind(due_ms);
            made.execute(&mut *tx).await.expect("events");
            sqlx::query(deliveries).bind(due_ms).execute(&mut *tx).await.expect("deliveries");
            tx.commit().await.expect("a commit");
        });
    }

    /// Makes `sessions` that ended long ago with two entries of history each, one every `every_ms` from `first_ms` on,
    /// and as many metered hours as they span.
    ///
    /// # Panics
    /// When the database refuses.
    pub fn make_history(
        &mut self,
        stream: &Stream,
        destination: i64,
        sessions: i64,
        first_ms: i64,
        every_ms: i64,
    ) {
        let count = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1) ";
        let second = "INSERT INTO destinations (uid, stream_id, kind, platform, config_sealed, created_ms)
            SELECT uid || 'x', stream_id, 'rtmp', 'rtmp', config_sealed, created_ms FROM destinations WHERE id = $1
            RETURNING id";
        let sessions_sql = format!(
            "{count}INSERT INTO sessions (id, stream_id, started_ms, heartbeat_ms, ended_ms, end_reason)
            SELECT 'ses_' || $2 || '_' || i, $2, $3 + i * $4, $3 + i * $4, $3 + (i + 1) * $4, 'stopped' FROM n"
        );
        let entries_sql = format!(
            "{count}INSERT INTO session_destinations (session_id, destination_id, account_id, stream_id, platform,
            started_ms, ended_ms, cost_msat) SELECT 'ses_' || $2 || '_' || i, $5, s.account_id, s.id, d.platform,
            $3 + i * $4, $3 + (i + 1) * $4, i % 50 * 1000 FROM n JOIN streams s ON s.id = $2
            JOIN destinations d ON d.id = $5"
        );
        let hours_sql = format!(
            "{count}INSERT INTO bandwidth (destination_id, hour_ms, account_id, bytes)
            SELECT $2, ($3 / 3600000 + i) * 3600000, s.account_id, 20000000000 FROM n
            JOIN destinations d ON d.id = $2 JOIN streams s ON s.id = d.stream_id"
        );
        self.runtime.block_on(async {
            let mut tx = self.connection.begin().await.expect("a transaction");
            let second: i64 =
                sqlx::query_scalar(second).bind(destination).fetch_one(&mut *tx).await.expect("a copy");
            let made = sqlx::query(AssertSqlSafe(sessions_sql))
                .bind(sessions)
                .bind(stream.id)
                .bind(first_ms)
                .bind(every_ms);
            made.execute(&mut *tx).await.expect("sessions");
            for destination in [destination, second] {
                let made = sqlx::query(AssertSqlSafe(entries_sql.clone()))
                    .bind(sessions)
                    .bind(stream.id)
                    .bind(first_ms)
                    .bind(every_ms)
                    .bind(destination);
                made.execute(&mut *tx).await.expect("entries of the history");
            }
            let hours = (sessions * every_ms / 3_600_000).max(1);
            let made = sqlx::query(AssertSqlSafe(hours_sql)).bind(hours).bind(destination).bind(first_ms);
            made.execute(&mut *tx).await.expect("metered hours");
            tx.commit().await.expect("a commit");
        });
    }
}
