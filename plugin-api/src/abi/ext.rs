//! Extensions of the host's table, looked up by name. Their functions take the `ctx` of the host's table.

use std::ffi::c_void;

use super::{SatcastError, SatcastErrorSink, SatcastMedia, SatcastStr, SatcastTextSink};

/// Host extension: checked outbound connections, see `SatcastNet`.
pub const EXT_NET: &str = "satcast.net/1";
/// Host extension: a private folder of the driver, see `SatcastDataDir`.
pub const EXT_DATA_DIR: &str = "satcast.data-dir/1";
/// Host extension: files the host serves to viewers for the driver, see `SatcastAssets`.
pub const EXT_ASSETS: &str = "satcast.assets/1";
/// Host extension: what the operator set for the driver, see `SatcastSettings`.
pub const EXT_SETTINGS: &str = "satcast.settings/1";
/// Host extension: threads that wait for media of many destinations, see `SatcastWait`.
pub const EXT_WAIT: &str = "satcast.wait/1";
/// Host extension, since minor version 5: whom a thread works for, see `SatcastWorking`.
pub const EXT_WORKING: &str = "satcast.working/1";

/// Most queues of one `SatcastWait.wait_any`.
pub const WAIT_MEDIA_MAX: usize = 1024;
/// `SatcastWait.wait_any`: the time is over and no queue has anything.
pub const WAIT_TIMEOUT: isize = -1;
/// `SatcastWait.wait_any`: no queue, or more than `SATCAST_WAIT_MEDIA_MAX`, or one of them is null.
pub const WAIT_INVALID: isize = -2;

/// Body in memory: `data`, `len`.
pub const BODY_MEMORY: u32 = 1;
/// Body in a file below the driver's data folder: `source` is its relative path, `offset` and `len` say which bytes. The
/// file must stay as it is until `release`; one that is open then may be removed.
pub const BODY_FILE: u32 = 2;
/// Body made of other pieces of the same destination, one after the other: `source` holds their names, one in each line.
/// They are looked up when a viewer asks.
pub const BODY_PARTS: u32 = 3;

/// Viewers with a key may fetch the piece.
pub const AUDIENCE_HOSTED: u32 = 1;
/// Viewers of the preview may fetch the piece.
pub const AUDIENCE_PREVIEW: u32 = 1 << 1;

/// `SatcastAsset.flags`: viewers may wait for a later version of this playlist (since minor version 4).
pub const ASSET_RELOAD: u32 = 1;
/// `SatcastAsset.flags`: a media segment, fragmented MP4 whose samples are the payloads of packets (since minor version 5). Destinations
/// that want what was before them are given it from these.
pub const ASSET_SEGMENT: u32 = 1 << 1;

/// `SatcastPlayback`: the playlists say that no more will come.
pub const PLAYBACK_ENDED: u32 = 1;

/// `SATCAST_EXT_NET`: the host resolves and checks the address by its outbound guard and hands over a connected socket. A driver never
/// connects to an address of a user by itself: it would let users reach the operator's own network.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastNet {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` Between `open` and `stopped`, or with `dest` 0 from `init` on, for what outlives a destination (since minor version 2).
    /// Begins a connection attempt and returns at once. `done` is called exactly once, also
    /// when this returns an error code.
    pub connect: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            dest: u64,
            request: *const SatcastConnect,
            done: SatcastConnected,
        ) -> i32,
    >,
}

/// An address to connect to.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastConnect {
    /// Size of this struct in bytes.
    pub size: u32,
    /// For resolving and connecting together, in milliseconds; 0 = the host's default.
    pub timeout_ms: u32,
    /// Name or literal address, without brackets.
    pub host: SatcastStr,
    /// TCP port.
    pub port: u32,
    /// Zero.
    pub reserved: u32,
}

/// Where the outcome of a connection attempt goes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastConnected {
    /// Passed back.
    pub data: *mut c_void,
    /// `[pump]`, or inside `connect`; once, perhaps after `stopped`. `fd` >= 0: a connected, non-blocking TCP socket with
    /// TCP_NODELAY that the driver now owns and closes. Else `error` says why. Must return at once.
    pub done: Option<unsafe extern "C" fn(data: *mut c_void, fd: i32, error: *const SatcastError)>,
}

/// `SATCAST_EXT_DATA_DIR`: a folder that is the driver's alone and outlives sessions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastDataDir {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` From `init` on. Puts the absolute path into `sink`; the folder exists.
    pub path: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            sink: *const SatcastTextSink,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
}

/// `SATCAST_EXT_ASSETS`: named pieces the host serves to viewers without asking the driver again.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastAssets {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` Between `open` and `stopped`. Puts a piece under its name in place of an earlier one. The host owns the body in every
    /// case, also when it refuses the piece.
    pub publish: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            dest: u64,
            asset: *const SatcastAsset,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// `[any]` Between `open` and `stopped`. Takes a name away. Unknown names are no error.
    pub retract: Option<unsafe extern "C" fn(ctx: *mut c_void, dest: u64, name: SatcastStr) -> i32>,
    /// `[any]` Between `open` and `stopped`. Says where viewers enter and what they can see now, in place of what was said before.
    pub playback: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            dest: u64,
            playback: *const SatcastPlayback,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
}

/// One piece for viewers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastAsset {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `a-z A-Z 0-9 . _ -`, at most 128 bytes, not beginning with a dot. A name with a cache time must never come back with other
    /// bytes.
    pub name: SatcastStr,
    /// Media type.
    pub content_type: SatcastStr,
    /// Seconds a cache may keep it; 0 = not at all.
    pub max_age_secs: u32,
    /// `AUDIENCE_*`.
    pub audience: u32,
    /// The bytes.
    pub body: SatcastBody,
    /// Path for `BODY_FILE`, names for `BODY_PARTS`, else empty.
    pub source: SatcastStr,
    /// `ASSET_*`. This and what follows: since minor version 4, for playlists that viewers follow; those for segments since minor version 5.
    pub flags: u32,
    /// How far behind the newest media players stay that follow this playlist, in milliseconds; 0 = not said.
    pub hold_back_ms: u32,
    /// With `ASSET_RELOAD`: media sequence number of the first segment that is not whole in this version. A request with `_HLS_msn`
    /// waits until it is higher than asked for, at most three times `target_ms`.
    pub next_sequence: u64,
    /// With `ASSET_RELOAD`: how many parts of that segment are listed, for requests with `_HLS_part`.
    pub next_part: u32,
    /// With `ASSET_RELOAD`: the target duration in milliseconds.
    pub target_ms: u32,
    /// With `ASSET_RELOAD`: name of the piece that has this version without old segments, for requests with `_HLS_skip`; empty without
    /// one. It is published before this one.
    pub delta: SatcastStr,
    /// With `ASSET_RELOAD`: name of the piece that comes next. Who asks for it now waits for it. Empty when none comes.
    pub hint: SatcastStr,
    /// With `ASSET_SEGMENT`: its media sequence number, which rises from segment to segment of an opening.
    pub number: u64,
    /// With `ASSET_SEGMENT`: what is to be added to its decode times to have those of the packets, in nanoseconds.
    pub offset_ns: i64,
    /// With `ASSET_SEGMENT`: wall time of its start, in milliseconds since 1970.
    pub start_ms: i64,
    /// With `ASSET_SEGMENT`: name of the piece with the initialization segment it needs, which is published before it.
    pub init: SatcastStr,
}

/// Where viewers of a destination enter and what they can see.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastPlayback {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Playlist that viewers with a key get first. The host puts a viewer's path before each of its URIs.
    pub entry: SatcastStr,
    /// The same for viewers of the preview; empty without one.
    pub preview: SatcastStr,
    /// Wall time of the oldest media listed, in milliseconds since 1970.
    pub first_ms: i64,
    /// Media listed, in milliseconds.
    pub window_ms: u64,
    /// Longest window as configured, in milliseconds; 0 = no rewind.
    pub window_max_ms: u64,
    /// The playback is ready for so long after this call, in milliseconds.
    pub fresh_ms: u32,
    /// `PLAYBACK_*`.
    pub flags: u32,
}

/// `SATCAST_EXT_SETTINGS`: the keys of `[driver.<id>]` in the operator's configuration that are not the host's own.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastSettings {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` From `init` on. Puts the settings into `sink` as a JSON object, valid by `settings` of the manifest; empty when that is
    /// left out. They do not change while the driver runs.
    pub json: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            sink: *const SatcastTextSink,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
}

/// `SATCAST_EXT_WORKING`, since minor version 5. Hosts may do nothing with it: this one knows without the driver which accounts have work in a
/// process that ends.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastWorking {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]`, from `init` on: what the calling thread does from now on is for the opening `dest`, or with 0 for none. A thread that
    /// never calls it works for the opening that it last named to the host. May be called for each packet: it costs a few
    /// nanoseconds.
    pub working: Option<unsafe extern "C" fn(ctx: *mut c_void, dest: u64)>,
}

/// `SATCAST_EXT_WAIT`: for drivers whose threads serve several destinations each.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastWait {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]`, but only on a thread of the driver's own: the one function of the host that blocks. Waits until one of the `count`
    /// queues has packets or is closed and returns its position, the lowest if there are several; or `SATCAST_WAIT_TIMEOUT` after
    /// `timeout_ms` milliseconds; or `SATCAST_WAIT_INVALID`. It takes nothing: `media_recv` does. A queue is waited for by one thread
    /// at a time and not given back meanwhile; a waker that it holds is dropped.
    pub wait_any: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            media: *const *mut SatcastMedia,
            count: usize,
            timeout_ms: u32,
        ) -> isize,
    >,
}

/// Bytes in memory or elsewhere, with the function that gives them back.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SatcastBody {
    /// `BODY_*`.
    pub kind: u32,
    /// Zero.
    pub reserved: u32,
    /// First byte in the file for `BODY_FILE`.
    pub offset: u64,
    /// Bytes; 0 for `BODY_PARTS`.
    pub len: u64,
    /// First byte in memory for `BODY_MEMORY`.
    pub data: *const u8,
    /// Passed to `release`.
    pub owner: *mut c_void,
    /// `[any]` Called exactly once when the bytes are not needed any more, perhaps long after `destroy`; must return at once. May
    /// be null.
    pub release: Option<unsafe extern "C" fn(owner: *mut c_void)>,
}
