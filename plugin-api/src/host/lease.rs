//! Packets on loan to a driver: the shared payload with a header of the destination's own, so that the host knows what each
//! destination still holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use super::{Delivery, MediaSource, Packet};
use crate::abi::{self, SatcastPacket, SatcastPacketVt};
use crate::packet::Kind;

#[repr(C)] // The header must come first: drivers see only its address.
struct Lease {
    head: SatcastPacket,
    references: AtomicU32,
    packet: Arc<Packet>,
    source: Arc<dyn MediaSource>,
}

static VT: SatcastPacketVt = SatcastPacketVt { size: size_of::<SatcastPacketVt>(), retain, release };

/// A packet header with one reference, which passes to the driver.
pub(super) fn lend(delivery: Delivery, source: &Arc<dyn MediaSource>) -> *const SatcastPacket {
    let packet = delivery.packet;
    let mut flags = 0;
    if packet.keyframe {
        flags |= abi::PACKET_KEYFRAME;
    }
    if packet.config {
        flags |= abi::PACKET_CONFIG;
    }
    if packet.discontinuity || delivery.discontinuity {
        flags |= abi::PACKET_DISCONTINUITY;
    }
    let head = SatcastPacket {
        size: size_of::<SatcastPacket>() as u32,
        flags,
        kind: if packet.kind == Kind::Video { abi::KIND_VIDEO } else { abi::KIND_AUDIO },
        codec: packet.codec.to_abi(),
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
    let lease = Lease { head, references: AtomicU32::new(1), packet, source: source.clone() };
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
    if unsafe { &*lease }.references.fetch_sub(1, Ordering::Release) != 1 {
        return;
    }
    // Everything other threads did with the packet happens before it is freed.
    fence(Ordering::Acquire);
    // SAFETY: this was the last reference, and the lease came from a box.
    let lease = unsafe { Box::from_raw(lease) };
    lease.source.released(lease.packet.payload.len());
}
