//! The host's table.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::{SatcastError, SatcastKv, SatcastMedia, SatcastPacket, SatcastStr, SatcastWaker};

/// A counter that the driver asks for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastMetricDesc {
    /// Size of this struct in bytes.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// The host knows `bytes_sent`: payload handed to the other side, in bytes. It shows other names as they are.
    pub name: SatcastStr,
}

/// The host's table for one driver, given to `SatcastDriver.init`, valid until the process ends. Every function may be called from
/// any thread and at any time after `init` began; a call about an opening that has ended does nothing. None of them blocks. A
/// function that this host does not have is null, or lies beyond `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastHost {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `SATCAST_ABI_MINOR` of the host.
    pub abi_minor: u32,
    /// `SATCAST_HOST_FLAG_*`.
    pub flags: u32,
    /// Log level gate, read with one atomic load: 0 off, 1 error, 2 warn, 3 info, 4 debug, 5 trace. Lines above it need not be sent.
    pub max_level: *const AtomicU32,
    /// Passed as first argument to every function of this table and of the host's extensions.
    pub ctx: *mut c_void,
    /// `[any]` One log line: `level` as in `max_level`, `target` the part of the driver, `message` a constant phrase, `fields` the
    /// facts (null when `field_count` is 0). `dest` 0 is the driver itself. 200 lines a second and destination, 4 KiB each text;
    /// the host removes secrets of the destination's configuration.
    pub log: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            dest: u64,
            level: u32,
            target: SatcastStr,
            message: SatcastStr,
            fields: *const SatcastKv,
            field_count: usize,
        ),
    >,
    /// `[any]` Between `open` and `stopped`: the destination is now in `SATCAST_STATE_*`; `reason` may be null.
    pub state:
        Option<unsafe extern "C" fn(ctx: *mut c_void, dest: u64, state: u32, reason: *const SatcastError)>,
    /// `[any]` Between `open` and `stopped`: an event for the owner. `json` is an object of at most 16 KiB without
    /// secrets; a longer one is left out. The owner sees `null` instead of an object of over 4 KiB.
    pub event: Option<unsafe extern "C" fn(ctx: *mut c_void, dest: u64, name: SatcastStr, json: SatcastStr)>,
    /// `[any]` From `open` on: puts a counter into `slot` that lives as long as the process; afterwards the driver adds to it with
    /// atomic additions, without a call. The same name gives the same counter. Returns `SATCAST_OK`, or `SATCAST_ERR` when
    /// 64 others exist.
    pub metric: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            dest: u64,
            desc: *const SatcastMetricDesc,
            slot: *mut *mut AtomicU64,
        ) -> i32,
    >,
    /// `[any]`, one thread at a time for each queue, until `media_release`. Takes up to `cap` (at least 1) packets, one reference
    /// each. Returns their number; 0 when there is none yet, and then keeps the waker; -1 when the queue is closed and empty. The
    /// waker, which must not be null, is dropped in the other cases, and when a later call passes another one.
    pub media_recv: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            media: *mut SatcastMedia,
            out: *mut *const SatcastPacket,
            cap: usize,
            waker: *const SatcastWaker,
        ) -> isize,
    >,
    /// `[any]` Releases the queue, once; its waker is dropped. Packets taken before stay valid.
    pub media_release: Option<unsafe extern "C" fn(ctx: *mut c_void, media: *mut SatcastMedia)>,
    /// `[any]` Once for each opening that succeeded: the destination has ended; null = as requested, else the reason. The host destroys the instance
    /// after this, on the control thread, perhaps before this call returns: do not use the instance afterwards.
    pub stopped: Option<unsafe extern "C" fn(ctx: *mut c_void, dest: u64, error: *const SatcastError)>,
    /// `[any]` Abilities of the host by name (`SATCAST_EXT_*`), structs that begin with their size and live as long as the process;
    /// null for an unknown name.
    pub get_extension: Option<unsafe extern "C" fn(ctx: *mut c_void, name: SatcastStr) -> *const c_void>,
}
