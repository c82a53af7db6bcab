//! Results of connection attempts on their way to a driver.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use satcast_plugin_api::host::Connected;
use satcast_plugin_api::{Class, Error};

use crate::run::pump::Pump;
use satcast_net::outbound::GuardError;

/// Most connections that one driver may wait for at once. Established connections do not count.
pub(crate) const CONNECTS_MAX: u32 = 1024;

/// Permit for one of them.
pub(super) struct Connecting(Arc<AtomicU32>);

impl Connecting {
    /// `None` when all are in use.
    pub(super) fn begin(taken: &Arc<AtomicU32>) -> Option<Self> {
        let permit = Self(taken.clone());
        // Dropping the permit undoes an excess count.
        (taken.fetch_add(1, Ordering::AcqRel) < CONNECTS_MAX).then_some(permit)
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The driver's callback, which is foreign code: called, or dropped, on the driver's pump thread. At most one waits
/// for each connection attempt, which the guard's time limit ends.
pub(super) struct OnPump {
    pub(super) pump: Arc<Pump>,
    pub(super) done: Option<Connected>,
    /// Held until the driver has the socket.
    pub(super) permit: Option<Connecting>,
}

impl OnPump {
    pub(super) fn give(mut self, outcome: Result<OwnedFd, Error>) {
        let permit = self.permit.take();
        if let Some(done) = self.done.take() {
            self.pump.run(move || {
                done(outcome);
                drop(permit);
            });
        }
    }
}

impl Drop for OnPump {
    fn drop(&mut self) {
        let permit = self.permit.take();
        if let Some(done) = self.done.take() {
            self.pump.run(move || drop((done, permit)));
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
