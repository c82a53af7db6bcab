//! Bytes that viewers got, by account, destination and clock hour (UTC) of the byte.
//!
//! A body holds its hour's counter and adds to it without a lock. What was counted goes to the store every few seconds;
//! what the store did not take stays here for the next time. A counter only ever grows by bytes that were handed to the
//! socket, so nothing has to be taken back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::RwLock;

use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, DestinationId, UnixMillis};
use satcast_net::http::Sent;
use satcast_store::{Bandwidth, Store, StoreError};

/// How often counted bytes go to the store: what a crash loses at most.
pub const FLUSH_INTERVAL: Duration = Duration::from_secs(5);

/// Longest wait of a reader for bytes that are on their way to the store.
const MOVING_WAIT: Duration = Duration::from_millis(250);

/// Accounts whose stored bytes are kept here; beyond them all are asked for anew.
const STORED_MAX: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Subject {
    account: AccountId,
    destination: DestinationId,
    hour: UnixMillis,
}

/// Bytes of one subject that the store does not have yet.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

/// Counts for the whole service.
#[derive(Debug)]
pub(super) struct Meter {
    store: Store,
    clock: Clock,
    counters: Mutex<HashMap<Subject, Arc<Counter>>>,
    /// Written while bytes go over to the store, so that no reader sees them at both places or at none.
    moving: RwLock<()>,
    /// What the store said last.
    stored: Mutex<HashMap<AccountId, Stored>>,
}

/// Bytes that the store has of an account and hour.
#[derive(Clone, Copy, Debug)]
struct Stored {
    hour: UnixMillis,
    bytes: u64,
    /// Number of the last change before the store was asked.
    generation: u64,
}

impl Meter {
    pub(super) fn new(store: Store, clock: Clock) -> Self {
        Self { store, clock, counters: Mutex::default(), moving: RwLock::default(), stored: Mutex::default() }
    }

    /// Begins to count one body. `sent` is the number of bytes its connection has written.
    pub(super) fn count(
        self: &Arc<Self>,
        account: AccountId,
        destination: DestinationId,
        sent: Option<Sent>,
    ) -> Count {
        let subject = Subject { account, destination, hour: self.clock.now().hour_start() };
        let sent_before = sent.as_ref().map_or(0, Sent::bytes);
        let counter = self.counter(subject);
        Count { meter: self.clone(), subject, counter, given: 0, counted: 0, sent, sent_before }
    }

    fn counter(&self, subject: Subject) -> Arc<Counter> {
        self.counters.lock().entry(subject).or_default().clone()
    }

    /// Gives the store what was counted since the last time, in one transaction. To be run in a task of its own: dropped while
    /// the database commits, the bytes would be stored and would still wait here.
    ///
    /// # Errors
    /// The store failed; the bytes stay here for the next time.
    pub(super) async fn flush(&self) -> Result<(), StoreError> {
        let _moving = self.moving.write().await;
        let due: Vec<(Subject, Arc<Counter>, u64)> = {
            let counters = self.counters.lock();
            let counted = counters
                .iter()
                .map(|(subject, counter)| (*subject, counter.clone(), counter.0.load(Ordering::Relaxed)));
            counted.filter(|(_, _, bytes)| *bytes > 0).collect()
        };
        if !due.is_empty() {
            let rows: Vec<Bandwidth> = due.iter().map(|(subject, _, bytes)| row(*subject, *bytes)).collect();
            self.store.add_bandwidth(&rows).await?;
            for (_, counter, bytes) in &due {
                counter.0.fetch_sub(*bytes, Ordering::Relaxed);
            }
        }
        drop(due);
        self.forget_idle();
        Ok(())
    }

    /// Lets go of counters that are empty and that no body holds. Bodies take theirs under the same lock.
    fn forget_idle(&self) {
        // `get_mut` sees what a body added before it let go, which a count of the owners does not promise.
        self.counters
            .lock()
            .retain(|_, counter| Arc::get_mut(counter).is_none_or(|counter| *counter.0.get_mut() > 0));
    }

    /// Bytes of the account in the clock hour that runs, stored or not.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn used_this_hour(&self, account: AccountId) -> Result<u64, StoreError> {
        let hour = self.clock.now().hour_start();
        // A database that hangs must not hang the status: then what is on its way may be seen at both places.
        let _still = tokio::time::timeout(MOVING_WAIT, self.moving.read()).await;
        let stored = self.stored(account, hour).await?;
        let here =
            |(subject, _): &(&Subject, &Arc<Counter>)| subject.account == account && subject.hour == hour;
        let waiting: u64 = self
            .counters
            .lock()
            .iter()
            .filter(here)
            .map(|(_, counter)| counter.0.load(Ordering::Relaxed))
            .sum();
        Ok(stored.saturating_add(waiting))
    }

    /// Bytes that the store has; asked again after every change of them.
    async fn stored(&self, account: AccountId, hour: UnixMillis) -> Result<u64, StoreError> {
        let generation = self.store.generation();
        let known = || self.stored.lock();
        let is_true = |stored: &Stored| stored.hour == hour && stored.generation == generation;
        if let Some(stored) = known().get(&account).copied().filter(is_true) {
            return Ok(stored.bytes);
        }
        let bytes = self.store.bandwidth_of_hour(account, hour).await?;
        let mut stored = known();
        if stored.len() >= STORED_MAX {
            stored.clear();
        }
        stored.insert(account, Stored { hour, bytes, generation });
        Ok(bytes)
    }

    /// Bytes that wait for the store.
    pub(super) fn waiting(&self) -> u64 {
        self.counters.lock().values().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }
}

fn row(subject: Subject, bytes: u64) -> Bandwidth {
    Bandwidth { account: subject.account, destination: subject.destination, hour_start: subject.hour, bytes }
}

/// Counts one body. The connection asks for the next bytes when those before have gone, so that what it has written by
/// then, and no more than was given, is counted; the end of the body is given and counted at once. A connection that
/// dies before leaves what it had not written uncounted.
#[derive(Debug)]
pub(super) struct Count {
    meter: Arc<Meter>,
    subject: Subject,
    counter: Arc<Counter>,
    given: u64,
    counted: u64,
    sent: Option<Sent>,
    sent_before: u64,
}

impl Count {
    /// Counts what has gone by now; to be called before more is given.
    pub(super) fn settle(&mut self) {
        let written = self.sent.as_ref().map_or(u64::MAX, |sent| sent.bytes() - self.sent_before);
        self.add_up_to(self.given.min(written));
    }

    /// `bytes` more were given to the connection.
    pub(super) fn give(&mut self, bytes: u64) {
        self.given += bytes;
    }

    /// Nothing more will be given.
    pub(super) fn finish(&mut self) {
        self.add_up_to(self.given);
    }

    fn add_up_to(&mut self, total: u64) {
        if total <= self.counted {
            return;
        }
        let hour = self.meter.clock.now().hour_start();
        if hour != self.subject.hour {
            self.subject.hour = hour;
            self.counter = self.meter.counter(self.subject);
        }
        self.counter.0.fetch_add(total - self.counted, Ordering::Relaxed);
        self.counted = total;
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.settle();
    }
}

#[cfg(test)]
impl Meter {
    /// As while a flush waits for the database.
    pub(super) async fn hold(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.moving.write().await
    }

    pub(super) fn len(&self) -> usize {
        self.counters.lock().len()
    }

    /// Bodies that are being counted.
    pub(super) fn bodies(&self) -> usize {
        self.counters.lock().values().map(|counter| Arc::strong_count(counter) - 1).sum()
    }
}
