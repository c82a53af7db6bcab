//! The served API document and its page: regenerated when the loaded drivers change.

use std::sync::Arc;

use parking_lot::Mutex;

use super::docs;
use super::document::{document, document_text};
use satcast_drivers::Drivers;

/// Document and page for one set of drivers.
#[derive(Clone)]
pub(super) struct Served {
    version: u64,
    /// The document as JSON.
    pub(super) text: Arc<str>,
    /// The page.
    pub(super) page: Arc<str>,
}

/// Cache of the current document and page.
pub(super) struct Documents {
    drivers: Drivers,
    now: Mutex<Served>,
}

impl Documents {
    pub(super) fn new(drivers: &Drivers) -> Self {
        Self { drivers: drivers.clone(), now: Mutex::new(Served::of(drivers)) }
    }

    /// Document and page for the current drivers.
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
        // Read before the types, so that a change in between causes another generation.
        let version = drivers.version();
        let document = document(&drivers.schemas());
        Self { version, text: document_text(&document).into(), page: docs::page(&document).into() }
    }
}
