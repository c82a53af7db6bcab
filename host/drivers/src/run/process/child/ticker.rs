//! The thread that tells the host what may wait a moment.

use std::sync::OnceLock;
use std::thread::Thread;

/// Wakes it before its time; it may not run yet.
#[derive(Default)]
pub(super) struct Ticker(OnceLock<Thread>);

impl Ticker {
    /// It runs.
    pub(super) fn runs_on(&self, thread: &Thread) {
        self.0.get_or_init(|| thread.clone());
    }

    /// Lets it tell what waits at once.
    pub(super) fn tell_soon(&self) {
        if let Some(ticker) = self.0.get() {
            ticker.unpark();
        }
    }
}
