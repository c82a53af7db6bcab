//! What a driver can ask of the host without a destination.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use super::hostref::HostRef;
use super::net;
use super::time::Time;
use crate::Error;
use crate::abi;
use crate::recording::Recording;

/// Connections without a destination are made under this number.
const NO_DEST: u64 = 0;

/// What a driver can ask of the host without a destination. Usable from any thread, from `load` on, as long as the driver lives.
#[derive(Clone)]
pub struct Host {
    host: Arc<HostRef>,
}

impl Host {
    pub(crate) fn new(host: Arc<HostRef>) -> Self {
        Self { host }
    }

    /// `[any]` A folder that is the driver's alone and outlives sessions; it exists.
    ///
    /// # Errors
    /// `Internal` when the host has none or cannot make it.
    pub fn data_dir(&self) -> Result<PathBuf, Error> {
        self.host.data_dir()
    }

    /// `[any]` The driver's time.
    pub fn time(&self) -> Time {
        self.host.time.clone()
    }

    /// `[any]` What the operator wrote below `[driver.<id>]`, read as `S`: the type that [`Driver::settings`](super::Driver::settings) names.
    /// The host has checked it with its schema. It stays the same while the driver runs.
    ///
    /// # Errors
    /// `Config` when it cannot be read as `S`, `Internal` when the host knows no settings. Never holds a value.
    pub fn settings<S: DeserializeOwned>(&self) -> Result<S, Error> {
        serde_json::from_str(&self.host.settings()?)
            .map_err(|_| Error::config("the settings of the driver do not fit what it declares"))
    }

    /// `[task]` As [`Ctx::connect`](super::Ctx::connect), for work that outlives its destination.
    ///
    /// # Errors
    /// As there.
    pub async fn connect(&self, host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Error> {
        net::connect(&self.host, NO_DEST, host, port, timeout).await
    }

    /// `[any]` Tells the host of a change of a recording: at every change of state, and now and then while sizes grow.
    ///
    /// # Errors
    /// The recording breaks a rule of its fields, or the host knows no recordings. Nothing is lost by a report that fails: the host
    /// lists the recordings from time to time.
    pub fn recording(&self, recording: &Recording) -> Result<(), Error> {
        recording.check()?;
        let json = serde_json::to_string(recording)
            .map_err(|error| Error::internal(format!("a recording cannot be written down: {error}")))?;
        self.host.report_recording(&json)
    }

    /// `[any]` `text` encrypted with a key of the host's, for the driver's own folder. Only this driver's [`Host::unseal`] reads it, on this
    /// service. Printable ASCII. At most [`SEAL_BYTES_MAX`](crate::recording::SEAL_BYTES_MAX) bytes are taken.
    ///
    /// # Errors
    /// The text is too long, or the host has no such ability.
    pub fn seal(&self, text: &str) -> Result<String, Error> {
        self.host.vault(|vault| vault.seal, text)
    }

    /// `[any]` What was given to [`Host::seal`].
    ///
    /// # Errors
    /// It was sealed by somebody else, with another key, or changed since.
    pub fn unseal(&self, sealed: &str) -> Result<String, Error> {
        self.host.vault(|vault| vault.unseal, sealed)
    }
}

/// A function of [`abi::SatcastVault`].
pub(super) type VaultCall = unsafe extern "C" fn(
    ctx: *mut std::ffi::c_void,
    text: abi::SatcastStr,
    sink: *const abi::SatcastTextSink,
    error: *const abi::SatcastErrorSink,
) -> i32;
