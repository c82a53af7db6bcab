//! The thread that sends the child's reports that may be late.

use std::sync::OnceLock;
use std::thread::Thread;

/// Wakes the thread early; it may not run yet.
#[derive(Default)]
pub(super) struct Ticker(OnceLock<Thread>);

impl Ticker {
    /// Sets its thread.
    pub(super) fn runs_on(&self, thread: &Thread) {
        self.0.get_or_init(|| thread.clone());
    }

    /// Sends pending reports now.
    pub(super) fn report_soon(&self) {
        if let Some(ticker) = self.0.get() {
            ticker.unpark();
        }
    }
}
