//! Timer for waits of equal length, without useless wake-ups of the thread.
//!
//! The runtime wakes itself through a system call whenever a new timer is earlier than all others. So the timer after the next one is
//! set while the next one still runs, and is never the earliest.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Two timers: one that is waited for, and the one after it.
pub(super) struct Alarm {
    next: Pin<Box<Sleep>>,
    after: Pin<Box<Sleep>>,
    wait: Duration,
}

impl Alarm {
    /// Deadlines are usually `wait` apart. Other distances work, and cost one more wake-up.
    pub(super) fn new(wait: Duration) -> Self {
        let now = Instant::now();
        Self { next: Box::pin(sleep_until(now)), after: Box::pin(sleep_until(now)), wait }
    }

    /// Waits until `due`. Nothing is lost when the future is dropped.
    pub(super) async fn at(&mut self, due: Instant) {
        if self.next.deadline() != due {
            std::mem::swap(&mut self.next, &mut self.after);
            if self.next.deadline() != due {
                self.next.as_mut().reset(due);
            }
            self.after.as_mut().reset(due + self.wait);
        }
        self.next.as_mut().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(10);
    const WAITS: u32 = 30;
    const TRIES_MAX: usize = 10;

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
    async fn a_thread_is_not_woken_for_its_own_timer() {
        // On a busy machine a wait may end late and shorten the next one. Such an attempt proves nothing.
        let mut seen = Vec::new();
        for _ in 0..TRIES_MAX {
            let simple = parks(async |due| sleep_until(due).await).await;
            let mut alarm = Alarm::new(WAIT);
            let alarmed = parks(async |due| alarm.at(due).await).await;
            seen.push((alarmed, simple));
            if alarmed + u64::from(WAITS) * 2 / 3 <= simple {
                return;
            }
        }
        panic!("as many wake-ups as without it: {seen:?}");
    }

    #[tokio::test]
    async fn other_distances_and_dropped_waits_keep_their_time() {
        let mut alarm = Alarm::new(WAIT);
        let start = Instant::now();
        for millis in [10, 12, 40, 45, 20] {
            let due = start + Duration::from_millis(millis);
            let dropped = tokio::time::timeout(Duration::from_millis(1), alarm.at(due)).await;
            assert!(dropped.is_err() || Instant::now() >= due);
            alarm.at(due).await;
            assert!(Instant::now() >= due && Instant::now() < start + Duration::from_secs(2), "{millis}");
        }
    }
}
