//! The functions of the host's table: C arguments to [`Services`] calls.
//!
//! Each catches panics of the host itself, which must not unwind into a driver.

use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Asset, Delivery, LogLine, MediaSource, Recv, Services, lease};
use crate::Error;
use crate::abi::{self, SatcastBody, SatcastError, SatcastHost, SatcastMedia, SatcastPacket, SatcastStr};
use crate::driver_state::State;
use crate::wire::{read_error, report};

/// Most packets taken in one call, whatever the driver's array holds.
const RECV_PACKETS_MAX: usize = 256;
/// Most fields of a log line that are read.
const LOG_FIELDS_MAX: usize = 32;

/// What a host table's `ctx` points to. Lives for the process: a late call after the driver's end must find it.
pub(super) struct Context {
    services: Arc<dyn Services>,
    // Slots a driver knows the address of; kept for the process's life, found again by address.
    slots: Mutex<HashMap<usize, Arc<AtomicU64>>>,
}

impl Context {
    pub(super) fn new(services: Arc<dyn Services>) -> Self {
        Self { services, slots: Mutex::new(HashMap::new()) }
    }
}

/// The table for one driver.
pub(super) fn host_table(
    context: &'static Context,
    max_level: &'static AtomicU32,
    flags: u32,
) -> SatcastHost {
    SatcastHost {
        size: size_of::<SatcastHost>(),
        abi_minor: abi::ABI_MINOR,
        flags,
        max_level,
        ctx: std::ptr::from_ref(context).cast_mut().cast(),
        log: Some(log),
        state: Some(state),
        event: Some(event),
        metric: Some(metric),
        media_recv: Some(media_recv),
        media_release: Some(media_release),
        stopped: Some(stopped),
        get_extension: Some(get_extension),
    }
}

/// Runs `body` with the context; a panic of the host's own code gives `otherwise`.
///
/// # Safety
/// `ctx` must be the pointer of [`host_table`].
unsafe fn with<R>(ctx: *mut c_void, otherwise: R, body: impl FnOnce(&'static Context) -> R) -> R {
    // SAFETY: contexts are never freed.
    let context: &'static Context = unsafe { &*ctx.cast::<Context>() };
    catch_unwind(AssertUnwindSafe(|| body(context))).unwrap_or(otherwise)
}

/// # Safety
/// As [`SatcastHost::log`].
unsafe extern "C" fn log(
    ctx: *mut c_void,
    dest: u64,
    level: u32,
    target: SatcastStr,
    message: SatcastStr,
    fields: *const abi::SatcastKv,
    count: usize,
) {
    // SAFETY: all arguments live for the call.
    unsafe {
        with(ctx, (), |context| {
            let fields = if fields.is_null() {
                Vec::new()
            } else {
                let fields = std::slice::from_raw_parts(fields, count.min(LOG_FIELDS_MAX));
                fields
                    .iter()
                    .map(|field| (field.key.read().into_owned(), field.value.read().into_owned()))
                    .collect()
            };
            let (target, message) = (target.read().into_owned(), message.read().into_owned());
            context.services.log(LogLine { dest, level, target, message, fields });
        });
    }
}

/// # Safety
/// As [`SatcastHost::state`].
unsafe extern "C" fn state(ctx: *mut c_void, dest: u64, state: u32, reason: *const SatcastError) {
    // SAFETY: all arguments live for the call.
    unsafe {
        with(ctx, (), |context| {
            context.services.state(dest, State::from_abi(state), read_error(reason));
        });
    }
}

/// # Safety
/// As [`SatcastHost::event`].
unsafe extern "C" fn event(ctx: *mut c_void, dest: u64, name: SatcastStr, json: SatcastStr) {
    // SAFETY: all arguments live for the call.
    unsafe { with(ctx, (), |context| context.services.event(dest, &name.read(), &json.read())) }
}

/// # Safety
/// As [`SatcastHost::metric`].
unsafe extern "C" fn metric(
    ctx: *mut c_void,
    dest: u64,
    desc: *const abi::SatcastMetricDesc,
    slot: *mut *const AtomicU64,
) -> i32 {
    if desc.is_null() || slot.is_null() {
        return abi::ERR;
    }
    // SAFETY: description and slot live for the call.
    unsafe {
        with(ctx, abi::ERR, |context| {
            let Some(counter) = context.services.metric(dest, &(*desc).name.read()) else {
                return abi::ERR;
            };
            *slot = Arc::as_ptr(&counter);
            let mut slots = context.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.insert(Arc::as_ptr(&counter) as usize, counter);
            abi::OK
        })
    }
}

/// A waiting driver. Waking runs driver code: do it on the driver's pump thread.
#[derive(Debug)]
pub struct DriverWaker {
    raw: abi::SatcastWaker,
}

// SAFETY: the contract lets the host call a waker from any thread.
unsafe impl Send for DriverWaker {}

impl DriverWaker {
    /// Wakes the driver.
    pub fn wake(self) {
        let raw = self.raw;
        std::mem::forget(self);
        if let Some(wake) = raw.wake {
            // SAFETY: exactly one of the two functions is called, once.
            unsafe { wake(raw.data) };
        }
    }
}

impl Drop for DriverWaker {
    fn drop(&mut self) {
        if let Some(drop) = self.raw.drop {
            // SAFETY: exactly one of the two functions is called, once.
            unsafe { drop(self.raw.data) };
        }
    }
}

/// What a [`SatcastMedia`] pointer points to.
struct MediaHandle {
    source: Arc<dyn MediaSource>,
}

/// A queue pointer for a driver; freed by `media_release`.
pub(super) fn media_handle(source: Arc<dyn MediaSource>) -> *mut SatcastMedia {
    Box::into_raw(Box::new(MediaHandle { source })).cast()
}

/// # Safety
/// As [`SatcastHost::media_recv`].
unsafe extern "C" fn media_recv(
    ctx: *mut c_void,
    media: *mut SatcastMedia,
    out: *mut *const SatcastPacket,
    cap: usize,
    waker: *const abi::SatcastWaker,
) -> isize {
    // SAFETY: the queue is alive until the driver releases it; `out` has room for `cap`; the waker passes to us.
    unsafe {
        with(ctx, -1, |_| {
            let handle = &*media.cast::<MediaHandle>();
            let waker = DriverWaker { raw: *waker };
            let mut taken: Vec<Delivery> = Vec::with_capacity(cap.min(RECV_PACKETS_MAX));
            match handle.source.recv(cap.min(RECV_PACKETS_MAX), &mut taken, waker) {
                Recv::Empty => return 0,
                Recv::Closed => return -1,
                Recv::Ready => {}
            }
            let count = taken.len();
            for (index, delivery) in taken.into_iter().enumerate() {
                out.add(index).write(lease::lend(delivery, &handle.source));
            }
            count as isize
        })
    }
}

/// # Safety
/// As [`SatcastHost::media_release`].
unsafe extern "C" fn media_release(ctx: *mut c_void, media: *mut SatcastMedia) {
    // SAFETY: the driver gives its queue back once.
    unsafe {
        with(ctx, (), |_| {
            let handle = Box::from_raw(media.cast::<MediaHandle>());
            handle.source.abandoned();
        });
    }
}

/// # Safety
/// As [`SatcastHost::stopped`].
unsafe extern "C" fn stopped(ctx: *mut c_void, dest: u64, error: *const SatcastError) {
    // SAFETY: the error lives for the call.
    unsafe {
        with(ctx, (), |context| {
            let outcome = read_error(error).map_or(Ok(()), Err);
            context.services.stopped(dest, outcome);
        });
    }
}

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
unsafe extern "C" fn get_extension(_: *mut c_void, name: SatcastStr) -> *const c_void {
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
