//! The database: accounts, keys, streams, destinations, sessions and the ledger.
//!
//! The only crate with SQL. Callers hold a [`Store`]; each of its methods is one transaction. A subject is one module:
//! its types, its statements, and the methods that run them. `engine` hides the differences between the databases.
//! Secrets go in and come out in clear inside [`Redacted`](satcast_core::secret::Redacted) and are encrypted here. This
//! crate knows no HTTP, media or configuration files.

mod accounts;
mod address;
mod archives;
mod audit;
mod charges;
mod commands;
mod copy;
mod destinations;
mod engine;
mod error;
mod figures;
mod handovers;
mod history;
mod idempotency;
mod key_check;
mod keys;
mod ledger;
mod links;
mod logins;
mod nodes;
mod open;
mod playback;
mod removal;
mod sessions;
mod slates;
mod store;
mod streams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod wallets;
mod webhooks;

pub use accounts::{AccountChange, AccountRecord, AccountView, NewAccount};
pub use address::{Address, Server};
pub use archives::clips::{ClipBegun, ClipCaps, ClipChange, ClipRecord, ClipState, MakingClip, NewClip};
pub use archives::recoveries::{AskedRecovery, OpenedRecovery, RecoveryBegun};
pub use archives::state::ArchiveState;
pub use archives::watched::{RECORDINGS_OF_RANGE_MAX, WATCHED_TOGETHER_MAX, WatchedArchive};
pub use archives::{
    ARCHIVE_NAME_CHARS_MAX, ArchiveRecord, ArchiveReport, KnownArchive, Recorded, RecordedDestination,
};
pub use audit::{Actor, AuditEntry, AuditFilter, By, Change, Origin};
pub use charges::overage::{
    Decide, HourDecision, HourFacts, HourOutcome, HourTerms, OveragePart, Served, ServingSession,
};
pub use charges::{Charged, MinuteCharge, SingleCharge, Slot, StatementEntry, Totals};
pub use commands::{CommandTarget, Commanded, GivenCommand, NodeCommand};
pub use copy::{Copied, CopiedTable, copy};
pub use destinations::{
    DELAY_SECS_MAX, Delays, DestinationChange, DestinationRecord, DestinationView, NewDestination,
};
pub use engine::owner::{Owner, Sharing};
pub use error::{Result, StoreError};
pub use figures::{ArchiveFigures, Connections, DatabaseFigures, Figures};
pub use handovers::{Handover, Returning};
pub use history::{HistoryEntry, HistoryFilter};
pub use idempotency::{Begun, IdempotentRequest};
pub use keys::{KeyRecord, KeyView, NewKey, Scopes};
pub use ledger::TransferKind;
pub use ledger::check::{LedgerFault, LedgerReport};
pub use links::{LinkRecord, NewLink};
pub use logins::{LoginRecord, NewLogin};
pub use nodes::{NewNode, NodeState, NodeView, OpenSession, SessionElsewhere, Standing};
pub use open::{Inspector, OpenOptions, open};
pub use playback::{Bandwidth, PlaybackRecord};
pub use removal::RemovedNode;
pub use sessions::{NewSession, SessionRecord, Terms};
pub use slates::{SlateAudio, SlateRecord};
pub use store::{Caps, Page, Store, TimeRange};
pub use streams::{
    LimitChange, LimitsChange, NewStream, StreamChange, StreamLimits, StreamRecord, StreamView,
};
pub use wallets::invoices::{
    Close, DecideRefill, FAILURES_SHOWN, FEE_TOO_HIGH, InvoiceRecord, MadeInvoice, NoRefill, Purpose,
    RefillFacts, RefillFault, RefillPlan, Stage,
};
pub use wallets::{NewWallet, RefillRules, WalletFault, WalletRecord};
pub use webhooks::events::{
    DestinationNotice, FailoverNotice, HealthNotice, IssueNotice, Limit, Notice, NoticeKind,
    WAITING_PER_WEBHOOK_MAX,
};
pub use webhooks::outbox::{
    ATTEMPTS_KEPT_MAX, DELIVERY_TRIES_MAX, DeliveryJob, Health, SendingCaps, Settled,
};
pub use webhooks::{
    AttemptView, DeliveryState, DeliveryView, EventType, LastDelivery, NewWebhook, WebhookView,
};
