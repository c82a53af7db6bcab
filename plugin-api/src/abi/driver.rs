//! The driver's table, its entry, and the extensions a driver may have.

use std::ffi::c_void;

use super::{SatcastErrorSink, SatcastHost, SatcastMedia, SatcastStr};

/// Input of `SatcastDriver.open`. Everything is borrowed for the call except `media`, which the driver owns from then on.
#[repr(C)]
pub struct SatcastOpen {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Number of this opening, named in every later call about it. Never 0, never used twice: a call that names an opening which has
    /// ended does nothing.
    pub dest: u64,
    /// Session of the media; all destinations of a session share it.
    pub source: u64,
    /// Destination type, one of those in the manifest.
    pub type_name: SatcastStr,
    /// Configuration as JSON, valid by the type's schema, at most 64 KiB.
    pub config_json: SatcastStr,
    /// The queue. The driver releases it once, also when it refuses to open.
    pub media: *mut SatcastMedia,
    /// Since minor version 2, so only where `size` says that it is there. Facts about the opening, as a JSON object: `destinationId`,
    /// `sessionId`, `streamKeyId`, `label`, `sessionStartedMs`, `accountId`, `via`. Fields may be added, and each may be missing.
    pub about_json: SatcastStr,
}

/// The driver's table. One static value for each library, returned by `satcast_driver_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastDriver {
    /// `SATCAST_MAGIC`.
    pub magic: u64,
    /// `SATCAST_ABI_MAJOR` the driver was built with.
    pub abi_major: u32,
    /// `SATCAST_ABI_MINOR` the driver was built with.
    pub abi_minor: u32,
    /// Size of this struct in bytes. The host reads only these 24 bytes before its checks.
    pub size: usize,
    /// `SATCAST_FLAG_*`.
    pub flags: u64,
    /// Name of the driver: `a-z`, `0-9`, `-`, at most 32. The file is named after it: `<id>.so`.
    pub id: SatcastStr,
    /// Semantic version, at most 64 characters are shown.
    pub version: SatcastStr,
    /// Compiler, for error reports.
    pub toolchain: SatcastStr,
    /// The manifest, as JSON: `{"title": "...", "types": [{"name", "title", "schema", "codecs", "playback", "routes", "wantsPast"}], "settings"}`.
    /// `schema` is the JSON Schema (2020-12) of a destination's configuration; a text with `"x-secret": true` is masked everywhere.
    /// `codecs` (names as `"h264"`; none = all), `playback` (it publishes for viewers; default false), `routes` (see `SatcastHttp`) and
    /// `wantsPast` (a destination that is added to a live stream begins with a backfill of the DVR window; default false; since minor
    /// version 4) may be left out, and so may `settings`, the schema of the operator's settings below `[driver.<id>]`. At most 1 MiB, 64 types,
    /// 64 KiB for each schema, no references outside a schema.
    pub manifest_json: SatcastStr,
    /// `[control]` Once, before everything else, within 5 s. The host table lives as long as the process. Returns `SATCAST_OK`, or
    /// `SATCAST_ERR` after a report to `error`: the host then does not use the driver and calls no other function of it.
    pub init: Option<unsafe extern "C" fn(host: *const SatcastHost, error: *const SatcastErrorSink) -> i32>,
    /// `[control]` After `init`, any number of times. Optional: checks a configuration that its schema accepts, without I/O, within
    /// 1 s. Returns `SATCAST_OK` or, after a report to `error`, `SATCAST_ERR`. A message that begins with a field's name and a colon
    /// is shown at that field.
    pub validate: Option<
        unsafe extern "C" fn(
            type_name: SatcastStr,
            config_json: SatcastStr,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// `[control]` After `init`, once for each try of a destination. Starts it and returns within 1 s; connecting continues in the
    /// background. Puts the driver's own instance into `instance` and returns `SATCAST_OK`; or reports to `error` and returns
    /// `SATCAST_ERR`: no instance, no `stopped`, but the queue must be released.
    pub open: Option<
        unsafe extern "C" fn(
            request: *const SatcastOpen,
            instance: *mut *mut c_void,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// `[control]` Between `open` and `destroy`, at most once. Asks for the end and returns at once; the answer is
    /// `SatcastHost.stopped`, within `deadline_ms` milliseconds. The queue was closed before; the driver may still take its packets.
    /// The call may come after `stopped`, when the driver ended by itself at the same time. The return value is not used.
    pub stop: Option<unsafe extern "C" fn(instance: *mut c_void, deadline_ms: u32) -> i32>,
    /// `[control]` Once for each instance, only after it reported `stopped`. Frees it. The driver may still hold packets.
    pub destroy: Option<unsafe extern "C" fn(instance: *mut c_void)>,
    /// `[control]` The last call. Ends and joins the driver's threads. The library stays mapped.
    pub deinit: Option<unsafe extern "C" fn()>,
    /// `[control]` At any time, also before `init`. Optional: abilities of the driver by name (`SATCAST_EXT_RECONFIGURE`, `SATCAST_EXT_RECORDINGS`, `SATCAST_EXT_HTTP`), static
    /// structs that begin with their size; null for an unknown name.
    pub get_extension: Option<unsafe extern "C" fn(name: SatcastStr) -> *const c_void>,
}

/// Returns the driver's table, or null when it cannot serve a host of this major version. `[any]`; must have no side effects:
/// the host calls it whenever it inspects the file, in a separate process.
pub type SatcastDriverEntry = unsafe extern "C" fn(host_major: u32) -> *const SatcastDriver;

/// Driver extension: changes of configuration without a new connection, see `SatcastReconfigure`.
pub const EXT_RECONFIGURE: &str = "satcast.reconfigure/1";

/// `SATCAST_EXT_RECONFIGURE`: a running destination takes a new configuration. Without it the host stops the destination and opens
/// it again.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastReconfigure {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[control]` Between `open` and `stop`, any number of times, also after `stopped`, when the driver ended by itself at the same
    /// time. Returns within 1 s: `SATCAST_OK` when the configuration is in effect; `SATCAST_REOPEN` when it needs a new opening;
    /// `SATCAST_ERR` after a report to `error`, which the host treats as `SATCAST_REOPEN`. The configuration is valid by the type's
    /// schema and passed `validate`.
    pub reconfigure: Option<
        unsafe extern "C" fn(
            instance: *mut c_void,
            config_json: SatcastStr,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
}
