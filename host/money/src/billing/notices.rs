//! Log lines for owners about their money, named like the events. The meter writes the webhook events; the store writes
//! `limit.reached` with the end of the session, and `balance.low` with the charge that causes it.

use super::limits::WARNED_AT_PERCENT;
use satcast_core::ids::{EndReason, Msat};
use satcast_usage::Beginning;

/// A session has used most of its budget; logged once for each budget.
pub(super) fn limit_warning(session: &Beginning, charged: Msat, max_sats: Option<i64>) {
    tracing::warn!(
        event = "limit.warning", account = %session.account, stream = %session.stream, session = %session.session,
        charged_msat = charged.0, max_sats, percent = WARNED_AT_PERCENT as i64, "the session has used most of its budget"
    );
}

/// A session ends because its budget or the balance is used up.
pub(super) fn limit_reached(session: &Beginning, reason: EndReason, charged: Msat) {
    tracing::info!(
        event = "limit.reached", account = %session.account, stream = %session.stream, session = %session.session,
        %reason, charged_msat = charged.0, "the session ends"
    );
}
