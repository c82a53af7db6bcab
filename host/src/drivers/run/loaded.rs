//! A driver that runs.

use std::sync::Arc;

use satcast_plugin_api::Error;

use super::control::Control;
use super::process::Remote;
use super::pump::Pump;
use super::services::DriverServices;
use satcast_core::config::DriverSettings;

/// One loaded driver. It ends when its last destination and the registry have let go of it.
pub(in crate::drivers) struct Loaded {
    pub(in crate::drivers) control: Control,
    pub(in crate::drivers) pump: Arc<Pump>,
    pub(in crate::drivers) services: Arc<DriverServices>,
    /// The process it runs in, if it has one.
    pub(in crate::drivers) remote: Option<Arc<Remote>>,
    /// `[archive]` goes on to it.
    pub(in crate::drivers) takes_archive: bool,
}

impl Loaded {
    /// Whether it does something new for `account` at this moment.
    pub(in crate::drivers) fn may_open(&self, account: i64) -> Result<(), Error> {
        self.services.may_open(account)?;
        self.remote.as_ref().map_or(Ok(()), |remote| remote.may_open(account))
    }

    /// It would get the same settings.
    pub(in crate::drivers) fn is_same_with(&self, before: &DriverSettings, after: &DriverSettings) -> bool {
        let archive = if self.takes_archive { after } else { before }.archive.clone();
        *before == DriverSettings { archive, ..after.clone() }
    }

    /// How often its process crashed; on threads, how often it panicked.
    pub(in crate::drivers) fn crashes(&self) -> u64 {
        self.remote.as_ref().map_or_else(|| self.services.panicked(), |remote| remote.crashed())
    }
}
