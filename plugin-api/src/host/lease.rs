//! Packets on loan to a driver: the shared payload with a header for each destination, so that the host knows which packets a
//! destination still holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::{Delivery, MediaSource};
use crate::Packet;
use crate::abi::{self, SatcastPacket, SatcastPacketVt};

#[repr(C)] // The header must come first: drivers see only its address.
struct Lease {
    head: SatcastPacket,
    references: AtomicU32,
    /// Taken by the last release.
    held: Option<(Arc<Packet>, Arc<dyn MediaSource>)>,
}

static VT: SatcastPacketVt = SatcastPacketVt { size: size_of::<SatcastPacketVt>(), retain, release };

/// A packet header with one reference, which passes to the driver.
pub(super) fn lend(delivery: Delivery, source: &Arc<dyn MediaSource>) -> *const SatcastPacket {
    let packet = delivery.packet;
    let mut flags = 0;
    if packet.keyframe {
        flags |= abi::PACKET_KEYFRAME;
    }
    if packet.is_config() {
        flags |= abi::PACKET_CONFIG;
    }
    if packet.discontinuity || delivery.discontinuity {
        flags |= abi::PACKET_DISCONTINUITY;
    }
    let head = SatcastPacket {
        size: size_of::<SatcastPacket>() as u32,
        flags,
        kind: packet.kind() as u32,
        codec: packet.codec as u32,
        track: packet.track,
        reserved: 0,
        source: packet.source,
        sequence: packet.sequence,
        dts_ns: packet.dts_ns,
        pts_ns: packet.pts_ns,
        data: packet.payload.as_ptr(),
        len: packet.payload.len(),
        vt: &raw const VT,
    };
    let lease = Lease { head, references: AtomicU32::new(1), held: Some((packet, source.clone())) };
    Box::into_raw(Box::new(lease)).cast_const().cast()
}

/// # Safety
/// `packet` must come from [`lend`], and the caller must hold a reference.
unsafe extern "C" fn retain(packet: *const SatcastPacket) {
    // SAFETY: see above; the header is the first field of its lease.
    unsafe { &*packet.cast::<Lease>() }.references.fetch_add(1, Ordering::Relaxed);
}

/// # Safety
/// As [`retain`]; the caller's reference is gone afterwards.
unsafe extern "C" fn release(packet: *const SatcastPacket) {
    let lease = packet.cast_mut().cast::<Lease>();
    // SAFETY: see above.
    let references = unsafe { &(*lease).references };
    let before = references.fetch_sub(1, Ordering::Release);
    #[cfg(debug_assertions)]
    if before == 0 {
        references.store(0, Ordering::Relaxed);
        graves::released_twice();
        return;
    }
    if before != 1 {
        return;
    }
    // Uses of the packet by other threads happen before it is freed.
    fence(Ordering::Acquire);
    // SAFETY: this was the last reference; the header comes from a box, and no one else uses it.
    let held = unsafe {
        let held = (*lease).held.take();
        #[cfg(debug_assertions)]
        graves::bury(lease);
        #[cfg(not(debug_assertions))]
        drop(Box::from_raw(lease));
        held
    };
    if let Some((packet, source)) = held {
        source.released(packet.payload.len());
    }
}

/// Headers that a debug build keeps for a while after their last release, so that a double release by a driver is detected and does
/// no harm.
#[cfg(debug_assertions)]
mod graves {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicU64, Ordering};

    use parking_lot::Mutex;

    use super::Lease;

    /// How many are kept.
    const KEPT_MAX: usize = 256;

    struct Grave(*mut Lease);

    // SAFETY: nothing but the reference count is touched, which is atomic, until one thread frees it.
    unsafe impl Send for Grave {}

    static GRAVES: Mutex<VecDeque<Grave>> = Mutex::new(VecDeque::new());
    static TWICE: AtomicU64 = AtomicU64::new(0);

    /// Frees the header of [`KEPT_MAX`] releases ago instead of `lease`.
    ///
    /// # Safety
    /// `lease` must come from a box without other references.
    pub(super) unsafe fn bury(lease: *mut Lease) {
        let mut graves = GRAVES.lock();
        graves.push_back(Grave(lease));
        let oldest = if graves.len() > KEPT_MAX { graves.pop_front() } else { None };
        drop(graves);
        if let Some(Grave(oldest)) = oldest {
            // SAFETY: it was kept as one without references.
            drop(unsafe { Box::from_raw(oldest) });
        }
    }

    pub(super) fn released_twice() {
        if TWICE.fetch_add(1, Ordering::Relaxed) == 0 {
            // The driver is unknown here, and so is its log.
            eprintln!("satcast: a driver released a packet twice, which only a debug build survives");
        }
    }
}
