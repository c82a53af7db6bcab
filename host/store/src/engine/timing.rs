//! Counts and times of statements, for operators. Of the process: it has one database, and a counter in each pool would
//! go through every call.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Statements, with their wait for a connection.
pub(crate) static STATEMENTS: Timing = Timing::new();
/// Beginnings of writing transactions.
pub(crate) static TRANSACTIONS: Timing = Timing::new();

/// How often something was done, and how long that took.
#[derive(Debug)]
pub(crate) struct Timing {
    count: AtomicU64,
    failed: AtomicU64,
    nanos: AtomicU64,
}

impl Timing {
    const fn new() -> Self {
        Self { count: AtomicU64::new(0), failed: AtomicU64::new(0), nanos: AtomicU64::new(0) }
    }

    /// Runs and counts `work`. Work that is dropped before its end does not count.
    pub(crate) async fn of<T, E>(
        &self,
        work: impl Future<Output = std::result::Result<T, E>>,
    ) -> std::result::Result<T, E> {
        let began = Instant::now();
        let outcome = work.await;
        let nanos = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        if outcome.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_is_counted_with_its_time_and_outcome() {
        let timing = Timing::new();
        let wait = async |outcome: Result<(), ()>| {
            tokio::time::sleep(Duration::from_millis(5)).await;
            outcome
        };
        assert_eq!(timing.of(wait(Ok(()))).await, Ok(()));
        assert_eq!(timing.of(wait(Err(()))).await, Err(()));
        assert_eq!((timing.count(), timing.failed(), timing.sum()), (2, 1, Duration::from_millis(10)));
    }
}
