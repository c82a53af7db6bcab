//! Copies of what other nodes publish: limits for all streams, and one account's part of them.
//!
//! Any number of viewers that ask for the same thing wait for one request. A copy is used for as long as caches may keep it, and
//! leaves earlier when others need its room, the one that was not used for longest first. Bytes that a slow viewer still reads
//! count until they are dropped: slow viewers can fill the memory with media, so further media goes to files without a name, and
//! playlists have room of their own.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use satcast_plugin_api::AssetBody;
use satcast_quota::{Full, Permit, Quota};
use tokio::sync::watch;

use super::content::{Content, Failure};
use satcast_core::ids::AccountId;

/// Bytes of all copies of media in memory, as much as the files of this node's own streams may have.
pub const COPIES_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of all copies of playlists, which are in memory.
pub const COPIES_PLAYLISTS_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of all copies in files.
pub const COPIES_FILES_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// One account may use at most this part of each limit: half. Nothing larger can be relayed.
const ACCOUNT_PART: u64 = 2;
/// Most copies and running requests.
pub const COPIES_MAX: usize = 16_384;

/// Where the bytes of a copy are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Playlists,
    Memory,
    Files,
}

impl Room {
    fn of(content: &Content) -> Self {
        match &content.asset {
            Some(asset) if asset.is_playlist() => Self::Playlists,
            Some(asset) if matches!(asset.body, AssetBody::Open { .. }) => Self::Files,
            _ => Self::Memory,
        }
    }
}

/// The outcome of a request to another node; `None` while it runs.
pub(super) type Outcome = Option<Result<Content, Failure>>;

#[derive(Debug)]
enum Entry {
    Asked(watch::Receiver<Outcome>),
    Kept { content: Content, account: AccountId, until: Duration, used_at: Duration },
}

/// The next step of a viewer.
#[derive(Debug)]
pub(super) enum Step {
    Have(Content),
    Wait(watch::Receiver<Outcome>),
    /// Ask the other node, send the outcome, and [keep](Copies::keep) it.
    Fetch(watch::Sender<Outcome>),
    /// Too many requests run.
    Full,
}

/// The copies, by their addresses.
#[derive(Debug)]
pub(super) struct Copies {
    playlists: Quota<AccountId>,
    memory: Quota<AccountId>,
    files: Quota<AccountId>,
    by_address: Mutex<HashMap<String, Entry>>,
}

impl Copies {
    /// At most so many bytes of playlists, of media in memory, and in files.
    pub(super) fn new(playlists: u64, memory: u64, files: u64) -> Self {
        let [playlists, memory, files] =
            [playlists, memory, files].map(|bytes| Quota::new(bytes, bytes / ACCOUNT_PART));
        Self { playlists, memory, files, by_address: Mutex::default() }
    }

    fn quota(&self, room: Room) -> &Quota<AccountId> {
        match room {
            Room::Playlists => &self.playlists,
            Room::Memory => &self.memory,
            Room::Files => &self.files,
        }
    }

    /// The copy at an address, or how to get it, at the monotonic time `now`.
    pub(super) fn find(&self, address: &str, now: Duration) -> Step {
        let mut all = self.by_address.lock();
        match all.get_mut(address) {
            Some(Entry::Kept { content, until, used_at, .. }) if now < *until => {
                *used_at = now;
                return Step::Have(content.clone());
            }
            // A request that ended without an outcome has failed.
            Some(Entry::Asked(outcome)) if outcome.has_changed().is_ok() => {
                return Step::Wait(outcome.clone());
            }
            _ => {}
        }
        let mut gone = Vec::new();
        if all.len() >= COPIES_MAX && !all.contains_key(address) {
            gone.extend(
                all.extract_if(|_, entry| matches!(entry, Entry::Kept { until, .. } if now >= *until)),
            );
            if all.len() >= COPIES_MAX {
                let Some(oldest) = longest_unused(&all, |_, _| true) else { return Step::Full };
                gone.extend(all.remove_entry(&oldest));
            }
        }
        let (sender, outcome) = watch::channel(None);
        let before = all.insert(address.to_owned(), Entry::Asked(outcome));
        drop(all);
        // Not under the lock: large memory goes back to the system.
        drop((before, gone));
        Step::Fetch(sender)
    }

    /// The request for an address has ended: keeps the content for `age`, and nothing without one.
    pub(super) fn keep(
        &self,
        address: &str,
        account: AccountId,
        kept: Option<(Content, Duration)>,
        now: Duration,
    ) {
        let mut all = self.by_address.lock();
        let before = match kept.filter(|(_, age)| !age.is_zero()) {
            Some((content, age)) => {
                let entry = Entry::Kept { content, account, until: now.saturating_add(age), used_at: now };
                all.insert(address.to_owned(), entry)
            }
            None => all.remove(address),
        };
        drop(all);
        drop(before);
    }

    /// A permit for these bytes of `account`, after copies have left if that is needed; `None` while viewers still read as much as
    /// the limit.
    pub(super) fn take(&self, room: Room, account: AccountId, bytes: u64) -> Option<Permit<AccountId>> {
        let quota = self.quota(room);
        loop {
            let full = match quota.try_take(account, bytes) {
                Ok(permit) => return Some(permit),
                Err(_) if bytes > quota.share() => return None,
                Err(full) => full,
            };
            let mut all = self.by_address.lock();
            let oldest = longest_unused(&all, |content, of| {
                Room::of(content) == room && (full == Full::Total || *of == account)
            })?;
            let gone = all.remove(&oldest);
            drop(all);
            drop(gone);
        }
    }
}

/// The address of the copy that was not used for longest, of those for which `is_meant` is true.
fn longest_unused(
    all: &HashMap<String, Entry>,
    is_meant: impl Fn(&Content, &AccountId) -> bool,
) -> Option<String> {
    let kept = all.iter().filter_map(|(address, entry)| match entry {
        Entry::Kept { content, account, used_at, .. } if is_meant(content, account) => {
            Some((*used_at, address))
        }
        Entry::Kept { .. } | Entry::Asked(_) => None,
    });
    kept.min_by_key(|(used_at, _)| *used_at).map(|(_, address)| address.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use satcast_plugin_api::{Asset, Audience};

    use super::*;
    use satcast_core::ids::{DestinationId, SessionId, UnixMillis};
    use satcast_drivers::published::{Opening, Published, counted};

    const LIMIT: u64 = 800;
    const ACCOUNT: AccountId = AccountId(1);
    const OTHER: AccountId = AccountId(2);
    const AGE: Duration = Duration::from_secs(10);

    fn content(permit: Permit<AccountId>, len: u64) -> Content {
        let body = AssetBody::Memory(counted(permit, Bytes::from(vec![0; len as usize])));
        let asset = Arc::new(Published::uncounted(Asset::new("x", "x/y", Audience::Both, body)));
        let opening = Opening::new(DestinationId(1), SessionId("s".into()), UnixMillis(0));
        Content { opening: Arc::new(opening), asset: Some(asset), max_age_secs: None, waited: false }
    }

    /// Fetches `len` bytes; whether they were not there.
    fn ask(copies: &Copies, address: &str, account: AccountId, len: u64, now: Duration) -> bool {
        match copies.find(address, now) {
            Step::Have(_) => false,
            Step::Fetch(sender) => {
                let content = content(copies.take(Room::Memory, account, len).unwrap(), len);
                copies.keep(address, account, Some((content, AGE)), now);
                drop(sender);
                true
            }
            other => panic!("{other:?}"),
        }
    }

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_copy_is_used_until_its_time_is_over() {
        let copies = Copies::new(LIMIT, LIMIT, LIMIT);
        assert!(ask(&copies, "a", ACCOUNT, 100, at(0)));
        assert!(!ask(&copies, "a", ACCOUNT, 100, at(9)));
        assert!(ask(&copies, "a", ACCOUNT, 100, at(10)));
        assert_eq!(copies.memory.taken(), 100);
        let Step::Fetch(sender) = copies.find("b", at(0)) else { panic!("nothing is known") };
        assert!(matches!(copies.find("b", at(0)), Step::Wait(_)));
        drop(sender);
        assert!(matches!(copies.find("b", at(0)), Step::Fetch(_)), "a request that ended without an outcome");
    }

    #[test]
    fn the_copies_that_were_not_used_for_longest_leave_first() {
        let copies = Copies::new(LIMIT, LIMIT, LIMIT);
        for (address, account, now) in [("a", ACCOUNT, 0), ("b", ACCOUNT, 1), ("c", OTHER, 2)] {
            assert!(ask(&copies, address, account, 200, at(now)));
        }
        assert!(!ask(&copies, "a", ACCOUNT, 200, at(3)));
        // The account has its half: of its own copies one leaves.
        assert!(ask(&copies, "d", ACCOUNT, 200, at(4)));
        assert!(!ask(&copies, "a", ACCOUNT, 200, at(5)) && !ask(&copies, "c", OTHER, 200, at(5)));
        assert!(ask(&copies, "b", ACCOUNT, 200, at(6)));
        assert_eq!(copies.memory.taken(), 600);
    }

    #[test]
    fn bytes_that_are_still_read_count_and_nothing_larger_than_a_part_fits() {
        let copies = Copies::new(LIMIT, LIMIT, LIMIT);
        assert!(copies.take(Room::Memory, ACCOUNT, LIMIT / ACCOUNT_PART + 1).is_none());
        assert!(ask(&copies, "a", ACCOUNT, 400, at(0)));
        let Step::Have(read) = copies.find("a", at(1)) else { panic!("it is kept") };
        assert!(copies.take(Room::Memory, ACCOUNT, 1).is_none());
        assert!(matches!(copies.find("a", at(2)), Step::Fetch(_)), "it has left");
        for room in [Room::Playlists, Room::Files] {
            assert!(copies.take(room, ACCOUNT, 400).is_some(), "{room:?} has a limit of its own");
        }
        drop(read);
        assert!(copies.take(Room::Memory, ACCOUNT, 400).is_some());
    }

    #[test]
    fn the_number_of_copies_is_bounded() {
        let copies = Copies::new(LIMIT, LIMIT, LIMIT);
        for number in 0..COPIES_MAX {
            assert!(ask(&copies, &number.to_string(), ACCOUNT, 0, at(number as u64 / 4_096)));
        }
        assert!(ask(&copies, "more", ACCOUNT, 0, at(4)));
        assert_eq!(copies.by_address.lock().len(), COPIES_MAX);
        assert!(ask(&copies, "later", ACCOUNT, 0, at(13)));
        assert!(copies.by_address.lock().len() < COPIES_MAX / 4 + 2, "those that are over leave together");
        let senders: Vec<_> =
            (0..COPIES_MAX).map(|number| copies.find(&format!("asked {number}"), at(20))).collect();
        assert!(matches!(copies.find("last", at(20)), Step::Full));
        drop(senders);
    }
}
