//! The timer of a thread, for the reads of its connections.
//!
//! It is a timer of the system. The runtime has a wheel of slots, and sorts a timer that is 64 ms or more away into a finer slot
//! before it expires, for which it wakes the thread: twice for each read of a thread with few streams, and wake-ups are most of what
//! a read costs there. Connections that are due at the same time share the wake-up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(super) struct Timer {
    /// A timerfd, which is read as a pipe is: bytes when it has expired, else none.
    expired: pipe::Receiver,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<Instant, Arc<Notify>>,
    /// When the timer expires next.
    set_for: Option<Instant>,
}

thread_local! {
    static OF_THREAD: RefCell<Weak<Timer>> = const { RefCell::new(Weak::new()) };
}

impl Timer {
    /// The timer of this thread, which runs as a task of the current runtime.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub(super) fn of_thread() -> io::Result<Arc<Self>> {
        OF_THREAD.with_borrow_mut(|known| {
            if let Some(timer) = known.upgrade() {
                return Ok(timer);
            }
            let timer = Arc::new(Self::new()?);
            tokio::spawn(Arc::clone(&timer).run());
            *known = Arc::downgrade(&timer);
            Ok(timer)
        })
    }

    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { expired: pipe::Receiver::from_owned_fd_unchecked(timer)?, state: Mutex::default() })
    }

    /// Waits until `due`. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// The system refuses to set the timer.
    pub(super) async fn at(&self, due: Instant) -> io::Result<()> {
        let tick = self.tick(due)?;
        let mut tick = pin!(tick.notified());
        // From here on it notices the tick. An earlier one was at `due`.
        tick.as_mut().enable();
        if Instant::now() < due {
            tick.await;
        }
        Ok(())
    }

    /// Notifies at `due`.
    fn tick(&self, due: Instant) -> io::Result<Arc<Notify>> {
        let mut state = self.state.lock();
        if state.set_for.is_none_or(|next| due < next) {
            self.set(due)?;
            state.set_for = Some(due);
        }
        Ok(Arc::clone(state.waiting.entry(due).or_default()))
    }

    fn set(&self, due: Instant) -> io::Result<()> {
        // Zero would stop the timer.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(left).map_err(io::Error::other)?;
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.expired, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    async fn run(self: Arc<Self>) {
        while self.expired.readable().await.is_ok() {
            // Until there is nothing to read, so that the next expiry is noticed.
            while self.expired.try_read(&mut [0; 8]).is_ok() {}
            self.wake_due();
        }
    }

    fn wake_due(&self) {
        let mut state = self.state.lock();
        let now = Instant::now();
        while let Some(first) = state.waiting.first_entry().filter(|first| *first.key() <= now) {
            first.remove().notify_waiters();
        }
        state.set_for = state.waiting.keys().next().copied();
        if let Some(next) = state.set_for
            && let Err(error) = self.set(next)
        {
            state.set_for = None;
            tracing::error!(%error, "cannot set the timer of an ingest thread");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep_until, timeout};

    use super::*;

    /// At least 64 ms, from which on the runtime's own timers wake the thread twice.
    const WAIT: Duration = Duration::from_millis(70);
    const WAITS: u32 = 10;
    const TRIES_MAX: usize = 5;

    /// How often the thread goes to sleep in [`WAITS`] waits.
    async fn parks(mut wait: impl AsyncFnMut(Instant)) -> u64 {
        let metrics = tokio::runtime::Handle::current().metrics();
        let (start, before) = (Instant::now(), metrics.worker_park_count(0));
        for number in 1..=WAITS {
            let due = start + WAIT * number;
            wait(due).await;
            assert!(Instant::now() >= due);
        }
        metrics.worker_park_count(0) - before
    }

    #[tokio::test]
    async fn a_thread_wakes_once_for_each_wait() {
        // On a busy machine a wait may end late and shorten the next one. Such an attempt proves nothing.
        let mut seen = Vec::new();
        for _ in 0..TRIES_MAX {
            let simple = parks(async |due| sleep_until(due).await).await;
            let timer = Timer::of_thread().unwrap();
            let timed = parks(async |due| timer.at(due).await.unwrap()).await;
            seen.push((timed, simple));
            if timed + u64::from(WAITS) * 2 / 3 <= simple {
                return;
            }
        }
        panic!("as many wake-ups as with the runtime's timers: {seen:?}");
    }

    #[tokio::test]
    async fn all_distances_and_dropped_waits_keep_their_time() {
        let timer = Timer::of_thread().unwrap();
        let start = Instant::now();
        for millis in [10, 12, 40, 45, 20] {
            let due = start + Duration::from_millis(millis);
            let dropped = timeout(Duration::from_millis(1), timer.at(due)).await;
            assert!(dropped.is_err() || Instant::now() >= due);
            timer.at(due).await.unwrap();
            assert!(Instant::now() >= due, "{millis}");
        }
    }

    #[tokio::test]
    async fn connections_share_the_timer_of_their_thread() {
        let timer = Timer::of_thread().unwrap();
        assert!(Arc::ptr_eq(&timer, &Timer::of_thread().unwrap()));
        let start = Instant::now();
        // The later ones wait first.
        let waits: Vec<_> = [30, 10, 20, 10]
            .into_iter()
            .map(|millis| {
                let (timer, due) = (Arc::clone(&timer), start + Duration::from_millis(millis));
                tokio::spawn(async move {
                    timer.at(due).await.unwrap();
                    Instant::now() >= due
                })
            })
            .collect();
        for wait in waits {
            let is_due = timeout(Duration::from_secs(20), wait).await.expect("a wake-up").unwrap();
            assert!(is_due);
        }
        assert!(timer.state.lock().waiting.is_empty());
    }

    #[test]
    fn a_timer_ends_with_its_runtime() {
        let last = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let timer = Timer::of_thread().unwrap();
                timer.at(Instant::now() + Duration::from_millis(2)).await.unwrap();
                Arc::downgrade(&timer)
            })
        };
        let first = last();
        assert!(first.upgrade().is_none());
        assert!(last().upgrade().is_none(), "the thread's next runtime has one of its own");
    }
}
