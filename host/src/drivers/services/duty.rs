//! Whether a driver gets something to do, and what it makes of requests of viewers.

use satcast_plugin_api::host::HttpResponse;
use satcast_plugin_api::{Class, Error};

use super::{DriverServices, lock};
use crate::drivers::http::{self, Answer, Unanswered, Waiting};
use crate::drivers::panics::QUARANTINE_RETRY;

impl DriverServices {
    /// Notes an error, already cleaned, that may be a panic of the driver.
    pub(in crate::drivers) fn note(&self, error: &Error) {
        if error.class == Class::Panic && lock(&self.panics).add(self.clock.monotonic(), &error.message) {
            let driver = self.driver.as_str();
            tracing::error!(driver, "driver {driver} {}", self.quarantine().unwrap_or_default());
        }
    }

    /// Why the driver is left alone; `None` when it is not.
    pub(in crate::drivers) fn quarantine(&self) -> Option<String> {
        lock(&self.panics).reason()
    }

    /// An operator wants it to be used again.
    pub(in crate::drivers) fn forgive(&self) {
        lock(&self.panics).forgive();
    }

    /// Whether it may get something new to do.
    pub(in crate::drivers) fn may_be_used(&self) -> Result<(), Error> {
        let refused =
            |why| Error::internal(format!("driver {} {why}", self.driver)).retry_after(QUARANTINE_RETRY);
        self.quarantine().map_or(Ok(()), |why| Err(refused(why)))
    }

    /// Viewers' requests that wait for the driver.
    pub(in crate::drivers) fn requests(&self) -> &Waiting {
        &self.requests
    }

    /// A driver's answer as it may be sent.
    pub(in crate::drivers) fn accept(&self, response: HttpResponse) -> Result<Answer, Unanswered> {
        http::accepted(response, &self.data_dir).map_err(|reason| {
            if self.log_gate.admit(self.clock.monotonic()).is_some() {
                tracing::warn!(driver = %self.driver, reason, "a driver's answer to a viewer is not sent");
            }
            Unanswered::Failed
        })
    }
}
