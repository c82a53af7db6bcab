//! Asks the receiving wallet about invoices until each is credited, or is over for long enough.

use std::time::Duration;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::{Desk, after};
use crate::wallet::lightning::{Fault, InvoiceState};
use crate::wallet::rules::{self, Verdict};
use satcast_store::{Close, InvoiceRecord, RefillFault, Stage, StoreError, WalletFault};

/// Invoices taken up at one time.
const BATCH: i64 = 64;
/// Questions to the receiving wallet at one time.
const QUESTIONS_AT_ONCE_MAX: usize = 8;
/// A question that was begun and never answered, as its process died, is asked again after this.
const CLAIM_MS: i64 = 120_000;
/// Least time between two passes.
const PASS_MIN: Duration = Duration::from_millis(250);
/// Longest time between two passes: other processes make invoices too.
const PASS_MAX: Duration = Duration::from_secs(15);

/// What is known of an invoice after the receiving wallet was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// Its money is credited.
    Credited,
    /// It was not paid.
    Closed,
    /// It may yet be paid.
    Waits,
    /// The wallet did not answer.
    Silent,
}

impl Desk {
    pub(super) async fn keep_watching(&self, stopped: &CancellationToken) {
        // What a process that died left may have been paid meanwhile.
        if let Err(error) = self.inner.store.ask_all_invoices(self.inner.clock.now()).await {
            tracing::error!(%error, "open invoices are looked at when they are due");
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

    /// Asks about everything that is due; how long nothing more is.
    pub(super) async fn pass(&self) -> Duration {
        loop {
            let now = self.inner.clock.now();
            let batch = match self.inner.store.claim_invoices(now, after(now, CLAIM_MS), BATCH).await {
                Ok(batch) => batch,
                Err(error) => {
                    tracing::error!(%error, "invoices cannot be looked for");
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
                tracing::error!(%error, "what became of an invoice cannot be noted; it is asked about again");
            }
            // A wallet that answers nobody is not asked about the rest.
            if answers
                .iter()
                .all(|answer| !matches!(answer, Ok(Checked::Credited | Checked::Closed | Checked::Waits)))
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

    /// Asks about one invoice and does what follows.
    pub(super) async fn check(&self, invoice: &InvoiceRecord) -> Result<Checked, StoreError> {
        let Some(receiving) = &self.inner.receiving else { return Ok(Checked::Silent) };
        let store = &self.inner.store;
        let Some(made) = &invoice.made else {
            // Its process died while the receiving wallet was asked for it. Nobody has seen it, so nobody can pay it.
            let now = self.inner.clock.now();
            let close = Close { stage: Stage::Failed, due_at: None, fault: None, only_unmade: true, now };
            let closed = store.close_invoice(invoice.id, &close).await?;
            return Ok(if closed { Checked::Closed } else { Checked::Waits });
        };
        let answer = receiving.lookup(&made.payment_hash).await;
        let now = self.inner.clock.now();
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(invoice = invoice.id, fault = error.fault.as_str(), %error, "the service's wallet does not say what became of an invoice");
                let next = rules::ask_after_silence(invoice, now);
                if next.is_none() {
                    tracing::error!(
                        invoice = invoice.id,
                        payment_hash = made.payment_hash,
                        "whether an invoice was paid was never learned; look for it in the wallet"
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
                    if rules::blames_wallet(invoice) { Some(self.unpaid(invoice).await?) } else { None };
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
                Ok(Checked::Waits)
            }
        }
    }

    /// The fault of a wallet that was asked to pay an invoice, and did not until its end.
    async fn unpaid(&self, invoice: &InvoiceRecord) -> Result<RefillFault, StoreError> {
        let wallet = self.inner.store.wallet_of(invoice.account).await?;
        let failures = wallet.as_ref().map_or(0, |wallet| wallet.failures).saturating_add(1);
        let text =
            "the wallet was asked to pay an invoice and did not until it ran out; look into the wallet";
        let fault = WalletFault { code: Fault::Timeout.as_str().to_owned(), text: text.to_owned() };
        // What it said itself tells more.
        let fault = wallet.and_then(|wallet| wallet.last_error).unwrap_or(fault);
        Ok(RefillFault { fault, retry_at: rules::retry_at(failures, self.inner.clock.now()), counts: true })
    }
}
