//! Media that several viewers want, in memory: one limit for files of all live streams and for ranges of recordings, and one
//! account's part of it.
//!
//! The first request reads the media where it is, on its own. From the second request on it is worth its memory: it is
//! read whole, once for all requests that wait for it. When the limit is reached, the media that nobody asked for lately
//! leaves. Media that finds no space is read for each request.
//!
//! The slot of a file belongs to its asset, so a retracted or replaced asset takes its bytes with it. Bytes that a slow
//! viewer still reads count until they are dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_quota::{Full, Permit, Quota};
use tokio::sync::watch;

use super::counted::counted;
use satcast_core::ids::AccountId;

/// Bytes of all media in memory: about 340 segments of 2 s at 3 Mbit/s.
pub const CACHE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// One account may use at most this part of the limit: half.
const ACCOUNT_PART: u64 = 2;
/// Media larger than this part of the limit is never kept: an eighth.
const FILE_PART: u64 = 8;

/// The bytes of one file or range, if they are in memory.
#[derive(Debug, Default)]
pub struct Slot {
    state: Mutex<State>,
    /// Asked for since the cache last looked for the oldest.
    used: AtomicBool,
}

#[derive(Debug, Default)]
enum State {
    /// Nobody asked for it, or it has left the memory.
    #[default]
    Cold,
    /// One request came.
    Asked,
    /// It is being read. The sender is dropped at the end; true: the read has failed.
    Loading(watch::Receiver<bool>),
    Held(Bytes),
}

/// The next step of a request.
enum Step {
    Send(Bytes),
    Wait(watch::Receiver<bool>),
    Load(watch::Sender<bool>),
    /// Read it without the cache.
    Pass,
}

/// Why the cache has no bytes for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unkept {
    /// The request has to read by itself: it is the first, or there is no space.
    ReadAlone,
    /// The read that it shared with others has failed.
    Failed,
}

impl Slot {
    /// Whether the bytes are in memory or come into it.
    pub fn is_in_use(&self) -> bool {
        matches!(&*self.state.lock(), State::Held(_) | State::Loading(_))
    }

    /// Counts a request that reads by itself.
    pub fn ask(&self) {
        let mut state = self.state.lock();
        if matches!(*state, State::Cold) {
            *state = State::Asked;
        }
    }

    /// The bytes, if they are in memory.
    pub fn held(&self) -> Option<Bytes> {
        match &*self.state.lock() {
            State::Held(bytes) => Some(bytes.clone()),
            State::Cold | State::Asked | State::Loading(_) => None,
        }
    }

    fn step(&self) -> Step {
        let mut state = self.state.lock();
        match &*state {
            State::Held(bytes) => {
                self.used.store(true, Ordering::Relaxed);
                Step::Send(bytes.clone())
            }
            State::Loading(done) => Step::Wait(done.clone()),
            State::Cold => {
                *state = State::Asked;
                Step::Pass
            }
            State::Asked => {
                let (sender, done) = watch::channel(false);
                *state = State::Loading(done);
                Step::Load(sender)
            }
        }
    }

    fn set(&self, next: State) {
        let before = std::mem::replace(&mut *self.state.lock(), next);
        // Not under the lock: large memory goes back to the system.
        drop(before);
    }

    /// The bytes leave the memory. The next request reads them again.
    fn clear(&self) {
        let mut state = self.state.lock();
        let before = matches!(*state, State::Held(_)).then(|| std::mem::take(&mut *state));
        drop(state);
        drop(before);
    }
}

/// The media in memory.
#[derive(Debug)]
pub struct Cache {
    quota: Quota<AccountId>,
    /// Media in memory with the account that they count for, the next to leave first.
    order: Mutex<VecDeque<(AccountId, Weak<Slot>)>>,
}

impl Cache {
    /// A cache of at most `bytes` bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { quota: Quota::new(bytes, bytes / ACCOUNT_PART), order: Mutex::default() })
    }

    /// The `len` bytes of a slot, which count for `account`; `read` reads all of them, and is `None` after an error. Cancel
    /// safe: the read goes on for the requests that wait for it.
    ///
    /// # Errors
    /// Any [`Unkept`].
    pub async fn bytes<R>(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        account: AccountId,
        len: u64,
        read: impl FnOnce() -> R,
    ) -> Result<Bytes, Unkept>
    where
        R: Future<Output = Option<Bytes>> + Send + 'static,
    {
        if len > self.quota.total() / FILE_PART {
            return Err(Unkept::ReadAlone);
        }
        let mut done = match slot.step() {
            Step::Send(bytes) => return Ok(bytes),
            Step::Pass => return Err(Unkept::ReadAlone),
            Step::Wait(done) => done,
            Step::Load(sender) => {
                let Some(permit) = self.take(account, len) else {
                    slot.set(State::Asked);
                    return Err(Unkept::ReadAlone);
                };
                let done = sender.subscribe();
                let (cache, slot, read) = (self.clone(), slot.clone(), read());
                tokio::spawn(async move {
                    let is_kept = cache.keep(&slot, account, permit, read.await);
                    // Before the waiting requests go on, so that the file leaves with its asset.
                    drop(slot);
                    let _ = sender.send(!is_kept);
                });
                done
            }
        };
        // An error: the read has ended.
        let _ = done.changed().await;
        if *done.borrow() { Err(Unkept::Failed) } else { slot.held().ok_or(Unkept::ReadAlone) }
    }

    /// Keeps the bytes of a finished read; false after an error.
    fn keep(
        &self,
        slot: &Arc<Slot>,
        account: AccountId,
        permit: Permit<AccountId>,
        read: Option<Bytes>,
    ) -> bool {
        let Some(bytes) = read else {
            slot.set(State::Asked);
            return false;
        };
        slot.set(State::Held(counted(permit, bytes)));
        let mut order = self.order.lock();
        order.retain(|(_, slot)| slot.strong_count() > 0);
        order.push_back((account, Arc::downgrade(slot)));
        true
    }

    /// A permit for these bytes of `account`, after media that nobody asked for lately has left.
    fn take(&self, account: AccountId, bytes: u64) -> Option<Permit<AccountId>> {
        loop {
            let full = match self.quota.try_take(account, bytes) {
                Ok(permit) => return Some(permit),
                Err(full) => full,
            };
            self.next_to_leave((full == Full::Share).then_some(account))?.clear();
        }
    }

    /// Takes the next slot out of the order, of `account` if one is given. One that was asked for lately is passed over
    /// once.
    fn next_to_leave(&self, account: Option<AccountId>) -> Option<Arc<Slot>> {
        let mut order = self.order.lock();
        for _ in 0..2 * order.len() {
            let (of, weak) = order.pop_front()?;
            let Some(slot) = weak.upgrade() else { continue };
            let is_other = account.is_some_and(|account| account != of);
            if !is_other && !slot.used.swap(false, Ordering::Relaxed) {
                return Some(slot);
            }
            order.push_back((of, weak));
        }
        None
    }

    /// Bytes in memory, also of media that left and is still being sent.
    pub fn bytes_taken(&self) -> u64 {
        self.quota.taken()
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    const LIMIT: u64 = 800;
    const FILE: u64 = LIMIT / FILE_PART;
    const ACCOUNT: AccountId = AccountId(1);
    const OTHER: AccountId = AccountId(2);

    /// A cache that counts its reads.
    struct Rig {
        cache: Arc<Cache>,
        reads: Arc<AtomicUsize>,
    }

    impl Rig {
        fn new() -> Self {
            Self { cache: Cache::new(LIMIT), reads: Arc::default() }
        }

        async fn ask(&self, slot: &Arc<Slot>, account: AccountId) -> Result<Bytes, Unkept> {
            let reads = self.reads.clone();
            let read = move || async move {
                reads.fetch_add(1, Ordering::SeqCst);
                Some(vec![7; FILE as usize].into())
            };
            self.cache.bytes(slot, account, FILE, read).await
        }

        /// A file that two viewers have asked for.
        async fn wanted(&self, account: AccountId) -> Arc<Slot> {
            let slot = Arc::new(Slot::default());
            assert_eq!(self.ask(&slot, account).await, Err(Unkept::ReadAlone));
            let _ = self.ask(&slot, account).await;
            slot
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn the_second_request_reads_the_file_once_for_all() {
        let rig = Rig::new();
        let slot = Arc::new(Slot::default());
        assert_eq!(rig.ask(&slot, ACCOUNT).await, Err(Unkept::ReadAlone), "a single viewer");
        assert_eq!((rig.reads(), rig.cache.bytes_taken()), (0, 0));
        let first = rig.ask(&slot, ACCOUNT).await.unwrap();
        assert_eq!(first, vec![7; FILE as usize]);
        let again = rig.ask(&slot, OTHER).await.unwrap();
        assert_eq!((again.as_ptr(), rig.reads()), (first.as_ptr(), 1), "the same memory for all");
        assert_eq!(rig.cache.bytes_taken(), FILE);
    }

    #[tokio::test]
    async fn many_that_wait_share_one_read_and_one_that_leaves_does_not_end_it() {
        let cache = Cache::new(LIMIT);
        let slot = Arc::new(Slot::default());
        let (go, wait) = oneshot::channel::<()>();
        let read = || async {
            wait.await.ok()?;
            Some(vec![1; 10].into())
        };
        let never = || ready(None);
        assert_eq!(cache.bytes(&slot, ACCOUNT, 10, never).await, Err(Unkept::ReadAlone));
        let first = cache.bytes(&slot, ACCOUNT, 10, read);
        assert!(tokio::time::timeout(Duration::from_millis(1), first).await.is_err(), "it left");
        let waiting: Vec<_> = (0..50)
            .map(|_| {
                let (cache, slot) = (cache.clone(), slot.clone());
                tokio::spawn(async move { cache.bytes(&slot, OTHER, 10, never).await })
            })
            .collect();
        tokio::task::yield_now().await;
        go.send(()).unwrap();
        for request in waiting {
            assert_eq!(request.await.unwrap().unwrap(), vec![1; 10]);
        }
    }

    #[tokio::test]
    async fn an_account_gets_half_and_the_file_asked_for_longest_ago_leaves() {
        let rig = Rig::new();
        let mut all = Vec::new();
        for _ in 0..4 {
            all.push(rig.wanted(ACCOUNT).await);
        }
        let other = rig.wanted(OTHER).await;
        assert_eq!(rig.cache.bytes_taken(), 5 * FILE);
        // The first is asked for again, so the second leaves.
        assert!(rig.ask(&all[0], ACCOUNT).await.is_ok());
        let fifth = rig.wanted(ACCOUNT).await;
        assert!(all[0].held().is_some() && all[1].held().is_none() && fifth.held().is_some());
        assert!(other.held().is_some(), "another account's file stays");
        assert_eq!(rig.cache.bytes_taken(), 5 * FILE);
        let reads = rig.reads();
        assert_eq!(rig.ask(&all[1], ACCOUNT).await, Err(Unkept::ReadAlone), "its next request reads");
        assert_eq!(rig.reads(), reads);
        assert!(rig.ask(&all[1], ACCOUNT).await.is_ok());
    }

    #[tokio::test]
    async fn all_accounts_together_get_the_limit() {
        let rig = Rig::new();
        let mut all = Vec::new();
        for account in 1..=3 {
            for _ in 0..4 {
                all.push(rig.wanted(AccountId(account)).await);
                assert!(rig.cache.bytes_taken() <= LIMIT);
            }
        }
        assert_eq!(rig.cache.bytes_taken(), LIMIT);
        assert_eq!(all.iter().filter(|slot| slot.held().is_some()).count(), 8);
        drop(all);
        assert_eq!(rig.cache.bytes_taken(), 0, "the bytes go with their assets");
    }

    #[tokio::test]
    async fn bytes_of_a_slow_reader_count_until_the_reader_is_done() {
        let rig = Rig::new();
        let mut slow = Vec::new();
        for _ in 0..4 {
            let slot = rig.wanted(ACCOUNT).await;
            slow.push(slot.held().unwrap().slice(..1));
            drop(slot);
        }
        assert_eq!(rig.cache.bytes_taken(), 4 * FILE);
        let slot = rig.wanted(ACCOUNT).await;
        assert!(slot.held().is_none(), "without space the file is sent from the disk");
        assert!(rig.wanted(OTHER).await.held().is_some());
        slow.pop();
        assert!(rig.ask(&slot, ACCOUNT).await.is_ok());
    }

    #[tokio::test]
    async fn a_read_that_fails_fails_for_all_that_wait_and_the_next_request_reads_again() {
        let cache = Cache::new(LIMIT);
        let slot = Arc::new(Slot::default());
        let ask = |outcome: Option<Bytes>| cache.bytes(&slot, ACCOUNT, 10, move || ready(outcome));
        assert_eq!(ask(None).await, Err(Unkept::ReadAlone));
        assert!(!slot.is_in_use());
        let (one, other) = tokio::join!(ask(None), ask(Some(vec![1; 10].into())));
        assert_eq!((one, other), (Err(Unkept::Failed), Err(Unkept::Failed)));
        assert_eq!(cache.bytes_taken(), 0);
        assert!(ask(Some(vec![1; 10].into())).await.is_ok() && slot.is_in_use());
    }

    #[tokio::test]
    async fn media_that_is_too_large_is_left_to_the_caller() {
        let cache = Cache::new(LIMIT);
        let large = Arc::new(Slot::default());
        for _ in 0..3 {
            let bytes = cache.bytes(&large, ACCOUNT, FILE + 1, || ready(Some(Bytes::new()))).await;
            assert_eq!(bytes, Err(Unkept::ReadAlone));
        }
    }
}
