//! Where a driver runs: on threads of this process, or in a process of its own. Modules above see no difference.

use std::sync::Arc;
use std::time::Duration;

use satcast_plugin_api::host::{Done, Driver, Instance, Listing, MediaSource, Recordings};
use satcast_plugin_api::{Error, HttpRequest};

use super::process::{Remote, RemoteInstance, ToOpen};
use crate::load::images::Lease;

/// A started driver. Its functions may block; they are called on its control thread.
pub(crate) enum Backend {
    /// Its code runs here, in this image; `None` where it is linked in.
    Thread(Box<Driver>, Option<Lease>),
    Process(Arc<Remote>),
}

pub(crate) enum Held {
    /// Of one that runs here.
    Thread(Box<Instance>),
    /// Of one that runs in a child.
    Process(RemoteInstance),
}

pub(crate) enum Kept<'a> {
    /// Of one that runs here.
    Thread(Recordings),
    /// Of one that runs in a child.
    Process(&'a Remote),
}

impl Backend {
    /// Checks a configuration that its schema accepts, for `account`.
    pub(crate) fn validate(&self, account: i64, kind: &str, config: &str) -> Result<(), Error> {
        match self {
            Backend::Thread(driver, _) => driver.validate(kind, config),
            Backend::Process(remote) => remote.validate(account, kind, config),
        }
    }

    pub(crate) fn open(&self, to_open: &ToOpen, media: Arc<dyn MediaSource>) -> Result<Held, Error> {
        match self {
            Backend::Thread(driver, _) => {
                let ToOpen { dest, source, kind, config, about } = to_open;
                let opened = driver.open(*dest, *source, kind, config, about, media);
                opened.map(|opened| Held::Thread(Box::new(opened)))
            }
            Backend::Process(remote) => remote.open(to_open, media).map(Held::Process),
        }
    }

    /// Its recordings interface, if it keeps any.
    pub(crate) fn recordings(&self) -> Option<Kept<'_>> {
        match self {
            Backend::Thread(driver, _) => driver.recordings().map(Kept::Thread),
            Backend::Process(remote) => remote.keeps_recordings().then_some(Kept::Process(remote)),
        }
    }

    /// Passes a viewer's request on; false when the driver answers none.
    pub(crate) fn request(&self, dest: u64, token: u64, request: &HttpRequest) -> bool {
        match self {
            Backend::Thread(driver, _) => {
                driver.http().map(|http| http.request(dest, token, request)).is_some()
            }
            Backend::Process(remote) => remote.request(dest, token, request),
        }
    }

    /// Must be the last call.
    pub(crate) fn shut_down(self) {
        match self {
            Backend::Thread(driver, lease) => {
                driver.shut_down();
                drop(lease);
            }
            Backend::Process(remote) => remote.end(),
        }
    }
}

impl Kept<'_> {
    /// All recordings that it knows.
    pub(crate) fn list(&self) -> Result<Listing, Error> {
        match self {
            Kept::Thread(recordings) => recordings.list(),
            Kept::Process(remote) => remote.list_recordings(),
        }
    }

    /// Requests another upload; `done` is called when the upload is opened, or cannot be.
    pub(crate) fn retry(&self, file_name: &str, done: Done) {
        match self {
            Kept::Thread(recordings) => recordings.retry(file_name, done),
            Kept::Process(remote) => remote.retry_recording(file_name.to_owned(), done),
        }
    }

    /// Requests the removal of a recording; `done` gets the outcome.
    pub(crate) fn delete(&self, file_name: &str, remove_object: bool, done: Done) {
        match self {
            Kept::Thread(recordings) => recordings.delete(file_name, remove_object, done),
            Kept::Process(remote) => remote.delete_recording(file_name.to_owned(), remove_object, done),
        }
    }

    /// Checks whether a configuration can record; `done` gets the outcome.
    pub(crate) fn probe(&self, kind: &str, config: &str, done: Done) {
        match self {
            Kept::Thread(recordings) => recordings.probe(kind, config, done),
            Kept::Process(remote) => remote.probe_recordings(kind.to_owned(), config.to_owned(), done),
        }
    }

    /// Passes the current configuration of a destination on; `None` = it was deleted.
    pub(crate) fn configured(&self, id: i64, kind: &str, config: Option<&str>) -> Result<(), Error> {
        match self {
            Kept::Thread(recordings) => recordings.configured(id, kind, config),
            Kept::Process(remote) => remote.configured(id, kind, config),
        }
    }

    /// Addresses of recordings; `None` for a recording without one.
    pub(crate) fn sign(&self, names: &[String], valid: Duration) -> Result<Vec<Option<String>>, Error> {
        match self {
            Kept::Thread(recordings) => {
                Ok(names.iter().map(|name| recordings.sign(name, valid).ok()).collect())
            }
            Kept::Process(remote) => remote.sign_recordings(names, valid),
        }
    }
}

impl Held {
    /// Offers a new configuration; false when the destination must be opened again for it.
    pub(crate) fn reconfigure(&self, config: &str) -> Result<bool, Error> {
        match self {
            Held::Thread(instance) => instance.reconfigure(config),
            Held::Process(instance) => instance.reconfigure(config),
        }
    }

    pub(crate) fn stop(&self, deadline_ms: u32) {
        match self {
            Held::Thread(instance) => instance.stop(deadline_ms),
            Held::Process(instance) => instance.stop(deadline_ms),
        }
    }

    /// Frees it after its end.
    pub(crate) fn destroy(self) {
        match self {
            Held::Thread(instance) => instance.destroy(),
            Held::Process(instance) => instance.destroy(),
        }
    }
}
