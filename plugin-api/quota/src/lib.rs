//! A shared limit: a total for all keys, and a share for each key, such as an account, a network or a host.
//!
//! Units are the caller's: bytes, connections, requests. A [`Permit`] holds the taken amount and returns it when it is dropped.
//! Two limits on one thing, such as the account's and the store's, are two quotas whose permits are taken in the same order everywhere.
//!
//! Waiting callers are served in the order of arrival; a key that has used up its share is skipped until it returns something.
//!
//! Deliberately absent: clocks (limit a wait from outside, [`Quota::take`] may be dropped at any time), rates, and limits that change.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

pub trait Key: Clone + Debug + Eq + Hash {}

impl<K: Clone + Debug + Eq + Hash> Key for K {}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The share of the key.
    Share,
    /// The total of all keys.
    Total,
}

/// A shared limit; cheap to clone.
#[derive(Debug)]
pub struct Quota<K: Key>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K: Key> {
    total: u64,
    share: u64,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K: Key> {
    taken: u64,
    /// Only keys with an amount above 0.
    by_key: HashMap<K, u64>,
    waiting: VecDeque<Waiting<K>>,
}

#[derive(Debug)]
struct Waiting<K: Key> {
    key: K,
    amount: u64,
    grant: oneshot::Sender<Permit<K>>,
}

/// An amount of a quota, returned on drop.
#[derive(Debug)]
#[must_use]
pub struct Permit<K: Key> {
    quota: Quota<K>,
    key: K,
    amount: u64,
}

impl<K: Key> Clone for Quota<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Key> Quota<K> {
    /// `total` for all keys, at most `share` for one key. [`u64::MAX`] is no limit.
    pub fn new(total: u64, share: u64) -> Self {
        let state = State { taken: 0, by_key: HashMap::new(), waiting: VecDeque::new() };
        Self(Arc::new(Inner { total, share, state: Mutex::new(state) }))
    }

    pub fn total(&self) -> u64 {
        self.0.total
    }

    pub fn share(&self) -> u64 {
        self.0.share
    }

    pub fn taken(&self) -> u64 {
        self.0.state.lock().taken
    }

    pub fn taken_by(&self, key: &K) -> u64 {
        self.0.state.lock().of(key)
    }

    /// Number of keys that hold a permit above 0.
    pub fn keys(&self) -> usize {
        self.0.state.lock().by_key.len()
    }

    /// Takes `amount` without waiting. Does not overtake a waiting caller that could be served.
    ///
    /// # Errors
    /// The amount does not fit; the share is checked before the total.
    pub fn try_take(&self, key: K, amount: u64) -> Result<Permit<K>, Full> {
        let mut state = self.0.state.lock();
        self.0.check_capacity(&state, &key, 0, amount)?;
        for waiting in state.waiting.iter().filter(|waiting| !waiting.grant.is_closed()) {
            if waiting.key == key {
                return Err(Full::Share);
            }
            if self.0.check_capacity(&state, &waiting.key, 0, waiting.amount) != Err(Full::Share) {
                return Err(Full::Total);
            }
        }
        state.add(&key, amount);
        Ok(Permit { quota: self.clone(), key, amount })
    }

    /// A permit of amount 0, to be resized later.
    pub fn nothing(&self, key: K) -> Permit<K> {
        Permit { quota: self.clone(), key, amount: 0 }
    }

    /// Waits for `amount`; more than a share counts as a share. If the future is dropped before it resolves, nothing is taken.
    pub async fn take(&self, key: K, amount: u64) -> Permit<K> {
        let amount = amount.min(self.0.share).min(self.0.total);
        loop {
            let (grant, granted) = oneshot::channel();
            self.0.state.lock().waiting.push_back(Waiting { key: key.clone(), amount, grant });
            // Also when this future is dropped: callers may have waited behind it.
            let _others = ServeOnDrop(self);
            self.serve();
            // An error would mean that the sender was dropped unused, which `serve` never does.
            if let Ok(permit) = granted.await {
                return permit;
            }
        }
    }

    /// Grants waiting requests that fit.
    fn serve(&self) {
        let mut granted = Vec::new();
        {
            let mut state = self.0.state.lock();
            let mut passed_over: Vec<K> = Vec::new();
            let mut index = 0;
            while let Some(waiting) = state.waiting.get(index) {
                if waiting.grant.is_closed() {
                    state.waiting.remove(index);
                    continue;
                }
                let is_passed_over = passed_over.contains(&waiting.key);
                match self.0.check_capacity(&state, &waiting.key, 0, waiting.amount) {
                    Ok(()) if !is_passed_over => {}
                    Err(Full::Total) if !is_passed_over => break,
                    _ => {
                        if !is_passed_over {
                            passed_over.push(waiting.key.clone());
                        }
                        index += 1;
                        continue;
                    }
                }
                let Some(Waiting { key, amount, grant }) = state.waiting.remove(index) else { break };
                state.add(&key, amount);
                granted.push((grant, Permit { quota: self.clone(), key, amount }));
            }
        }
        // Not under the lock: if the caller has just gone, its permit comes back and is dropped.
        for (grant, permit) in granted {
            drop(grant.send(permit));
        }
    }
}

/// Calls `serve` on drop.
struct ServeOnDrop<'a, K: Key>(&'a Quota<K>);

impl<K: Key> Drop for ServeOnDrop<'_, K> {
    fn drop(&mut self) {
        self.0.serve();
    }
}

impl<K: Key> Inner<K> {
    /// Whether a key that returns `back` may take `amount` instead.
    fn check_capacity(&self, state: &State<K>, key: &K, back: u64, amount: u64) -> Result<(), Full> {
        let fits = |taken: u64, most: u64| (taken - back).checked_add(amount).is_some_and(|all| all <= most);
        if !fits(state.of(key), self.share) {
            return Err(Full::Share);
        }
        if fits(state.taken, self.total) { Ok(()) } else { Err(Full::Total) }
    }
}

impl<K: Key> State<K> {
    fn of(&self, key: &K) -> u64 {
        self.by_key.get(key).copied().unwrap_or_default()
    }

    fn add(&mut self, key: &K, amount: u64) {
        if amount > 0 {
            self.taken += amount;
            *self.by_key.entry(key.clone()).or_default() += amount;
        }
    }

    fn replace(&mut self, key: &K, from: u64, to: u64) {
        self.give_back(key, from);
        self.add(key, to);
    }

    fn give_back(&mut self, key: &K, amount: u64) {
        self.taken -= amount;
        if let Some(of_key) = self.by_key.get_mut(key) {
            *of_key -= amount;
            if *of_key == 0 {
                self.by_key.remove(key);
            }
        }
    }
}

impl<K: Key> Permit<K> {
    pub fn key(&self) -> &K {
        &self.key
    }

    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Changes the amount. A smaller amount always succeeds.
    ///
    /// # Errors
    /// The larger amount does not fit; the permit stays unchanged.
    pub fn resize(&mut self, amount: u64) -> Result<(), Full> {
        {
            let mut state = self.quota.0.state.lock();
            if amount > self.amount {
                self.quota.0.check_capacity(&state, &self.key, self.amount, amount)?;
            }
            state.replace(&self.key, self.amount, amount);
        }
        self.resized(amount);
        Ok(())
    }

    /// Sets the amount even beyond the limits: for existing things, such as files of an earlier run.
    pub fn set(&mut self, amount: u64) {
        self.quota.0.state.lock().replace(&self.key, self.amount, amount);
        self.resized(amount);
    }

    fn resized(&mut self, amount: u64) {
        let is_smaller = amount < self.amount;
        self.amount = amount;
        if is_smaller {
            self.quota.serve();
        }
    }
}

impl<K: Key> Drop for Permit<K> {
    fn drop(&mut self) {
        self.quota.0.state.lock().give_back(&self.key, self.amount);
        self.quota.serve();
    }
}

#[cfg(test)]
mod tests;
