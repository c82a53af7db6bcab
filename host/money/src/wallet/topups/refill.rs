//! One refill: row, invoice, payment, credit. Each step is stored before the next wallet is asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::watch::Checked;
use super::{TopUps, after, connection_of};
use crate::billing::Refilled;
use crate::wallet::lightning::{Invoice, Lightning, WalletError};
use crate::wallet::rules;
use satcast_core::ids::{AccountId, Msat, UnixMillis};
use satcast_store::{
    Close, FEE_TOO_HIGH, InvoiceRecord, MadeInvoice, NoRefill, RefillFault, Stage, StoreError, WalletFault,
    WalletRecord,
};

/// Longest wait of a caller of a refill: shorter than the time in which an encoder must be accepted.
pub const ASKED_WAIT: Duration = Duration::from_millis(3_500);
/// Fault code of the service's own wallet, beside those of [`Fault`](crate::wallet::lightning::Fault).
const SERVICE_WALLET: &str = "service_wallet";

/// Result of a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Credited.
    Credited,
    /// The balance is large enough.
    Enough,
    /// A refill is in progress; the watch continues it.
    UnderWay,
    /// There is no refill, or it failed.
    None,
}

impl TopUps {
    /// Refills one account if it needs it.
    pub(super) async fn refill_once(&self, account: AccountId, rate: Msat) -> Outcome {
        match self.try_refill(account, rate).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::error!(%account, %error, "a refill failed; its invoice, if any, is still watched");
                Outcome::None
            }
        }
    }

    async fn try_refill(&self, account: AccountId, rate: Msat) -> Result<Outcome, StoreError> {
        let Ok(receiving) = self.receiving() else { return Ok(Outcome::None) };
        // Usually nothing is to be done, and this check needs no writer.
        let wallet = match self.needs(account, rate).await? {
            Ok(wallet) => wallet,
            Err(outcome) => return Ok(outcome),
        };
        let _place = self.lane(&wallet).acquire().await;
        // Others were refilled while this one waited.
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

    /// The connected wallet of an account that needs a refill and may have one, or the outcome without a refill.
    async fn needs(
        &self,
        account: AccountId,
        rate: Msat,
    ) -> Result<Result<WalletRecord, Outcome>, StoreError> {
        let Some(wallet) = self.inner.store.wallet_of(account).await? else { return Ok(Err(Outcome::None)) };
        let balance = self.inner.store.balance(account).await?;
        Ok(match balance < rules::threshold(wallet.rules.threshold, rate) {
            false => Err(Outcome::Enough),
            // The scan looks at the account again when the wallet's pause is over.
            true if wallet.retry_at > self.inner.clock.now() => Err(Outcome::None),
            true => Ok(wallet),
        })
    }

    /// Wallets that fail wait for each other, and never delay others.
    fn lane(&self, wallet: &WalletRecord) -> &Semaphore {
        if wallet.failures > 0 { &self.inner.retries } else { &self.inner.first_tries }
    }

    /// The service's own wallet made no invoice: nothing can have been paid.
    async fn not_made(&self, row: &InvoiceRecord, error: &WalletError) -> Result<Outcome, StoreError> {
        tracing::error!(invoice = row.id, fault = error.fault.as_str(), %error, "the service's wallet did not create an invoice");
        let now = self.inner.clock.now();
        let text =
            "the service's own wallet did not create an invoice; the service retries the refill".to_owned();
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
        let mut excess_fee = None;
        match payer.pay(&invoice).await {
            Ok(paid) => {
                tracing::info!(%account, invoice = paying.id, fee_msat = paid.fee.map(|fee| fee.0), "the connected wallet reports that it paid a refill");
                excess_fee = paid.fee.filter(|fee| *fee > paying.fee_max);
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
                // The paying wallet may be wrong: the receiving wallet is asked a few more times.
                let due_at = Some(after(now, rules::ASK_FAILED_MS));
                let close =
                    Close { stage: Stage::Failed, due_at, fault: Some(fault), only_unmade: false, now };
                store.close_invoice(failed.id, &close).await?;
                return Ok(Outcome::None);
            }
            Err(error) => {
                tracing::warn!(%account, invoice = paying.id, fault = error.fault.as_str(), "the connected wallet did not report whether it paid a refill; the receiving wallet is asked");
                store.note_wallet_fault(account, wallet.id, &shown(&error), UnixMillis(0)).await?;
            }
        }
        if let Some(fee) = excess_fee {
            let until = after(self.inner.clock.now(), rules::FEE_PAUSE_MS);
            store.note_wallet_fault(account, wallet.id, &fee_too_high(fee, paying.fee_max), until).await?;
        }
        let outcome = match self.check(&paying).await? {
            Checked::Credited => Outcome::Credited,
            Checked::Closed => Outcome::None,
            Checked::Pending | Checked::Silent => Outcome::UnderWay,
        };
        self.inner.due.notify_one();
        Ok(outcome)
    }

    /// Refills an account for a waiting caller.
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

/// A payment whose fee exceeds the limit.
fn fee_too_high(fee: Msat, most: Msat) -> WalletFault {
    let (fee, most) = (fee.to_sats_floor(), most.to_sats_floor());
    let text = format!(
        "the wallet paid {fee} sats of fees for a refill, above the limit of {most}; refills pause for an hour: choose a \
         larger amountSats, or a wallet with a better way to this service"
    );
    WalletFault { code: FEE_TOO_HIGH.to_owned(), text }
}

/// A failure as its owner sees it.
pub(super) fn shown(error: &WalletError) -> WalletFault {
    WalletFault { code: error.fault.as_str().to_owned(), text: error.message.clone() }
}
