//! The C table: every type and function that crosses the boundary between host and driver.
//!
//! Nothing but fixed-width integers, pointers and `#[repr(C)]` structs made of them appears here, so any compiler of any
//! language can stand on either side. Rules that hold for all of it:
//!
//! - Text ([`SatcastStr`]) is UTF-8, not terminated, borrowed for the call only: the receiver copies what it keeps.
//! - No side frees memory of the other side. A buffer that outlives a call carries its own release function.
//! - Structs begin with their size. A reader uses no more than `min(size, its own size)` bytes of a struct; nobody writes
//!   past the size of a struct that the other side allocated. Within one major version fields are only appended.
//! - Unknown flag bits are ignored, unused ones are zero.
//! - New abilities are extensions looked up by name (`name/1`); an extension named `draft.*` may still change.
//! - No unwinding crosses the boundary, in either direction.
//!
//! Thread marks on the functions: `[control]` is called by the host on the one control thread of the driver; `[any]` may be
//! called from any thread. Host functions never block.

mod ext;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64};

pub use ext::*;

/// First eight bytes of every driver table: `SATCAST` and a format number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SATCAST\x01");
/// Drivers of another major version are refused.
pub const ABI_MAJOR: u32 = 1;
/// Grows with every appended field or extension; never a reason to refuse.
pub const ABI_MINOR: u32 = 0;
/// The one symbol a driver library exports, of type [`SatcastDriverEntry`].
pub const ENTRY_SYMBOL: &str = "satcast_driver_entry";

/// Driver flag: the library was compiled with unwinding panics, so a panic stays inside the driver.
pub const FLAG_PANIC_UNWIND: u64 = 1;

/// Host flag: the driver is linked into the host binary; it must not install process-wide hooks or log subscribers.
pub const HOST_FLAG_STATIC: u32 = 1;

/// Packet can be decoded without an earlier packet of its track.
pub const PACKET_KEYFRAME: u32 = 1;
/// `data` is the codec configuration record of the track, not media.
pub const PACKET_CONFIG: u32 = 1 << 1;
/// Packets before this one are missing (dropped for this destination, or the encoder was away).
pub const PACKET_DISCONTINUITY: u32 = 1 << 2;

/// `kind` of a video packet.
pub const KIND_VIDEO: u32 = 1;
/// `kind` of an audio packet.
pub const KIND_AUDIO: u32 = 2;

/// `codec`: H.264, length-prefixed NAL units; configuration is an `AVCDecoderConfigurationRecord`.
pub const CODEC_H264: u32 = 1;
/// `codec`: HEVC, length-prefixed NAL units; configuration is an `HEVCDecoderConfigurationRecord`.
pub const CODEC_HEVC: u32 = 2;
/// `codec`: AV1, OBUs without temporal delimiters; configuration is an `AV1CodecConfigurationRecord`.
pub const CODEC_AV1: u32 = 3;
/// `codec`: raw AAC frames; configuration is an `AudioSpecificConfig`.
pub const CODEC_AAC: u32 = 4;
/// `codec`: Opus packets; configuration is an `OpusHead` (RFC 7845).
pub const CODEC_OPUS: u32 = 5;

/// Destination state: connecting, or connected without media flowing.
pub const STATE_CONNECTING: u32 = 1;
/// Destination state: media was written or acknowledged within the last five seconds.
pub const STATE_LIVE: u32 = 2;

/// Return code: done.
pub const OK: i32 = 0;
/// Return code: refused; the error sink was told why.
pub const ERR: i32 = -1;
/// Return code: this table has no such function or the object is closed.
pub const ERR_CLOSED: i32 = -2;
/// Return code: the driver panicked inside the call; the error sink was told the message.
pub const ERR_PANIC: i32 = -3;

/// Error class: the configuration is wrong; not tried again until it changes.
pub const CLASS_CONFIG: u32 = 1;
/// Error class: the other side refused the login; tried again slowly.
pub const CLASS_AUTH: u32 = 2;
/// Error class: network failure; tried again with back-off.
pub const CLASS_NETWORK: u32 = 3;
/// Error class: the other side misbehaved or closed; tried again with back-off.
pub const CLASS_REMOTE: u32 = 4;
/// Error class: fault of the driver or host.
pub const CLASS_INTERNAL: u32 = 5;
/// Error class: the driver panicked.
pub const CLASS_PANIC: u32 = 6;

/// Borrowed UTF-8 text, valid for the call only. `ptr` may be null when `len` is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastStr {
    /// First byte.
    pub ptr: *const u8,
    /// Bytes.
    pub len: usize,
}

impl SatcastStr {
    /// Borrows `text` for the duration of a call.
    pub const fn new(text: &str) -> Self {
        Self { ptr: text.as_ptr(), len: text.len() }
    }
}

/// One field of a log line.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastKv {
    /// Field name.
    pub key: SatcastStr,
    /// Value as text.
    pub value: SatcastStr,
}

/// What went wrong, whether to try again, and when.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastError {
    /// Size of this struct in bytes.
    pub size: u32,
    /// `CLASS_*`.
    pub class: u32,
    /// Floor before the next try in milliseconds; 0 leaves it to the host.
    pub retry_ms: u32,
    /// Zero.
    pub reserved: u32,
    /// One sentence for the owner of the destination, without secrets.
    pub message: SatcastStr,
}

/// Where a called driver reports the error of this call; `put` copies before it returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastErrorSink {
    /// Passed back to `put`.
    pub data: *mut c_void,
    /// Takes the error of the running call.
    pub put: Option<unsafe extern "C" fn(data: *mut c_void, error: *const SatcastError)>,
}

/// Where a callee hands over one text; `put` copies before it returns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastTextSink {
    /// Passed back to `put`.
    pub data: *mut c_void,
    /// Takes the text.
    pub put: Option<unsafe extern "C" fn(data: *mut c_void, text: SatcastStr)>,
}

/// The queue of one destination, owned by the host; released by [`SatcastHost::media_release`].
#[repr(C)]
pub struct SatcastMedia {
    _opaque: [u8; 0],
}

/// One media packet: immutable, reference counted, leased to one destination.
#[repr(C)]
pub struct SatcastPacket {
    /// Size of this struct in bytes.
    pub size: u32,
    /// `PACKET_*`.
    pub flags: u32,
    /// `KIND_*`.
    pub kind: u32,
    /// `CODEC_*`.
    pub codec: u32,
    /// Track number inside its kind, from 0.
    pub track: u32,
    /// Zero.
    pub reserved: u32,
    /// Session the packet belongs to; equal for all destinations of it.
    pub source: u64,
    /// Position in the session, growing by one; equal for all destinations of it.
    pub sequence: u64,
    /// Decode time on the session's timeline in nanoseconds; never falls within a track.
    pub dts_ns: i64,
    /// Presentation time in nanoseconds.
    pub pts_ns: i64,
    /// Payload as described at `CODEC_*`; must not be written to.
    pub data: *const u8,
    /// Bytes.
    pub len: usize,
    /// Reference counting.
    pub vt: *const SatcastPacketVt,
}

/// Reference counting of a packet. `[any]`
#[repr(C)]
pub struct SatcastPacketVt {
    /// Size of this struct in bytes.
    pub size: usize,
    /// One more reference.
    pub retain: unsafe extern "C" fn(*const SatcastPacket),
    /// One reference less; the packet is gone with the last.
    pub release: unsafe extern "C" fn(*const SatcastPacket),
}

/// How the host tells a waiting driver that media is there. The host calls exactly one of the two, once; `wake` runs on the
/// driver's pump thread and must not block.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SatcastWaker {
    /// Passed back.
    pub data: *mut c_void,
    /// Media is there, or the queue was closed.
    pub wake: Option<unsafe extern "C" fn(*mut c_void)>,
    /// The waker is not needed any more.
    pub drop: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// A counter the driver wants.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastMetricDesc {
    /// Size of this struct in bytes.
    pub size: u32,
    /// Zero.
    pub reserved: u32,
    /// `bytes_sent` is known to the host; other names are shown as they are.
    pub name: SatcastStr,
}

/// What `open` is given. Everything is borrowed for the call but `media`, which the driver owns from then on.
#[repr(C)]
pub struct SatcastOpen {
    /// Size of this struct in bytes.
    pub size: usize,
    /// Number of this opening; named in every later call about it. Never used twice.
    pub dest: u64,
    /// Session whose media will come; destinations of one session share it.
    pub source: u64,
    /// Destination type, one of the manifest.
    pub type_name: SatcastStr,
    /// Configuration as JSON, valid by the type's schema.
    pub config_json: SatcastStr,
    /// The queue. The driver releases it, also when it refuses to open.
    pub media: *mut SatcastMedia,
}

/// The driver's table. One static value for each library, got from [`SatcastDriverEntry`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastDriver {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`ABI_MAJOR`] the driver was built with.
    pub abi_major: u32,
    /// [`ABI_MINOR`] the driver was built with.
    pub abi_minor: u32,
    /// Size of this struct in bytes. These 24 bytes are all that is read before the checks.
    pub size: usize,
    /// `FLAG_*`.
    pub flags: u64,
    /// Name of the driver: `a-z`, `0-9`, `-`, at most 32.
    pub id: SatcastStr,
    /// Semantic version.
    pub version: SatcastStr,
    /// Compiler, for error reports.
    pub toolchain: SatcastStr,
    /// [`Manifest`](crate::driver::Manifest) as JSON.
    pub manifest_json: SatcastStr,
    /// `[control]` Once, before everything else. The host table lives as long as the process.
    pub init: Option<unsafe extern "C" fn(host: *const SatcastHost, error: *const SatcastErrorSink) -> i32>,
    /// `[control]` Optional: checks a configuration that its schema accepts, without I/O.
    pub validate: Option<
        unsafe extern "C" fn(
            type_name: SatcastStr,
            config_json: SatcastStr,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// `[control]` Starts a destination and returns at once; connecting goes on in the background.
    pub open: Option<
        unsafe extern "C" fn(
            request: *const SatcastOpen,
            instance: *mut *mut c_void,
            error: *const SatcastErrorSink,
        ) -> i32,
    >,
    /// `[control]` Asks for the end and returns at once; the answer is [`SatcastHost::stopped`].
    pub stop: Option<unsafe extern "C" fn(instance: *mut c_void, deadline_ms: u32) -> i32>,
    /// `[control]` Frees the instance; only after it reported `stopped`.
    pub destroy: Option<unsafe extern "C" fn(instance: *mut c_void)>,
    /// `[control]` The last call; ends the driver's threads. The library stays mapped.
    pub deinit: Option<unsafe extern "C" fn()>,
    /// `[any]` Optional: abilities of the driver by name; null when it has none of that name.
    pub get_extension: Option<unsafe extern "C" fn(name: SatcastStr) -> *const c_void>,
}

/// Returns the driver's table, or null when it cannot serve a host of this major version.
pub type SatcastDriverEntry = unsafe extern "C" fn(host_major: u32) -> *const SatcastDriver;

/// The host's table for one driver. All functions `[any]`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SatcastHost {
    /// Size of this struct in bytes.
    pub size: usize,
    /// [`ABI_MINOR`] of the host.
    pub abi_minor: u32,
    /// `HOST_FLAG_*`.
    pub flags: u32,
    /// Log level gate, read with one atomic load: 0 off, 1 error, 2 warn, 3 info, 4 debug, 5 trace.
    pub max_level: *const AtomicU32,
    /// Passed as first argument to every function of this table.
    pub ctx: *mut c_void,
    /// One log line. `dest` 0 is the driver itself.
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
    /// The destination is now in `STATE_*`; `reason` may be null.
    pub state:
        Option<unsafe extern "C" fn(ctx: *mut c_void, dest: u64, state: u32, reason: *const SatcastError)>,
    /// Something the owner may want to know; `json` is an object.
    pub event: Option<unsafe extern "C" fn(ctx: *mut c_void, dest: u64, name: SatcastStr, json: SatcastStr)>,
    /// Gives a counter that lives as long as the process; afterwards the driver adds to it without a call.
    pub metric: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            dest: u64,
            desc: *const SatcastMetricDesc,
            slot: *mut *const AtomicU64,
        ) -> i32,
    >,
    /// Takes up to `cap` packets, one reference each. Returns their number; 0 when there is none yet, and then keeps the
    /// waker; -1 when the queue is closed and empty. The waker is dropped in the other cases.
    pub media_recv: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            media: *mut SatcastMedia,
            out: *mut *const SatcastPacket,
            cap: usize,
            waker: *const SatcastWaker,
        ) -> isize,
    >,
    /// Gives the queue back.
    pub media_release: Option<unsafe extern "C" fn(ctx: *mut c_void, media: *mut SatcastMedia)>,
    /// The destination has ended: null = as asked, else why. The instance is destroyed after this.
    pub stopped: Option<unsafe extern "C" fn(ctx: *mut c_void, dest: u64, error: *const SatcastError)>,
    /// Abilities of the host by name; null when it has none of that name.
    pub get_extension: Option<unsafe extern "C" fn(ctx: *mut c_void, name: SatcastStr) -> *const c_void>,
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    /// A change here breaks every driver in the field: only additions at the end of a struct may appear.
    #[test]
    fn layout_is_frozen() {
        assert_eq!(size_of::<SatcastStr>(), 16);
        assert_eq!(size_of::<SatcastError>(), 32);
        assert_eq!(offset_of!(SatcastError, message), 16);
        assert_eq!(size_of::<SatcastOpen>(), 64);
        assert_eq!(offset_of!(SatcastOpen, media), 56);
        assert_eq!(size_of::<SatcastPacket>(), 80);
        assert_eq!(offset_of!(SatcastPacket, source), 24);
        assert_eq!(offset_of!(SatcastPacket, data), 56);
        assert_eq!(offset_of!(SatcastPacket, vt), 72);
        assert_eq!(size_of::<SatcastDriver>(), 152);
        assert_eq!(offset_of!(SatcastDriver, size), 16);
        assert_eq!(offset_of!(SatcastDriver, id), 32);
        assert_eq!(offset_of!(SatcastDriver, init), 96);
        assert_eq!(size_of::<SatcastHost>(), 96);
        assert_eq!(offset_of!(SatcastHost, log), 32);
        assert_eq!(size_of::<SatcastConnect>(), 32);
        assert_eq!(size_of::<SatcastBody>(), 48);
        assert_eq!(size_of::<SatcastAsset>(), 112);
        assert_eq!(size_of::<SatcastPlayback>(), 72);
        assert_eq!(align_of::<SatcastDriver>(), 8);
    }
}
