//! Permits for requests to the stores, and for the memory of their parts.
//!
//! One store that hangs, or one account with many of them, has a quarter of all permits and no more. Stores of destinations have three
//! quarters together, so that the operator's store goes on whatever they do.

use satcast_quota::{Permit, Quota};

use crate::entry::Owner;

/// Who asks for permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) owner: Owner,
    /// Endpoint and bucket.
    pub(crate) store: String,
    /// That is the operator's.
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

/// What was taken, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Taken {
    _permits: (Permit<Owner>, Permit<String>, Permit<bool>),
}

impl Permits {
    /// So many in all.
    pub(crate) fn new(total: u64) -> Self {
        let share = (total / 4).max(1);
        // The totals of the first two are no limit: an account that waits for a slow store holds nothing that another needs.
        Permits {
            owners: Quota::new(u64::MAX, share),
            stores: Quota::new(u64::MAX, share),
            all: Quota::new(total, (total - total / 4).max(1)),
        }
    }

    /// Waits for `amount`; what is more than a share counts as a share. Everybody takes the three in this order, so nobody waits in a
    /// circle.
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

    /// As many as there are at once, one by one.
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
    fn whatever_other_stores_do_the_operators_goes_on() {
        let permits = Permits::new(16);
        let held: Vec<Vec<Taken>> =
            (1..9).map(|account| all(&permits, &client(account, &format!("dead{account}")))).collect();
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), 12);
        assert_eq!(all(&permits, &client(20, "operator")).len(), 4);
    }

    #[test]
    fn what_is_larger_than_a_share_is_taken_alone() {
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
    fn names_that_nobody_uses_are_not_kept() {
        let permits = Permits::new(16);
        for number in 0..100 {
            drop(all(&permits, &client(number, &number.to_string())));
        }
        assert_eq!((permits.owners.keys(), permits.stores.keys(), permits.all.taken()), (0, 0, 0));
    }
}
