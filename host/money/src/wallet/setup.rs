//! What every kind of wallet needs, and does in the same way.

use super::failure::Limits;
use satcast_core::clock::Clock;
use satcast_core::ids::{JSON_INTEGER_MAX, MSAT_PER_SAT, Msat};
use satcast_net::outbound::http::Client;

/// Longest memo that is sent, in characters; phoenixd takes no longer one.
pub const MEMO_CHARS_MAX: usize = 128;

/// What every kind of wallet needs.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
}

/// The beginning of a memo.
pub(super) fn memo_cut(memo: &str) -> &str {
    memo.char_indices().nth(MEMO_CHARS_MAX).map_or(memo, |(end, _)| &memo[..end])
}

/// An amount that an invoice can be made over: whole sats, above zero.
pub(super) fn whole_sats(amount: Msat) -> Option<i64> {
    (amount.0 > 0 && amount.0 <= JSON_INTEGER_MAX && amount.0 % MSAT_PER_SAT == 0)
        .then_some(amount.0 / MSAT_PER_SAT)
}
