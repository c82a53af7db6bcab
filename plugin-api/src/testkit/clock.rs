//! A clock that a test advances by hand.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::WAIT_MAX;

thread_local! {
    /// The clock of the kit that starts a driver on this thread.
    static STARTING: RefCell<Option<Clock>> = const { RefCell::new(None) };
}

/// The time of a driver under test ([`Testkit::start_at`](super::Testkit::start_at)): it stands still until the test advances it. A driver
/// sees it through [`Time`](crate::driver::Time); deadlines of the host use the machine's time. Cheap to clone.
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
    /// Wake time and waker of each sleeper.
    sleepers: BTreeMap<u64, (Duration, Waker)>,
}

impl Clock {
    /// Now.
    pub fn now(&self) -> Duration {
        self.0.state.lock().now
    }

    /// Advances the clock and wakes the sleepers that are due. They continue on their own threads: wait for an effect, or with
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

    /// Waits until the driver sleeps, advances to the moment at which it wakes, and returns by how much. `None` when the driver does
    /// not sleep within [`WAIT_MAX`].
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

    /// Runs `start` on this thread; a driver that it loads uses this clock.
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

/// Resolves at `until`.
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
        // Dropping a waker may run foreign code, so not under the lock.
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
    fn sleepers_wake_at_their_time() {
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
        // The next advance must not reach a sleeper.
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
