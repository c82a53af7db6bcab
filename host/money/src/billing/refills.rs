//! The interface of billing to wallets, about which it knows nothing else.

use async_trait::async_trait;

use satcast_core::ids::{AccountId, Msat};

/// Refills accounts that spend, in the way their owners chose. Billing calls it and knows nothing of wallets.
#[async_trait]
pub trait Refills: Send + Sync {
    /// An account was charged or is about to be: it spends `rate` a minute. Returns at once.
    fn look_at(&self, account: AccountId, rate: Msat);

    /// Refills an account that spends `rate` a minute, if its owner wants that. Resolves when there is more credit, or
    /// when none will come soon, and always while an encoder still waits for its answer.
    async fn refill(&self, account: AccountId, rate: Msat) -> Refilled;
}

/// Result of a refill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refilled {
    /// The balance is larger than before.
    Yes,
    /// A refill is in progress, and may still arrive.
    OnItsWay,
    /// No credit was added.
    No,
}
