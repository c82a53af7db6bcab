//! What a running destination can ask of the host.

use std::ffi::c_void;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use super::State;
use super::hostref::HostRef;
use crate::Error;
use crate::abi::{self, SatcastBody, SatcastError, SatcastStr};
use crate::wire::{ErrorSlot, read_error};

/// A running destination's line to the host. Cheap to clone; usable from any task of the driver.
#[derive(Clone)]
pub struct Ctx {
    host: Arc<HostRef>,
    dest: u64,
    source: u64,
    bytes_sent: Option<&'static AtomicU64>,
    stopping: watch::Receiver<bool>,
}

/// A piece the host serves to viewers by name.
pub struct Asset<'a> {
    /// `a-z A-Z 0-9 . _ -`, at most 128 bytes.
    pub name: &'a str,
    /// Media type.
    pub content_type: &'a str,
    /// Seconds a cache may keep it; 0 = not at all.
    pub max_age_secs: u32,
    /// The bytes, shared with the host.
    pub body: Bytes,
}

impl Ctx {
    pub(crate) fn new(host: Arc<HostRef>, dest: u64, source: u64, stopping: watch::Receiver<bool>) -> Self {
        let bytes_sent = host.metric(dest, "bytes_sent");
        Self { host, dest, source, bytes_sent, stopping }
    }

    /// Session whose media comes; destinations of one session share it.
    pub fn source(&self) -> u64 {
        self.source
    }

    /// Reports the state.
    pub fn state(&self, state: State) {
        self.report(state, None);
    }

    /// Reports that the destination is not live, and why, while `run` goes on trying.
    pub fn waiting(&self, reason: &Error) {
        self.report(State::Connecting, Some(reason));
    }

    fn report(&self, state: State, reason: Option<&Error>) {
        self.host.state(self.dest, state.to_abi(), reason);
    }

    /// Adds to the bytes the destination was sent.
    pub fn bytes_sent(&self, bytes: u64) {
        if let Some(slot) = self.bytes_sent {
            slot.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// A counter of the driver's own; `None` when the host refuses more.
    pub fn counter(&self, name: &str) -> Option<&'static AtomicU64> {
        self.host.metric(self.dest, name)
    }

    /// Tells the owner something. `data` must be an object without secrets.
    pub fn event(&self, name: &str, data: &Value) {
        self.host.event(self.dest, name, &data.to_string());
    }

    /// Resolves when the end was asked for. Work that does not wait for media must give way to it.
    pub async fn stopping(&self) {
        let mut stopping = self.stopping.clone();
        // An error means that the instance is gone, which is an end too.
        let _ = stopping.wait_for(|stop| *stop).await;
    }

    /// A TCP connection to an address the user gave, resolved and checked by the host's outbound guard.
    ///
    /// # Errors
    /// `Config` when the guard refuses the address, `Network` when resolving or connecting fails or takes over `timeout`.
    pub async fn connect(&self, host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Error> {
        let (done, outcome) = oneshot::channel();
        self.start_connect(host, port, timeout, done)?;
        let fd = outcome.await.map_err(|_| Error::internal("the host dropped a connection attempt"))??;
        let stream = std::net::TcpStream::from(fd);
        stream
            .set_nonblocking(true)
            .and_then(|()| TcpStream::from_std(stream))
            .map_err(|error| Error::internal(format!("cannot use the socket the host gave: {error}")))
    }

    fn start_connect(
        &self,
        host: &str,
        port: u16,
        timeout: Duration,
        done: oneshot::Sender<Result<OwnedFd, Error>>,
    ) -> Result<(), Error> {
        // SAFETY: `SatcastNet` is the struct of this name.
        let net = unsafe { self.host.extension::<abi::SatcastNet>(abi::EXT_NET) };
        let connect = net.and_then(|net| net.connect).ok_or_else(|| missing(abi::EXT_NET))?;
        let request = abi::SatcastConnect {
            size: size_of::<abi::SatcastConnect>() as u32,
            timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            host: SatcastStr::new(host),
            port: u32::from(port),
            reserved: 0,
        };
        let done =
            abi::SatcastConnected { data: Box::into_raw(Box::new(done)).cast(), done: Some(connected) };
        // SAFETY: the request lives for the call; the host calls `done` exactly once in every case.
        unsafe { connect(self.host.ctx(), self.dest, &raw const request, done) };
        Ok(())
    }

    /// A folder that is the driver's alone and outlives sessions; it exists.
    pub fn data_dir(&self) -> Result<PathBuf, Error> {
        // SAFETY: `SatcastDataDir` is the struct of this name.
        let ext = unsafe { self.host.extension::<abi::SatcastDataDir>(abi::EXT_DATA_DIR) };
        let path = ext.and_then(|ext| ext.path).ok_or_else(|| missing(abi::EXT_DATA_DIR))?;
        let (mut text, mut slot) = (String::new(), ErrorSlot::new());
        let sink = abi::SatcastTextSink { data: (&raw mut text).cast(), put: Some(put_text) };
        let errors = slot.sink();
        // SAFETY: both sinks live for the call.
        match unsafe { path(self.host.ctx(), &raw const sink, &raw const errors) } {
            abi::OK => Ok(PathBuf::from(text)),
            _ => Err(slot.take("the host gave no data folder")),
        }
    }

    /// Gives viewers a piece under its name, in place of an earlier one.
    pub fn publish(&self, asset: Asset<'_>) -> Result<(), Error> {
        // SAFETY: `SatcastAssets` is the struct of this name.
        let ext = unsafe { self.host.extension::<abi::SatcastAssets>(abi::EXT_ASSETS) };
        let publish = ext.and_then(|ext| ext.publish).ok_or_else(|| missing(abi::EXT_ASSETS))?;
        let owner = Box::new(asset.body);
        let raw = abi::SatcastAsset {
            size: size_of::<abi::SatcastAsset>(),
            name: SatcastStr::new(asset.name),
            content_type: SatcastStr::new(asset.content_type),
            max_age_secs: asset.max_age_secs,
            reserved: 0,
            body: SatcastBody {
                kind: abi::BODY_MEMORY,
                fd: -1,
                offset: 0,
                len: owner.len() as u64,
                data: owner.as_ptr(),
                owner: Box::into_raw(owner).cast(),
                release: Some(release_bytes),
            },
        };
        let mut slot = ErrorSlot::new();
        let errors = slot.sink();
        // SAFETY: the description lives for the call; the host owns the body from here on.
        match unsafe { publish(self.host.ctx(), self.dest, &raw const raw, &raw const errors) } {
            abi::OK => Ok(()),
            _ => Err(slot.take("the host refused the asset")),
        }
    }

    /// Takes a name away from viewers.
    pub fn retract(&self, name: &str) {
        // SAFETY: `SatcastAssets` is the struct of this name.
        let ext = unsafe { self.host.extension::<abi::SatcastAssets>(abi::EXT_ASSETS) };
        if let Some(retract) = ext.and_then(|ext| ext.retract) {
            // SAFETY: the name lives for the call.
            unsafe { retract(self.host.ctx(), self.dest, SatcastStr::new(name)) };
        }
    }
}

fn missing(extension: &str) -> Error {
    Error::internal(format!("this host does not offer {extension}; use a newer host"))
}

/// # Safety
/// `data` must be the sender boxed by `start_connect`, passed here once; `fd` must be -1 or ours from now on.
unsafe extern "C" fn connected(data: *mut c_void, fd: i32, error: *const SatcastError) {
    // SAFETY: see above.
    let done = unsafe { Box::from_raw(data.cast::<oneshot::Sender<Result<OwnedFd, Error>>>()) };
    let outcome = if fd >= 0 {
        // SAFETY: the descriptor passes to us with this call.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    } else {
        // SAFETY: the error lives for the call.
        Err(unsafe { read_error(error) }.unwrap_or_else(|| Error::network("the connection failed")))
    };
    // The destination may have gone meanwhile; the socket closes with the dropped value.
    let _ = done.send(outcome);
}

/// # Safety
/// `data` must be the `String` of the running call.
unsafe extern "C" fn put_text(data: *mut c_void, text: SatcastStr) {
    // SAFETY: see above; the text lives for the call.
    unsafe { *data.cast::<String>() = text.read().into_owned() };
}

/// # Safety
/// `owner` must be the boxed `Bytes` of an asset, passed here once.
unsafe extern "C" fn release_bytes(owner: *mut c_void) {
    // SAFETY: see above.
    drop(unsafe { Box::from_raw(owner.cast::<Bytes>()) });
}
