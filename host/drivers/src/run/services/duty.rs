//! Whether a driver gets something to do, and what it makes of requests of viewers.

use std::sync::atomic::Ordering;

use satcast_plugin_api::{Class, Error, HttpResponse};

use super::DriverServices;
use crate::published::{Answer, Unanswered};
use crate::run::quarantine::{Fault, QUARANTINE_RETRY, Quarantine};
use crate::run::requests::{self, Waiting};

impl DriverServices {
    /// Notes an error of a destination of `account`, already cleaned, that may be a panic of the driver.
    pub(crate) fn note(&self, account: i64, error: &Error) {
        if error.class != Class::Panic {
            return;
        }
        self.panicked.fetch_add(1, Ordering::Relaxed);
        self.fault(account, Fault::Panicked, &error.message);
    }

    /// Notes a fault with the work of `account`, whose text has no secrets; true where the driver does nothing new for it from now on.
    pub(crate) fn fault(&self, account: i64, fault: Fault, text: &str) -> bool {
        let why = self.quarantine.lock().add(self.clock.monotonic(), account, fault, text);
        if let Some(why) = &why {
            let driver = self.driver.as_str();
            tracing::error!(driver, account, "driver {driver} {why}");
        }
        why.is_some()
    }

    /// How many panics were noted.
    pub(crate) fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Why the driver is left alone; `None` when it is not.
    pub(crate) fn quarantine(&self) -> Option<String> {
        self.quarantine.lock().reason()
    }

    /// Accounts that it does nothing new for, and why.
    pub(crate) fn set_aside(&self) -> Vec<(i64, String)> {
        self.quarantine.lock().accounts().map(|(account, why)| (account, why.to_owned())).collect()
    }

    /// An operator wants it to be used again.
    pub(crate) fn forgive(&self) {
        *self.quarantine.lock() = Quarantine::default();
    }

    /// Leaves it alone for an account with whose work it hung.
    pub(crate) fn hold(&self, account: i64) {
        self.fault(account, Fault::Hung, "");
    }

    /// Whether it may be asked about a configuration of `account`.
    pub(crate) fn may_ask(&self, account: i64) -> Result<(), Error> {
        self.unless(self.quarantine.lock().reason_to_ask(account))
    }

    /// Whether a destination of `account` may be opened.
    pub(crate) fn may_open(&self, account: i64) -> Result<(), Error> {
        self.unless(self.quarantine.lock().reason_for(account))
    }

    fn unless(&self, why: Option<String>) -> Result<(), Error> {
        let refused =
            |why| Error::internal(format!("driver {} {why}", self.driver)).retry_after(QUARANTINE_RETRY);
        why.map_or(Ok(()), |why| Err(refused(why)))
    }

    /// Viewers' requests that wait for the driver.
    pub(crate) fn requests(&self) -> &Waiting {
        &self.requests
    }

    /// Whether a line of so many bytes about what the driver did may be logged.
    pub(crate) fn may_log(&self, bytes: usize) -> bool {
        self.may_write(None, bytes)
    }

    /// A driver's answer as it may be sent.
    pub(crate) fn accept(&self, response: HttpResponse) -> Result<Answer, Unanswered> {
        requests::accepted(response, &self.data_dir).map_err(|reason| {
            if self.may_write(None, reason.len()) {
                tracing::warn!(driver = %self.driver, reason, "a driver's answer to a viewer is not sent");
            }
            Unanswered::Failed
        })
    }
}
