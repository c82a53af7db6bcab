//! A service with a manipulated clock: days pass in seconds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::service::Setup;

/// Interval in which the service reads the offset of its clocks.
const LOOK_EVERY_SECS: &str = "1";

/// Wall clock and monotonic clock of a service, moved forward by the test (Debian's `faketime`). Timers notice a move at their next
/// check, as after the suspension of a machine.
#[derive(Debug)]
pub struct MovedClock {
    folder: TempDir,
    moved: Duration,
}

impl MovedClock {
    /// A clock without an offset.
    ///
    /// # Panics
    /// When its file cannot be written.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the clock");
        let clock = Self { folder, moved: Duration::ZERO };
        clock.write();
        clock
    }

    /// Makes a service use this clock.
    ///
    /// # Panics
    /// When faketime is not installed.
    #[must_use]
    pub fn set(&self, setup: Setup) -> Setup {
        let library = library().expect("faketime; `cargo xtask setup` installs it");
        setup
            .set("LD_PRELOAD", &library.to_string_lossy())
            .set("FAKETIME_TIMESTAMP_FILE", &self.file().to_string_lossy())
            .set("FAKETIME_CACHE_DURATION", LOOK_EVERY_SECS)
    }

    /// Moves the clocks forward.
    ///
    /// # Panics
    /// When its file cannot be written.
    pub fn pass(&mut self, time: Duration) {
        self.moved += time;
        self.write();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("moved")
    }

    fn write(&self) {
        // Renamed into place, because the service may read at any moment.
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("+{}\n", self.moved.as_secs())).expect("the clock's file");
        std::fs::rename(new, self.file()).expect("the clock's file");
    }
}

impl Default for MovedClock {
    fn default() -> Self {
        Self::new()
    }
}

fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir(Path::new("/usr/lib")).ok()?;
    let mut files = folders.flatten().map(|entry| entry.path().join("faketime/libfaketime.so.1"));
    files.find(|file| file.is_file())
}
