//! The service's database from outside: figures that the API rounds, and changes that it has no command for yet.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection, Row};
use tokio::runtime::{Builder, Runtime};

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

    /// Revokes the public keys of a destination, as the key API of a later release will.
    ///
    /// # Panics
    /// When there is none.
    pub fn revoke_keys(&mut self, destination: i64) {
        self.change("UPDATE api_keys SET revoked_ms = 1 WHERE destination_id = ?", destination);
    }

    /// Disables a destination, as the API of a later release will.
    ///
    /// # Panics
    /// When there is none.
    pub fn disable(&mut self, destination: i64) {
        self.change("UPDATE destinations SET enabled = 0 WHERE id = ?", destination);
    }

    fn change(&mut self, statement: &'static str, destination: i64) {
        let query = sqlx::query(statement).bind(destination).execute(&mut self.connection);
        let changed = self.runtime.block_on(query).expect("a change of the database").rows_affected();
        assert!(changed > 0, "nothing was changed for destination {destination}");
    }
}
