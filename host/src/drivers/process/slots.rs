//! Where payloads stand in the shared memory, and who still holds them. Pure bookkeeping.
//!
//! Free space is taken from the lowest address that fits, so that memory which was once needed by many is not touched
//! again by few. A payload stands there once for all destinations of a session.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use satcast_plugin_api::Packet;
use satcast_plugin_api::host::MediaSource;

/// Payloads begin at multiples of this.
const ALIGN: usize = 64;

/// What tells one payload from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    source: u64,
    sequence: u64,
    // The same number may be given twice by a source of another kind; the address makes it certain while it is held.
    address: usize,
    len: usize,
}

struct Slot {
    offset: usize,
    space: usize,
    references: u32,
    // Keeps the address in the key from being given to another payload.
    _packet: Arc<Packet>,
}

/// A packet the child holds.
pub(super) struct Lease {
    key: Key,
    /// Whose queue is told when it is let go.
    pub(super) source: Arc<dyn MediaSource>,
    /// Bytes of the payload.
    pub(super) bytes: usize,
}

/// A payload that was given a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Number under which the child lets it go.
    pub(super) lease: u64,
    /// First byte.
    pub(super) offset: usize,
    /// It stands there already.
    pub(super) is_written: bool,
}

/// The bookkeeping of one child.
pub(super) struct Slots {
    free: BTreeMap<usize, usize>,
    used: HashMap<Key, Slot>,
    leases: HashMap<u64, Lease>,
    next_lease: u64,
}

impl Slots {
    /// All `len` bytes free.
    pub(super) fn new(len: usize) -> Self {
        Self { free: BTreeMap::from([(0, len)]), used: HashMap::new(), leases: HashMap::new(), next_lease: 1 }
    }

    /// Gives `packet` a place for one destination; `None` when there is no room.
    pub(super) fn place(&mut self, packet: &Arc<Packet>, source: &Arc<dyn MediaSource>) -> Option<Placed> {
        let (payload, bytes) = (&packet.payload, packet.payload.len());
        let (address, sequence) = (payload.as_ptr() as usize, packet.sequence);
        let key = Key { source: packet.source, sequence, address, len: bytes };
        let (offset, is_written) = match self.used.get_mut(&key) {
            Some(slot) => {
                slot.references += 1;
                (slot.offset, true)
            }
            None => {
                let space = bytes.max(1).next_multiple_of(ALIGN);
                let offset = self.take(space)?;
                self.used.insert(key, Slot { offset, space, references: 1, _packet: packet.clone() });
                (offset, false)
            }
        };
        let lease = self.next_lease;
        self.next_lease += 1;
        self.leases.insert(lease, Lease { key, source: source.clone(), bytes });
        Some(Placed { lease, offset, is_written })
    }

    /// Ends a lease; `None` when there is none of that number.
    pub(super) fn release(&mut self, lease: u64) -> Option<Lease> {
        let lease = self.leases.remove(&lease)?;
        let slot = self.used.get_mut(&lease.key)?;
        slot.references -= 1;
        if slot.references == 0 {
            let (offset, space) = (slot.offset, slot.space);
            self.used.remove(&lease.key);
            self.give_back(offset, space);
        }
        Some(lease)
    }

    /// Ends all leases.
    pub(super) fn clear(&mut self) -> Vec<Lease> {
        self.used.clear();
        self.leases.drain().map(|(_, lease)| lease).collect()
    }

    fn take(&mut self, space: usize) -> Option<usize> {
        let (offset, len) = self.free.iter().find(|(_, len)| **len >= space).map(|(at, len)| (*at, *len))?;
        self.free.remove(&offset);
        if len > space {
            self.free.insert(offset + space, len - space);
        }
        Some(offset)
    }

    fn give_back(&mut self, mut offset: usize, mut len: usize) {
        if let Some(behind) = self.free.remove(&(offset + len)) {
            len += behind;
        }
        let before = self.free.range(..offset).next_back().map(|(at, len)| (*at, *len));
        if let Some((at, before)) = before.filter(|(at, len)| at + len == offset) {
            self.free.remove(&at);
            (offset, len) = (at, before + len);
        }
        self.free.insert(offset, len);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use satcast_plugin_api::Codec;
    use satcast_plugin_api::host::{Delivery, DriverWaker, Recv};

    use super::*;

    struct NoSource;

    impl MediaSource for NoSource {
        fn recv(&self, _: usize, _: &mut Vec<Delivery>, _: DriverWaker) -> Recv {
            Recv::Closed
        }
        fn released(&self, _: usize) {}
        fn abandoned(&self) {}
    }

    fn packet(sequence: u64, len: usize) -> Arc<Packet> {
        let packet = Packet::media(Codec::H264, false, 0, 0, Bytes::from(vec![7; len]));
        Arc::new(Packet { source: 1, sequence, ..packet })
    }

    fn source() -> Arc<dyn MediaSource> {
        Arc::new(NoSource)
    }

    #[test]
    fn one_payload_stands_once_for_all_destinations() {
        let (mut slots, source, shared) = (Slots::new(256), source(), packet(1, 100));
        let first = slots.place(&shared, &source).unwrap();
        let second = slots.place(&shared, &source).unwrap();
        assert_eq!((first.offset, first.is_written, second.offset, second.is_written), (0, false, 0, true));
        let other = slots.place(&packet(2, 64), &source).unwrap();
        assert_eq!((other.offset, other.is_written), (128, false));
        assert_eq!(slots.release(first.lease).unwrap().bytes, 100);
        assert!(slots.release(first.lease).is_none(), "a lease ends once");
        assert!(slots.place(&packet(3, 128), &source).is_none(), "the second destination still holds it");
        slots.release(second.lease).unwrap();
        assert_eq!(slots.place(&packet(3, 128), &source).unwrap().offset, 0);
    }

    #[test]
    fn freed_space_joins_in_any_order() {
        let (mut slots, source) = (Slots::new(ALIGN * 4), source());
        let leases: Vec<u64> =
            (0..4).map(|n| slots.place(&packet(n, ALIGN), &source).unwrap().lease).collect();
        assert!(slots.place(&packet(9, 1), &source).is_none());
        for index in [2, 0, 3, 1] {
            slots.release(leases[index]).unwrap();
        }
        assert_eq!(slots.free, BTreeMap::from([(0, ALIGN * 4)]));
        assert!(slots.place(&packet(10, ALIGN * 4), &source).is_some());
        assert_eq!(slots.clear().len(), 1);
    }

    #[test]
    fn an_empty_payload_has_a_place_too() {
        let (mut slots, source) = (Slots::new(ALIGN), source());
        let placed = slots.place(&packet(1, 0), &source).unwrap();
        slots.release(placed.lease).unwrap();
        assert_eq!(slots.free, BTreeMap::from([(0, ALIGN)]));
    }
}
