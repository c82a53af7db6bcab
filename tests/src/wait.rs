//! Waiting for a condition, with a limit.

use std::time::{Duration, Instant};

/// Limit of a wait that proves no speed: drivers look at some things once a minute, and a busy machine stops for many seconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(150);
/// Pause between two checks.
const POLL: Duration = Duration::from_millis(50);
/// Pause between two checks through the API, which has a limit of 300 requests per minute and key.
const API_POLL: Duration = Duration::from_millis(300);

/// Calls `probe` until it returns `Ok`, for two and a half minutes at most; the last `Err` describes the state.
///
/// # Panics
/// When that time has passed, with `what` and the last state seen.
#[track_caller]
pub fn until<T>(what: &str, probe: impl FnMut() -> Result<T, String>) -> T {
    poll(what, LIMIT, POLL, probe)
}

/// The same for a `probe` that uses the API.
///
/// # Panics
/// As [`until`].
#[track_caller]
pub fn until_api<T>(what: &str, probe: impl FnMut() -> Result<T, String>) -> T {
    poll(what, LIMIT, API_POLL, probe)
}

/// [`until`] with a limit of its own: later would be a fault, or it takes longer than [`until`] waits.
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
