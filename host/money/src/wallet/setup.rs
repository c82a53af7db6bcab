//! Parts that every kind of wallet needs.

use super::failure::Limits;
use satcast_core::clock::Clock;
use satcast_core::ids::{JSON_INTEGER_MAX, MSAT_PER_SAT, Msat};
use satcast_net::outbound::http::Client;

/// Longest memo in characters; this is phoenixd's limit.
pub const MEMO_CHARS_MAX: usize = 128;

/// The shared parts of a wallet.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
}

/// The memo, cut to the limit.
pub(super) fn memo_cut(memo: &str) -> &str {
    memo.char_indices().nth(MEMO_CHARS_MAX).map_or(memo, |(end, _)| &memo[..end])
}

/// The amount in whole sats, if it is one and above zero: invoices are made over whole sats.
pub(super) fn whole_sats(amount: Msat) -> Option<i64> {
    (amount.0 > 0 && amount.0 <= JSON_INTEGER_MAX && amount.0 % MSAT_PER_SAT == 0)
        .then_some(amount.0 / MSAT_PER_SAT)
}
