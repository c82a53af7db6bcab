//! The document and its page as they are served: made again when the loaded drivers have changed.

use std::sync::Arc;

use parking_lot::Mutex;

use super::docs;
use super::document::{document, document_text};
use satcast_drivers::Drivers;

/// Both, for one set of drivers.
#[derive(Clone)]
pub(super) struct Served {
    version: u64,
    /// The document as JSON.
    pub(super) text: Arc<str>,
    /// The page.
    pub(super) page: Arc<str>,
}

/// What is served now.
pub(super) struct Documents {
    drivers: Drivers,
    now: Mutex<Served>,
}

impl Documents {
    pub(super) fn new(drivers: &Drivers) -> Self {
        Self { drivers: drivers.clone(), now: Mutex::new(Served::of(drivers)) }
    }

    /// Both, for the drivers as they are.
    pub(super) fn get(&self) -> Served {
        let mut now = self.now.lock();
        if now.version != self.drivers.version() {
            *now = Served::of(&self.drivers);
        }
        now.clone()
    }
}

impl Served {
    fn of(drivers: &Drivers) -> Self {
        // Before the types: what changes in between is made again.
        let version = drivers.version();
        let document = document(&drivers.schemas());
        Self { version, text: document_text(&document).into(), page: docs::page(&document).into() }
    }
}
