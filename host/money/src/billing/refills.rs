//! What billing asks of wallets, which it knows nothing of.

use async_trait::async_trait;

use satcast_core::ids::{AccountId, Msat};

/// Refills accounts that spend, from wherever their owners said. Whoever charges tells it and knows nothing of wallets.
#[async_trait]
pub trait Refills: Send + Sync {
    /// An account was charged, or is about to be: it spends `rate` a minute. Returns at once.
    fn look_at(&self, account: AccountId, rate: Msat);

    /// Refills an account that spends `rate` a minute, if its owner wants that. Resolves when there is more, or there will be
    /// none soon, and in any case while an encoder waits for its answer.
    async fn refill(&self, account: AccountId, rate: Msat) -> Refilled;
}

/// What came of a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refilled {
    /// The account has more than before.
    Yes,
    /// One is on its way, and may come yet.
    OnItsWay,
    /// There is none.
    No,
}
