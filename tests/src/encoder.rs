//! ffmpeg as an encoder that publishes.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use tempfile::TempDir;

use crate::process::{Process, guarded};
use crate::source::Source;

/// What to publish, before it starts.
#[derive(Debug)]
pub struct Publish {
    input: PathBuf,
    before: Vec<String>,
    after: Vec<String>,
}

impl Publish {
    /// The source in real time, once, unchanged.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        Self { input: source.path().to_owned(), before: vec!["-re".into()], after: Vec::new() }
    }

    /// Only the first `seconds` of it.
    #[must_use]
    pub fn seconds(mut self, seconds: u64) -> Self {
        self.after.extend(["-t".into(), seconds.to_string()]);
        self
    }

    /// Again and again, until it is ended.
    #[must_use]
    pub fn endless(mut self) -> Self {
        self.before.extend(["-stream_loop".into(), "-1".into()]);
        self
    }

    /// `times` as fast as real time.
    #[must_use]
    pub fn faster(mut self, times: u32) -> Self {
        self.before = vec!["-readrate".into(), times.to_string()];
        self
    }

    /// With timestamps that begin `seconds` later than those of the source.
    #[must_use]
    pub fn shifted(mut self, seconds: f64) -> Self {
        self.after.extend(["-output_ts_offset".into(), seconds.to_string()]);
        self
    }

    /// Starts publishing to `url`.
    ///
    /// # Panics
    /// When ffmpeg cannot be started.
    #[must_use]
    pub fn to(self, url: &str) -> Encoder {
        let folder = tempfile::tempdir().expect("a folder for the encoder's log");
        let mut command = guarded(Path::new("ffmpeg"));
        command.args(["-nostdin", "-hide_banner", "-loglevel", "warning"]);
        command.args(self.before).arg("-i").arg(self.input).args(["-c", "copy"]).args(self.after);
        command.args(["-f", "flv", url]);
        let process = Process::start("ffmpeg", command, &folder.path().join("ffmpeg.log"));
        Encoder { process, _folder: folder }
    }
}

/// A publishing ffmpeg; dropped, it is killed.
#[derive(Debug)]
pub struct Encoder {
    process: Process,
    _folder: TempDir,
}

impl Encoder {
    /// Waits until it has sent everything and ended.
    ///
    /// # Panics
    /// When it has not after `limit`.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        self.process.wait(limit)
    }

    /// Waits, and expects that it could send everything.
    ///
    /// # Panics
    /// When it has not ended after `limit`, or failed.
    #[track_caller]
    pub fn finish(&mut self, limit: Duration) {
        let status = self.wait(limit);
        assert!(status.success(), "the encoder ended with {status}: {}", self.process.log());
    }

    /// Cut off without a goodbye: the connection is reset by the kernel of a dead process.
    pub fn cut(&mut self) {
        self.process.kill();
    }

    /// Its machine stands still, with the connection open, until [`Self::thaw`].
    #[track_caller]
    pub fn freeze(&self) {
        self.process.freeze();
    }

    /// It goes on, and sends at once what it has missed.
    #[track_caller]
    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Stopped by the user: it says goodbye and ends.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.process.terminate(Duration::from_secs(10))
    }

    /// Whether it still runs.
    pub fn running(&mut self) -> bool {
        self.process.ended().is_none()
    }

    /// What it printed.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}
