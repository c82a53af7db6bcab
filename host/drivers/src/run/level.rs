//! The log level of drivers.

use std::sync::atomic::{AtomicU32, Ordering};

/// Log level gate of all drivers; see [`set_log_level`].
pub(crate) static MAX_LEVEL: AtomicU32 = AtomicU32::new(3);

/// Sets the log level of drivers: 0 nothing, 1 errors, to 5 everything.
pub fn set_log_level(level: u32) {
    MAX_LEVEL.store(level, Ordering::Relaxed);
}
