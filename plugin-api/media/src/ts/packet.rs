//! The header of a transport stream packet and its adaptation field (tables 2-2 and 2-6).

use super::PACKET_BYTES;

/// Bytes before the adaptation field or the payload.
pub(super) const HEADER_BYTES: usize = 4;

/// Bytes of a program clock reference.
const CLOCK_BYTES: usize = 6;

/// One packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TsPacket<'a> {
    /// Packet identifier, 13 bits.
    pub(super) pid: u16,
    /// payload_unit_start_indicator: a PES packet or section begins in the payload.
    pub(super) start: bool,
    /// Continuity counter, 0 to 15.
    pub(super) counter: u8,
    /// discontinuity_indicator: the counter may jump.
    pub(super) discontinuity: bool,
    /// Base of the program clock reference, in ticks.
    pub(super) pcr: Option<u64>,
    /// The adaptation field has stuffing, which fills the last packet of a PES packet (2.4.3.5).
    pub(super) stuffed: bool,
    /// Payload, if there is one; it may be empty.
    pub(super) payload: Option<&'a [u8]>,
}

impl<'a> TsPacket<'a> {
    /// Reads a packet. `None`: it was damaged on the way, it is scrambled, or its adaptation field is impossible.
    pub(super) fn parse(bytes: &'a [u8; PACKET_BYTES]) -> Option<Self> {
        let [_, high, low, control, ..] = *bytes;
        let is_damaged = high & 0x80 != 0;
        let is_scrambled = control & 0xc0 != 0;
        if is_damaged || is_scrambled {
            return None;
        }
        let mut rest = &bytes[HEADER_BYTES..];
        let mut field: &[u8] = &[];
        let has_field = control & 0x20 != 0;
        if has_field {
            let (length, behind) = rest.split_first()?;
            (field, rest) = behind.split_at_checked(usize::from(*length))?;
        }
        let payload = match control & 0x30 {
            0x10 | 0x30 => Some(rest),
            0x20 => None,
            _ => return None,
        };
        let flags = field.first().copied().unwrap_or(0);
        Some(TsPacket {
            pid: pid(high, low),
            start: high & 0x40 != 0,
            counter: control & 0x0f,
            discontinuity: flags & 0x80 != 0,
            stuffed: has_field && (flags == 0 || field.len() > used_bytes(field)),
            pcr: field.get(1..6).filter(|_| flags & 0x10 != 0).map(clock_base),
            payload,
        })
    }
}

/// Bytes of an adaptation field without its stuffing: flags, two clock references, splice countdown, private data and extension.
fn used_bytes(field: &[u8]) -> usize {
    let flags = field.first().copied().unwrap_or(0);
    let has = |flag: u8| usize::from(flags & flag != 0);
    let mut used = 1 + (has(0x10) + has(0x08)) * CLOCK_BYTES + has(0x04);
    for flag in [0x02, 0x01] {
        if flags & flag != 0 {
            used += 1 + field.get(used).map_or(0, |length| usize::from(*length));
        }
    }
    used
}

/// The 13 bits of a packet identifier in two bytes.
pub(super) fn pid(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high & 0x1f, low])
}

/// The 33 bits of program_clock_reference_base; the remaining 9 of the reference are finer than a tick.
fn clock_base(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |base, byte| base << 8 | u64::from(*byte)) >> 7
}

/// Step of a continuity counter (2.4.3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The packet follows the one before.
    Follows,
    /// It has the number of the one before: it is the same packet again, or fifteen are lost.
    Repeats,
    /// Packets between the two are lost.
    Lost,
}

/// Continuity counter of one packet identifier.
#[derive(Debug, Default)]
pub(super) struct Counter(Option<u8>);

impl Counter {
    /// Takes the counter of a packet that has a payload.
    pub(super) fn step(&mut self, packet: &TsPacket<'_>) -> Step {
        match self.0.replace(packet.counter) {
            None => Step::Follows,
            Some(_) if packet.discontinuity => Step::Follows,
            Some(last) if last == packet.counter => Step::Repeats,
            Some(last) if (last + 1) & 0x0f == packet.counter => Step::Follows,
            Some(_) => Step::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(head: &[u8]) -> [u8; PACKET_BYTES] {
        let mut bytes = [0xff; PACKET_BYTES];
        bytes[..head.len()].copy_from_slice(head);
        bytes
    }

    #[test]
    fn headers_are_read() {
        let plain = bytes(&[0x47, 0x41, 0x23, 0x1a, 7]);
        let packet = TsPacket::parse(&plain).expect("valid");
        assert_eq!((packet.pid, packet.start, packet.counter), (0x123, true, 10));
        assert_eq!((packet.pcr, packet.discontinuity), (None, false));
        assert_eq!(packet.payload.map(|payload| (payload.len(), payload[0])), Some((184, 7)));
        // A clock reference of 2^33 - 1 and a discontinuity; no payload.
        let clock = bytes(&[0x47, 0, 0x20, 0x20, 183, 0x90, 0xff, 0xff, 0xff, 0xff, 0xfe, 0]);
        let packet = TsPacket::parse(&clock).expect("valid");
        assert_eq!((packet.pcr, packet.discontinuity, packet.payload), (Some((1 << 33) - 1), true, None));
        // An adaptation field of one byte, and one that fills all.
        let short = bytes(&[0x47, 0, 0x20, 0x30, 0, 5]);
        assert_eq!(TsPacket::parse(&short).and_then(|packet| packet.payload).map(<[u8]>::len), Some(183));
        let full = bytes(&[0x47, 0, 0x20, 0x30, 183, 0]);
        assert_eq!(TsPacket::parse(&full).and_then(|packet| packet.payload), Some(&[][..]));
    }

    #[test]
    fn damaged_scrambled_and_impossible_packets_are_refused() {
        for head in [
            &[0x47, 0x80, 0x20, 0x10][..],
            &[0x47, 0, 0x20, 0x90],
            &[0x47, 0, 0x20, 0x00],
            &[0x47, 0, 0x20, 0x30, 184],
        ] {
            assert_eq!(TsPacket::parse(&bytes(head)), None, "{head:?}");
        }
    }

    #[test]
    fn counters_find_lost_and_repeated_packets() {
        let mut counter = Counter::default();
        let mut step = |number: u8, discontinuity: u8| {
            let bytes = bytes(&[0x47, 0, 0x20, 0x30 | number, 1, discontinuity << 7]);
            counter.step(&TsPacket::parse(&bytes).expect("valid"))
        };
        let steps =
            [(14, 0), (15, 0), (0, 0), (0, 0), (2, 0), (9, 1), (10, 0)].map(|(n, flag)| step(n, flag));
        use Step::{Follows, Lost, Repeats};
        assert_eq!(steps, [Follows, Follows, Follows, Repeats, Lost, Follows, Follows]);
    }
}
