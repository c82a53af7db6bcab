//! Top-ups that a person pays, and refills that a connected wallet pays.
//!
//! - [`wanted`]: the queue of accounts to refill, and the background tasks.
//! - [`refill`]: one refill from its row to its credit.
//! - [`watch`]: asks the receiving wallet about every invoice that has not ended, after a start first about those of
//!   the previous process.
//! - [`balances`]: balances of connected wallets, with a cache.
//!
//! A row is written before a wallet is asked. Credit is the amount that the receiving wallet reports, and each invoice
//! is credited once. The answer of a paying wallet decides only whether the next refill may begin: an unknown outcome
//! counts as a refill in progress. Everything here may be dropped between any two steps; the rows record the remaining
//! work.

mod balances;
mod refill;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod wanted;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch as channel};

use self::balances::Balances;
pub use self::balances::{ASK_LIMIT, CACHED_MAX, HeldBalance};
pub use self::refill::ASKED_WAIT;
use self::wanted::Wanted;
use super::connection::Connection;
use super::lightning::{Fault, Invoice, Lightning, WalletError};
use super::{Wallets, rules};
use crate::billing::{Refilled, Refills};
use satcast_core::clock::Clock;
use satcast_core::config::{BillingMode, Config};
use satcast_core::ids::WalletKind;
use satcast_core::ids::{AccountId, Msat, Sats, UnixMillis};
use satcast_net::outbound::Asker;
use satcast_store::{
    Actor, Close, InvoiceRecord, MadeInvoice, NewWallet, RefillRules, Stage, Store, StoreError, WalletRecord,
};

/// Most open top-ups of one account.
pub const TOPUPS_OPEN_MAX: i64 = 20;
/// Refills in parallel through wallets whose last refill worked.
const REFILLS_AT_ONCE_MAX: usize = 64;
/// Refills in parallel through wallets whose last refill failed: they wait for each other, never ahead of the others.
const RETRIES_AT_ONCE_MAX: usize = 16;
/// The description in invoices.
const MEMO: &str = "Satcast credit";

pub trait WalletOpener: Send + Sync {
    /// The wallet of an account's connection; nothing is sent yet.
    fn open(&self, account: AccountId, connection: &Connection) -> Arc<dyn Lightning>;
}

impl WalletOpener for Wallets {
    fn open(&self, account: AccountId, connection: &Connection) -> Arc<dyn Lightning> {
        Wallets::open(&self.asked_by(Asker::Account(account.0)), connection)
    }
}

/// The limits that the operator sets.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Whether credit can be bought.
    pub offered: bool,
    /// Smallest top-up and refill.
    pub least: Sats,
    /// Largest top-up and refill.
    pub most: Sats,
    /// Largest daily cap of refills.
    pub daily_most: Sats,
    /// How long invoices can be paid.
    pub expiry: Duration,
}

impl Terms {
    /// The terms of the configuration.
    pub fn of(config: &Config) -> Self {
        let wallet = &config.wallet;
        Self {
            offered: wallet.is_set() && config.billing.mode != BillingMode::Off,
            least: Sats(wallet.topup_min_sats),
            most: Sats(wallet.topup_max_sats),
            daily_most: Sats(wallet.refill_daily_max_sats),
            expiry: Duration::from_secs(wallet.invoice_expiry_secs),
        }
    }
}

/// Errors of top-ups.
#[derive(Debug, thiserror::Error)]
pub enum TopUpError {
    /// The operator sells no credit by Lightning.
    #[error("this service has no wallet to receive payments; ask its operator for credit")]
    NotOffered,
    /// An error of the connected wallet, or of the one to be connected.
    #[error(transparent)]
    Wallet(WalletError),
    /// The connected wallet did not answer, and no earlier answer is fresh enough.
    #[error("the connected wallet does not respond; try again in a moment")]
    Silent,
    /// An error of the service's own wallet.
    #[error("the service's wallet did not create an invoice; try again in a moment, then tell the operator")]
    Receiver,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Sells credit; cheap to clone.
#[derive(Clone)]
pub struct TopUps {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    clock: Clock,
    terms: Terms,
    /// The operator's wallet.
    receiving: Option<Arc<dyn Lightning>>,
    /// Opens customers' wallets.
    wallets: Arc<dyn WalletOpener>,
    wanted: Mutex<Wanted>,
    /// An account was queued.
    called: Notify,
    /// An invoice is due earlier than expected.
    due: Notify,
    /// Increases with each credit.
    credits: channel::Sender<u64>,
    first_tries: Semaphore,
    retries: Semaphore,
    balances: Balances,
}

impl std::fmt::Debug for TopUps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopUps").field("terms", &self.inner.terms).finish_non_exhaustive()
    }
}

impl TopUps {
    /// Receives with `receiving` and opens customers' wallets with `wallets`.
    pub fn new(
        store: Store,
        clock: Clock,
        terms: Terms,
        receiving: Option<Arc<dyn Lightning>>,
        wallets: Arc<dyn WalletOpener>,
    ) -> Self {
        let inner = Inner {
            store,
            clock,
            terms,
            receiving,
            wallets,
            wanted: Mutex::default(),
            called: Notify::new(),
            due: Notify::new(),
            credits: channel::Sender::default(),
            first_tries: Semaphore::new(REFILLS_AT_ONCE_MAX),
            retries: Semaphore::new(RETRIES_AT_ONCE_MAX),
            balances: Balances::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn terms(&self) -> Terms {
        self.inner.terms
    }

    /// Connects a wallet after it reported its balance, so that a wrong secret is detected now.
    ///
    /// # Errors
    /// [`TopUpError::NotOffered`], [`TopUpError::Wallet`], [`TopUpError::Store`].
    pub async fn connect(
        &self,
        actor: &Actor,
        connection: &Connection,
        rules: RefillRules,
    ) -> Result<(), TopUpError> {
        self.receiving()?;
        self.inner.wallets.open(actor.account, connection).balance().await.map_err(TopUpError::Wallet)?;
        let wallet = NewWallet {
            kind: connection.kind.as_str(),
            url: connection.url.clone(),
            secret: connection.secret.clone(),
            rules,
        };
        self.inner.store.connect_wallet(actor, wallet).await?;
        self.look_at(actor.account, Msat(0));
        Ok(())
    }

    /// Creates an invoice over `amount` for a person to pay.
    ///
    /// # Errors
    /// [`TopUpError::NotOffered`], [`TopUpError::Receiver`], [`TopUpError::Store`] with
    /// [`CapReached`](StoreError::CapReached) when too many are open.
    pub async fn top_up(&self, actor: &Actor, amount: Msat) -> Result<InvoiceRecord, TopUpError> {
        let receiving = self.receiving()?.clone();
        let due_at = after(actor.now, rules::MAKING_MAX_MS);
        let row = self.inner.store.begin_topup(actor, amount, due_at, TOPUPS_OPEN_MAX).await?;
        let made = match self.make(&receiving, &row).await {
            Ok(made) => made,
            Err(error) => {
                tracing::error!(invoice = row.id, fault = error.fault.as_str(), %error, "the service's wallet did not create an invoice");
                let close = Close {
                    stage: Stage::Failed,
                    due_at: None,
                    fault: None,
                    only_unmade: true,
                    now: self.inner.clock.now(),
                };
                self.inner.store.close_invoice(row.id, &close).await?;
                return Err(TopUpError::Receiver);
            }
        };
        let open = InvoiceRecord { stage: Stage::Open, made: Some(made.clone()), ..row };
        let due_at = self.next_question(&open);
        if !self.inner.store.invoice_made(open.id, &made, due_at).await? {
            return Err(TopUpError::Receiver);
        }
        self.inner.due.notify_one();
        Ok(open)
    }

    /// The operator's wallet, if credit can be bought.
    fn receiving(&self) -> Result<&Arc<dyn Lightning>, TopUpError> {
        self.inner.receiving.as_ref().filter(|_| self.inner.terms.offered).ok_or(TopUpError::NotOffered)
    }

    /// An invoice of the operator's wallet over the row's amount.
    async fn make(
        &self,
        receiving: &Arc<dyn Lightning>,
        row: &InvoiceRecord,
    ) -> Result<MadeInvoice, WalletError> {
        let Invoice { bolt11, payment_hash, amount, expires_at } =
            receiving.make_invoice(row.amount, MEMO, self.inner.terms.expiry).await?;
        if amount != row.amount {
            let message = "the wallet created an invoice over a different amount than requested".to_owned();
            return Err(WalletError { fault: Fault::Internal, message, certain: true });
        }
        // While an invoice can be paid its outcome is open, and the next refill waits.
        let latest = after(self.inner.clock.now(), rules::LONGER_MS).0;
        let expiry = i64::try_from(self.inner.terms.expiry.as_millis()).unwrap_or(i64::MAX);
        if expires_at.0 > latest.saturating_add(expiry) {
            let message = "the wallet created an invoice with a longer expiry than requested".to_owned();
            return Err(WalletError { fault: Fault::NotSupported, message, certain: true });
        }
        Ok(MadeInvoice { bolt11, payment_hash, expires_at })
    }

    fn next_question(&self, invoice: &InvoiceRecord) -> UnixMillis {
        let now = self.inner.clock.now();
        rules::ask_again(invoice, now).unwrap_or(after(now, rules::ASK_LATE_MS))
    }
}

/// The connection of a stored wallet; `None` for a kind this release does not know.
pub fn connection_of(record: &WalletRecord) -> Option<Connection> {
    let kind = WalletKind::parse(&record.kind)?;
    Some(Connection { kind, url: record.url.clone(), secret: record.secret.clone() })
}

fn after(now: UnixMillis, millis: i64) -> UnixMillis {
    UnixMillis(now.0.saturating_add(millis))
}

#[async_trait]
impl Refills for TopUps {
    fn look_at(&self, account: AccountId, rate: Msat) {
        if self.inner.terms.offered {
            // The scan finds the account later if the queue is full.
            let _ = self.want(account, rate);
        }
    }

    async fn refill(&self, account: AccountId, rate: Msat) -> Refilled {
        self.refill_now(account, rate).await
    }
}
