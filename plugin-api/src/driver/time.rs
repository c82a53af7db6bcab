//! A driver's time: the machine's, or a test's clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A driver's time source ([`Ctx::time`](super::Ctx::time), [`Host::time`](super::Host::time)). A test can skip hours of a driver that
/// waits with it instead of `tokio::time` (`testkit::Clock`).
#[derive(Clone, Debug, Default)]
pub struct Time {
    #[cfg(feature = "testkit")]
    virtual_time: Option<crate::testkit::Clock>,
}

impl Time {
    /// The machine's time, unless a test kit starts this driver with a clock.
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

    /// Waits. Cancel safe. Call it on the driver's runtime.
    pub async fn sleep(&self, duration: Duration) {
        #[cfg(feature = "testkit")]
        if let Some(clock) = &self.virtual_time {
            return clock.sleep(duration).await;
        }
        tokio::time::sleep(duration).await;
    }
}
