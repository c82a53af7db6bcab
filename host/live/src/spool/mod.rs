//! The disk behind a queue that must not lose anything: a file without a name, written at its end and read at its front. What was read is
//! given back to the file system.
//!
//! The name goes before the first byte comes, so that the system frees the file with its last handle, however the service ends.

mod around;
mod file;
mod share;

pub(super) use self::around::Spool;
pub(super) use self::share::Shares;

/// Free bytes that a spool leaves on its file system, for everything else that is written there: twice what recordings leave by
/// default, so that they go on when it is full.
pub(super) const FREE_BYTES_MIN: u64 = 2 * 1024 * 1024 * 1024;
