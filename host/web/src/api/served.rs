//! The served API document: regenerated when the loaded drivers change.

use std::sync::Arc;

use parking_lot::Mutex;

use super::document::{document, document_text};
use satcast_drivers::Drivers;

/// Cache of the current document.
pub(super) struct Documents {
    drivers: Drivers,
    /// The version of the drivers, and the document as JSON.
    now: Mutex<(u64, Arc<str>)>,
}

impl Documents {
    pub(super) fn new(drivers: &Drivers) -> Self {
        Self { drivers: drivers.clone(), now: Mutex::new(of(drivers)) }
    }

    /// The document for the current drivers.
    pub(super) fn get(&self) -> Arc<str> {
        let mut now = self.now.lock();
        if now.0 != self.drivers.version() {
            *now = of(&self.drivers);
        }
        now.1.clone()
    }
}

fn of(drivers: &Drivers) -> (u64, Arc<str>) {
    // Read before the types, so that a change in between causes another generation.
    let version = drivers.version();
    (version, document_text(&document(&drivers.schemas())).into())
}
