//! Turns at the stores: how many requests are on their way, and how much memory their parts take.
//!
//! One store that hangs, or one account with many of them, has a quarter of all turns and no more. Those of other stores than the
//! operator's have three quarters together, so that whatever they do, the operator's goes on.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::fault::Fault;
use crate::share::Owner;

/// One store, and one owner, may have this part of all turns.
const SHARES: u32 = 4;

/// Who asks for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) owner: Owner,
    /// Endpoint and bucket.
    pub(crate) store: String,
    /// That is the operator's.
    pub(crate) is_operators: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Name {
    Owner(Owner),
    Store(String),
}

/// Turns that all recordings share.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Bound,
    /// Of stores that are not the operator's.
    others: Bound,
    /// Turns of one owner and of one store.
    share: u32,
    shares: Mutex<HashMap<Name, Weak<Semaphore>>>,
}

/// Turns, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _permits: Vec<OwnedSemaphorePermit>,
}

#[derive(Debug, Clone)]
struct Bound {
    turns: Arc<Semaphore>,
    size: u32,
}

impl Bound {
    fn new(size: u32) -> Self {
        Bound { turns: Arc::new(Semaphore::new(size as usize)), size }
    }

    /// What is more than there is counts as all.
    async fn take(self, count: u32) -> Result<OwnedSemaphorePermit, Fault> {
        let taken = self.turns.acquire_many_owned(count.min(self.size)).await;
        taken.map_err(|_| Fault::internal("the driver ends"))
    }
}

impl Turns {
    /// So many in all.
    pub(crate) fn new(size: u32) -> Self {
        let share = (size / SHARES).max(1);
        let others = size.saturating_sub(share).max(1);
        Turns { all: Bound::new(size), others: Bound::new(others), share, shares: Mutex::default() }
    }

    /// Waits for `count` turns. The owner's are waited for first, then the store's: who waits for those holds nothing that another
    /// could need, and everybody takes them in this order.
    pub(crate) async fn take(&self, client: &Client, count: u32) -> Result<Turn, Fault> {
        let mut permits = vec![
            self.share_of(Name::Owner(client.owner)).take(count).await?,
            self.share_of(Name::Store(client.store.clone())).take(count).await?,
        ];
        if !client.is_operators {
            permits.push(self.others.clone().take(count).await?);
        }
        permits.push(self.all.clone().take(count).await?);
        Ok(Turn { _permits: permits })
    }

    fn share_of(&self, name: Name) -> Bound {
        let mut shares = self.shares.lock();
        if let Some(turns) = shares.get(&name).and_then(Weak::upgrade) {
            return Bound { turns, size: self.share };
        }
        shares.retain(|_, turns| turns.strong_count() > 0);
        let bound = Bound::new(self.share);
        shares.insert(name, Arc::downgrade(&bound.turns));
        bound
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn client(account: i64, store: &str) -> Client {
        Client { owner: Owner::Account(account), store: store.into(), is_operators: store == "operator" }
    }

    /// As many turns as there are at once, one by one.
    fn all(turns: &Turns, client: &Client) -> Vec<Turn> {
        std::iter::from_fn(|| turns.take(client, 1).now_or_never().map(Result::unwrap)).collect()
    }

    #[test]
    fn one_store_and_one_owner_have_a_quarter() {
        let turns = Turns::new(16);
        let of_one = all(&turns, &client(1, "dead"));
        assert_eq!(of_one.len(), 4);
        assert_eq!(all(&turns, &client(2, "dead")).len(), 0, "the store's are taken");
        assert_eq!(all(&turns, &client(1, "other")).len(), 0, "the owner's are taken");
        let others = all(&turns, &client(2, "alive"));
        assert_eq!(others.len(), 4);
        drop(of_one);
        assert_eq!(all(&turns, &client(1, "dead")).len(), 4);
    }

    #[test]
    fn whatever_other_stores_do_the_operators_goes_on() {
        let turns = Turns::new(16);
        let held: Vec<Vec<Turn>> =
            (1..9).map(|account| all(&turns, &client(account, &format!("dead{account}")))).collect();
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), 12);
        assert_eq!(all(&turns, &client(20, "operator")).len(), 4);
    }

    #[test]
    fn what_is_larger_than_a_share_is_taken_alone() {
        let turns = Turns::new(16);
        let large = turns.take(&client(1, "a"), 10).now_or_never().unwrap().unwrap();
        assert_eq!(all(&turns, &client(1, "a")).len(), 0);
        assert_eq!(all(&turns, &client(2, "b")).len(), 2, "ten of the twelve of others are taken");
        assert_eq!(all(&turns, &client(3, "operator")).len(), 4);
        drop(large);
        let one = Turns::new(1);
        assert_eq!(all(&one, &client(1, "a")).len(), 1);
    }

    #[test]
    fn names_that_nobody_uses_are_not_kept() {
        let turns = Turns::new(16);
        for number in 0..100 {
            drop(all(&turns, &client(number, &number.to_string())));
        }
        assert!(turns.shares.lock().len() <= 2);
    }
}
