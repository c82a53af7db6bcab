//! Media: the queue of a destination, its packets, and the waker of a waiting driver.

use std::ffi::c_void;

/// The queue of one destination, owned by the host, released with `SatcastHost.media_release`.
#[repr(C)]
pub struct SatcastMedia {
    _opaque: [u8; 0],
}

/// One media packet: immutable, reference counted, leased to one destination. Packets of one destination come in the order the
/// encoder sent them. All fields stay readable for as long as the driver holds a reference, also after `stopped`.
#[repr(C)]
pub struct SatcastPacket {
    /// Size of this struct in bytes.
    pub size: u32,
    /// `SATCAST_PACKET_*`.
    pub flags: u32,
    /// `SATCAST_KIND_*`.
    pub kind: u32,
    /// `SATCAST_CODEC_*`; a driver leaves out packets of codecs it does not know.
    pub codec: u32,
    /// Track number inside its kind, from 0.
    pub track: u32,
    /// Zero.
    pub reserved: u32,
    /// Session the packet belongs to; equal for all destinations of it.
    pub source: u64,
    /// Position in the session, growing by one; equal for all destinations of it. 0 for packets of the backfill of a destination
    /// with `wantsPast`.
    pub sequence: u64,
    /// Decode time on the session's timeline in nanoseconds; never falls within a track.
    pub dts_ns: i64,
    /// Presentation time on the session's timeline in nanoseconds.
    pub pts_ns: i64,
    /// Payload in the form described at `SATCAST_CODEC_*`; must not be written to.
    pub data: *const u8,
    /// Payload in bytes.
    pub len: usize,
    /// Reference counting; never null.
    pub vt: *const SatcastPacketVt,
}

/// Reference counting of a packet.
#[repr(C)]
pub struct SatcastPacketVt {
    /// Size of this struct in bytes.
    pub size: usize,
    /// `[any]` One more reference. The caller holds one.
    pub retain: unsafe extern "C" fn(packet: *const SatcastPacket),
    /// `[any]` Drops a reference that the caller held; the last one frees the packet. Allowed after `stopped`, `destroy` and
    /// `deinit`, too.
    pub release: unsafe extern "C" fn(packet: *const SatcastPacket),
}

/// How the host notifies a waiting driver of media. The host calls exactly one of the two functions, once.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SatcastWaker {
    /// Passed back to the function; owned by the host until then.
    pub data: *mut c_void,
    /// `[pump]` Media is available, or the queue was closed. Must return at once: it runs on the one thread that wakes all destinations
    /// of the driver.
    pub wake: Option<unsafe extern "C" fn(data: *mut c_void)>,
    /// `[any]` The waker is no longer needed. Must return at once.
    pub drop: Option<unsafe extern "C" fn(data: *mut c_void)>,
}
