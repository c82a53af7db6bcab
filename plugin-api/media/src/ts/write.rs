//! Transport stream packets, written (tables 2-2 and 2-6).

use super::packet::HEADER_BYTES;
use super::time::stamp;
use super::{PACKET_BYTES, SYNC_BYTE};

/// Bytes of a packet after its header.
const BODY_BYTES: usize = PACKET_BYTES - HEADER_BYTES;
/// Stuffing of adaptation fields and sections.
const STUFFING: u8 = 0xff;

/// The continuity counter that was written last.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastCounter(u8);

impl Default for LastCounter {
    fn default() -> Self {
        LastCounter(0x0f)
    }
}

impl LastCounter {
    /// The counter of the next packet; those without a payload repeat the last one (2.4.3.3).
    fn step(&mut self, has_payload: bool) -> u8 {
        self.0 = (self.0 + u8::from(has_payload)) & 0x0f;
        self.0
    }
}

/// What an adaptation field says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Field {
    /// The clock, or the counter, jumps here.
    pub(super) discontinuity: bool,
    /// Decoding can start here.
    pub(super) random_access: bool,
    /// Program clock reference in ticks.
    pub(super) clock: Option<i64>,
}

impl Field {
    fn flags(self) -> u8 {
        u8::from(self.discontinuity) << 7
            | u8::from(self.random_access) << 6
            | u8::from(self.clock.is_some()) << 4
    }

    /// Bytes of the field with its length.
    fn bytes(self) -> usize {
        match (self.flags(), self.clock) {
            (0, _) => 0,
            (_, None) => 2,
            (_, Some(_)) => 8,
        }
    }
}

/// Appends the packets of a PES packet; `field` is the adaptation field of the first.
pub(super) fn pes(out: &mut Vec<u8>, pid: u16, counter: &mut LastCounter, field: Field, bytes: &[u8]) {
    out.reserve((bytes.len() / BODY_BYTES + 2) * PACKET_BYTES);
    let mut rest = packet(out, pid, true, counter, field, bytes);
    while !rest.is_empty() {
        rest = packet(out, pid, false, counter, Field::default(), rest);
    }
}

/// Appends a packet without a payload.
pub(super) fn field(out: &mut Vec<u8>, pid: u16, counter: &mut LastCounter, field: Field) {
    packet(out, pid, false, counter, field, &[]);
}

/// Appends the packet of a section, which must be shorter than a packet.
pub(super) fn section(out: &mut Vec<u8>, pid: u16, counter: &mut LastCounter, section: &[u8]) {
    // The pointer 0: the section begins behind it.
    let mut body = [STUFFING; BODY_BYTES];
    body[0] = 0;
    body[1..=section.len()].copy_from_slice(section);
    packet(out, pid, true, counter, Field::default(), &body);
}

/// Appends a packet with the front of `payload`, and returns what did not fit.
fn packet<'a>(
    out: &mut Vec<u8>,
    pid: u16,
    start: bool,
    counter: &mut LastCounter,
    field: Field,
    payload: &'a [u8],
) -> &'a [u8] {
    let (payload, rest) = payload.split_at(payload.len().min(BODY_BYTES - field.bytes()));
    // The adaptation field takes what the payload leaves: a length, flags, the clock, and stuffing.
    let field_bytes = BODY_BYTES - payload.len();
    let has_payload = !payload.is_empty();
    let control = u8::from(field_bytes > 0) << 1 | u8::from(has_payload);
    let [high, low] = pid.to_be_bytes();
    let mut bytes = [STUFFING; PACKET_BYTES];
    bytes[0] = SYNC_BYTE;
    bytes[1] = u8::from(start) << 6 | high;
    bytes[2] = low;
    bytes[3] = control << 4 | counter.step(has_payload);
    if field_bytes > 0 {
        bytes[HEADER_BYTES] = (field_bytes - 1) as u8;
    }
    if field_bytes > 1 {
        bytes[HEADER_BYTES + 1] = field.flags();
    }
    if let Some(clock) = field.clock {
        // Base, six reserved bits, and an extension of 0.
        let [_, _, reference @ ..] = (stamp(clock) << 15 | 0x3f << 9).to_be_bytes();
        bytes[HEADER_BYTES + 2..][..reference.len()].copy_from_slice(&reference);
    }
    bytes[PACKET_BYTES - payload.len()..].copy_from_slice(payload);
    out.extend_from_slice(&bytes);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ts::packet::TsPacket;

    #[test]
    fn payloads_of_every_length_are_read_again() {
        let fields = [
            Field::default(),
            Field { random_access: true, ..Field::default() },
            Field { discontinuity: true, random_access: true, clock: Some(-9000) },
        ];
        for length in 1..600 {
            for field in fields {
                let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
                let (mut out, mut counter) = (Vec::new(), LastCounter::default());
                pes(&mut out, 0x1abc, &mut counter, field, &payload);
                let mut read = Vec::new();
                for (number, bytes) in out.as_chunks::<PACKET_BYTES>().0.iter().enumerate() {
                    let packet = TsPacket::parse(bytes).expect("valid");
                    assert_eq!((packet.pid, packet.start), (0x1abc, number == 0));
                    assert_eq!(usize::from(packet.counter), number % 16);
                    assert_eq!(packet.discontinuity, field.discontinuity && number == 0);
                    assert_eq!(packet.pcr, field.clock.map(stamp).filter(|_| number == 0));
                    read.extend_from_slice(packet.payload.expect("with payload"));
                }
                assert_eq!(out.len() % PACKET_BYTES, 0);
                assert_eq!(read, payload, "{field:?}");
            }
        }
    }

    #[test]
    fn packets_without_a_payload_repeat_the_counter() {
        let (mut out, mut counter) = (Vec::new(), LastCounter::default());
        section(&mut out, 0, &mut counter, &[7; 20]);
        field(&mut out, 0, &mut counter, Field { clock: Some(1 << 32), ..Field::default() });
        section(&mut out, 0, &mut counter, &[7; BODY_BYTES - 1]);
        let packets = out.as_chunks::<PACKET_BYTES>().0;
        let packets: Vec<_> = packets.iter().map(|bytes| TsPacket::parse(bytes).expect("valid")).collect();
        let counters: Vec<u8> = packets.iter().map(|packet| packet.counter).collect();
        assert_eq!(counters, [0, 0, 1]);
        assert_eq!((packets[1].pcr, packets[1].payload), (Some(1 << 32), None));
        let ends = packets[0].payload.map(|payload| [payload[0], payload[20], payload[21]]);
        assert_eq!(ends, Some([0, 7, 0xff]));
    }
}
