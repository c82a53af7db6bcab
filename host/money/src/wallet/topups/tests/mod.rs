//! Top-ups and refills on a real store, with simulated wallets.

mod crash;
mod property;
mod sessions;
mod steps;

use std::time::Duration;

use super::TopUps;
use super::refill::Outcome;
use super::testing::{Bank, Pays};
use crate::billing::testing::{Rig as BillingRig, START};
use satcast_core::ids::{AccountId, Msat, UnixMillis};
use satcast_core::secret::Redacted;
use satcast_store::{Actor, NewAccount, NewWallet, Origin, Page, RefillRules, WalletRecord};

const WALLET: &str = "[wallet]\ntype = \"lnbits\"\nurl = \"https://own.example\"\nsecret = \"x\"\n";
/// Address of the customer's wallet.
const URL: &str = "https://customer.example";
const RULES: RefillRules =
    RefillRules { threshold: Msat(100_000), amount: Msat(500_000), daily_cap: Msat(2_000_000) };

/// An account with a connected wallet.
struct Rig {
    base: BillingRig,
    bank: Bank,
    topups: TopUps,
}

impl Rig {
    async fn new(sats: i64) -> Self {
        Self::with(sats, WALLET).await
    }

    async fn with(sats: i64, toml: &str) -> Self {
        let base = BillingRig::with(sats, toml, "live", 3).await;
        let bank = Bank::new(base.clock.clone());
        let topups = bank.topups(&base.store, &base.config);
        let rig = Self { base, bank, topups };
        rig.connect(RULES).await;
        rig
    }

    async fn connect(&self, rules: RefillRules) {
        let wallet = NewWallet {
            kind: "lnbits",
            url: Redacted::new(URL.into()),
            secret: Redacted::new("hunter2hunter2".into()),
            rules,
        };
        self.base.store.connect_wallet(&self.actor(), wallet).await.unwrap();
    }

    /// Another account whose wallet is at `url`.
    async fn second_account(&self, url: &str) -> AccountId {
        let new = NewAccount {
            name: "other".into(),
            password_hash: None,
            operator: false,
            initial_credit: Msat(0),
        };
        let account = self.base.store.create_account(&Origin::command(START), new).await.unwrap();
        let (url, secret) = (Redacted::new(url.to_owned()), Redacted::new(String::new()));
        let wallet = NewWallet { kind: "lnbits", url, secret, rules: RULES };
        self.base.store.connect_wallet(&Actor::command(account, START), wallet).await.unwrap();
        account
    }

    fn account(&self) -> AccountId {
        self.base.account
    }

    fn actor(&self) -> Actor {
        Actor::command(self.base.account, self.now())
    }

    fn now(&self) -> UnixMillis {
        self.base.clock.now()
    }

    fn pass_time(&self, secs: u64) {
        self.base.clock.advance(Duration::from_secs(secs));
    }

    /// The outcome of `work` that waits for a silent wallet.
    async fn passing<T>(&self, work: impl Future<Output = T>) -> T {
        self.base.clock.passing(Duration::from_millis(100), work).await
    }

    async fn refill(&self) -> Outcome {
        self.topups.refill_once(self.account(), Msat(0)).await
    }

    async fn wallet(&self) -> WalletRecord {
        self.base.store.wallet_of(self.account()).await.unwrap().unwrap()
    }

    /// Kind and amount of each ledger entry except charges, oldest first.
    async fn credits(&self) -> Vec<(String, i64)> {
        let entries = self.base.store.statement(self.account(), Page::ALL).await.unwrap();
        let credits = entries.into_iter().rev().filter(|entry| entry.amount.0 > 0);
        credits.map(|entry| (entry.kind, entry.amount.0)).collect()
    }

    /// Code of the last fault.
    async fn fault(&self) -> Option<String> {
        self.wallet().await.last_error.map(|fault| fault.code)
    }

    /// The same database after a restart, with the same wallets.
    fn restarted(&self) -> TopUps {
        self.bank.topups(&self.base.store, &self.base.config)
    }
}

fn day_of(at: UnixMillis) -> i64 {
    at.0.div_euclid(86_400_000)
}

#[test]
fn tests_begin_within_a_day() {
    assert_eq!(day_of(START), day_of(UnixMillis(START.0 + 3_600_000)));
}
