//! The queue of a destination and its packets.

use std::ffi::c_void;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use super::hostref::HostRef;
use crate::abi::{self, SatcastMedia, SatcastPacket, SatcastWaker};
use crate::{Codec, Packet, Role};

/// Most packets that one [`Media::recv_batch`] returns.
pub const BATCH_PACKETS_MAX: usize = 64;

/// The media of one destination. The host drops the oldest packets when the driver is too slow.
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

    /// `[task]`, one at a time. Waits for media and appends up to [`BATCH_PACKETS_MAX`] packets to `out`; packets of unknown codecs are left
    /// out. The payload of a packet is the host's own memory, released when its last clone is dropped (see [`keep`]). False when the
    /// destination must end and the queue is empty: flush and return from `run`. Cancel safe.
    pub async fn recv_batch(&mut self, out: &mut Vec<Packet>) -> bool {
        poll_fn(|cx| self.poll_batch(cx, out)).await
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>, out: &mut Vec<Packet>) -> Poll<bool> {
        let Some(recv) = self.host.table().media_recv else { return Poll::Ready(false) };
        let before = out.len();
        while out.len() == before {
            let mut raw: [*const SatcastPacket; BATCH_PACKETS_MAX] = [std::ptr::null(); BATCH_PACKETS_MAX];
            let waker = SatcastWaker {
                data: Box::into_raw(Box::new(cx.waker().clone())).cast(),
                wake: Some(wake),
                drop: Some(drop_waker),
            };
            // SAFETY: the queue is ours until release; `raw` has room for the number given; the host takes the waker in all cases.
            let count =
                unsafe { recv(self.host.ctx(), self.raw, raw.as_mut_ptr(), raw.len(), &raw const waker) };
            match count {
                0 => return Poll::Pending,
                1.. => {
                    let count = (count as usize).min(raw.len());
                    out.extend(raw[..count].iter().filter_map(|&head| Lent(head).packet()));
                }
                _ => return Poll::Ready(false),
            }
        }
        Poll::Ready(true)
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

/// Payload bytes that a destination may keep shared with the host between batches.
///
/// The host hands over no more while an opening holds 64 MiB of its packets. A driver that must keep two GOPs of 10 s at 50 Mbit/s (125 MB)
/// before it can continue would wait for ever if all of them were shared.
const SHARED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// `[any]` Prepares `packet` for a driver that keeps it and already keeps `held_bytes`: the payload stays shared with the host while
/// both are within 32 MiB and is copied beyond. A codec configuration is always copied: it is kept for the whole session.
pub fn keep(packet: &mut Packet, held_bytes: usize) {
    if packet.is_config() || held_bytes.saturating_add(packet.payload.len()) > SHARED_BYTES_MAX {
        packet.payload = Bytes::copy_from_slice(&packet.payload);
    }
}

/// A reference to a packet of the host. The payload of its [`Packet`] owns it.
struct Lent(*const SatcastPacket);

// SAFETY: packets are immutable and their reference count is atomic.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    fn head(&self) -> &SatcastPacket {
        // SAFETY: we hold a reference, so the packet is alive.
        unsafe { &*self.0 }
    }

    /// `None` for a codec that this version does not know.
    fn packet(self) -> Option<Packet> {
        let head = self.head();
        let packet = Packet {
            codec: Codec::from_number(head.codec)?,
            role: if head.flags & abi::PACKET_CONFIG == 0 { Role::Data } else { Role::Config },
            keyframe: head.flags & abi::PACKET_KEYFRAME != 0,
            discontinuity: head.flags & abi::PACKET_DISCONTINUITY != 0,
            track: head.track,
            source: head.source,
            sequence: head.sequence,
            dts_ns: head.dts_ns,
            pts_ns: head.pts_ns,
            payload: Bytes::new(),
        };
        Some(Packet { payload: Bytes::from_owner(self), ..packet })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        let head = self.head();
        if head.len == 0 {
            return &[];
        }
        // SAFETY: the contract keeps `len` bytes alive and unchanged while we hold a reference.
        unsafe { std::slice::from_raw_parts(head.data, head.len) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: the packet and its functions are alive while we hold a reference, which is given back here.
        unsafe { ((*self.head().vt).release)(self.0) };
    }
}
