//! Whether a driver gets new work, and its answers to requests of viewers.

use std::sync::atomic::Ordering;

use satcast_plugin_api::{Class, Error, HttpResponse};

use super::DriverServices;
use crate::published::{Answer, Unanswered};
use crate::run::quarantine::{Fault, QUARANTINE_RETRY, Quarantine};
use crate::run::requests::{self, PendingRequests};

impl DriverServices {
    /// Records an error of a destination of `account`, already cleaned, that may be a panic of the driver.
    pub(crate) fn note(&self, account: i64, error: &Error) {
        if error.class != Class::Panic {
            return;
        }
        self.panicked.fetch_add(1, Ordering::Relaxed);
        self.fault(account, Fault::Panicked, &error.message);
    }

    /// Records a fault in the work of `account`; its text has no secrets. True where the driver now does nothing new
    /// for the account.
    pub(crate) fn fault(&self, account: i64, fault: Fault, text: &str) -> bool {
        let why = self.quarantine.lock().add(self.clock.monotonic(), account, fault, text);
        if let Some(why) = &why {
            let driver = self.driver.as_str();
            tracing::error!(driver, account, "driver {driver} {why}");
        }
        why.is_some()
    }

    /// Number of recorded panics.
    pub(crate) fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Why the driver is in quarantine; `None` when it is not.
    pub(crate) fn quarantine(&self) -> Option<String> {
        self.quarantine.lock().reason()
    }

    /// Accounts for which it does nothing new, and why.
    pub(crate) fn set_aside(&self) -> Vec<(i64, String)> {
        self.quarantine.lock().accounts().map(|(account, why)| (account, why.to_owned())).collect()
    }

    /// An operator wants the driver to be used again.
    pub(crate) fn clear_faults(&self) {
        *self.quarantine.lock() = Quarantine::default();
    }

    /// Sets it aside for an account in whose call it hung.
    pub(crate) fn hold(&self, account: i64) {
        self.fault(account, Fault::Hung, "");
    }

    /// Whether it may be called about a configuration of `account`.
    pub(crate) fn may_ask(&self, account: i64) -> Result<(), Error> {
        self.unless(self.quarantine.lock().reason_to_ask(account))
    }

    pub(crate) fn may_open(&self, account: i64) -> Result<(), Error> {
        self.unless(self.quarantine.lock().reason_for(account))
    }

    fn unless(&self, why: Option<String>) -> Result<(), Error> {
        let refused =
            |why| Error::internal(format!("driver {} {why}", self.driver)).retry_after(QUARANTINE_RETRY);
        why.map_or(Ok(()), |why| Err(refused(why)))
    }

    /// Viewers' requests that wait for the driver.
    pub(crate) fn requests(&self) -> &PendingRequests {
        &self.requests
    }

    /// Whether a line of this many bytes about a driver's action may be logged.
    pub(crate) fn may_log(&self, bytes: usize) -> bool {
        self.may_write(None, bytes)
    }

    /// Checks a driver's answer.
    pub(crate) fn accept(&self, response: HttpResponse) -> Result<Answer, Unanswered> {
        requests::accepted(response, &self.data_dir).map_err(|reason| {
            if self.may_write(None, reason.len()) {
                tracing::warn!(driver = %self.driver, reason, "driver's answer to a viewer refused");
            }
            Unanswered::Failed
        })
    }
}
