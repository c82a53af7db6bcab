//! Prices of playback above the allowance, and the sessions that pay. Pure.
//!
//! The price is floored once, on all bytes of the account's clock hour. Charges and waived amounts of earlier passes
//! are subtracted, and so is the cost of bytes that no pass may charge: those from before prices were set. So any
//! number of passes gives the same sum as one, and the part below a millisat at the end of the hour is dropped.

use satcast_core::ids::{EndReason, Msat, SessionId};
use satcast_store::{HourDecision, HourFacts, HourTerms, OveragePart, Served, ServingSession};

/// Bytes of a GB.
pub const GB_BYTES: u64 = 1_000_000_000;

/// Total cost of `bytes` of an account and hour.
pub fn cost(bytes: u64, terms: &HourTerms) -> Msat {
    let over = u128::from(bytes.saturating_sub(terms.limit_bytes));
    let price = u128::try_from(terms.price_per_gb.0).unwrap_or(0);
    // Even 2^64 bytes at 2^63 millisats fit.
    Msat(i64::try_from(over * price / u128::from(GB_BYTES)).unwrap_or(i64::MAX))
}

/// Splits an amount in proportion to `weights`, each part rounded down; the first part gets the remainder.
pub fn split(amount: Msat, weights: &[u64]) -> Vec<Msat> {
    let all: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
    let part = |weight: &u64| {
        let share = (i128::from(amount.0) * i128::from(*weight)).checked_div(all).unwrap_or(0);
        Msat(i64::try_from(share).unwrap_or(i64::MAX))
    };
    let mut parts: Vec<Msat> = weights.iter().map(part).collect();
    let given: i64 = parts.iter().map(|part| part.0).sum();
    if let Some(first) = parts.first_mut() {
        first.0 += amount.0 - given;
    }
    parts
}

/// Decides about a pass: the amount due is split among the sessions that served, lowest id first, and inside a session
/// among its destinations. A running session is charged up to its budget, every session up to the balance; the rest is
/// waived, and the session ends.
pub fn decide(facts: &HourFacts) -> HourDecision {
    let fresh = facts.served.iter().fold(0_u64, |sum, one| sum.saturating_add(one.bytes));
    // Charges and waived amounts of earlier passes. Counted bytes from before prices were set have neither: they are
    // waived here, and only use up the allowance.
    let seen = cost(facts.bytes.saturating_sub(fresh), &facts.terms).0;
    let known = facts.charged.0.saturating_add(facts.waived.0).max(seen);
    let due = cost(facts.bytes, &facts.terms).0.saturating_sub(known);
    let mut decision = HourDecision::default();
    if due <= 0 {
        return decision;
    }
    let mut groups: Vec<(Option<&ServingSession>, Vec<&Served>)> = Vec::new();
    let mut served: Vec<&Served> = facts.served.iter().collect();
    // Bytes without a known session come last.
    served.sort_by_key(|one| {
        (one.session.is_none(), one.session.as_ref().map(|session| &session.id), one.destination)
    });
    for one in served {
        let session = one.session.as_ref();
        match groups.last_mut() {
            Some((known, members)) if known.map(|known| &known.id) == session.map(|session| &session.id) => {
                members.push(one);
            }
            _ => groups.push((session, vec![one])),
        }
    }
    let weights: Vec<u64> =
        groups.iter().map(|(_, members)| members.iter().map(|one| one.bytes).sum()).collect();
    let mut balance = facts.balance.0;
    for ((session, members), share) in groups.iter().zip(split(Msat(due), &weights)) {
        let budget_left = session.and_then(budget_left).unwrap_or(i64::MAX);
        let charge = share.0.min(budget_left).min(balance).max(0);
        balance -= charge;
        if let Some(session) = session.filter(|session| session.running && charge < share.0) {
            let reason =
                if charge == budget_left { EndReason::MaxSats } else { EndReason::InsufficientFunds };
            decision.ends.push((session.id.clone(), reason));
        }
        let weights: Vec<u64> = members.iter().map(|one| one.bytes).collect();
        let charges = split(Msat(charge), &weights);
        let waives = split(Msat(share.0 - charge), &weights);
        let session: Option<SessionId> = session.map(|session| session.id.clone());
        for ((one, charge), waive) in members.iter().zip(charges).zip(waives) {
            if charge.0 > 0 || waive.0 > 0 {
                let (session, destination) = (session.clone(), one.destination);
                decision.parts.push(OveragePart { session, destination, charge, waive });
            }
        }
    }
    decision
}

/// Rest of a session's budget; `None` without one.
fn budget_left(session: &ServingSession) -> Option<i64> {
    Some(session.budget?.0.saturating_sub(session.charged.0).max(0))
}
