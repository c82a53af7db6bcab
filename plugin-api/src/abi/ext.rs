//! Extensions of the host's table, looked up by name. Their functions take the `ctx` of the host's table.

use std::ffi::c_void;

use super::{SatcastError, SatcastErrorSink, SatcastMedia, SatcastStr, SatcastTextSink};

/// Host extension: checked outbound connections, see `SatcastNet`.
pub const EXT_NET: &str = "satcast.net/1";
/// Host extension, since minor version 9: checked outbound UDP sockets. Its struct is `SatcastNet` too; the descriptor is a
/// non-blocking UDP socket that is connected to one checked address, so that it sends to this address alone and takes nothing from
/// others.
pub const EXT_UDP: &str = "satcast.udp/1";
/// Host extension: a private folder of the driver, see `SatcastDataDir`.
pub const EXT_DATA_DIR: &str = "satcast.data-dir/1";
/// Host extension: files the host serves to viewers for the driver, see `SatcastAssets`.
pub const EXT_ASSETS: &str = "satcast.assets/1";
/// Host extension: the operator's settings for the driver, see `SatcastSettings`.
pub const EXT_SETTINGS: &str = "satcast.settings/1";
/// Host extension: threads that wait for media of many destinations, see `SatcastWait`.
pub const EXT_WAIT: &str = "satcast.wait/1";
/// Host extension, since minor version 5: the destination that a thread works for, see `SatcastWorking`.
pub const EXT_WORKING: &str = "satcast.working/1";
/// Host extension, since minor version 7: a driver makes the calls of its pump thread itself, see `SatcastPump`.
pub const EXT_PUMP: &str = "satcast.pump/1";

/// Most queues of one `SatcastWait.wait_any`.
pub const WAIT_MEDIA_MAX: usize = 1024;
/// `SatcastWait.wait_any`: the time is over and no queue has anything.
pub const WAIT_TIMEOUT: isize = -1;
/// `SatcastWait.wait_any`: no queue, or more than `SATCAST_WAIT_MEDIA_MAX`, or one of them is null.
pub const WAIT_INVALID: isize = -2;

/// Body in memory: `data`, `len`.
pub const BODY_MEMORY: u32 = 1;
/// Body in a file below the driver's data folder: `source` is its relative path, `offset` and `len` select the bytes. The
/// file must not change until `release`. An open file may be removed before that.
pub const BODY_FILE: u32 = 2;
/// Body made of other assets of the same destination, concatenated: `source` holds their names, one in each line.
/// They are looked up when a viewer asks.
pub const BODY_PARTS: u32 = 3;

/// Viewers with a key may fetch the asset.
pub const AUDIENCE_HOSTED: u32 = 1;
/// Viewers of the preview may fetch the asset.
pub const AUDIENCE_PREVIEW: u32 = 1 << 1;

/// `SatcastAsset.flags`: viewers may wait for a later version of this playlist (since minor version 4).
pub const ASSET_RELOAD: u32 = 1;
/// `SatcastAsset.flags`: a media segment, fragmented MP4 whose samples are the payloads of packets (since minor version 5). The
/// backfill for destinations with `wantsPast` is read from these.
pub const ASSET_SEGMENT: u32 = 1 << 1;

/// `SatcastPlayback`: the playlists are complete, no more media follows.
pub const PLAYBACK_ENDED: u32 = 1;

/// `SATCAST_EXT_NET`: the host resolves and checks the address by its outbound guard and hands over a connected socket. A driver never
/// connects to a user's address by itself: that would let users reach the operator's own network.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastNet {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` Between `open` and `stopped`, or with `dest` 0 from `init` on, for work that outlives a destination (since minor version 2).
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
    /// TCP or UDP port.
    pub port: u32,
    /// Zero.
    pub reserved: u32,
}

/// Callback for the outcome of a connection attempt.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastConnected {
    /// Passed back.
    pub data: *mut c_void,
    /// `[pump]`, or inside `connect`; once, perhaps after `stopped`. `fd` >= 0: a connected, non-blocking TCP socket with
    /// TCP_NODELAY, or UDP socket, that the driver now owns and closes. Else `error` says why. Must return at once.
    pub done: Option<unsafe extern "C" fn(data: *mut c_void, fd: i32, error: *const SatcastError)>,
}

/// `SATCAST_EXT_DATA_DIR`: a private folder of the driver that outlives sessions.
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

/// `SATCAST_EXT_ASSETS`: named assets that the host serves to viewers without asking the driver again.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastAssets {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` Between `open` and `stopped`. Publishes an asset and replaces an earlier one of the same name. The host owns the body in
    /// every case, also when it refuses the asset.
    pub publish: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            dest: u64,
            asset: *const SatcastAsset,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// `[any]` Between `open` and `stopped`. Removes a name. An unknown name is no error.
    pub retract: Option<unsafe extern "C" fn(ctx: *mut c_void, dest: u64, name: SatcastStr) -> i32>,
    /// `[any]` Between `open` and `stopped`. Reports where viewers start and what they can see now. Replaces the earlier report.
    pub playback: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            dest: u64,
            playback: *const SatcastPlayback,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
}

/// An asset for viewers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastAsset {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `a-z A-Z 0-9 . _ -`, at most 128 bytes, not beginning with a dot. A name with a cache time must never be reused for other
    /// bytes.
    pub name: SatcastStr,
    /// Media type.
    pub content_type: SatcastStr,
    /// Seconds that caches may keep it; 0 = not at all.
    pub max_age_secs: u32,
    /// `AUDIENCE_*`.
    pub audience: u32,
    /// The bytes.
    pub body: SatcastBody,
    /// Path for `BODY_FILE`, names for `BODY_PARTS`, else empty.
    pub source: SatcastStr,
    /// `ASSET_*`. This field and those after it: since minor version 4, for playlists that viewers follow; those for segments since minor version 5.
    pub flags: u32,
    /// How far behind the newest media players of this playlist stay, in milliseconds; 0 = unknown.
    pub hold_back_ms: u32,
    /// With `ASSET_RELOAD`: media sequence number of the first segment that is incomplete in this version. A request with `_HLS_msn`
    /// waits until this number is higher than the requested one, at most three times `target_ms`.
    pub next_sequence: u64,
    /// With `ASSET_RELOAD`: number of listed parts of that segment, for requests with `_HLS_part`.
    pub next_part: u32,
    /// With `ASSET_RELOAD`: the target duration in milliseconds.
    pub target_ms: u32,
    /// With `ASSET_RELOAD`: name of the asset with the delta update of this version (without old segments), for requests with `_HLS_skip`;
    /// empty without one. Publish it before this asset.
    pub delta: SatcastStr,
    /// With `ASSET_RELOAD`: name of the next asset. Requests for it wait until it is published. Empty when none follows.
    pub hint: SatcastStr,
    /// With `ASSET_SEGMENT`: its media sequence number, which rises with each segment of an opening.
    pub number: u64,
    /// With `ASSET_SEGMENT`: offset from its decode times to those of the packets, in nanoseconds (packet = segment + offset).
    pub offset_ns: i64,
    /// With `ASSET_SEGMENT`: wall time of its start, in milliseconds since 1970.
    pub start_ms: i64,
    /// With `ASSET_SEGMENT`: name of the asset with its initialization segment; publish that first.
    pub init: SatcastStr,
}

/// Where viewers of a destination start and what they can see.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastPlayback {
    /// Size of this struct in bytes.
    pub size: usize,
    /// First playlist for viewers with a key. The host puts a viewer's path before each of its URIs.
    pub entry: SatcastStr,
    /// The same for viewers of the preview; empty without one.
    pub preview: SatcastStr,
    /// Wall time of the oldest media listed, in milliseconds since 1970.
    pub first_ms: i64,
    /// Media listed, in milliseconds.
    pub window_ms: u64,
    /// Configured maximum of the DVR window, in milliseconds; 0 = no rewind.
    pub window_max_ms: u64,
    /// How long the playback counts as ready after this call, in milliseconds.
    pub fresh_ms: u32,
    /// `PLAYBACK_*`.
    pub flags: u32,
}

/// `SATCAST_EXT_SETTINGS`: the keys of `[driver.<id>]` in the operator's configuration without those that the host reads itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastSettings {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` From `init` on. Puts the settings into `sink` as a JSON object, valid by `settings` of the manifest; empty when the manifest
    /// has none. They do not change while the driver runs.
    pub json: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            sink: *const SatcastTextSink,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
}

/// `SATCAST_EXT_WORKING`, since minor version 5. Hosts may ignore it: this one knows by itself which accounts have work in a
/// process that ends.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastWorking {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]`, from `init` on: the calling thread works for the opening `dest` from now on, or with 0 for none. A thread that
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
    /// `[any]`, but only on the driver's own threads: the one function of the host that blocks. Waits until one of the `count`
    /// queues has packets or is closed and returns its position, the lowest if there are several; or `SATCAST_WAIT_TIMEOUT` after
    /// `timeout_ms` milliseconds; or `SATCAST_WAIT_INVALID`. It takes no packets: `media_recv` does. Only one thread at a time may wait for a queue,
    /// and the queue must not be released meanwhile; a waker that the queue holds is dropped.
    pub wait_any: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            media: *const *mut SatcastMedia,
            count: usize,
            timeout_ms: u32,
        ) -> isize,
    >,
}

/// `SATCAST_EXT_PUMP`, since minor version 7: for drivers with a thread that waits for descriptors. The driver makes the calls that are
/// marked `[pump]` there, so media wakes one thread and not two. Optional: without `take` the host has a pump thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastPump {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` From `init` on. The driver makes the calls from now on. Returns an eventfd that the driver owns and closes; or -1, and
    /// the host goes on making the calls. The host adds to the eventfd when calls are due. It need not be read where
    /// edge-triggered epoll watches it: each addition is an event.
    pub take: Option<unsafe extern "C" fn(ctx: *mut c_void) -> i32>,
    /// `[any]`, one thread at a time, between `take` and `give_back`. Makes all calls that are due, before it returns.
    pub run: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
    /// `[any]` After `take`, before `deinit` returns. The host makes the calls again, on its pump thread.
    pub give_back: Option<unsafe extern "C" fn(ctx: *mut c_void)>,
}

/// Bytes in memory or elsewhere, with the function that releases them.
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
    /// `[any]` Called exactly once when the bytes are no longer needed, perhaps long after `destroy`; must return at once. May
    /// be null.
    pub release: Option<unsafe extern "C" fn(owner: *mut c_void)>,
}
