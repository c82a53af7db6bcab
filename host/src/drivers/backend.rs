//! Where a driver runs: on threads of this process, or in a process of its own. Nobody above sees a difference.

use std::sync::Arc;

use satcast_plugin_api::Error;
use satcast_plugin_api::host::{Driver, Instance, MediaSource, Recordings};
use satcast_plugin_api::recording::About;

use super::process::{Remote, RemoteInstance};

/// A started driver. Its functions may block; they are called on its control thread.
pub(super) enum Backend {
    /// Its code runs here.
    Thread(Box<Driver>),
    /// Its code runs in a child.
    Process(Arc<Remote>),
}

/// An open destination of a driver.
pub(super) enum Held {
    /// Of one that runs here.
    Thread(Box<Instance>),
    /// Of one that runs in a child.
    Process(RemoteInstance),
}

impl Backend {
    /// Asks about a configuration its schema accepts.
    pub(super) fn validate(&self, kind: &str, config: &str) -> Result<(), Error> {
        match self {
            Backend::Thread(driver) => driver.validate(kind, config),
            Backend::Process(remote) => remote.validate(kind, config),
        }
    }

    /// Opens a destination.
    pub(super) fn open(
        &self,
        dest: u64,
        source: u64,
        kind: &str,
        config: &str,
        about: &About,
        media: Arc<dyn MediaSource>,
    ) -> Result<Held, Error> {
        match self {
            Backend::Thread(driver) => {
                let opened = driver.open(dest, source, kind, config, about, media);
                opened.map(|opened| Held::Thread(Box::new(opened)))
            }
            Backend::Process(remote) => {
                remote.open(dest, source, kind, config, about, media).map(Held::Process)
            }
        }
    }

    /// What it offers for recordings, if it keeps any; one in a child is not asked.
    pub(super) fn recordings(&self) -> Option<Recordings> {
        match self {
            Backend::Thread(driver) => driver.recordings(),
            Backend::Process(_) => None,
        }
    }

    /// Ends it. The last call.
    pub(super) fn shut_down(self) {
        match self {
            Backend::Thread(driver) => driver.shut_down(),
            Backend::Process(remote) => remote.end(),
        }
    }
}

impl Held {
    /// Offers a new configuration; false when it must be opened again for it.
    pub(super) fn reconfigure(&self, config: &str) -> Result<bool, Error> {
        match self {
            Held::Thread(instance) => instance.reconfigure(config),
            Held::Process(instance) => instance.reconfigure(config),
        }
    }

    /// Asks for the end.
    pub(super) fn stop(&self, deadline_ms: u32) {
        match self {
            Held::Thread(instance) => instance.stop(deadline_ms),
            Held::Process(instance) => instance.stop(deadline_ms),
        }
    }

    /// Frees it after its end.
    pub(super) fn destroy(self) {
        match self {
            Held::Thread(instance) => instance.destroy(),
            Held::Process(instance) => instance.destroy(),
        }
    }
}
