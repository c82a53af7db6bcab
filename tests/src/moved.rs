//! A service with a manipulated clock: days pass in seconds, or the wall clock is wrong.

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
    /// Seconds before (negative) or after the true time.
    moved: i64,
}

impl MovedClock {
    /// A clock without an offset.
    ///
    /// # Panics
    /// When its file cannot be written.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the clock");
        let clock = Self { folder, moved: 0 };
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

    /// Makes a service use this clock as its wall clock alone, as a correction of the system's clock does.
    ///
    /// # Panics
    /// When faketime is not installed.
    #[must_use]
    pub fn set_wall(&self, setup: Setup) -> Setup {
        self.set(setup).set("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }

    /// Moves the clocks forward.
    ///
    /// # Panics
    /// When its file cannot be written.
    pub fn pass(&mut self, time: Duration) {
        self.turn(self.moved + i64::try_from(time.as_secs()).expect("a time of this age"));
    }

    /// Sets the clocks so many seconds after the true time, or before it. For [`MovedClock::set_wall`], because no monotonic clock goes
    /// back.
    ///
    /// # Panics
    /// When its file cannot be written.
    pub fn turn(&mut self, seconds: i64) {
        self.moved = seconds;
        self.write();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("moved")
    }

    fn write(&self) {
        // Renamed into place, because the service may read at any moment.
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{:+}\n", self.moved)).expect("the clock's file");
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
