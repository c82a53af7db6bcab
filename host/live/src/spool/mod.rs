//! The disk behind a queue that must not lose packets: a file without a name, written at its end and read at its front. Read parts are
//! freed on the file system.
//!
//! The name is removed before the first write, so the system frees the file with its last handle, also after a crash.

mod backend;
mod file;
mod share;

pub(super) use self::backend::Spool;
pub(super) use self::share::Shares;

/// Bytes that a spool leaves free on its file system. Twice the default of recordings, so that recordings continue when spools are
/// full.
pub(super) const FREE_BYTES_MIN: u64 = 2 * 1024 * 1024 * 1024;
