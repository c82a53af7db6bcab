//! Bytes sent to viewers, by account, destination and UTC clock hour.
//!
//! A body holds its hour's counter and adds to it without a lock. Counts are flushed to the store every few seconds; after a failed
//! flush they are kept for the next one. Only bytes handed to the socket are counted, so counts are never reduced.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::RwLock;

use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, DestinationId, Msat, UnixMillis};
use satcast_net::http::Sent;
use satcast_store::{Bandwidth, Store, StoreError, TimeRange};

/// Interval of flushes to the store, which bounds the loss after a crash.
pub const FLUSH_INTERVAL: Duration = Duration::from_secs(5);

/// Longest wait of a reader for a running flush.
const MOVING_WAIT: Duration = Duration::from_millis(250);

/// Most accounts in the cache of stored use; when there are more, all are dropped.
const STORED_MAX: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Subject {
    account: AccountId,
    destination: DestinationId,
    hour: UnixMillis,
}

/// Bytes of one subject that are not stored yet.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

/// Counters of the whole service.
#[derive(Debug)]
pub(super) struct Meter {
    store: Store,
    clock: Clock,
    counters: Mutex<HashMap<Subject, Arc<Counter>>>,
    /// Write-locked during a flush, so that no reader sees the bytes twice or not at all.
    moving: RwLock<()>,
    /// Cache of the store's last answers.
    stored: Mutex<HashMap<AccountId, Stored>>,
    /// Bytes that were stored since the start.
    stored_bytes: AtomicU64,
}

/// Playback of an account in a clock hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HourUse {
    /// Bytes sent to viewers.
    pub bytes: u64,
    /// Charges for them.
    pub charged: Msat,
}

/// Stored use of an account in an hour.
#[derive(Clone, Copy, Debug)]
struct Stored {
    hour: UnixMillis,
    used: HourUse,
    /// Generation of the store before the query.
    generation: u64,
    said_at: Duration,
}

impl Meter {
    pub(super) fn new(store: Store, clock: Clock) -> Self {
        let (counters, moving, stored) = (Mutex::default(), RwLock::default(), Mutex::default());
        Self { store, clock, counters, moving, stored, stored_bytes: AtomicU64::new(0) }
    }

    /// Starts counting one body. `sent` is the number of bytes that its connection has written.
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

    /// Stores the bytes counted since the last flush, in one transaction. Must run in a task of its own: if it were dropped during the
    /// commit, the bytes would be stored and still be counted here.
    ///
    /// # Errors
    /// The store failed; the bytes are kept for the next flush.
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
                self.stored_bytes.fetch_add(*bytes, Ordering::Relaxed);
            }
        }
        drop(due);
        self.forget_idle();
        Ok(())
    }

    /// Removes empty counters that no body holds. Bodies get their counters under the same lock.
    fn forget_idle(&self) {
        // `get_mut` synchronizes with the last additions of a dropped body, which the reference count alone does not.
        self.counters
            .lock()
            .retain(|_, counter| Arc::get_mut(counter).is_none_or(|counter| *counter.0.get_mut() > 0));
    }

    /// Use of the account in the current clock hour, with bytes that are not stored yet.
    ///
    /// # Errors
    /// The store failed.
    pub(super) async fn this_hour(&self, account: AccountId) -> Result<HourUse, StoreError> {
        let hour = self.clock.now().hour_start();
        // A hanging database must not block the status: bytes of a running flush may then be counted twice.
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
        Ok(HourUse { bytes: stored.bytes.saturating_add(waiting), ..stored })
    }

    /// Stored use; queried again after every change, and after some seconds for changes by other processes.
    async fn stored(&self, account: AccountId, hour: UnixMillis) -> Result<HourUse, StoreError> {
        let (generation, now) = (self.store.generation(), self.clock.monotonic());
        let known = || self.stored.lock();
        let is_true = |stored: &Stored| {
            let is_fresh = now < stored.said_at + FLUSH_INTERVAL;
            stored.hour == hour && stored.generation == generation && is_fresh
        };
        if let Some(stored) = known().get(&account).copied().filter(is_true) {
            return Ok(stored.used);
        }
        let bytes = self.store.bandwidth_of_hour(account, hour).await?;
        let range = TimeRange { from: Some(hour), to: None };
        let charged = self.store.overage_charges(account, range).await?;
        let used = HourUse { bytes, charged };
        let mut stored = known();
        if stored.len() >= STORED_MAX {
            stored.clear();
        }
        stored.insert(account, Stored { hour, used, generation, said_at: now });
        Ok(used)
    }

    /// Bytes stored so far.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that are not stored yet.
    pub(super) fn waiting(&self) -> u64 {
        self.counters.lock().values().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }
}

fn row(subject: Subject, bytes: u64) -> Bandwidth {
    Bandwidth { account: subject.account, destination: subject.destination, hour_start: subject.hour, bytes }
}

/// Counts one body. The connection requests the next bytes when the bytes before are written, so the bytes written by then are
/// counted, but never more than were handed out. The end of the body is counted when it is handed out. If the connection breaks,
/// bytes that it had not written are not counted.
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
    /// Counts the bytes written so far; call before handing out more.
    pub(super) fn settle(&mut self) {
        let written = self.sent.as_ref().map_or(u64::MAX, |sent| sent.bytes() - self.sent_before);
        self.add_up_to(self.given.min(written));
    }

    /// Records that `bytes` more were handed to the connection.
    pub(super) fn give(&mut self, bytes: u64) {
        self.given += bytes;
    }

    /// Records that no more bytes follow.
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
    /// Blocks readers as a flush does that waits for the database.
    pub(super) async fn hold(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.moving.write().await
    }

    pub(super) fn len(&self) -> usize {
        self.counters.lock().len()
    }

    /// Number of bodies that are being counted.
    pub(super) fn bodies(&self) -> usize {
        self.counters.lock().values().map(|counter| Arc::strong_count(counter) - 1).sum()
    }
}
