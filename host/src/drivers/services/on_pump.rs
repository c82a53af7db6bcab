//! Outcomes of connection attempts on their way to a driver.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use satcast_plugin_api::host::Connected;
use satcast_plugin_api::{Class, Error};

use crate::drivers::control::Pump;
use crate::outbound::GuardError;

/// The driver's callback, which is foreign code: called, or dropped, on the driver's pump thread. One waits at most for
/// each connection attempt, which the guard's time limit ends.
pub(super) struct OnPump {
    pub(super) pump: Arc<Pump>,
    pub(super) done: Option<Connected>,
}

impl OnPump {
    pub(super) fn give(mut self, outcome: Result<OwnedFd, Error>) {
        if let Some(done) = self.done.take() {
            self.pump.run(move || done(outcome));
        }
    }
}

impl Drop for OnPump {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            self.pump.run(move || drop(done));
        }
    }
}

pub(super) fn connect_error(error: GuardError) -> Error {
    let class = match &error {
        GuardError::Refused(_) => Class::Config,
        GuardError::Dns { .. }
        | GuardError::NameServer { .. }
        | GuardError::NotLookedUp { .. }
        | GuardError::Connect { .. }
        | GuardError::Timeout { .. } => Class::Network,
    };
    Error::new(class, error.to_string())
}
