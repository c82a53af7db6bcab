//! Waiting for a condition, with a limit.

use std::time::{Duration, Instant};

/// Pause between two looks.
const POLL_MS: u64 = 20;

/// Looks until `probe` gives `Ok`, at most for `limit`; the last `Err` says how far things were.
///
/// # Panics
/// When `limit` has passed, with `what` and the last state seen.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let started = Instant::now();
    loop {
        match probe() {
            Ok(value) => return value,
            Err(state) => assert!(
                started.elapsed() < limit,
                "waited {} s for {what}; the last state was: {state}",
                limit.as_secs()
            ),
        }
        std::thread::sleep(Duration::from_millis(POLL_MS));
    }
}

/// Seconds, shorter to read in a test.
#[must_use]
pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
