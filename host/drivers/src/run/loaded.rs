//! A driver that runs.

use std::sync::Arc;

use satcast_plugin_api::Error;

use super::control::Control;
use super::process::Remote;
use super::pump::Pump;
use super::services::DriverServices;
use satcast_core::config::DriverSettings;

/// One loaded driver. It ends when its last destination and the registry have let go of it.
pub(crate) struct Loaded {
    pub(crate) control: Control,
    pub(crate) pump: Arc<Pump>,
    pub(crate) services: Arc<DriverServices>,
    /// The process it runs in, if it has one.
    pub(crate) remote: Option<Arc<Remote>>,
    /// `[archive]` goes on to it.
    pub(crate) takes_archive: bool,
}

impl Loaded {
    /// Whether it does something new for `account` at this moment.
    pub(crate) fn may_open(&self, account: i64) -> Result<(), Error> {
        self.services.may_open(account)?;
        self.remote.as_ref().map_or(Ok(()), |remote| remote.may_open(account))
    }

    /// Notes that `dest` did not open, whose `error` is cleaned.
    pub(crate) fn note(&self, account: i64, dest: u64, error: &Error) {
        // The end of its process counts by itself.
        if !self.remote.as_ref().is_some_and(|remote| remote.has_ended_in(dest)) {
            self.services.note(account, error);
        }
    }

    /// It would get the same settings.
    pub(crate) fn is_same_with(&self, before: &DriverSettings, after: &DriverSettings) -> bool {
        let archive = if self.takes_archive { after } else { before }.archive.clone();
        *before == DriverSettings { archive, ..after.clone() }
    }

    /// How often its process crashed; on threads, how often it panicked.
    pub(crate) fn crashes(&self) -> u64 {
        self.remote.as_ref().map_or_else(|| self.services.panicked(), |remote| remote.crashed())
    }
}
