//! What the driver needs of its host, apart from media: a small trait, so that everything else is tested without one.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use satcast_plugin_api::Error;
use tokio::net::TcpStream;

use crate::contract::Recording;

/// The host, as the rest of the driver sees it.
#[async_trait]
pub(crate) trait Outside: Debug + Send + Sync + 'static {
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
}
