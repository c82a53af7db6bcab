//! What is around the queue of one opening of a destination: its disk, its thread, and what the log says.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use satcast_plugin_api::host::DriverWaker;

use super::file::SpoolFile;
use super::share::{Line, Shares};
use crate::queue::{Disk, Surroundings};
use satcast_core::clock::Clock;
use satcast_core::ids::{AccountId, DestinationId};
use satcast_drivers::Waker;

/// Stack of a spool's thread.
const STACK_BYTES: usize = 256 * 1024;

/// What is around the queue of one opening of a destination.
pub(crate) struct Spool {
    pub(crate) destination: DestinationId,
    pub(crate) account: AccountId,
    /// What all destinations of an account have on disk.
    pub(crate) shares: Arc<Shares>,
    /// Where the file is made.
    pub(crate) folder: PathBuf,
    /// Most bytes that may wait.
    pub(crate) bytes_max: u64,
    /// Free bytes that are left on its file system; [`FREE_BYTES_MIN`] but in tests.
    pub(crate) free_bytes_min: u64,
    /// Wakes its driver.
    pub(crate) waker: Waker,
    /// Time for how often the log says so.
    pub(crate) clock: Clock,
}

impl Spool {
    /// Whether a line about it may be written now, and how many like it were left out before.
    fn admit(&self, line: Line) -> Option<u64> {
        self.shares.lines.admit((self.account, line), self.clock.monotonic())
    }
}

impl Surroundings for Spool {
    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn disk(&self) -> Box<dyn Disk> {
        Box::new(SpoolFile::below(&self.folder, self.free_bytes_min, self.shares.of(self.account)))
    }

    fn start(&self, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let destination = self.destination.0;
        let is_said = self.admit(Line::Waits);
        if let Some(left_out) = is_said {
            tracing::warn!(
                destination,
                left_out,
                "a destination does not keep up; what it must not lose waits on disk"
            );
        }
        let ended = move || {
            body();
            if is_said.is_some() {
                tracing::info!(destination, "nothing of the destination waits on disk any more");
            }
        };
        thread::Builder::new().name("spool".into()).stack_size(STACK_BYTES).spawn(ended).map(drop)
    }

    fn wake(&self, waker: DriverWaker) {
        self.waker.wake([waker]);
    }

    fn overflows(&self) {
        let Some(left_out) = self.admit(Line::Overflow) else { return };
        tracing::error!(
            destination = self.destination.0,
            bytes_max = self.bytes_max,
            left_out,
            "more waits for a destination than may: packets that it must not lose are lost until there is room; it is too slow \
             for its stream, or spool_mb of its driver is too small"
        );
    }

    fn failed(&self, error: &io::Error) {
        let Some(left_out) = self.admit(Line::Disk) else { return };
        tracing::error!(
            destination = self.destination.0, folder = %self.folder.display(), %error, left_out,
            "what waits for a destination cannot be put on disk; make room there"
        );
    }
}
