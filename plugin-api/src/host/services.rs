//! The functions of the host's table: C arguments to [`Services`] calls.
//!
//! Each catches panics of the host itself, which must not unwind into a driver.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::Mutex;

use super::extensions::get_extension;
use super::{Delivery, LogLine, MediaSource, Recv, Services, lease};
use crate::abi::{self, SatcastError, SatcastHost, SatcastMedia, SatcastPacket, SatcastStr};
use crate::driver_state::State;
use crate::wire::read_error;

/// Most packets taken in one call, even if the driver's array is larger.
const RECV_PACKETS_MAX: usize = 256;
/// Most bytes of a text of a log line that are read.
const LOG_TEXT_BYTES_MAX: usize = 16 * 1024;
/// Most fields of a log line that are read.
const LOG_FIELDS_MAX: usize = 32;

/// The target of a host table's `ctx`. Lives for the process: late calls after the driver's end still use it.
pub(super) struct Context {
    pub(super) services: Arc<dyn Services>,
    // The driver knows the addresses of these slots; they live for the process and are found by address.
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

/// Runs `body` with the context; a panic of the host's own code returns `otherwise`.
///
/// # Safety
/// `ctx` must be the pointer of [`host_table`].
pub(super) unsafe fn with<R>(ctx: *mut c_void, otherwise: R, body: impl FnOnce(&'static Context) -> R) -> R {
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
            let read = |text: SatcastStr| text.read_up_to(LOG_TEXT_BYTES_MAX).into_owned();
            let fields = if fields.is_null() {
                Vec::new()
            } else {
                let fields = std::slice::from_raw_parts(fields, count.min(LOG_FIELDS_MAX));
                fields.iter().map(|field| (read(field.key), read(field.value))).collect()
            };
            let (target, message) = (read(target), read(message));
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
            if let Some(state) = State::from_number(state) {
                context.services.state(dest, state, read_error(reason));
            }
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
    slot: *mut *mut AtomicU64,
) -> i32 {
    if desc.is_null() || slot.is_null() {
        return abi::ERR;
    }
    // SAFETY: a description begins with its size.
    if (unsafe { (*desc).size } as usize) < size_of::<abi::SatcastMetricDesc>() {
        return abi::ERR;
    }
    // SAFETY: description and slot live for the call.
    unsafe {
        with(ctx, abi::ERR, |context| {
            let Some(counter) = context.services.metric(dest, &(*desc).name.read()) else {
                return abi::ERR;
            };
            *slot = Arc::as_ptr(&counter).cast_mut();
            let mut slots = context.slots.lock();
            slots.insert(Arc::as_ptr(&counter) as usize, counter);
            abi::OK
        })
    }
}

/// A waiting driver. Waking runs driver code: do it on the driver's pump thread.
#[derive(Debug)]
pub struct DriverWaker {
    pub(super) raw: abi::SatcastWaker,
}

// SAFETY: the contract lets the host call a waker from any thread.
unsafe impl Send for DriverWaker {}

impl DriverWaker {
    /// A waker for a reader inside the host, without the C table. `call` runs once, or is dropped.
    pub fn calling(call: impl FnOnce() + Send + 'static) -> Self {
        let call: OwnCall = Box::new(call);
        let data = Box::into_raw(Box::new(call)).cast();
        Self { raw: abi::SatcastWaker { data, wake: Some(run_own), drop: Some(drop_own) } }
    }

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

type OwnCall = Box<dyn FnOnce() + Send>;

/// # Safety
/// `data` must come from [`DriverWaker::calling`], and be passed to one of the two functions once.
unsafe extern "C" fn run_own(data: *mut c_void) {
    // SAFETY: see above.
    let call = unsafe { Box::from_raw(data.cast::<OwnCall>()) };
    call();
}

/// # Safety
/// As [`run_own`].
unsafe extern "C" fn drop_own(data: *mut c_void) {
    // SAFETY: see above.
    drop(unsafe { Box::from_raw(data.cast::<OwnCall>()) });
}

impl Drop for DriverWaker {
    fn drop(&mut self) {
        if let Some(drop) = self.raw.drop {
            // SAFETY: exactly one of the two functions is called, once.
            unsafe { drop(self.raw.data) };
        }
    }
}

/// The target of a [`SatcastMedia`] pointer.
pub(super) struct MediaHandle {
    pub(super) source: Arc<dyn MediaSource>,
}

/// A queue pointer for a driver; freed by `media_release`.
pub(super) fn media_handle(source: Arc<dyn MediaSource>) -> *mut SatcastMedia {
    Box::into_raw(Box::new(MediaHandle { source })).cast()
}

thread_local! {
    /// Reused buffer: most calls find nothing or little and allocate nothing.
    static TAKEN: Cell<Vec<Delivery>> = const { Cell::new(Vec::new()) };
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
            // Taken out while it is used: dropping from a queue may run driver code, which may call this again.
            let mut taken = TAKEN.take();
            let received = handle.source.recv(cap.min(RECV_PACKETS_MAX), &mut taken, waker);
            let count = taken.len();
            for (index, delivery) in taken.drain(..).enumerate() {
                out.add(index).write(lease::lend(delivery, &handle.source));
            }
            TAKEN.set(taken);
            match received {
                Recv::Empty => 0,
                Recv::Closed => -1,
                Recv::Ready => count as isize,
            }
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
