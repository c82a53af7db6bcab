//! The queue of a destination and the packets it yields.

use std::ffi::c_void;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::hostref::HostRef;
use crate::abi::{self, SatcastMedia, SatcastPacket, SatcastWaker};
use crate::packet::{Codec, Kind};

/// Most packets one [`Media::recv_batch`] hands over.
pub const BATCH_PACKETS_MAX: usize = 64;

/// The media of one destination. The host drops from its head when the driver does not keep up.
pub struct Media {
    host: Arc<HostRef>,
    raw: *mut SatcastMedia,
}

// SAFETY: the host's queue functions may be called from any thread; `&mut self` keeps them from running at once.
unsafe impl Send for Media {}

impl Media {
    /// Takes ownership of the queue `raw` that `open` was given.
    pub(crate) fn new(host: Arc<HostRef>, raw: *mut SatcastMedia) -> Self {
        Self { host, raw }
    }

    /// `[task]`, one at a time. Waits until there is media and appends up to [`BATCH_PACKETS_MAX`] packets to `out`. False when the destination shall
    /// end and everything queued was handed over: flush and return from `run`. Cancel safe.
    pub async fn recv_batch(&mut self, out: &mut Vec<Packet>) -> bool {
        poll_fn(|cx| self.poll_batch(cx, out)).await
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>, out: &mut Vec<Packet>) -> Poll<bool> {
        let Some(recv) = self.host.table().media_recv else { return Poll::Ready(false) };
        let mut raw: [*const SatcastPacket; BATCH_PACKETS_MAX] = [std::ptr::null(); BATCH_PACKETS_MAX];
        let waker = SatcastWaker {
            data: Box::into_raw(Box::new(cx.waker().clone())).cast(),
            wake: Some(wake),
            drop: Some(drop_waker),
        };
        // SAFETY: the queue is ours until release; `raw` has room for the number given; the host takes the waker in all cases.
        let count = unsafe { recv(self.host.ctx(), self.raw, raw.as_mut_ptr(), raw.len(), &raw const waker) };
        match count {
            0 => Poll::Pending,
            1.. => {
                let count = (count as usize).min(raw.len());
                out.extend(raw[..count].iter().map(|&head| Packet { head }));
                Poll::Ready(true)
            }
            _ => Poll::Ready(false),
        }
    }
}

impl Drop for Media {
    fn drop(&mut self) {
        if let Some(release) = self.host.table().media_release {
            // SAFETY: the queue is given back once, here.
            unsafe { release(self.host.ctx(), self.raw) };
        }
    }
}

/// # Safety
/// `data` must come from `Box::into_raw` of a `Waker`, and be passed to one of the two functions once.
unsafe extern "C" fn wake(data: *mut c_void) {
    // SAFETY: see above.
    unsafe { Box::from_raw(data.cast::<Waker>()) }.wake();
}

/// # Safety
/// As [`wake`].
unsafe extern "C" fn drop_waker(data: *mut c_void) {
    // SAFETY: see above.
    drop(unsafe { Box::from_raw(data.cast::<Waker>()) });
}

/// One media packet. Cloning and [`Packet::into_bytes`] share the payload.
pub struct Packet {
    head: *const SatcastPacket,
}

// SAFETY: packets are immutable and their reference count is atomic.
unsafe impl Send for Packet {}
// SAFETY: as above.
unsafe impl Sync for Packet {}

impl Packet {
    fn head(&self) -> &SatcastPacket {
        // SAFETY: we hold a reference, so the packet is alive.
        unsafe { &*self.head }
    }

    /// `[any]` Video or audio.
    pub fn kind(&self) -> Kind {
        if self.head().kind == abi::KIND_VIDEO { Kind::Video } else { Kind::Audio }
    }

    /// `[any]` The codec; `None` for one this version does not know.
    pub fn codec(&self) -> Option<Codec> {
        Codec::from_abi(self.head().codec)
    }

    /// `[any]` Track number inside its kind.
    pub fn track(&self) -> u32 {
        self.head().track
    }

    /// `[any]` The payload is the codec configuration record, not media.
    pub fn is_config(&self) -> bool {
        self.head().flags & abi::PACKET_CONFIG != 0
    }

    /// `[any]` Can be decoded without an earlier packet of its track.
    pub fn is_keyframe(&self) -> bool {
        self.head().flags & abi::PACKET_KEYFRAME != 0
    }

    /// `[any]` Packets before this one are missing.
    pub fn is_discontinuity(&self) -> bool {
        self.head().flags & abi::PACKET_DISCONTINUITY != 0
    }

    /// `[any]` Session the packet belongs to.
    pub fn source(&self) -> u64 {
        self.head().source
    }

    /// `[any]` Position in the session; 0 for packets from before the destination was there, where its type wants them.
    pub fn sequence(&self) -> u64 {
        self.head().sequence
    }

    /// `[any]` Decode time in nanoseconds on the session's timeline.
    pub fn dts_ns(&self) -> i64 {
        self.head().dts_ns
    }

    /// `[any]` Presentation time in nanoseconds on the session's timeline.
    pub fn pts_ns(&self) -> i64 {
        self.head().pts_ns
    }

    /// `[any]` The payload.
    pub fn payload(&self) -> &[u8] {
        let head = self.head();
        if head.len == 0 {
            return &[];
        }
        // SAFETY: the contract keeps `len` bytes alive and unchanged while we hold a reference.
        unsafe { std::slice::from_raw_parts(head.data, head.len) }
    }

    /// `[any]` The payload as `Bytes` that keep the packet alive; nothing is copied.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Packet {
    fn as_ref(&self) -> &[u8] {
        self.payload()
    }
}

impl Clone for Packet {
    fn clone(&self) -> Self {
        // SAFETY: the packet and its functions are alive while we hold a reference.
        unsafe { ((*self.head().vt).retain)(self.head) };
        Self { head: self.head }
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        // SAFETY: as above; this gives our one reference back.
        unsafe { ((*self.head().vt).release)(self.head) };
    }
}
