//! Why the store could not do what was asked.

use satcast_core::ids::DestinationId;
use satcast_core::secret::VaultError;

/// What every method returns.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database address cannot be used.
    #[error("{0}")]
    Address(String),
    /// The database failed; whether a write took place is unknown.
    #[error("database: cannot {action}: {source}")]
    Database {
        /// What was tried.
        action: &'static str,
        /// What the engine said.
        source: sqlx::Error,
    },
    /// The database server cannot be reached, or lets nobody in.
    #[error(
        "database: cannot connect to {server}: {source}; see that it runs and that [database] url names it, its user and its password"
    )]
    Unreachable {
        /// Which one.
        server: String,
        /// What was in the way.
        source: sqlx::Error,
    },
    /// Another service runs on the database.
    #[error("another satcast is running on {0}; stop it or set another [database] url")]
    Owned(String),
    /// The database cannot hold every text.
    #[error(
        "database: {server} is in {encoding}; make one in UTF8: createdb --encoding UTF8 --template template0"
    )]
    Encoding {
        /// Which one.
        server: String,
        /// Its encoding.
        encoding: String,
    },
    /// A copy of a server's database is not ours to write.
    #[error(
        "a PostgreSQL database is backed up with its own tools: pg_dump --format=custom --file FILE DATABASE"
    )]
    ServerBackup,
    /// The schema could not be brought up to date.
    #[error(
        "database: cannot migrate the schema: {0}; use the release that wrote this database, or a newer one"
    )]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// A stored secret cannot be read.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// A stored value has a form this release does not know.
    #[error(
        "database: {what} holds an unknown value; use the release that wrote this database, or a newer one"
    )]
    Unreadable {
        /// Table and column.
        what: &'static str,
    },
    /// The name is taken.
    #[error("an account named \"{0}\" exists already; choose another name")]
    NameTaken(String),
    /// There is no such row, or it belongs to someone else.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// The webhook is disabled.
    #[error("the webhook is disabled; enable it first")]
    WebhookDisabled,
    /// A public key for a destination that viewers cannot play.
    #[error("destination {0} has no playback; public keys belong to destinations with playback")]
    NoPlayback(DestinationId),
    /// The password was changed between its check and the login.
    #[error("the password was changed meanwhile")]
    PasswordChanged,
    /// A cap is reached.
    #[error("the limit of {limit} {what} is reached; delete one first")]
    CapReached {
        /// What is capped, in the plural.
        what: &'static str,
        /// The cap.
        limit: i64,
    },
    /// The amount is not above zero or does not fit the ledger.
    #[error(
        "the amount {0} cannot be booked; it and the balance with it must be whole numbers of sats from 1 to 2,100,000,000,000,000"
    )]
    Amount(i64),
    /// The system refused a file operation.
    #[error("database: cannot {action} {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Names what was tried in an error of the engine.
pub(crate) fn db(action: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |source| StoreError::Database { action, source }
}
