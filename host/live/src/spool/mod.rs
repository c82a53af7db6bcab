//! The disk behind a queue that must not lose packets: a file without a name, written at its end and read at its front. Read parts are
//! freed on the file system.
//!
//! The name is removed before the first write, so the system frees the file with its last handle, also after a crash.

mod file;
mod share;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use satcast_plugin_api::host::DriverWaker;
use tracing::Span;

use self::file::SpoolFile;
use self::share::Line;
pub(super) use self::share::Shares;
use super::queue::{Disk, SpillBackend};
use satcast_core::clock::Clock;
use satcast_core::ids::AccountId;
use satcast_drivers::Waker;

/// Bytes that a spool leaves free on its file system. Twice the default of recordings, so that recordings continue when spools are
/// full.
pub(super) const FREE_BYTES_MIN: u64 = 2 * 1024 * 1024 * 1024;
/// Stack of a spool's thread.
const STACK_BYTES: usize = 256 * 1024;

/// The spill backend of one opening of a destination.
pub(crate) struct Spool {
    pub(crate) account: AccountId,
    /// Disk usage of each account.
    pub(crate) shares: Arc<Shares>,
    /// Folder of the file.
    pub(crate) folder: PathBuf,
    /// Most bytes that may wait.
    pub(crate) bytes_max: u64,
    /// Bytes that stay free on the file system: `FREE_BYTES_MIN`, except in tests.
    pub(crate) free_bytes_min: u64,
    pub(crate) waker: Waker,
    /// Clock of the log limit.
    pub(crate) clock: Clock,
    /// Its log lines are of this span, whatever thread writes them.
    pub(crate) span: Span,
}

impl Spool {
    /// `Some` when a line of this kind may be logged now, with the number of lines left out before.
    fn admit(&self, line: Line) -> Option<u64> {
        self.shares.lines.admit((self.account, line), self.clock.monotonic())
    }
}

impl SpillBackend for Spool {
    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn disk(&self) -> Box<dyn Disk> {
        Box::new(SpoolFile::below(&self.folder, self.free_bytes_min, self.shares.of(self.account)))
    }

    fn start(&self, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let _in_span = self.span.enter();
        let admitted = self.admit(Line::Waits);
        if let Some(left_out) = admitted {
            tracing::warn!(left_out, "a destination does not keep up; its packets wait on disk");
        }
        let span = self.span.clone();
        let ended = move || {
            body();
            if admitted.is_some() {
                let _in_span = span.enter();
                tracing::info!("no packets of the destination wait on disk any more");
            }
        };
        thread::Builder::new().name("spool".into()).stack_size(STACK_BYTES).spawn(ended).map(drop)
    }

    fn wake(&self, waker: DriverWaker) {
        self.waker.wake([waker]);
    }

    fn overflows(&self) {
        let Some(left_out) = self.admit(Line::Overflow) else { return };
        let _in_span = self.span.enter();
        tracing::error!(
            bytes_max = self.bytes_max,
            left_out,
            "the spool of a destination is full and packets are lost; the destination is too slow for its stream, or spool_mb of its \
             driver is too small"
        );
    }

    fn failed(&self, error: &io::Error) {
        let Some(left_out) = self.admit(Line::Disk) else { return };
        let _in_span = self.span.enter();
        tracing::error!(
            folder = %self.folder.display(), %error, left_out,
            "packets for a destination cannot be written to disk; free disk space or check the folder"
        );
    }
}
