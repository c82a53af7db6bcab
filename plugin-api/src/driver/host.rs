//! The host's functions for a driver without a destination.

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

/// The host's functions for a driver without a destination. Usable from any thread, from `load` on, as long as the driver lives.
#[derive(Clone)]
pub struct Host {
    host: Arc<HostRef>,
}

impl Host {
    pub(crate) fn new(host: Arc<HostRef>) -> Self {
        Self { host }
    }

    /// `[any]` The driver's private folder, which exists and outlives sessions.
    ///
    /// # Errors
    /// `Internal` when the host has no folder or cannot create it.
    pub fn data_dir(&self) -> Result<PathBuf, Error> {
        self.host.data_dir()
    }

    /// `[any]` The driver's time.
    pub fn time(&self) -> Time {
        self.host.time.clone()
    }

    /// `[any]` The operator's settings below `[driver.<id>]`, read as `S`: the type that [`Driver::settings`](super::Driver::settings) names.
    /// The host has checked them against their schema. They do not change while the driver runs.
    ///
    /// # Errors
    /// `Config` when they cannot be read as `S`, `Internal` when the host has no settings. The text never holds a value.
    pub fn settings<S: DeserializeOwned>(&self) -> Result<S, Error> {
        serde_json::from_str(&self.host.settings()?).map_err(|_| {
            Error::config("the driver's settings do not match the settings type that the driver declares")
        })
    }

    /// `[task]` As [`Ctx::connect`](super::Ctx::connect), for work that outlives its destination.
    ///
    /// # Errors
    /// As there.
    pub async fn connect(&self, host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Error> {
        net::connect(&self.host, NO_DEST, host, port, timeout).await
    }

    /// `[any]` Reports a changed recording: at every change of state, and from time to time while sizes grow.
    ///
    /// # Errors
    /// The recording breaks a rule of its fields, or the host has no recordings. A failed report loses nothing: the host lists
    /// the recordings from time to time.
    pub fn recording(&self, recording: &Recording) -> Result<(), Error> {
        recording.check()?;
        let json = serde_json::to_string(recording)
            .map_err(|error| Error::internal(format!("a recording cannot be serialized: {error}")))?;
        self.host.report_recording(&json)
    }

    /// `[any]` Encrypts `text` with the host's key, for the driver's own folder. Only this driver's [`Host::unseal`] on this service can read
    /// it. Printable ASCII. At most [`SEAL_BYTES_MAX`](crate::recording::SEAL_BYTES_MAX) bytes are taken.
    ///
    /// # Errors
    /// The text is too long, or the host has no encryption.
    pub fn seal(&self, text: &str) -> Result<String, Error> {
        self.host.vault(|vault| vault.seal, text)
    }

    /// `[any]` Decrypts the output of [`Host::seal`].
    ///
    /// # Errors
    /// The text was sealed by another driver or with another key, or was changed.
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
