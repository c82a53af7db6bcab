//! One refill: row, invoice, payment, credit. Each step is written before the next wallet is asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::watch::Checked;
use super::{Desk, after, connection_of};
use crate::billing::Refilled;
use crate::wallet::lightning::{Invoice, Lightning, WalletError};
use crate::wallet::rules;
use satcast_core::ids::{AccountId, Msat, UnixMillis};
use satcast_store::{
    Close, FEE_TOO_HIGH, InvoiceRecord, MadeInvoice, NoRefill, RefillFault, Stage, StoreError, WalletFault,
    WalletRecord,
};

/// Longest wait of somebody who asked for a refill: less than an encoder gets to be let in.
pub const ASKED_WAIT: Duration = Duration::from_millis(3_500);
/// The name of a fault of the service's own wallet, beside those of [`Fault`](crate::wallet::lightning::Fault).
const SERVICE_WALLET: &str = "service_wallet";

/// How a refill ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Credited.
    Credited,
    /// The account has enough.
    Enough,
    /// One is under way, and the watch goes on with it.
    UnderWay,
    /// There is none, or it failed.
    None,
}

impl Desk {
    /// Refills one account if it needs it.
    pub(super) async fn refill_once(&self, account: AccountId, rate: Msat) -> Outcome {
        match self.try_refill(account, rate).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::error!(%account, %error, "a refill stops; what it began is looked after");
                Outcome::None
            }
        }
    }

    async fn try_refill(&self, account: AccountId, rate: Msat) -> Result<Outcome, StoreError> {
        let Ok(receiving) = self.receiving() else { return Ok(Outcome::None) };
        // Mostly nothing is to be done, and that needs no place among the writers.
        let wallet = match self.needs(account, rate).await? {
            Ok(wallet) => wallet,
            Err(outcome) => return Ok(outcome),
        };
        let _place = self.lane(&wallet).acquire().await;
        // Others were waited for meanwhile.
        let wallet = match self.needs(account, rate).await? {
            Ok(wallet) => wallet,
            Err(outcome) => return Ok(outcome),
        };
        let Some(connection) = connection_of(&wallet) else { return Ok(Outcome::None) };
        let now = self.inner.clock.now();
        let decide = |facts: &_| rules::refill(facts, rate, now);
        let (day, due_at) = (rules::day_start(now), after(now, rules::MAKING_MAX_MS));
        let row = match self.inner.store.begin_refill(account, wallet.id, now, day, due_at, &decide).await? {
            Ok(row) => row,
            Err(NoRefill::Enough) => return Ok(Outcome::Enough),
            Err(NoRefill::UnderWay) => return Ok(Outcome::UnderWay),
            Err(why) => {
                tracing::debug!(%account, ?why, "no refill");
                return Ok(Outcome::None);
            }
        };
        let made = match self.make(receiving, &row).await {
            Ok(made) => made,
            Err(error) => return self.not_made(&row, &error).await,
        };
        let paying = InvoiceRecord { stage: Stage::Paying, made: Some(made.clone()), ..row };
        if !self.inner.store.invoice_made(paying.id, &made, self.next_question(&paying)).await? {
            return Ok(Outcome::None);
        }
        let payer = self.inner.wallets.open(account, &connection);
        self.pay(payer, &wallet, paying, made).await
    }

    /// The connected wallet of an account that needs a refill and may have one, or what comes of it without.
    async fn needs(
        &self,
        account: AccountId,
        rate: Msat,
    ) -> Result<Result<WalletRecord, Outcome>, StoreError> {
        let Some(wallet) = self.inner.store.wallet_of(account).await? else { return Ok(Err(Outcome::None)) };
        let balance = self.inner.store.balance(account).await?;
        Ok(match balance < rules::threshold(wallet.rules.threshold, rate) {
            false => Err(Outcome::Enough),
            // The scan looks at it again when it has rested.
            true if wallet.retry_at > self.inner.clock.now() => Err(Outcome::None),
            true => Ok(wallet),
        })
    }

    /// Wallets that fail wait for each other, never others for them.
    fn lane(&self, wallet: &WalletRecord) -> &Semaphore {
        if wallet.failures > 0 { &self.inner.retries } else { &self.inner.first_tries }
    }

    /// The service's own wallet made no invoice: nothing can have been paid.
    async fn not_made(&self, row: &InvoiceRecord, error: &WalletError) -> Result<Outcome, StoreError> {
        tracing::error!(invoice = row.id, fault = error.fault.as_str(), %error, "the service's wallet makes no invoice");
        let now = self.inner.clock.now();
        let text = "the service's own wallet made no invoice; it is tried again by itself".to_owned();
        let fault = RefillFault {
            fault: WalletFault { code: SERVICE_WALLET.to_owned(), text },
            retry_at: after(now, rules::OWN_FAULT_WAIT_MS),
            counts: false,
        };
        let close = Close { stage: Stage::Failed, due_at: None, fault: Some(fault), only_unmade: true, now };
        self.inner.store.close_invoice(row.id, &close).await?;
        Ok(Outcome::None)
    }

    async fn pay(
        &self,
        payer: Arc<dyn Lightning>,
        wallet: &WalletRecord,
        paying: InvoiceRecord,
        made: MadeInvoice,
    ) -> Result<Outcome, StoreError> {
        let MadeInvoice { bolt11, payment_hash, expires_at } = made;
        let invoice = Invoice { bolt11, payment_hash, amount: paying.amount, expires_at };
        let (account, store) = (paying.account, &self.inner.store);
        let mut too_dear = None;
        match payer.pay(&invoice).await {
            Ok(paid) => {
                tracing::info!(%account, invoice = paying.id, fee_msat = paid.fee.map(|fee| fee.0), "a refill was paid, as its wallet says");
                too_dear = paid.fee.filter(|fee| *fee > paying.fee_max);
            }
            Err(error) if error.certain => {
                tracing::warn!(%account, invoice = paying.id, fault = error.fault.as_str(), "a refill was not paid");
                let now = self.inner.clock.now();
                let failed = InvoiceRecord { stage: Stage::Failed, ..paying };
                let fault = RefillFault {
                    fault: shown(&error),
                    retry_at: rules::retry_at(wallet.failures.saturating_add(1), now),
                    counts: true,
                };
                // A wallet may be wrong about it: the receiving one is asked a few times more.
                let due_at = Some(after(now, rules::ASK_FAILED_MS));
                let close =
                    Close { stage: Stage::Failed, due_at, fault: Some(fault), only_unmade: false, now };
                store.close_invoice(failed.id, &close).await?;
                return Ok(Outcome::None);
            }
            Err(error) => {
                tracing::warn!(%account, invoice = paying.id, fault = error.fault.as_str(), "whether a refill was paid is not known yet");
                store.note_wallet_fault(account, wallet.id, &shown(&error), UnixMillis(0)).await?;
            }
        }
        if let Some(fee) = too_dear {
            let until = after(self.inner.clock.now(), rules::FEE_REST_MS);
            store.note_wallet_fault(account, wallet.id, &dear(fee, paying.fee_max), until).await?;
        }
        let outcome = match self.check(&paying).await? {
            Checked::Credited => Outcome::Credited,
            Checked::Closed => Outcome::None,
            Checked::Waits | Checked::Silent => Outcome::UnderWay,
        };
        self.inner.due.notify_one();
        Ok(outcome)
    }

    /// Refills an account somebody waits for.
    pub(super) async fn refill_now(&self, account: AccountId, rate: Msat) -> Refilled {
        let mut credits = self.inner.credits.subscribe();
        let before = self.inner.store.balance(account).await.ok();
        let Some(mut outcome) = self.receiving().ok().and_then(|_| self.want(account, rate)) else {
            return Refilled::No;
        };
        let more = async {
            let ended = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| *outcome);
            match ended {
                Some(Outcome::Credited) => return Refilled::Yes,
                Some(Outcome::UnderWay) => {}
                Some(Outcome::Enough | Outcome::None) | None => return Refilled::No,
            }
            while credits.changed().await.is_ok() {
                let now = self.inner.store.balance(account).await.ok();
                if now > before {
                    return Refilled::Yes;
                }
            }
            Refilled::OnItsWay
        };
        self.inner.clock.timeout(ASKED_WAIT, more).await.unwrap_or(Refilled::OnItsWay)
    }
}

/// A payment that cost more than it may.
fn dear(fee: Msat, most: Msat) -> WalletFault {
    let (fee, most) = (fee.to_sats_floor(), most.to_sats_floor());
    let text = format!(
        "the wallet paid {fee} sats of fees for a refill, above the limit of {most}; refills rest for an hour: choose a \
         larger amountSats, or a wallet with a better way to this service"
    );
    WalletFault { code: FEE_TOO_HIGH.to_owned(), text }
}

/// A failure as the owner of the wallet is shown it.
pub(super) fn shown(error: &WalletError) -> WalletFault {
    WalletFault { code: error.fault.as_str().to_owned(), text: error.message.clone() }
}
