//! The live event feed of an account: recorded changes and the events of live sessions of this process, and those that other nodes
//! tell of theirs.
//!
//! Events are kept in memory only: the newest of all accounts together, so that a watcher that was disconnected for a moment
//! continues where it was. A watcher that missed more sees a gap and must reload everything. Sending never waits.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use satcast_quota::{Full, Permit, Quota};
use serde_json::Value;
use tokio::sync::watch;

use crate::ids::{AccountId, UnixMillis};

/// Newest events kept, of all accounts together: a few megabytes at most.
pub const EVENTS_KEPT_MAX: usize = 4_096;
/// Watchers at one time.
pub const WATCHERS_MAX: usize = 2_000;
/// Watchers of one account at one time.
pub const WATCHERS_PER_ACCOUNT_MAX: usize = 32;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Counts all events of this process from 1, without a gap.
    pub number: u64,
    pub account: AccountId,
    /// Name, such as `stream.started`.
    pub name: String,
    pub at: UnixMillis,
    /// Details, as a JSON object; never a secret.
    pub data: Value,
    /// It happened at another node.
    pub is_foreign: bool,
}

/// The next item of a watcher.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// Something that happened.
    Event(Arc<Event>),
    /// Events are missing here: the watcher must reload everything.
    Gap,
}

/// All events of this process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Feed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: String,
    state: Mutex<State>,
    /// Signals new events.
    changed: watch::Sender<()>,
    watchers: Quota<AccountId>,
}

/// An entry of the feed.
#[derive(Clone, Debug)]
enum Kept {
    Event(Arc<Event>),
    /// Events of another node are missing here.
    ForeignGap,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the newest event; 0 before the first.
    last: u64,
    kept: VecDeque<Kept>,
    closed: bool,
}

impl State {
    /// Number of the oldest kept event, or of the next event when none is kept.
    fn oldest(&self) -> u64 {
        self.last + 1 - self.kept.len() as u64
    }

    /// What a watcher sees next from `next` on, and the number to continue with.
    fn find(&self, wanted: Wanted, next: u64) -> (Option<Seen>, u64) {
        let first = next.max(self.oldest());
        let skipped = usize::try_from(first - self.oldest()).unwrap_or(usize::MAX);
        let mut numbered = (first..).zip(self.kept.iter().skip(skipped));
        let found = numbered.find_map(|(number, kept)| match kept {
            Kept::Event(event) => wanted.is(event).then(|| (number, Seen::Event(event.clone()))),
            // Told to another node, it would come back as another gap, for ever.
            Kept::ForeignGap => (wanted != Wanted::Own).then_some((number, Seen::Gap)),
        });
        let after = found.as_ref().map_or(self.last, |(number, _)| *number);
        (found.map(|(_, seen)| seen), after + 1)
    }
}

/// Events that a watcher looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Of(AccountId),
    /// Of all accounts, but not those that other nodes told.
    Own,
}

impl Wanted {
    fn is(self, event: &Event) -> bool {
        match self {
            Wanted::Of(account) => event.account == account,
            Wanted::Own => !event.is_foreign,
        }
    }
}

impl Feed {
    /// An empty feed. `start` identifies this start of the process, because every start counts events from 1.
    pub fn new(start: String) -> Self {
        let (changed, _) = watch::channel(());
        let watchers = Quota::new(WATCHERS_MAX as u64, WATCHERS_PER_ACCOUNT_MAX as u64);
        Self(Arc::new(Inner { start, state: Mutex::default(), changed, watchers }))
    }

    /// Sends an event to all watchers of the account.
    pub fn send(&self, account: AccountId, name: &str, at: UnixMillis, data: Value) {
        self.add(Event { number: 0, account, name: name.to_owned(), at, data, is_foreign: false });
    }

    /// Sends an event of another node to all watchers of its account.
    pub fn send_foreign(&self, account: AccountId, name: String, at: UnixMillis, data: Value) {
        self.add(Event { number: 0, account, name, at, data, is_foreign: true });
    }

    /// Events of another node may have been missed: the watchers of accounts see a gap.
    pub fn foreign_gap(&self) {
        self.keep(|_| Kept::ForeignGap);
    }

    fn add(&self, event: Event) {
        self.keep(|number| Kept::Event(Arc::new(Event { number, ..event })));
    }

    /// Keeps what `make` gives for the next number.
    fn keep(&self, make: impl FnOnce(u64) -> Kept) {
        let mut state = self.0.state.lock();
        state.last += 1;
        let kept = make(state.last);
        if state.kept.len() >= EVENTS_KEPT_MAX {
            state.kept.pop_front();
        }
        state.kept.push_back(kept);
        drop(state);
        self.0.changed.send_replace(());
    }

    /// Closes the feed permanently: every watcher ends after the events sent so far.
    pub fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.changed.send_replace(());
    }

    /// Watches an account from now on, or from the event after the id `after`. When that event is of another
    /// start of the process, or too old, the watcher begins with a gap.
    ///
    /// # Errors
    /// Too many watchers: the account has [`WATCHERS_PER_ACCOUNT_MAX`], or all accounts have [`WATCHERS_MAX`].
    pub fn watch(&self, account: AccountId, after: Option<&str>) -> Result<Watch, Full> {
        let permit = self.0.watchers.try_take(account, 1)?;
        let state = self.0.state.lock();
        let known = after.map(|id| self.number_of(id).filter(|number| *number <= state.last));
        let (next, is_lost) = match known {
            None => (state.last + 1, false),
            Some(Some(number)) => (number + 1, false),
            Some(None) => (state.last + 1, true),
        };
        drop(state);
        Ok(self.watcher(Wanted::Of(account), Some(permit), next, is_lost))
    }

    /// Watches all events of this node from now on, for another node. One for each node: the caller limits them.
    pub fn watch_own(&self) -> Watch {
        let next = self.0.state.lock().last + 1;
        self.watcher(Wanted::Own, None, next, false)
    }

    fn watcher(&self, wanted: Wanted, permit: Option<Permit<AccountId>>, next: u64, is_lost: bool) -> Watch {
        let changed = self.0.changed.subscribe();
        Watch { feed: self.clone(), wanted, _permit: permit, next, is_lost, changed }
    }

    /// The id of an event for watchers; valid for this start of the process only.
    pub fn id_of(&self, number: u64) -> String {
        format!("{}-{number}", self.0.start)
    }

    fn number_of(&self, id: &str) -> Option<u64> {
        let (start, number) = id.split_once('-')?;
        (start == self.0.start).then(|| number.parse().ok())?
    }
}

/// A watcher; dropping it frees its slot.
#[derive(Debug)]
pub struct Watch {
    feed: Feed,
    wanted: Wanted,
    _permit: Option<Permit<AccountId>>,
    /// Number of the event to look at next.
    next: u64,
    is_lost: bool,
    changed: watch::Receiver<()>,
}

impl Watch {
    /// The next item; `None` when the feed is closed. Cancel-safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Seen> {
        loop {
            self.changed.borrow_and_update();
            if self.take_gap() {
                return Some(Seen::Gap);
            }
            {
                let state = self.feed.0.state.lock();
                let (found, next) = state.find(self.wanted, self.next);
                self.next = next;
                if found.is_some() {
                    return found;
                }
                if state.closed {
                    return None;
                }
            }
            // `self` holds the feed, which holds the sender.
            self.changed.changed().await.ok()?;
        }
    }

    /// Whether the watcher begins with a gap; this consumes the gap.
    pub fn take_gap(&mut self) -> bool {
        let state = self.feed.0.state.lock();
        let has_gap = self.is_lost || self.next < state.oldest();
        if has_gap {
            self.is_lost = false;
            self.next = state.last + 1;
        }
        has_gap
    }

    /// Id from which a later watcher continues.
    pub fn position(&self) -> String {
        self.feed.id_of(self.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;

    const ME: AccountId = AccountId(1);
    const YOU: AccountId = AccountId(2);

    fn send(feed: &Feed, account: AccountId, number: u64) {
        feed.send(account, "x.y", UnixMillis(7), json!({"n": number}));
    }

    /// The numbers of the available events, 0 for a gap.
    fn seen(watch: &mut Watch) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(next) = watch.next().now_or_never() {
            match next {
                Some(Seen::Event(event)) => numbers.push(event.number),
                Some(Seen::Gap) => numbers.push(0),
                None => break,
            }
        }
        numbers
    }

    #[test]
    fn a_watcher_sees_its_own_account_from_its_position() {
        let feed = Feed::new("s".into());
        send(&feed, ME, 1);
        let mut watch = feed.watch(ME, None).unwrap();
        assert_eq!(watch.position(), "s-1");
        send(&feed, YOU, 2);
        send(&feed, ME, 3);
        assert_eq!(seen(&mut watch), [3]);
        assert_eq!(seen(&mut feed.watch(ME, Some("s-0")).unwrap()), [1, 3]);
        assert_eq!(seen(&mut feed.watch(ME, Some("s-1")).unwrap()), [3]);
        assert_eq!(seen(&mut feed.watch(ME, Some("s-3")).unwrap()), [] as [u64; 0]);
        for lost in ["t-1", "s-4", "s", "s-x", "s--1", ""] {
            assert_eq!(seen(&mut feed.watch(ME, Some(lost)).unwrap()), [0], "{lost}");
        }
        assert_eq!(seen(&mut feed.watch(YOU, Some("s-0")).unwrap()), [2]);
    }

    #[test]
    fn a_watcher_too_far_behind_sees_a_gap_and_continues_after_it() {
        let feed = Feed::new("s".into());
        let mut slow = feed.watch(ME, None).unwrap();
        let mut other = feed.watch(YOU, None).unwrap();
        for number in 0..EVENTS_KEPT_MAX as u64 {
            send(&feed, ME, number);
        }
        assert_eq!(seen(&mut other), [] as [u64; 0]);
        assert_eq!(seen(&mut feed.watch(ME, Some("s-0")).unwrap()).len(), EVENTS_KEPT_MAX);
        send(&feed, YOU, 0);
        let last = EVENTS_KEPT_MAX as u64 + 1;
        assert_eq!((seen(&mut slow), slow.position()), (vec![0], format!("s-{last}")));
        assert_eq!(seen(&mut feed.watch(ME, Some("s-0")).unwrap()), [0]);
        assert_eq!(seen(&mut other), [last], "events of other accounts are not a gap");
        send(&feed, ME, 0);
        assert_eq!(seen(&mut slow), [last + 1]);
    }

    #[test]
    fn watchers_are_limited_per_account_and_in_total_and_free_their_slots() {
        let feed = Feed::new("s".into());
        let mut held: Vec<_> = (0..WATCHERS_PER_ACCOUNT_MAX).map(|_| feed.watch(ME, None).unwrap()).collect();
        assert_eq!(feed.watch(ME, None).unwrap_err(), Full::Share);
        held.pop();
        held.push(feed.watch(ME, None).unwrap());
        for number in held.len()..WATCHERS_MAX {
            held.push(feed.watch(AccountId(1_000 + (number / 2) as i64), None).unwrap());
        }
        assert_eq!(feed.watch(YOU, None).unwrap_err(), Full::Total);
        drop(held);
        assert_eq!(feed.0.watchers.taken(), 0);
    }

    #[test]
    fn another_node_gets_own_events_of_all_accounts_and_a_gap_reaches_every_watcher() {
        let feed = Feed::new("s".into());
        let (mut own, mut mine) = (feed.watch_own(), feed.watch(ME, None).unwrap());
        send(&feed, ME, 1);
        feed.send_foreign(ME, "x.y".to_owned(), UnixMillis(7), json!({}));
        send(&feed, YOU, 3);
        assert_eq!((seen(&mut own), seen(&mut mine)), (vec![1, 3], vec![1, 2]));
        feed.foreign_gap();
        assert_eq!(
            (seen(&mut own), seen(&mut mine)),
            (vec![], vec![0]),
            "it must not go back to the other node"
        );
        send(&feed, ME, 5);
        assert_eq!((seen(&mut own), seen(&mut mine)), (vec![5], vec![5]));
    }

    #[tokio::test]
    async fn a_closed_feed_ends_watchers_after_the_sent_events() {
        let feed = Feed::new("s".into());
        let mut watch = feed.watch(ME, None).unwrap();
        let waiting = tokio::spawn(async move { (watch.next().await, watch.next().await) });
        tokio::task::yield_now().await;
        send(&feed, ME, 1);
        feed.close();
        let (first, end) = waiting.await.unwrap();
        assert!(matches!(first, Some(Seen::Event(event)) if event.data == json!({"n": 1})));
        assert_eq!(end, None);
        assert_eq!(feed.watch(ME, None).unwrap().next().await, None);
    }
}
