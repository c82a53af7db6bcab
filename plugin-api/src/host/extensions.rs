//! The extensions of the host's table: checked connections, the driver's folder, pieces for viewers.

use std::ffi::c_void;
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::time::Duration;

use super::Asset;
use super::services::with;
use crate::Error;
use crate::abi::{self, SatcastBody, SatcastStr};
use crate::wire::report;

static NET: abi::SatcastNet = abi::SatcastNet { size: size_of::<abi::SatcastNet>(), connect: Some(connect) };
static DATA_DIR: abi::SatcastDataDir =
    abi::SatcastDataDir { size: size_of::<abi::SatcastDataDir>(), path: Some(data_dir) };
static ASSETS: abi::SatcastAssets = abi::SatcastAssets {
    size: size_of::<abi::SatcastAssets>(),
    publish: Some(publish),
    retract: Some(retract),
};

/// # Safety
/// As [`SatcastHost::get_extension`].
pub(super) unsafe extern "C" fn get_extension(_: *mut c_void, name: SatcastStr) -> *const c_void {
    // SAFETY: the name lives for the call.
    match &*unsafe { name.read() } {
        abi::EXT_NET => (&raw const NET).cast(),
        abi::EXT_DATA_DIR => (&raw const DATA_DIR).cast(),
        abi::EXT_ASSETS => (&raw const ASSETS).cast(),
        _ => std::ptr::null(),
    }
}

/// The driver's callback for one connection attempt; called exactly once, at the latest when dropped.
struct Answer(Option<abi::SatcastConnected>);

// SAFETY: the contract lets the host answer from any thread.
unsafe impl Send for Answer {}

impl Answer {
    fn give(mut self, outcome: Result<OwnedFd, Error>) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Result<OwnedFd, Error>) {
        let Some((data, done)) = self.0.take().and_then(|raw| Some((raw.data, raw.done?))) else { return };
        match outcome {
            // SAFETY: the descriptor passes to the driver.
            Ok(fd) => unsafe { done(data, fd.into_raw_fd(), std::ptr::null()) },
            // SAFETY: the error lives for the call.
            Err(error) => error.with_abi(|raw| unsafe { done(data, -1, raw) }),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.send(Err(Error::internal("the host gave up a connection attempt")));
    }
}

/// # Safety
/// As [`abi::SatcastNet::connect`].
unsafe extern "C" fn connect(
    ctx: *mut c_void,
    dest: u64,
    request: *const abi::SatcastConnect,
    done: abi::SatcastConnected,
) -> i32 {
    let answer = Answer(Some(done));
    // SAFETY: the request lives for the call.
    unsafe {
        with(ctx, abi::ERR, |context| {
            if request.is_null() || ((*request).size as usize) < size_of::<abi::SatcastConnect>() {
                answer.give(Err(Error::internal("the driver's connection request is malformed")));
                return abi::ERR;
            }
            let request = *request;
            let Ok(port) = u16::try_from(request.port) else {
                answer.give(Err(Error::config(format!("{} is no TCP port", request.port))));
                return abi::ERR;
            };
            let host = request.host.read().into_owned();
            let timeout = Duration::from_millis(u64::from(request.timeout_ms));
            context.services.connect(dest, host, port, timeout, Box::new(|outcome| answer.give(outcome)));
            abi::OK
        })
    }
}

/// # Safety
/// As [`abi::SatcastDataDir::path`].
unsafe extern "C" fn data_dir(
    ctx: *mut c_void,
    sink: *const abi::SatcastTextSink,
    errors: *const abi::SatcastErrorSink,
) -> i32 {
    // SAFETY: both sinks live for the call.
    unsafe {
        with(ctx, abi::ERR, |context| {
            let path = context.services.data_dir().and_then(|path| {
                path.into_os_string()
                    .into_string()
                    .map_err(|_| Error::internal("the driver's data folder has no UTF-8 name"))
            });
            match (path, sink.as_ref().and_then(|sink| Some((sink.data, sink.put?)))) {
                (Ok(path), Some((data, put))) => {
                    put(data, SatcastStr::new(&path));
                    abi::OK
                }
                (Ok(_), None) => abi::ERR,
                (Err(error), _) => {
                    report(errors, &error);
                    abi::ERR
                }
            }
        })
    }
}

/// Bytes of a driver, given back when dropped.
#[derive(Debug)]
pub struct Body {
    raw: SatcastBody,
}

// SAFETY: the contract makes bodies immutable and their release callable from any thread.
unsafe impl Send for Body {}
// SAFETY: as above.
unsafe impl Sync for Body {}

impl Body {
    /// The bytes in memory; `None` when they are in a file.
    pub fn memory(&self) -> Option<&[u8]> {
        if self.raw.kind != abi::BODY_MEMORY || self.raw.data.is_null() {
            return None;
        }
        // SAFETY: the contract keeps `len` bytes alive until release.
        Some(unsafe { std::slice::from_raw_parts(self.raw.data, usize::try_from(self.raw.len).ok()?) })
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.raw.len
    }

    /// There are no bytes.
    pub fn is_empty(&self) -> bool {
        self.raw.len == 0
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self.memory().unwrap_or_default()
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if self.raw.kind == abi::BODY_FILE && self.raw.fd >= 0 {
            // SAFETY: the descriptor passed to us with the body.
            drop(unsafe { OwnedFd::from_raw_fd(self.raw.fd) });
        }
        if let Some(release) = self.raw.release {
            // SAFETY: called exactly once, here.
            unsafe { release(self.raw.owner) };
        }
    }
}

/// # Safety
/// As [`abi::SatcastAssets::publish`].
unsafe extern "C" fn publish(
    ctx: *mut c_void,
    dest: u64,
    asset: *const abi::SatcastAsset,
    errors: *const abi::SatcastErrorSink,
) -> i32 {
    // SAFETY: the description lives for the call; the body passes to us.
    unsafe {
        with(ctx, abi::ERR, |context| {
            if asset.is_null() || (*asset).size < size_of::<abi::SatcastAsset>() {
                report(errors, &Error::internal("the driver's asset is malformed"));
                return abi::ERR;
            }
            let raw = *asset;
            let asset = Asset {
                name: raw.name.read().into_owned(),
                content_type: raw.content_type.read().into_owned(),
                max_age_secs: raw.max_age_secs,
                body: Body { raw: raw.body },
            };
            match context.services.publish(dest, asset) {
                Ok(()) => abi::OK,
                Err(error) => {
                    report(errors, &error);
                    abi::ERR
                }
            }
        })
    }
}

/// # Safety
/// As [`abi::SatcastAssets::retract`].
unsafe extern "C" fn retract(ctx: *mut c_void, dest: u64, name: SatcastStr) -> i32 {
    // SAFETY: the name lives for the call.
    unsafe {
        with(ctx, abi::ERR, |context| {
            context.services.retract(dest, &name.read());
            abi::OK
        })
    }
}

impl From<bytes::Bytes> for Body {
    /// A body of the host's own, for tests of what takes bodies.
    fn from(bytes: bytes::Bytes) -> Self {
        /// # Safety
        /// `owner` must be the boxed bytes, passed here once.
        unsafe extern "C" fn release(owner: *mut c_void) {
            // SAFETY: see above.
            drop(unsafe { Box::from_raw(owner.cast::<bytes::Bytes>()) });
        }
        let owner = Box::new(bytes);
        let (data, len) = (owner.as_ptr(), owner.len() as u64);
        let owner = Box::into_raw(owner).cast();
        Self {
            raw: SatcastBody {
                kind: abi::BODY_MEMORY,
                fd: -1,
                offset: 0,
                len,
                data,
                owner,
                release: Some(release),
            },
        }
    }
}
