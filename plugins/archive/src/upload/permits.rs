//! Permits for requests to the stores, and for the memory of their parts.
//!
//! One store that hangs, or one account with many stores, has at most a quarter of all permits. All stores of
//! destinations have at most three quarters together, so that the operator's store goes on.

use satcast_quota::{Permit, Quota};

use crate::entry::Owner;

/// The holder of permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) owner: Owner,
    /// Endpoint and bucket.
    pub(crate) store: String,
    /// It is the operator's store.
    pub(crate) is_operators: bool,
}

/// Permits that all recordings share.
#[derive(Debug)]
pub(crate) struct Permits {
    owners: Quota<Owner>,
    stores: Quota<String>,
    /// The total, and the shares of the operator's store and of all others.
    all: Quota<bool>,
}

/// Permits in use; released on drop.
#[derive(Debug)]
#[must_use]
pub(crate) struct Taken {
    _permits: (Permit<Owner>, Permit<String>, Permit<bool>),
}

impl Permits {
    /// `total` permits.
    pub(crate) fn new(total: u64) -> Self {
        let share = (total / 4).max(1);
        // The first two need no total: an account that waits for a slow store holds nothing that another one needs.
        Permits {
            owners: Quota::new(u64::MAX, share),
            stores: Quota::new(u64::MAX, share),
            all: Quota::new(total, (total - total / 4).max(1)),
        }
    }

    /// Waits for `amount`; more than a share counts as a share. All callers take the three in this order, so there is
    /// no deadlock.
    pub(crate) async fn take(&self, client: &Client, amount: u64) -> Taken {
        let owner = self.owners.take(client.owner, amount).await;
        let store = self.stores.take(client.store.clone(), amount).await;
        let all = self.all.take(client.is_operators, amount).await;
        Taken { _permits: (owner, store, all) }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn client(account: i64, store: &str) -> Client {
        Client { owner: Owner::Account(account), store: store.into(), is_operators: store == "operator" }
    }

    /// Takes as many as are free, one by one.
    fn all(permits: &Permits, client: &Client) -> Vec<Taken> {
        std::iter::from_fn(|| permits.take(client, 1).now_or_never()).collect()
    }

    #[test]
    fn one_store_and_one_owner_have_a_quarter() {
        let permits = Permits::new(16);
        let of_one = all(&permits, &client(1, "dead"));
        assert_eq!(of_one.len(), 4);
        assert_eq!(all(&permits, &client(2, "dead")).len(), 0, "the store's are taken");
        assert_eq!(all(&permits, &client(1, "other")).len(), 0, "the owner's are taken");
        let others = all(&permits, &client(2, "alive"));
        assert_eq!(others.len(), 4);
        drop(of_one);
        assert_eq!(all(&permits, &client(1, "dead")).len(), 4);
    }

    #[test]
    fn other_stores_never_block_the_operators_store() {
        let permits = Permits::new(16);
        let held: Vec<Vec<Taken>> =
            (1..9).map(|account| all(&permits, &client(account, &format!("dead{account}")))).collect();
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), 12);
        assert_eq!(all(&permits, &client(20, "operator")).len(), 4);
    }

    #[test]
    fn an_amount_above_a_share_is_taken_alone() {
        let permits = Permits::new(16);
        let large = permits.take(&client(1, "a"), 10).now_or_never().unwrap();
        assert_eq!(all(&permits, &client(1, "a")).len(), 0);
        assert_eq!(all(&permits, &client(2, "b")).len(), 2, "ten of the twelve of others are taken");
        assert_eq!(all(&permits, &client(3, "operator")).len(), 4);
        drop(large);
        let one = Permits::new(1);
        assert_eq!(all(&one, &client(1, "a")).len(), 1);
    }

    #[test]
    fn unused_names_are_not_kept() {
        let permits = Permits::new(16);
        for number in 0..100 {
            drop(all(&permits, &client(number, &number.to_string())));
        }
        assert_eq!((permits.owners.keys(), permits.stores.keys(), permits.all.taken()), (0, 0, 0));
    }
}
