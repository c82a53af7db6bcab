//! Waiting for a condition, with a limit.

use std::time::{Duration, Instant};

/// Least limit of a wait that proves no speed: a busy machine stops for many seconds.
pub(crate) const LIMIT_MIN: Duration = Duration::from_secs(60);
/// Pause between two checks.
const POLL: Duration = Duration::from_millis(50);
/// Pause between two checks through the API, which has a limit of 300 requests per minute and key.
const API_POLL: Duration = Duration::from_millis(300);

/// Calls `probe` until it returns `Ok`, for `limit` or a minute, the longer of the two; the last `Err` describes the state.
///
/// # Panics
/// When that time has passed, with `what` and the last state seen.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, probe: impl FnMut() -> Result<T, String>) -> T {
    poll(what, limit.max(LIMIT_MIN), POLL, probe)
}

/// The same for a `probe` that uses the API.
///
/// # Panics
/// As [`until`].
#[track_caller]
pub fn until_api<T>(what: &str, limit: Duration, probe: impl FnMut() -> Result<T, String>) -> T {
    poll(what, limit.max(LIMIT_MIN), API_POLL, probe)
}

/// [`until`] where `limit` is what the test proves: it happens later by other means too, or later is a fault.
///
/// # Panics
/// When `limit` has passed, with `what` and the last state seen.
#[track_caller]
pub fn within<T>(what: &str, limit: Duration, probe: impl FnMut() -> Result<T, String>) -> T {
    poll(what, limit, POLL, probe)
}

/// The same for a `probe` that uses the API.
///
/// # Panics
/// As [`within`].
#[track_caller]
pub fn within_api<T>(what: &str, limit: Duration, probe: impl FnMut() -> Result<T, String>) -> T {
    poll(what, limit, API_POLL, probe)
}

#[track_caller]
fn poll<T>(what: &str, limit: Duration, pause: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
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
        std::thread::sleep(pause);
    }
}

/// Seconds, shorter to read in a test.
#[must_use]
pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
