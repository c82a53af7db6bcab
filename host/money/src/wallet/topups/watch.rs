//! Asks the receiving wallet about invoices until each is credited, or has been over for long enough.

use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::{TopUps, after};
use crate::wallet::lightning::{Fault, InvoiceState};
use crate::wallet::rules::{self, Verdict};
use satcast_store::{Close, InvoiceRecord, RefillFault, Stage, StoreError, WalletFault};

/// Invoices claimed at one time.
const BATCH: i64 = 64;
/// Parallel questions to the receiving wallet.
const QUESTIONS_AT_ONCE_MAX: usize = 8;
/// A question whose process died is asked again after this time.
const CLAIM_MS: i64 = 120_000;
/// Shortest time between two passes.
const PASS_MIN: Duration = Duration::from_millis(250);
/// Longest time between two passes: other processes make invoices too.
const PASS_MAX: Duration = Duration::from_secs(15);

/// Result of a lookup of an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// It was paid and is credited.
    Credited,
    /// It was not paid.
    Closed,
    /// It may still be paid.
    Pending,
    /// The wallet did not answer.
    Silent,
}

impl TopUps {
    pub(super) async fn keep_watching(&self, stopped: &CancellationToken) {
        // Invoices of a process that died may have been paid meanwhile.
        if let Err(error) = self.inner.store.ask_all_invoices(self.inner.clock.now()).await {
            tracing::error!(%error, "open invoices cannot be made due at the start; they are checked when they are due");
        }
        loop {
            let pass = async {
                let wait = self.pass().await;
                let at = self.inner.clock.monotonic().saturating_add(wait);
                let earliest = self.inner.clock.monotonic().saturating_add(PASS_MIN);
                tokio::select! {
                    () = self.inner.clock.sleep_until(at) => {}
                    () = self.inner.due.notified() => self.inner.clock.sleep_until(earliest).await,
                }
            };
            tokio::select! {
                () = pass => {}
                () = stopped.cancelled() => return,
            }
        }
    }

    /// Asks about all due invoices; returns the time until the next one is due.
    pub(super) async fn pass(&self) -> Duration {
        loop {
            let now = self.inner.clock.now();
            let batch = match self.inner.store.claim_invoices(now, after(now, CLAIM_MS), BATCH).await {
                Ok(batch) => batch,
                Err(error) => {
                    tracing::error!(%error, "due invoices cannot be read; retrying");
                    return PASS_MAX;
                }
            };
            if batch.is_empty() {
                break;
            }
            let mut answers = Vec::with_capacity(batch.len());
            for some in batch.chunks(QUESTIONS_AT_ONCE_MAX) {
                answers.extend(join_all(some.iter().map(|invoice| self.check(invoice))).await);
            }
            for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
                tracing::error!(%error, "the state of an invoice cannot be stored; the invoice is checked again");
            }
            // If the wallet does not answer, the remaining invoices wait.
            if answers
                .iter()
                .all(|answer| !matches!(answer, Ok(Checked::Credited | Checked::Closed | Checked::Pending)))
            {
                return PASS_MAX;
            }
        }
        match self.inner.store.next_invoice_due().await {
            Ok(Some(due)) => {
                let millis = due.0.saturating_sub(self.inner.clock.now().0);
                Duration::from_millis(u64::try_from(millis).unwrap_or(0)).clamp(PASS_MIN, PASS_MAX)
            }
            _ => PASS_MAX,
        }
    }

    /// Asks about one invoice and records the result.
    pub(super) async fn check(&self, invoice: &InvoiceRecord) -> Result<Checked, StoreError> {
        let Some(receiving) = &self.inner.receiving else { return Ok(Checked::Silent) };
        let store = &self.inner.store;
        let Some(made) = &invoice.made else {
            // The process died while the receiving wallet was asked for the invoice. Nobody has seen it, so nobody can
            // pay it.
            let now = self.inner.clock.now();
            let close = Close { stage: Stage::Failed, due_at: None, fault: None, only_unmade: true, now };
            let closed = store.close_invoice(invoice.id, &close).await?;
            return Ok(if closed { Checked::Closed } else { Checked::Pending });
        };
        let answer = receiving.lookup(&made.payment_hash).await;
        let now = self.inner.clock.now();
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(invoice = invoice.id, fault = error.fault.as_str(), %error, "the service's wallet does not report the state of an invoice");
                let next = rules::ask_after_silence(invoice, now);
                if next.is_none() {
                    tracing::error!(
                        invoice = invoice.id,
                        payment_hash = made.payment_hash,
                        "the service's wallet never reported whether an invoice was paid; look for the invoice in the wallet"
                    );
                }
                store.ask_invoice_at(invoice.id, next).await?;
                return Ok(Checked::Silent);
            }
        };
        if answer == InvoiceState::Unknown {
            tracing::error!(
                invoice = invoice.id,
                payment_hash = made.payment_hash,
                "the service's wallet does not know an invoice that it made; was [wallet] changed?"
            );
        }
        match rules::verdict(invoice, answer, now) {
            Verdict::Credit(credit) => {
                if store.settle_invoice(invoice.id, credit, now).await? {
                    tracing::info!(account = %invoice.account, invoice = invoice.id, msat = credit.0, purpose = invoice.purpose.as_str(), "credited");
                    self.inner.credits.send_modify(|count| *count = count.wrapping_add(1));
                }
                Ok(Checked::Credited)
            }
            Verdict::Close => {
                let fault =
                    if rules::is_wallets_fault(invoice) { Some(self.unpaid(invoice).await?) } else { None };
                let ended = InvoiceRecord { stage: Stage::Expired, ..invoice.clone() };
                let close = Close {
                    stage: Stage::Expired,
                    due_at: rules::ask_again(&ended, now),
                    fault,
                    only_unmade: false,
                    now,
                };
                store.close_invoice(invoice.id, &close).await?;
                Ok(Checked::Closed)
            }
            Verdict::Wait => {
                store.ask_invoice_at(invoice.id, rules::ask_again(invoice, now)).await?;
                Ok(Checked::Pending)
            }
        }
    }

    /// The fault of a wallet that was asked to pay an invoice and did not until the invoice ran out.
    async fn unpaid(&self, invoice: &InvoiceRecord) -> Result<RefillFault, StoreError> {
        let wallet = self.inner.store.wallet_of(invoice.account).await?;
        let failures = wallet.as_ref().map_or(0, |wallet| wallet.failures).saturating_add(1);
        let text = "the wallet did not pay an invoice before it expired; check the wallet";
        let fault = WalletFault { code: Fault::Timeout.as_str().to_owned(), text: text.to_owned() };
        // The wallet's own answer is more precise.
        let fault = wallet.and_then(|wallet| wallet.last_error).unwrap_or(fault);
        Ok(RefillFault { fault, retry_at: rules::retry_at(failures, self.inner.clock.now()), counts: true })
    }
}
