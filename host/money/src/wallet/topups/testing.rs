//! For tests, of other crates too: a simulated receiving wallet and simulated wallets of customers.
#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};

use super::{Terms, TopUps, WalletOpener};
use crate::wallet::connection::Connection;
use crate::wallet::lightning::{Fault, Invoice, InvoiceState, Lightning, Paid, WalletError};
use crate::wallet::rules::fee_max;
use satcast_core::clock::Clock;
use satcast_core::config::Config;
use satcast_core::ids::{AccountId, Msat, UnixMillis};
use satcast_store::Store;

/// Behaviour of a customer's wallet when it is asked to pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pays {
    /// It pays and reports it.
    Yes,
    /// It pays and reports it, with fees above every limit.
    Dearly,
    /// It pays, and its answer is lost.
    Unheard,
    /// It reports that it certainly did not pay.
    Fails(Fault),
    /// It does not answer, and may pay later: [`Bank::pay_all`].
    Silent,
    /// It reports a payment that it did not make.
    Lies,
    /// It never answers.
    Hangs,
    /// Its client panics.
    Panics,
}

/// The shared state of a test's wallets.
#[derive(Clone)]
pub struct Bank {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

/// Data and behaviour of the wallets.
pub struct State {
    /// Invoices by payment hash: amount, end, received amount.
    pub invoices: HashMap<String, (Msat, UnixMillis, Option<Msat>)>,
    /// Payments made by customers' wallets.
    pub payments: Vec<(UnixMillis, Msat)>,
    /// Payment hashes of invoices that were shown.
    pub shown: HashSet<String>,
    /// Number of payment requests.
    pub asked_to_pay: usize,
    /// Number of balance requests to customers' wallets.
    pub asked_balance: usize,
    /// By the address of the wallet; [`Pays::Yes`] for others.
    pub pays: HashMap<String, Pays>,
    /// Balance of every customer's wallet.
    pub held: Result<Msat, Fault>,
    /// The receiving wallet makes no invoices.
    pub makes_none: Option<Fault>,
    /// The receiving wallet does not answer lookups.
    pub tells_nothing: Option<Fault>,
    /// Its invoices are over another amount.
    pub makes_wrong: bool,
}

fn fault(fault: Fault, certain: bool) -> WalletError {
    WalletError { fault, message: "the wallet has a simulated fault; ignore it".to_owned(), certain }
}

impl Bank {
    /// No invoice yet, and customers' wallets that pay.
    pub fn new(clock: Clock) -> Self {
        let state = State {
            invoices: HashMap::new(),
            payments: Vec::new(),
            shown: HashSet::new(),
            asked_to_pay: 0,
            asked_balance: 0,
            pays: HashMap::new(),
            held: Ok(Msat(21_000_500)),
            makes_none: None,
            tells_nothing: None,
            makes_wrong: false,
        };
        Self { clock, state: Arc::new(Mutex::new(state)) }
    }

    /// Top-ups over these wallets.
    pub fn topups(&self, store: &Store, config: &Config) -> TopUps {
        let receiving = config.wallet.is_set().then(|| Arc::new(self.clone()) as Arc<dyn Lightning>);
        TopUps::new(store.clone(), self.clock.clone(), Terms::of(config), receiving, Arc::new(self.clone()))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Sets the behaviour of the wallet at an address.
    pub fn set(&self, url: &str, pays: Pays) {
        self.state().pays.insert(url.to_owned(), pays);
    }

    /// Pays every open invoice, this much above its amount; returns their number.
    pub fn pay_all(&self, more: i64) -> usize {
        let now = self.clock.now();
        let mut paid = 0;
        for (amount, end, received) in self.state().invoices.values_mut() {
            if received.is_none() && now < *end {
                *received = Some(Msat(amount.0 + more));
                paid += 1;
            }
        }
        paid
    }

    /// Pays every invoice that was shown.
    pub fn pay_shown(&self) {
        let shown: Vec<String> = self.state().shown.iter().cloned().collect();
        shown.iter().for_each(|hash| self.settle(hash));
    }

    fn settle(&self, hash: &str) {
        let now = self.clock.now();
        let mut state = self.state();
        let Some((amount, end, received)) = state.invoices.get_mut(hash) else { return };
        if received.is_none() && now < *end {
            *received = Some(*amount);
            let amount = *amount;
            state.payments.push((now, amount));
        }
    }
}

impl TopUps {
    /// Asks the receiving wallet about all due invoices.
    pub async fn watch_once(&self) {
        self.pass().await;
    }

    /// Runs one refill of the account if it needs one, as the queue would.
    pub async fn refill_once_if_needed(&self, account: AccountId) {
        self.refill_once(account, Msat(0)).await;
    }
}

impl WalletOpener for Bank {
    fn open(&self, _: AccountId, connection: &Connection) -> Arc<dyn Lightning> {
        Arc::new(Customer { bank: self.clone(), url: connection.url.expose().clone() })
    }
}

/// The receiving wallet.
#[async_trait]
impl Lightning for Bank {
    async fn balance(&self) -> Result<Msat, WalletError> {
        Ok(Msat(0))
    }

    async fn pay(&self, _: &Invoice) -> Result<Paid, WalletError> {
        Err(fault(Fault::Restricted, true))
    }

    async fn make_invoice(&self, amount: Msat, memo: &str, expiry: Duration) -> Result<Invoice, WalletError> {
        tokio::task::yield_now().await;
        assert!(!memo.is_empty());
        let now = self.clock.now();
        let mut state = self.state();
        if let Some(kind) = state.makes_none {
            return Err(fault(kind, true));
        }
        let amount = if state.makes_wrong { Msat(amount.0 + 1) } else { amount };
        let payment_hash = format!("{:064x}", state.invoices.len() + 1);
        let expires_at = UnixMillis(now.0 + i64::try_from(expiry.as_millis()).unwrap());
        state.invoices.insert(payment_hash.clone(), (amount, expires_at, None));
        Ok(Invoice { bolt11: format!("lnbcrt1{payment_hash}"), payment_hash, amount, expires_at })
    }

    async fn lookup(&self, payment_hash: &str) -> Result<InvoiceState, WalletError> {
        tokio::task::yield_now().await;
        let state = self.state();
        if let Some(kind) = state.tells_nothing {
            return Err(fault(kind, true));
        }
        Ok(match state.invoices.get(payment_hash) {
            None => InvoiceState::Unknown,
            Some((_, _, Some(received))) => InvoiceState::Settled { received: *received },
            Some(_) => InvoiceState::Open,
        })
    }
}

/// A customer's wallet.
struct Customer {
    bank: Bank,
    url: String,
}

#[async_trait]
impl Lightning for Customer {
    async fn balance(&self) -> Result<Msat, WalletError> {
        tokio::task::yield_now().await;
        let held = {
            let mut state = self.bank.state();
            state.asked_balance += 1;
            state.held
        };
        match held {
            // A wallet that hangs: its caller has to give up.
            Err(Fault::Timeout) => std::future::pending().await,
            held => held.map_err(|kind| fault(kind, true)),
        }
    }

    async fn pay(&self, invoice: &Invoice) -> Result<Paid, WalletError> {
        tokio::task::yield_now().await;
        let pays = {
            let mut state = self.bank.state();
            state.asked_to_pay += 1;
            let pays = state.pays.get(&self.url).copied().unwrap_or(Pays::Yes);
            if !matches!(pays, Pays::Fails(_)) {
                state.shown.insert(invoice.payment_hash.clone());
            }
            pays
        };
        match pays {
            Pays::Yes | Pays::Dearly => self.bank.settle(&invoice.payment_hash),
            Pays::Unheard => {
                self.bank.settle(&invoice.payment_hash);
                tokio::task::yield_now().await;
                return Err(fault(Fault::Timeout, false));
            }
            Pays::Fails(kind) => return Err(fault(kind, true)),
            Pays::Silent => return Err(fault(Fault::Timeout, false)),
            Pays::Lies => {}
            Pays::Hangs => std::future::pending().await,
            Pays::Panics => panic!("a wallet's client that panics"),
        }
        tokio::task::yield_now().await;
        let most = fee_max(invoice.amount);
        let fee = if matches!(pays, Pays::Dearly) { Msat(most.0 + 1_000) } else { most };
        Ok(Paid { fee: Some(fee) })
    }

    async fn make_invoice(&self, _: Msat, _: &str, _: Duration) -> Result<Invoice, WalletError> {
        Err(fault(Fault::NotSupported, true))
    }

    async fn lookup(&self, _: &str) -> Result<InvoiceState, WalletError> {
        Err(fault(Fault::NotSupported, true))
    }
}
