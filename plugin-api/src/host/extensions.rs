//! The extensions of the host's table: checked connections, the driver's folder and settings, assets for viewers, answers to their
//! requests, recordings.

use std::ffi::c_void;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::time::Duration;

use super::assets::{playback, publish, retract};
use super::crash::WORKING;
use super::http::HTTP_HOST;
use super::pump::PUMP;
use super::recordings::{RECORDINGS_HOST, VAULT};
use super::services::{Context, with};
use super::wait::wait_any;
use super::{Connected, Services};
use crate::Error;
use crate::abi::{self, SatcastStr};
use crate::wire::{report, with_abi};

static NET: abi::SatcastNet = abi::SatcastNet { size: size_of::<abi::SatcastNet>(), connect: Some(connect) };
static UDP: abi::SatcastNet =
    abi::SatcastNet { size: size_of::<abi::SatcastNet>(), connect: Some(connect_udp) };
static DATA_DIR: abi::SatcastDataDir =
    abi::SatcastDataDir { size: size_of::<abi::SatcastDataDir>(), path: Some(data_dir) };
static SETTINGS: abi::SatcastSettings =
    abi::SatcastSettings { size: size_of::<abi::SatcastSettings>(), json: Some(settings) };
static WAIT: abi::SatcastWait =
    abi::SatcastWait { size: size_of::<abi::SatcastWait>(), wait_any: Some(wait_any) };
static ASSETS: abi::SatcastAssets = abi::SatcastAssets {
    size: size_of::<abi::SatcastAssets>(),
    publish: Some(publish),
    retract: Some(retract),
    playback: Some(playback),
};

/// # Safety
/// As [`SatcastHost::get_extension`].
pub(super) unsafe extern "C" fn get_extension(_: *mut c_void, name: SatcastStr) -> *const c_void {
    // SAFETY: the name lives for the call.
    match &*unsafe { name.read() } {
        abi::EXT_NET => (&raw const NET).cast(),
        abi::EXT_UDP => (&raw const UDP).cast(),
        abi::EXT_DATA_DIR => (&raw const DATA_DIR).cast(),
        abi::EXT_SETTINGS => (&raw const SETTINGS).cast(),
        abi::EXT_WAIT => (&raw const WAIT).cast(),
        abi::EXT_WORKING => (&raw const WORKING).cast(),
        abi::EXT_PUMP => (&raw const PUMP).cast(),
        abi::EXT_ASSETS => (&raw const ASSETS).cast(),
        abi::EXT_RECORDINGS_HOST => (&raw const RECORDINGS_HOST).cast(),
        abi::EXT_VAULT => (&raw const VAULT).cast(),
        abi::EXT_HTTP_HOST => (&raw const HTTP_HOST).cast(),
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
            Err(error) => with_abi(&error, |raw| unsafe { done(data, -1, raw) }),
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
    // SAFETY: as here.
    unsafe {
        begin(ctx, request, done, |services, host, port, timeout, done| {
            services.connect(dest, host, port, timeout, done);
        })
    }
}

/// # Safety
/// As [`abi::SatcastNet::connect`].
unsafe extern "C" fn connect_udp(
    ctx: *mut c_void,
    dest: u64,
    request: *const abi::SatcastConnect,
    done: abi::SatcastConnected,
) -> i32 {
    // SAFETY: as here.
    unsafe {
        begin(ctx, request, done, |services, host, port, timeout, done| {
            services.connect_udp(dest, host, port, timeout, done);
        })
    }
}

/// Reads a request and passes it to `call`.
///
/// # Safety
/// As [`abi::SatcastNet::connect`].
unsafe fn begin(
    ctx: *mut c_void,
    request: *const abi::SatcastConnect,
    done: abi::SatcastConnected,
    call: impl FnOnce(&dyn Services, String, u16, Duration, Connected),
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
                answer.give(Err(Error::config(format!("{} is no port", request.port))));
                return abi::ERR;
            };
            let host = request.host.read().into_owned();
            let timeout = Duration::from_millis(u64::from(request.timeout_ms));
            call(&*context.services, host, port, timeout, Box::new(|outcome| answer.give(outcome)));
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
        put_text(ctx, sink, errors, |context| {
            let path = context.services.data_dir()?.into_os_string().into_string();
            path.map_err(|_| Error::internal("the driver's data folder has no UTF-8 name"))
        })
    }
}

/// # Safety
/// As [`abi::SatcastSettings::json`].
unsafe extern "C" fn settings(
    ctx: *mut c_void,
    sink: *const abi::SatcastTextSink,
    errors: *const abi::SatcastErrorSink,
) -> i32 {
    // SAFETY: both sinks live for the call.
    unsafe { put_text(ctx, sink, errors, |context| Ok(context.services.settings())) }
}

/// Puts a text into a driver's sink.
///
/// # Safety
/// `ctx` must be the table's; both sinks must be null or live for the call.
pub(super) unsafe fn put_text(
    ctx: *mut c_void,
    sink: *const abi::SatcastTextSink,
    errors: *const abi::SatcastErrorSink,
    text: impl FnOnce(&Context) -> Result<String, Error>,
) -> i32 {
    // SAFETY: passed on from the caller.
    unsafe {
        with(ctx, abi::ERR, |context| {
            match (text(context), sink.as_ref().and_then(|sink| Some((sink.data, sink.put?)))) {
                (Ok(text), Some((data, put))) => {
                    put(data, SatcastStr::new(&text));
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
