//! The host functions that the driver needs apart from media: a small trait, so that tests can replace the host.

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
    /// Connects to an address that the outbound guard allows.
    async fn connect(&self, host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Error>;

    /// Reports a change of a recording to the host.
    fn report(&self, recording: &Recording);

    /// Encrypts a text for the journal.
    fn seal(&self, text: &str) -> Result<String, Error>;

    /// Decrypts the result of [`Outside::seal`].
    fn unseal(&self, sealed: &str) -> Result<String, Error>;

    /// Milliseconds since 1970.
    fn now_ms(&self) -> i64;

    /// Monotonic time since a fixed moment of this run.
    fn elapsed(&self) -> Duration;

    /// Writes all of `bytes` into a local file. It is part of this trait so that tests can have a full disk.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }
}

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
        // No loss: the host lists the recordings from time to time.
        if let Err(error) = self.host.recording(recording) {
            tracing::debug!(recording = recording.file_name, %error, "the host was not notified of a recording");
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
