//! Outcomes of connection attempts on their way to a driver.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use satcast_plugin_api::host::Connected;
use satcast_plugin_api::{Class, Error};

use crate::run::pump::Pump;
use satcast_net::outbound::GuardError;

/// Connections one driver may wait for at once. Those it has are its own.
pub(crate) const CONNECTS_MAX: u32 = 1024;

/// The place of one of them.
pub(super) struct Connecting(Arc<AtomicU32>);

impl Connecting {
    /// `None` when all are taken.
    pub(super) fn begin(taken: &Arc<AtomicU32>) -> Option<Self> {
        let place = Self(taken.clone());
        // Too many are given back by the drop.
        (taken.fetch_add(1, Ordering::AcqRel) < CONNECTS_MAX).then_some(place)
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The driver's callback, which is foreign code: called, or dropped, on the driver's pump thread. One waits at most for
/// each connection attempt, which the guard's time limit ends.
pub(super) struct OnPump {
    pub(super) pump: Arc<Pump>,
    pub(super) done: Option<Connected>,
    /// Held until the driver has the socket.
    pub(super) place: Option<Connecting>,
}

impl OnPump {
    pub(super) fn give(mut self, outcome: Result<OwnedFd, Error>) {
        let place = self.place.take();
        if let Some(done) = self.done.take() {
            self.pump.run(move || {
                done(outcome);
                drop(place);
            });
        }
    }
}

impl Drop for OnPump {
    fn drop(&mut self) {
        let place = self.place.take();
        if let Some(done) = self.done.take() {
            self.pump.run(move || drop((done, place)));
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
