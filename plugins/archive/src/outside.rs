//! What the driver needs of its host, apart from media: a small trait, so that everything else is tested without one.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use satcast_plugin_api::Error;
use satcast_plugin_api::driver::{self, Recording};
use tokio::net::TcpStream;

/// The host, as the rest of the driver sees it.
#[async_trait]
pub(crate) trait Outside: fmt::Debug + Send + Sync + 'static {
    /// A connection to an address that the host's guard lets through.
    async fn connect(&self, host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Error>;

    /// Tells the host of a recording's change.
    fn report(&self, recording: &Recording);

    /// Encrypts a text for the journal.
    fn seal(&self, text: &str) -> Result<String, Error>;

    /// Decrypts what [`Outside::seal`] made.
    fn unseal(&self, sealed: &str) -> Result<String, Error>;

    /// Milliseconds since 1970.
    fn now_ms(&self) -> i64;

    /// Time that has passed since some moment of this run, on a clock that nobody sets.
    fn elapsed(&self) -> Duration;

    /// Writes all of `bytes` into a file of the local disk, which is not the host's: a test has one that is full.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }
}

/// The host itself.
pub(crate) struct HostOutside {
    host: driver::Host,
    started: Instant,
}

impl HostOutside {
    pub(crate) fn new(host: driver::Host) -> Self {
        HostOutside { host, started: Instant::now() }
    }
}

impl fmt::Debug for HostOutside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostOutside")
    }
}

#[async_trait]
impl Outside for HostOutside {
    async fn connect(&self, host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Error> {
        self.host.connect(host, port, timeout).await
    }

    fn report(&self, recording: &Recording) {
        // Nothing is lost: the host lists the recordings from time to time.
        if let Err(error) = self.host.recording(recording) {
            tracing::debug!(recording = recording.file_name, %error, "the host was not told of a recording");
        }
    }

    fn seal(&self, text: &str) -> Result<String, Error> {
        self.host.seal(text)
    }

    fn unseal(&self, sealed: &str) -> Result<String, Error> {
        self.host.unseal(sealed)
    }

    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}
