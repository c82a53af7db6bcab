//! Errors of the store.

use satcast_core::ids::DestinationId;
use satcast_core::secret::VaultError;

pub type Result<T> = std::result::Result<T, StoreError>;

/// Reason why the store could not do its task.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database address cannot be used.
    #[error("{0}")]
    Address(String),
    /// The database failed; whether a write succeeded is unknown.
    #[error("database: cannot {action}: {source}")]
    Database {
        /// The task, as a verb and its object.
        action: &'static str,
        /// The error of the database engine.
        source: sqlx::Error,
    },
    /// The database server cannot be reached, or refuses the login.
    #[error(
        "database: cannot connect to {server}: {source}; check that the server runs and that [database] url has the right server, user and password"
    )]
    Unreachable {
        /// The server.
        server: String,
        /// The cause.
        source: sqlx::Error,
    },
    /// Another service uses the database.
    #[error("another satcast is running on {0}; stop it or set another [database] url")]
    Owned(String),
    /// Another node has the name.
    #[error(
        "another node runs with the name \"{0}\" and another data folder or a copy of this one; set another [cluster] node, or wait until its lease is over"
    )]
    NodeTaken(String),
    /// A node cannot be removed while it has its lease.
    #[error("node \"{0}\" runs, or its lease is not over yet; stop it, or wait until its lease is over")]
    NodeRuns(String),
    /// The lease under which a session began is over or was taken away; nothing was written.
    #[error("the session no longer belongs to this node; another node settles it")]
    OwnershipLost,
    /// Another node has a live session of the stream.
    #[error("the stream is live at another node")]
    LiveElsewhere,
    /// The database cannot store every text.
    #[error(
        "database: {server} has the encoding {encoding}; create a database in UTF8: createdb --encoding UTF8 --template template0"
    )]
    Encoding {
        /// The server.
        server: String,
        encoding: String,
    },
    /// The service does not copy databases of a server.
    #[error(
        "a PostgreSQL database is backed up with its own tools: pg_dump --format=custom --file FILE DATABASE"
    )]
    ServerBackup,
    /// The target of a copy has rows, or tables of another program.
    #[error(
        "{server} is not empty: it has the table {table}, with rows or of another program; name an empty database: \
         createdb --encoding UTF8 --template template0 NAME"
    )]
    NotEmpty {
        /// The server.
        server: String,
        table: String,
    },
    /// A copy would leave something out.
    #[error(
        "the copy would leave something out: {what} {why}; nothing was copied; use databases with the tables of this release only"
    )]
    NotCopied {
        /// A table, or a table and its column.
        what: String,
        why: &'static str,
    },
    /// The rows of a table could not be copied.
    #[error(
        "the rows of the table {table} cannot be copied: {source}; nothing was copied; mend this and try again"
    )]
    CopyFailed {
        table: String,
        /// The error of either database.
        source: sqlx::Error,
    },
    /// The copy is not the same as the original.
    #[error(
        "the copy differs from the original in {what}; nothing was copied; try again, and report it if it happens twice"
    )]
    CopyDiffers {
        /// The table or the sums.
        what: String,
    },
    /// The database that should be copied has a damaged ledger.
    #[error(
        "the ledger has {0} faults, and a copy would keep them; nothing was copied; list them with: satcast ledger check"
    )]
    FaultyLedger(usize),
    /// The schema could not be migrated.
    #[error(
        "database: cannot migrate the schema: {0}; use the release that wrote this database, or a newer one"
    )]
    Migration(#[from] sqlx::migrate::MigrateError),
    /// A stored secret cannot be read.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// A stored value has a form that this release does not know.
    #[error(
        "database: {what} holds an unknown value; use the release that wrote this database, or a newer one"
    )]
    Unreadable {
        /// Table and column.
        what: &'static str,
    },
    /// The name is taken.
    #[error("an account named \"{0}\" already exists; choose another name")]
    NameTaken(String),
    /// The row does not exist, or belongs to another account.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// The webhook is disabled.
    #[error("the webhook is disabled; enable it first")]
    WebhookDisabled,
    /// A public key for a destination without playback.
    #[error("destination {0} has no playback; public keys belong to destinations with playback")]
    NoPlayback(DestinationId),
    /// An operator disabled the account.
    #[error("the account is disabled; ask the operator of the service")]
    AccountDisabled,
    /// The password was changed between its check and the login.
    #[error("the password was changed during the login; log in again")]
    PasswordChanged,
    /// A cap is reached.
    #[error("the limit of {limit} {what} is reached; delete one first")]
    CapReached {
        /// The limited things, in the plural.
        what: &'static str,
        limit: i64,
    },
    /// The amount is not above zero, or does not fit the ledger.
    #[error(
        "the amount {0} cannot be posted; the amount and the new balance must be whole numbers of sats from 1 to 2,100,000,000,000,000"
    )]
    Amount(i64),
    /// The operating system refused a file operation.
    #[error("database: cannot {action} {path}: {source}")]
    File {
        /// The operation, as a verb.
        action: &'static str,
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// Names the failed task in an error of the engine.
pub(crate) fn db(action: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |source| StoreError::Database { action, source }
}
