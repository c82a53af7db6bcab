//! Files that several viewers want, in memory: one limit for all streams, and one account's part of it.
//!
//! The first request for a file reads it from the disk, frame by frame. From the second request on the file is worth its
//! memory: it is read whole, once for all requests that wait for it. When the limit is reached, the files that nobody
//! asked for lately leave. A file that finds no space is sent from the disk.
//!
//! The slot of a file belongs to its asset, so a retracted or replaced asset takes its bytes with it. Bytes that a slow
//! viewer still reads count until they are dropped.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_quota::{Full, Permit, Quota};
use tokio::sync::watch;

use super::counted::counted;
use satcast_core::ids::AccountId;

/// Bytes of all files in memory: about 340 segments of 2 s at 3 Mbit/s.
pub const CACHE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// One account may use at most this part of the limit: half.
const ACCOUNT_PART: u64 = 2;
/// A file larger than this part of the limit is never kept: an eighth.
const FILE_PART: u64 = 8;

/// The bytes of one file, if they are in memory.
#[derive(Debug, Default)]
pub struct Slot {
    state: Mutex<State>,
    /// Asked for since the cache last looked for the oldest.
    used: AtomicBool,
}

#[derive(Debug, Default)]
enum State {
    /// Nobody asked for the file, or it has left the memory.
    #[default]
    Cold,
    /// One request came.
    Asked,
    /// The file is being read. The sender is dropped at the end.
    Loading(watch::Receiver<()>),
    Held(Bytes),
}

/// The next step of a request.
enum Step {
    Send(Bytes),
    Wait(watch::Receiver<()>),
    Load(watch::Sender<()>),
    /// Read the file without the cache.
    Pass,
}

impl Slot {
    /// The bytes, if they are in memory.
    fn held(&self) -> Option<Bytes> {
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
                let (sender, done) = watch::channel(());
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

    /// The bytes leave the memory. The next request reads the file from the disk again.
    fn clear(&self) {
        let mut state = self.state.lock();
        let before = matches!(*state, State::Held(_)).then(|| std::mem::take(&mut *state));
        drop(state);
        drop(before);
    }
}

/// The files in memory.
#[derive(Debug)]
pub struct Cache {
    quota: Quota<AccountId>,
    /// The files in memory with the account that they count for, the next to leave first.
    order: Mutex<VecDeque<(AccountId, Weak<Slot>)>>,
}

impl Cache {
    /// A cache of at most `bytes` bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { quota: Quota::new(bytes, bytes / ACCOUNT_PART), order: Mutex::default() })
    }

    /// The bytes of a file of `len` bytes, which counts for `account`; `read` reads all of them and may block. `None`
    /// when the caller has to read the file: at the first request, without space, and after an error. Cancel safe: the
    /// read goes on for the requests that wait for it.
    pub async fn bytes<R>(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        account: AccountId,
        len: u64,
        read: R,
    ) -> Option<Bytes>
    where
        R: FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
    {
        if len > self.quota.total() / FILE_PART {
            return None;
        }
        let mut done = match slot.step() {
            Step::Send(bytes) => return Some(bytes),
            Step::Pass => return None,
            Step::Wait(done) => done,
            Step::Load(sender) => {
                let Some(permit) = self.take(account, len) else {
                    slot.set(State::Asked);
                    return None;
                };
                let done = sender.subscribe();
                let (cache, slot) = (self.clone(), slot.clone());
                tokio::task::spawn_blocking(move || {
                    cache.keep(&slot, account, permit, read());
                    // Before the waiting requests go on, so that the file leaves with its asset.
                    drop(slot);
                    drop(sender);
                });
                done
            }
        };
        // An error: the read has ended.
        let _ = done.changed().await;
        slot.held()
    }

    /// Keeps the bytes of a finished read.
    fn keep(
        &self,
        slot: &Arc<Slot>,
        account: AccountId,
        permit: Permit<AccountId>,
        read: io::Result<Vec<u8>>,
    ) {
        let Ok(bytes) = read else { return slot.set(State::Asked) };
        slot.set(State::Held(counted(permit, Bytes::from(bytes))));
        let mut order = self.order.lock();
        order.retain(|(_, slot)| slot.strong_count() > 0);
        order.push_back((account, Arc::downgrade(slot)));
    }

    /// A permit for these bytes of `account`, after files that nobody asked for lately have left.
    fn take(&self, account: AccountId, bytes: u64) -> Option<Permit<AccountId>> {
        loop {
            let full = match self.quota.try_take(account, bytes) {
                Ok(permit) => return Some(permit),
                Err(full) => full,
            };
            self.next_to_leave((full == Full::Share).then_some(account))?.clear();
        }
    }

    /// Takes the next file out of the order, of `account` if one is given. A file that was asked for lately is passed
    /// over once.
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

    /// Bytes in memory, also of files that left and are still being sent.
    pub fn bytes_taken(&self) -> u64 {
        self.quota.taken()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;
    use std::time::Duration;

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

        async fn ask(&self, slot: &Arc<Slot>, account: AccountId) -> Option<Bytes> {
            let reads = self.reads.clone();
            let read = move || {
                reads.fetch_add(1, Ordering::SeqCst);
                Ok(vec![7; FILE as usize])
            };
            self.cache.bytes(slot, account, FILE, read).await
        }

        /// A file that two viewers have asked for.
        async fn wanted(&self, account: AccountId) -> Arc<Slot> {
            let slot = Arc::new(Slot::default());
            assert_eq!(self.ask(&slot, account).await, None);
            self.ask(&slot, account).await;
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
        assert_eq!(rig.ask(&slot, ACCOUNT).await, None, "a single viewer reads from the disk");
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
        let (go, wait) = mpsc::channel::<()>();
        let read = move || {
            let _ = wait.recv_timeout(Duration::from_secs(20));
            Ok(vec![1; 10])
        };
        let never = || -> io::Result<Vec<u8>> { Err(io::Error::other("a second read")) };
        assert!(cache.bytes(&slot, ACCOUNT, 10, never).await.is_none());
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
        assert!(rig.ask(&all[0], ACCOUNT).await.is_some());
        let fifth = rig.wanted(ACCOUNT).await;
        assert!(all[0].held().is_some() && all[1].held().is_none() && fifth.held().is_some());
        assert!(other.held().is_some(), "another account's file stays");
        assert_eq!(rig.cache.bytes_taken(), 5 * FILE);
        let reads = rig.reads();
        assert_eq!(rig.ask(&all[1], ACCOUNT).await, None, "its next request comes from the disk");
        assert_eq!(rig.reads(), reads);
        assert!(rig.ask(&all[1], ACCOUNT).await.is_some());
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
        assert!(rig.ask(&slot, ACCOUNT).await.is_some());
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_or_is_too_large_is_left_to_the_caller() {
        let cache = Cache::new(LIMIT);
        let slot = Arc::new(Slot::default());
        for _ in 0..3 {
            let gone = || -> io::Result<Vec<u8>> { Err(io::ErrorKind::NotFound.into()) };
            assert_eq!(cache.bytes(&slot, ACCOUNT, 10, gone).await, None);
        }
        assert_eq!(cache.bytes_taken(), 0);
        assert!(cache.bytes(&slot, ACCOUNT, 10, || Ok(vec![1; 10])).await.is_some(), "it is back");
        let large = Arc::new(Slot::default());
        for _ in 0..3 {
            assert_eq!(cache.bytes(&large, ACCOUNT, FILE + 1, || Ok(Vec::new())).await, None);
        }
    }
}
