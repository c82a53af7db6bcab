//! When credit is refilled, how an answer of the receiving wallet is interpreted, and when it is asked again. Pure.

use super::lightning::InvoiceState;
use satcast_core::ids::{Msat, Sats, UnixMillis};
use satcast_store::{InvoiceRecord, NoRefill, Purpose, RefillFacts, RefillPlan, Stage};

/// The balance is kept above so many minutes of the account's rate, whatever its owner set: a refill takes time.
pub const COVERED_MINUTES: i64 = 5;
/// Largest fee of a payment, as a share of its amount in percent, but at least [`FEE_MIN`].
pub const FEE_PERCENT: i64 = 1;
/// A fee up to this amount is always allowed.
pub const FEE_MIN: Sats = Sats(10);
/// Pause of a wallet that reports a larger fee: no protocol lets us give it the limit.
pub const FEE_PAUSE_MS: i64 = 3_600_000;
/// A payment above an invoice's amount is credited up to this many times the amount. The network itself allows twice
/// the amount.
pub const OVERPAID_TIMES_MAX: i64 = 2;

/// Wait after a failed refill, by the number of failures in a row; the last value repeats.
pub const RETRY_WAITS_MS: [i64; 5] = [30_000, 120_000, 600_000, 1_800_000, 3_600_000];
/// Wait after the service's own wallet made no invoice: the customer's wallet is not at fault.
pub const OWN_FAULT_WAIT_MS: i64 = 30_000;

/// A row without an invoice is given up after this time: longer than any wallet's time-out.
pub const MAKING_MAX_MS: i64 = 120_000;
/// Time after an invoice's expiry before "not paid" is trusted: clocks differ, and a payment may arrive at the last
/// moment.
pub const END_MARGIN_MS: i64 = 60_000;
/// How long after an invoice's expiry the receiving wallet is still asked about it: late payments are credited.
pub const LATE_MS: i64 = 24 * 3_600_000;
/// How long a receiving wallet that does not answer is asked: after that the operator has to check.
pub const SILENT_MS: i64 = 30 * 24 * 3_600_000;
/// Time between two lookups of an invoice while it is this young.
pub const ASK_WAITS_MS: [(i64, i64); 3] = [(60_000, 2_000), (300_000, 5_000), (i64::MAX, 15_000)];
/// Time between two lookups of an expired invoice; it grows further.
pub const ASK_LATE_MS: i64 = 600_000;
/// Time between two lookups of an invoice whose payer reports that it certainly did not pay: before the next refill
/// begins.
pub const ASK_FAILED_MS: i64 = 15_000;
/// How much longer than requested an invoice may be payable: clocks differ.
pub const LONGER_MS: i64 = 120_000;
/// Time until the next lookup after the receiving wallet did not answer.
pub const SILENCE_WAIT_MS: i64 = 15_000;

const DAY_MS: i64 = 24 * 3_600_000;

pub fn day_start(now: UnixMillis) -> UnixMillis {
    UnixMillis(now.0.saturating_sub(now.0.rem_euclid(DAY_MS)))
}

/// Largest fee of a payment of `amount`.
pub fn fee_max(amount: Msat) -> Msat {
    let share = amount.0.max(0) / 100 * FEE_PERCENT;
    Msat(share.max(FEE_MIN.to_msat().map_or(0, |min| min.0)))
}

/// The threshold of an account that spends `rate` a minute.
pub fn threshold(own: Msat, rate: Msat) -> Msat {
    Msat(own.0.max(rate.0.saturating_mul(COVERED_MINUTES)))
}

/// Decides whether a refill begins.
///
/// # Errors
/// The reason why not.
pub fn refill(facts: &RefillFacts, rate: Msat, now: UnixMillis) -> Result<RefillPlan, NoRefill> {
    if facts.under_way {
        return Err(NoRefill::UnderWay);
    }
    if facts.balance >= threshold(facts.rules.threshold, rate) {
        return Err(NoRefill::Enough);
    }
    if facts.retry_at > now {
        return Err(NoRefill::Paused);
    }
    let amount = facts.rules.amount;
    if facts.spent.0.saturating_add(amount.0) > facts.rules.daily_cap.0 {
        return Err(NoRefill::Capped);
    }
    Ok(RefillPlan { amount, fee_max: fee_max(amount) })
}

/// When the next refill may begin after `failures` in a row, at least one.
pub fn retry_at(failures: i64, now: UnixMillis) -> UnixMillis {
    let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(0).min(RETRY_WAITS_MS.len() - 1);
    UnixMillis(now.0.saturating_add(RETRY_WAITS_MS[index]))
}

/// The next step after a lookup of an invoice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Credit so much.
    Credit(Msat),
    /// It was not paid, and will not be.
    Close,
    /// Not known yet.
    Wait,
}

/// Interprets an answer. Received money is credited in whatever state the invoice is: at least the invoice's amount,
/// since no payment can be smaller, and at most [`OVERPAID_TIMES_MAX`] times as much.
pub fn verdict(invoice: &InvoiceRecord, answer: InvoiceState, now: UnixMillis) -> Verdict {
    let Some(made) = &invoice.made else { return Verdict::Wait };
    let is_over = now.0 > made.expires_at.0.saturating_add(END_MARGIN_MS);
    let amount = invoice.amount.0;
    match answer {
        _ if invoice.stage == Stage::Settled => Verdict::Wait,
        InvoiceState::Settled { received } => {
            Verdict::Credit(Msat(received.0.clamp(amount, amount.saturating_mul(OVERPAID_TIMES_MAX))))
        }
        _ if !invoice.stage.is_under_way() => Verdict::Wait,
        InvoiceState::Expired => Verdict::Close,
        // A wallet that lost the invoice may find it again.
        InvoiceState::Open | InvoiceState::Unknown if is_over => Verdict::Close,
        InvoiceState::Open | InvoiceState::Unknown => Verdict::Wait,
    }
}

/// When the receiving wallet is asked again about an invoice that is not credited; `None` for never.
pub fn ask_again(invoice: &InvoiceRecord, now: UnixMillis) -> Option<UnixMillis> {
    let end = invoice.made.as_ref()?.expires_at.0;
    let wait = if invoice.stage.is_under_way() && now.0 <= end.saturating_add(END_MARGIN_MS) {
        let age = now.0.saturating_sub(invoice.created_at.0);
        ASK_WAITS_MS.iter().find(|(young, _)| age < *young).map_or(ASK_LATE_MS, |(_, wait)| *wait)
    } else {
        ASK_LATE_MS.max(now.0.saturating_sub(end))
    };
    let at = now.0.saturating_add(wait);
    (now.0 <= end.saturating_add(LATE_MS)).then_some(UnixMillis(at))
}

/// The same after the wallet did not answer.
pub fn ask_after_silence(invoice: &InvoiceRecord, now: UnixMillis) -> Option<UnixMillis> {
    let end = invoice.made.as_ref()?.expires_at.0;
    let wait = if now.0 > end.saturating_add(LATE_MS) { ASK_LATE_MS } else { SILENCE_WAIT_MS };
    (now.0 <= end.saturating_add(SILENT_MS)).then_some(UnixMillis(now.0.saturating_add(wait)))
}

/// Whether an unpaid refill is the fault of its wallet: it promised to pay, or it did not answer.
pub fn is_wallets_fault(invoice: &InvoiceRecord) -> bool {
    invoice.purpose == Purpose::Refill && invoice.stage == Stage::Paying
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::ids::AccountId;
    use satcast_store::{MadeInvoice, RefillRules};

    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

    fn facts() -> RefillFacts {
        RefillFacts {
            balance: Msat(99_999),
            rules: RefillRules {
                threshold: Msat(100_000),
                amount: Msat(1_000_000),
                daily_cap: Msat(3_000_000),
            },
            retry_at: NOW,
            under_way: false,
            spent: Msat(2_000_000),
        }
    }

    fn invoice(stage: Stage) -> InvoiceRecord {
        let expires_at = UnixMillis(NOW.0 + 600_000);
        let made = MadeInvoice { bolt11: "lnbc1".into(), payment_hash: "00".into(), expires_at };
        InvoiceRecord {
            id: 1,
            account: AccountId(1),
            purpose: Purpose::Refill,
            stage,
            amount: Msat(1_000),
            fee_max: Msat(10_000),
            made: Some(made),
            credited: None,
            created_at: NOW,
            settled_at: None,
        }
    }

    #[test]
    fn credit_below_its_threshold_is_refilled_as_far_as_the_days_cap_goes() {
        let plan = RefillPlan { amount: Msat(1_000_000), fee_max: Msat(10_000) };
        let decide = |facts: RefillFacts| refill(&facts, Msat(0), NOW);
        assert_eq!(decide(facts()), Ok(plan));
        assert_eq!(decide(RefillFacts { balance: Msat(100_000), ..facts() }), Err(NoRefill::Enough));
        assert_eq!(decide(RefillFacts { spent: Msat(2_000_001), ..facts() }), Err(NoRefill::Capped));
        assert_eq!(decide(RefillFacts { retry_at: UnixMillis(NOW.0 + 1), ..facts() }), Err(NoRefill::Paused));
        let all = RefillFacts { balance: Msat(i64::MAX), under_way: true, ..facts() };
        assert_eq!(decide(all), Err(NoRefill::UnderWay), "first of all");
    }

    #[test]
    fn the_threshold_covers_the_next_minutes_of_spending() {
        let rich = RefillFacts { balance: Msat(149_999), ..facts() };
        assert_eq!(refill(&rich, Msat(29_999), NOW), Err(NoRefill::Enough));
        assert!(refill(&rich, Msat(30_000), NOW).is_ok());
        assert_eq!(threshold(Msat(5), Msat(i64::MAX)), Msat(i64::MAX));
    }

    #[test]
    fn fees_are_one_percent_and_ten_sats_at_least() {
        let fees = [1_000, 1_000_000, 1_000_001, 5_000_000].map(|amount| fee_max(Msat(amount)).0);
        assert_eq!(fees, [10_000, 10_000, 10_000, 50_000]);
    }

    #[test]
    fn waits_grow_and_days_begin_at_midnight() {
        let waits = [0, 1, 2, 5, 6, i64::MAX].map(|failures| retry_at(failures, NOW).0 - NOW.0);
        assert_eq!(waits, [30_000, 30_000, 120_000, 3_600_000, 3_600_000, 3_600_000]);
        assert_eq!(day_start(UnixMillis(1_800_000_000_000)).0, 1_799_971_200_000);
        assert_eq!(day_start(UnixMillis(1_799_971_200_000)).0, 1_799_971_200_000);
    }

    #[test]
    fn received_money_is_credited_in_every_state_and_within_bounds() {
        let settled = |received| InvoiceState::Settled { received: Msat(received) };
        for stage in [Stage::Open, Stage::Paying, Stage::Expired, Stage::Failed] {
            let credit = |received| verdict(&invoice(stage), settled(received), UnixMillis(i64::MAX));
            assert_eq!(credit(1_000), Verdict::Credit(Msat(1_000)));
            assert_eq!(credit(1), Verdict::Credit(Msat(1_000)), "what the receiving wallet pays is its own");
            assert_eq!(credit(1_999), Verdict::Credit(Msat(1_999)));
            assert_eq!(credit(i64::MAX), Verdict::Credit(Msat(2_000)));
        }
        assert_eq!(
            verdict(&invoice(Stage::Settled), settled(1_000), NOW),
            Verdict::Wait,
            "it is settled already"
        );
    }

    #[test]
    fn invoices_are_closed_when_they_are_certainly_unpaid() {
        let end = NOW.0 + 600_000 + END_MARGIN_MS;
        for answer in [InvoiceState::Open, InvoiceState::Unknown] {
            let at = |now| verdict(&invoice(Stage::Paying), answer, UnixMillis(now));
            assert_eq!([at(NOW.0), at(end), at(end + 1)], [Verdict::Wait, Verdict::Wait, Verdict::Close]);
        }
        assert_eq!(verdict(&invoice(Stage::Paying), InvoiceState::Expired, NOW), Verdict::Close);
        assert_eq!(verdict(&invoice(Stage::Expired), InvoiceState::Expired, NOW), Verdict::Wait);
    }

    #[test]
    fn lookups_become_rarer_and_end() {
        let wait = |stage, at: i64| {
            ask_again(&invoice(stage), UnixMillis(NOW.0 + at)).map(|next| next.0 - NOW.0 - at)
        };
        assert_eq!(wait(Stage::Open, 0), Some(2_000));
        assert_eq!(wait(Stage::Open, 60_000), Some(5_000));
        assert_eq!(wait(Stage::Open, 300_000), Some(15_000));
        assert_eq!(wait(Stage::Failed, 0), Some(ASK_LATE_MS));
        assert_eq!(wait(Stage::Expired, 600_000 + 3 * ASK_LATE_MS), Some(3 * ASK_LATE_MS));
        assert!(wait(Stage::Expired, 600_000 + LATE_MS).is_some());
        assert_eq!(wait(Stage::Expired, 600_001 + LATE_MS), None);
        let silent = |at: i64| ask_after_silence(&invoice(Stage::Open), UnixMillis(NOW.0 + 600_000 + at));
        assert!(
            silent(LATE_MS + 1).is_some() && silent(SILENT_MS).is_some() && silent(SILENT_MS + 1).is_none()
        );
    }
}
