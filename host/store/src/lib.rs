//! The database behind one trait: accounts, keys, streams, destinations, sessions and the ledger.
//!
//! The only place with SQL. Callers hold a [`Store`], which hides the engine; each method is one transaction.
//! Secrets go in and come out in clear inside [`Redacted`] and are encrypted here. Nothing here knows HTTP,
//! media or configuration files.

mod archives;
mod audit;
mod charges;
mod edits;
mod history;
mod idempotency;
mod ledger;
mod logins;
mod model;
mod notices;
mod open;
mod outbox;
mod playback;
mod recoveries;
mod sql;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wallets;
mod webhooks;

use std::sync::Arc;

use async_trait::async_trait;

pub use archives::{
    ARCHIVE_NAME_CHARS_MAX, ArchiveRecord, ArchiveReport, ArchiveState, Archives, KnownArchive, Recorded,
    RecordedDestination,
};
pub use audit::{
    AUDIT_DETAIL_BYTES_MAX, Actor, Audit, AuditEntry, AuditFilter, By, Change, FAILED_LOGINS_PER_HOUR_MAX,
    Origin, UNKNOWN_LOGINS_PER_HOUR_MAX,
};
pub use charges::{
    Charged, Charges, Decide, HourDecision, HourFacts, HourOutcome, HourTerms, MinuteCharge, OveragePart,
    Served, ServingSession, SingleCharge, Slot, StatementEntry, Terms, Totals,
};
pub use edits::{DestinationChange, Edits, KeyView, LimitChange, LimitsChange, StreamChange};
pub use history::{History, HistoryEntry, HistoryFilter, TimeRange};
pub use idempotency::{Begun, Idempotency, IdempotentRequest};
pub use ledger::{LedgerFault, LedgerReport};
pub use logins::{INVITES_MAX, LOGINS_PER_ACCOUNT_MAX, LoginRecord, Logins, NewLogin};
pub use model::{
    AccountRecord, Caps, DELAY_SECS_MAX, Delays, DestinationRecord, DestinationView, KeyRecord, NewAccount,
    NewDestination, NewKey, NewSession, NewStream, Page, Scopes, SessionRecord, StreamLimits, StreamRecord,
    StreamView, Transfer, TransferKind,
};
pub use notices::{
    Happening, Limit, Notice, Notices, TOLD_ERROR_CHARS_MAX, ToldDestination, ToldHealth, ToldIssue,
};
pub use open::{Address, OpenOptions, Server, open};
pub use outbox::{
    ATTEMPTS_KEPT_MAX, DELIVERY_TRIES_MAX, DeliveryJob, Health, Outbox, Prune, SendingCaps, Settled,
    WAITING_PER_WEBHOOK_MAX,
};
pub use playback::{Bandwidth, Playback, PlaybackRecord};
pub use recoveries::{AskedRecovery, OpenedRecovery, Recoveries, RecoveryBegun};
pub use sql::{Inspector, Owner};
pub use wallets::{
    Close, DecideRefill, FAILURES_TOLD, FEE_TOO_HIGH, InvoiceRecord, MadeInvoice, NewWallet, NoRefill,
    Purpose, RefillFacts, RefillFault, RefillPlan, RefillRules, Stage, WALLET_ERROR_CHARS_MAX,
    WalletConnections, WalletFault, WalletInvoices, WalletRecord,
};
pub use webhooks::{
    AttemptView, DeliveryState, DeliveryView, EventType, LastDelivery, NewWebhook, OLD_SECRET_KEPT_MS,
    WebhookView, Webhooks,
};

use satcast_core::feed::Feed;
use satcast_core::ids::{
    AccountId, DestinationId, EndReason, KeyId, Msat, Sats, SessionId, StreamId, UnixMillis,
};
use satcast_core::secret::VaultError;

/// The handle everything else holds; cheap to clone.
pub type Store = Arc<dyn StoreApi>;

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

/// Accounts and API keys.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// Makes an account and posts its initial credit, if any, in the same transaction.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`].
    async fn create_account(&self, origin: &Origin, account: NewAccount) -> Result<AccountId>;
    /// The account with that name.
    async fn account_by_name(&self, name: &str) -> Result<Option<AccountRecord>>;
    /// Number of accounts.
    async fn count_accounts(&self) -> Result<i64>;
    /// Stores a key: its hash, and for a public key the key itself, encrypted.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the destination is not the account's, [`StoreError::NoPlayback`] when a public
    /// key's destination is of a type without playback, [`StoreError::CapReached`].
    async fn create_key(&self, actor: &Actor, key: NewKey) -> Result<KeyId>;
    /// The key with that SHA-256, unless revoked.
    async fn key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<KeyRecord>>;
    /// Notes when keys were used; an earlier time than the one that is known changes nothing.
    async fn touch_keys(&self, uses: &[(KeyId, UnixMillis)]) -> Result<()>;
}

/// Streams and destinations.
#[async_trait]
pub trait Streams: Send + Sync {
    /// Makes a stream with its destinations, all or nothing.
    ///
    /// # Errors
    /// [`StoreError::CapReached`].
    async fn create_stream(&self, actor: &Actor, stream: NewStream)
    -> Result<(StreamId, Vec<DestinationId>)>;
    /// The account's streams, newest first.
    async fn streams_of(&self, account: AccountId, page: Page) -> Result<Vec<StreamView>>;
    /// One stream of the account with its stream key.
    async fn stream_of(&self, account: AccountId, stream: StreamId) -> Result<Option<StreamView>>;
    /// A stream that is not deleted, whoever owns it.
    async fn stream(&self, stream: StreamId) -> Result<Option<StreamRecord>>;
    /// The stream whose stream key has that SHA-256, unless deleted.
    async fn stream_by_key_hash(&self, hash: &[u8; 32]) -> Result<Option<StreamRecord>>;
    /// Marks a stream and its destinations deleted.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn delete_stream(&self, actor: &Actor, stream: StreamId) -> Result<()>;
    /// The destinations of a stream that are not deleted, newest first, disabled ones too. One whose stored
    /// configuration cannot be read is logged and left out: the others must go live without it.
    async fn destinations_of(&self, stream: StreamId) -> Result<Vec<DestinationRecord>>;
    /// One page of the destinations of a stream of the account, newest first, unreadable ones too; `None` when the
    /// stream is not the account's.
    async fn destinations_page(
        &self,
        account: AccountId,
        stream: StreamId,
        page: Page,
    ) -> Result<Option<Vec<DestinationView>>>;
    /// Adds a destination to a stream of the account.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::CapReached`].
    async fn add_destination(
        &self,
        actor: &Actor,
        stream: StreamId,
        destination: NewDestination,
        caps: Caps,
    ) -> Result<DestinationId>;
    /// Marks a destination of the account deleted, of `stream` when given; answers whose it was.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn delete_destination(
        &self,
        actor: &Actor,
        stream: Option<StreamId>,
        destination: DestinationId,
    ) -> Result<StreamId>;
}

/// Live sessions.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// Records that a session began.
    async fn begin_session(&self, session: NewSession) -> Result<()>;
    /// Records that sessions were alive at `now`; ended ones are left alone.
    async fn heartbeat_sessions(&self, sessions: &[SessionId], now: UnixMillis) -> Result<()>;
    /// Records the end of a session; the first end stays.
    async fn end_session(&self, session: &SessionId, ended_at: UnixMillis, reason: EndReason) -> Result<()>;
    /// Ends every session that has no end as interrupted, at its last heartbeat; called once at start.
    async fn close_interrupted_sessions(&self, now: UnixMillis) -> Result<Vec<SessionId>>;
    /// The newest session of a stream.
    async fn last_session(&self, stream: StreamId) -> Result<Option<SessionRecord>>;
}

/// The ledger: double entry, append only, millisats.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Posts one transfer. `false` when one with the same `idem` was posted before: nothing changes then.
    ///
    /// # Errors
    /// [`StoreError::Amount`], [`StoreError::NotFound`].
    async fn post(&self, transfer: Transfer) -> Result<bool>;
    /// Adds prepaid credit to an account under a name that makes a repeat harmless.
    ///
    /// # Errors
    /// [`StoreError::Amount`], [`StoreError::NotFound`].
    async fn credit(&self, actor: &Actor, amount: Sats, idem: String) -> Result<()>;
    /// What the account can spend.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    async fn balance(&self, account: AccountId) -> Result<Msat>;
}

/// What operators ask of a database.
#[async_trait]
pub trait StoreApi:
    Accounts
    + Streams
    + Edits
    + Archives
    + Recoveries
    + Playback
    + Sessions
    + History
    + Logins
    + Ledger
    + Idempotency
    + Audit
    + Webhooks
    + Outbox
    + Notices
    + Prune
    + Charges
    + WalletConnections
    + WalletInvoices
    + std::fmt::Debug
{
    /// What was changed through this store, as it happens; live sessions send to it as well.
    fn feed(&self) -> &Feed;
    /// Grows with every change through this store of what belongs to accounts, and with every count of bytes: while it stays,
    /// what was read stays true, as far as other processes go.
    fn generation(&self) -> u64;
    /// A read that proves the database answers.
    async fn ping(&self) -> Result<()>;
    /// Finishes running statements and closes every connection.
    async fn close(&self);
}
