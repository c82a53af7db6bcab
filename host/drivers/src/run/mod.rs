//! A running driver, in this process or in a child, and the services that the host gives it.
//!
//! - [`Loaded`]: a running driver; [`HostParts`]: input for its start.
//! - [`control`]: where it runs, here or in a child ([`process`]), and the thread that calls it; [`pump`]: the thread
//!   that wakes it when there is media.
//! - [`services`]: the host's services for a driver; [`redact`]: removes secrets from its texts; [`reports`]: its
//!   reports about recordings.
//! - [`requests`], [`routes`]: viewers' requests that it answers itself.
//! - [`quarantine`]: when a failing driver gets nothing new, and for which accounts.

pub(super) mod control;
pub mod process;
pub(super) mod pump;
pub(super) mod quarantine;
mod redact;
pub(super) mod reports;
mod requests;
pub(super) mod routes;
pub(super) mod services;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use satcast_plugin_api::Error;

use self::control::Control;
use self::process::Remote;
use self::pump::Pump;
use self::reports::RecordingParts;
use self::services::DriverServices;
use satcast_core::clock::Clock;
use satcast_core::config::DriverSettings;
use satcast_net::outbound::Guard;

/// Log level gate of all drivers; see [`set_log_level`].
pub(crate) static MAX_LEVEL: AtomicU32 = AtomicU32::new(3);

/// Sets the log level of drivers: 0 nothing, 1 errors, to 5 everything.
pub fn set_log_level(level: u32) {
    MAX_LEVEL.store(level, Ordering::Relaxed);
}

/// Parts of the host that driver code needs.
#[derive(Clone)]
pub struct HostParts {
    pub guard: Guard,
    /// The host's runtime, for connections.
    pub runtime: tokio::runtime::Handle,
    /// Time for log limits.
    pub clock: Clock,
    /// Each driver gets a folder of its own below this one.
    pub data_dir: PathBuf,
    pub recordings: RecordingParts,
}

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
