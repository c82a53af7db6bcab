//! Time that a test moves on by hand.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::WAIT_MAX;

thread_local! {
    /// Of the kit that starts a driver on this thread.
    static STARTING: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// The time of a driver under test ([`Testkit::start_at`](super::Testkit::start_at)): it stands until the test moves it on. It is what a driver sees
/// by [`Time`](crate::driver::Time); deadlines of the host are the machine's. Cheap to clone.
///
/// ```
/// # use std::time::Duration;
/// # use satcast_plugin_api::testkit::Clock;
/// let clock = Clock::default();
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now(), Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    now: Duration,
    next: u64,
    /// Until when who sleeps.
    sleepers: BTreeMap<u64, (Duration, Waker)>,
}

impl Clock {
    /// Now.
    pub fn now(&self) -> Duration {
        self.0.state.lock().now
    }

    /// Moves it on, and wakes who has slept enough. What they do then they do on their own threads: wait for its effect, or with
    /// [`Clock::skip`] until they sleep again.
    pub fn advance(&self, by: Duration) {
        let due: Vec<Waker> = {
            let mut state = self.0.state.lock();
            state.now = state.now.saturating_add(by);
            let now = state.now;
            state
                .sleepers
                .extract_if(.., |_, (until, _)| *until <= now)
                .map(|(_, (_, waker))| waker)
                .collect()
        };
        due.into_iter().for_each(Waker::wake);
    }

    /// Waits until the driver sleeps, and moves on to the moment at which it wakes; gives how far that was. `None` when nobody sleeps
    /// within [`WAIT_MAX`].
    pub fn skip(&self) -> Option<Duration> {
        let end = Instant::now() + WAIT_MAX;
        let mut state = self.0.state.lock();
        let until = loop {
            if let Some(until) = state.sleepers.values().map(|(until, _)| *until).min() {
                break until;
            }
            let left = end.checked_duration_since(Instant::now())?;
            self.0.changed.wait_for(&mut state, left);
        };
        let by = until.saturating_sub(state.now);
        drop(state);
        self.advance(by);
        Some(by)
    }

    /// Runs `start` on this thread; a driver that is loaded by it has this time.
    pub(super) fn while_starting<R>(clock: Option<Self>, start: impl FnOnce() -> R) -> R {
        STARTING.set(clock);
        let outcome = start();
        STARTING.take();
        outcome
    }

    pub(crate) fn of_start() -> Option<Self> {
        STARTING.with_borrow(Clone::clone)
    }

    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        let mut state = self.0.state.lock();
        state.next += 1;
        Sleep { clock: self.clone(), number: state.next, until: state.now.saturating_add(duration) }
    }
}

/// Resolves when it is late enough.
pub(crate) struct Sleep {
    clock: Clock,
    number: u64,
    until: Duration,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.0.state.lock();
        if state.now >= self.until {
            return Poll::Ready(());
        }
        let before = state.sleepers.insert(self.number, (self.until, cx.waker().clone()));
        drop(state);
        // A waker's end is code of others: not under the lock.
        drop(before);
        self.clock.0.changed.notify_all();
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let before = self.clock.0.state.lock().sleepers.remove(&self.number);
        drop(before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_wake_when_it_is_time_and_not_before() {
        let clock = Clock::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let sleeping = clock.clone();
        let slept = runtime.spawn(async move {
            let mut at = Vec::new();
            for secs in [60, 3600, 1] {
                sleeping.sleep(Duration::from_secs(secs)).await;
                at.push(sleeping.now().as_secs());
            }
            at
        });
        assert_eq!(clock.skip(), Some(Duration::from_secs(60)));
        // Nobody has slept enough by then.
        while clock.0.state.lock().sleepers.is_empty() {
            std::thread::yield_now();
        }
        clock.advance(Duration::from_secs(3599));
        assert!(!slept.is_finished() && clock.0.state.lock().sleepers.len() == 1);
        assert_eq!([clock.skip(), clock.skip()].map(Option::unwrap), [1, 1].map(Duration::from_secs));
        assert_eq!(runtime.block_on(slept).unwrap(), [60, 3660, 3661]);
        assert!(clock.0.state.lock().sleepers.is_empty());
        drop(clock.sleep(Duration::ZERO));
        runtime.block_on(clock.sleep(Duration::ZERO));
    }
}
