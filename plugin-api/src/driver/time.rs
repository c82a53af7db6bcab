//! Time as a driver sees it: the machine's, and in a test whatever the test wants.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Where a driver gets its time from ([`Ctx::time`](super::Ctx::time), [`Host::time`](super::Host::time)). A driver that waits by this, and
/// not by `tokio::time`, can be driven through hours in a test (`testkit::Clock`).
#[derive(Clone, Debug, Default)]
pub struct Time {
    #[cfg(feature = "testkit")]
    virtual_time: Option<crate::testkit::Clock>,
}

impl Time {
    /// The machine's time, unless a test kit starts this driver and says otherwise.
    pub(crate) fn of_start() -> Self {
        Self {
            #[cfg(feature = "testkit")]
            virtual_time: crate::testkit::Clock::of_start(),
        }
    }

    /// Time since some moment before the driver was loaded; never falls.
    pub fn now(&self) -> Duration {
        #[cfg(feature = "testkit")]
        if let Some(clock) = &self.virtual_time {
            return clock.now();
        }
        static BEGIN: OnceLock<Instant> = OnceLock::new();
        BEGIN.get_or_init(Instant::now).elapsed()
    }

    /// Waits. Cancel safe. To be called on the driver's runtime.
    pub async fn sleep(&self, duration: Duration) {
        #[cfg(feature = "testkit")]
        if let Some(clock) = &self.virtual_time {
            return clock.sleep(duration).await;
        }
        tokio::time::sleep(duration).await;
    }
}
