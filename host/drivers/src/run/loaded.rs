//! A running driver.

use std::sync::Arc;

use satcast_plugin_api::Error;

use super::control::Control;
use super::process::Remote;
use super::pump::Pump;
use super::services::DriverServices;
use satcast_core::config::DriverSettings;

/// One loaded driver. It ends when its last destination and the registry have dropped it.
pub(crate) struct Loaded {
    pub(crate) control: Control,
    pub(crate) pump: Arc<Pump>,
    pub(crate) services: Arc<DriverServices>,
    /// Its process, if it is isolated.
    pub(crate) remote: Option<Arc<Remote>>,
    /// It gets the table `[archive]`.
    pub(crate) takes_archive: bool,
}

impl Loaded {
    /// Whether it currently accepts new work of `account`.
    pub(crate) fn may_open(&self, account: i64) -> Result<(), Error> {
        self.services.may_open(account)?;
        self.remote.as_ref().map_or(Ok(()), |remote| remote.may_open(account))
    }

    /// Records that `dest` did not open; `error` holds no secrets.
    pub(crate) fn note(&self, account: i64, dest: u64, error: &Error) {
        // The end of its process is counted elsewhere.
        if !self.remote.as_ref().is_some_and(|remote| remote.has_ended_in(dest)) {
            self.services.note(account, error);
        }
    }

    /// Whether it would get the same settings.
    pub(crate) fn is_same_with(&self, before: &DriverSettings, after: &DriverSettings) -> bool {
        let archive = if self.takes_archive { after } else { before }.archive.clone();
        *before == DriverSettings { archive, ..after.clone() }
    }

    /// Crashes of its process; on threads, panics.
    pub(crate) fn crashes(&self) -> u64 {
        self.remote.as_ref().map_or_else(|| self.services.panicked(), |remote| remote.crashed())
    }
}
