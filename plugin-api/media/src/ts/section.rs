//! Sections of tables (2.4.4): put together from packets, checked, and written.

use super::limits::SECTION_BYTES_MAX;
use super::packet::{Counter, Step, TsPacket};

/// Bytes before and after the body of a section with the long header (table 2-30).
const HEAD_BYTES: usize = 8;
const CRC_BYTES: usize = 4;
/// table_id that begins the stuffing after the last section of a packet.
const STUFFING: u8 = 0xff;

/// The sections of one packet identifier.
#[derive(Debug, Default)]
pub(super) struct Sections {
    bytes: Vec<u8>,
    counter: Counter,
}

/// The newest table that a packet completed, and the number of sections that were refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Completed<T> {
    pub(super) table: Option<T>,
    pub(super) refused: u64,
}

impl Sections {
    /// Takes a packet. `parse` gets whole sections without their checksum.
    pub(super) fn push<T>(
        &mut self,
        packet: &TsPacket<'_>,
        payload: &[u8],
        mut parse: impl FnMut(&[u8]) -> Option<T>,
    ) -> Completed<T> {
        let mut completed = Completed { table: None, refused: 0 };
        match self.counter.step(packet) {
            Step::Follows => {}
            Step::Repeats => return completed,
            Step::Lost => self.bytes.clear(),
        }
        if !packet.start {
            if !self.bytes.is_empty() {
                self.add(payload, &mut parse, &mut completed);
            }
            return completed;
        }
        // pointer_field: bytes of the section before.
        let split =
            payload.split_first().and_then(|(pointer, rest)| rest.split_at_checked((*pointer).into()));
        let Some((before, new)) = split else {
            self.bytes.clear();
            completed.refused += 1;
            return completed;
        };
        if !self.bytes.is_empty() {
            self.add(before, &mut parse, &mut completed);
        }
        self.bytes.clear();
        self.add(new, &mut parse, &mut completed);
        completed
    }

    /// Bytes of a section that is not complete.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn add<T>(
        &mut self,
        bytes: &[u8],
        parse: &mut impl FnMut(&[u8]) -> Option<T>,
        completed: &mut Completed<T>,
    ) {
        self.bytes.extend_from_slice(bytes);
        let mut at = 0;
        while let Some([table_id, high, low]) = self.bytes[at..].first_chunk() {
            let total = 3 + usize::from(u16::from_be_bytes([high & 0x0f, *low]));
            if *table_id == STUFFING || total > SECTION_BYTES_MAX {
                completed.refused += u64::from(*table_id != STUFFING);
                self.bytes.clear();
                return;
            }
            let Some(section) = self.bytes[at..].get(..total) else { break };
            match checked(section) {
                Some(section) => completed.table = parse(section).or(completed.table.take()),
                None => completed.refused += 1,
            }
            at += total;
        }
        self.bytes.drain(..at);
    }
}

/// A section without its checksum, if it has a long header and the checksum is right.
fn checked(section: &[u8]) -> Option<&[u8]> {
    let has_long_header = section.get(1)? & 0x80 != 0 && section.len() >= HEAD_BYTES + CRC_BYTES;
    (has_long_header && crc32(section) == 0).then(|| &section[..section.len() - CRC_BYTES])
}

/// Appends a section that is the only one of its table. The body must be shorter than a packet.
pub(super) fn write(out: &mut Vec<u8>, table_id: u8, id: u16, version: u8, body: &[u8]) {
    let start = out.len();
    let length = HEAD_BYTES - 3 + body.len() + CRC_BYTES;
    let [id_high, id_low] = id.to_be_bytes();
    let head = [table_id, 0xb0 | (length >> 8) as u8, length as u8, id_high, id_low];
    out.extend_from_slice(&head);
    out.extend_from_slice(&[0xc1 | version << 1, 0, 0]);
    out.extend_from_slice(body);
    let crc = crc32(&out[start..]);
    out.extend_from_slice(&crc.to_be_bytes());
}

/// Remainders of the bytes for [`crc32`].
const REMAINDERS: [u32; 256] = remainders();

const fn remainders() -> [u32; 256] {
    let mut remainders = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 0x8000_0000 != 0 { value << 1 ^ 0x04c1_1db7 } else { value << 1 };
            bit += 1;
        }
        remainders[byte] = value;
        byte += 1;
    }
    remainders
}

/// Checksum of annex A; over a section with its checksum it is 0.
fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, byte| crc << 8 ^ REMAINDERS[usize::from((crc >> 24) as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ts::PACKET_BYTES;

    fn packet(start: bool, counter: u8, payload: &[u8]) -> [u8; PACKET_BYTES] {
        let mut packet = [0xff; PACKET_BYTES];
        packet[..4].copy_from_slice(&[0x47, u8::from(start) << 6, 0, 0x10 | counter]);
        packet[4..4 + payload.len()].copy_from_slice(payload);
        packet
    }

    fn push(sections: &mut Sections, bytes: &[u8; PACKET_BYTES]) -> (Option<u16>, u64) {
        let packet = TsPacket::parse(bytes).expect("valid");
        let payload = packet.payload.expect("with payload");
        let id = |section: &[u8]| Some(u16::from_be_bytes([section[3], section[4]]));
        let completed = sections.push(&packet, payload, id);
        (completed.table, completed.refused)
    }

    fn section(id: u16, body: usize) -> Vec<u8> {
        let mut section = Vec::new();
        write(&mut section, 2, id, 3, &vec![7; body]);
        section
    }

    #[test]
    fn the_checksum_is_the_one_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn sections_end_in_later_packets_and_begin_behind_others() {
        let mut sections = Sections::default();
        let (first, second) = (section(5, 300), section(6, 20));
        let stream = [&[0][..], &first[..183]].concat();
        assert_eq!(push(&mut sections, &packet(true, 0, &stream)), (None, 0));
        // A repeated packet adds nothing.
        assert_eq!(push(&mut sections, &packet(true, 0, &stream)), (None, 0));
        let rest = &first[183..];
        let both = [&[rest.len() as u8][..], rest, &second].concat();
        assert_eq!(push(&mut sections, &packet(true, 1, &both)), (Some(6), 0));
        assert_eq!(sections.held_bytes(), 0);
        // Two sections in one packet: the newest counts.
        let both = [&[0][..], &section(8, 5), &section(9, 6)].concat();
        assert_eq!(push(&mut sections, &packet(true, 2, &both)), (Some(9), 0));
    }

    #[test]
    fn a_lost_packet_a_wrong_checksum_and_a_long_section_are_refused() {
        let mut sections = Sections::default();
        let long = section(5, 300);
        push(&mut sections, &packet(true, 0, &[&[0][..], &long[..183]].concat()));
        assert_eq!(push(&mut sections, &packet(false, 2, &long[183..])), (None, 0));
        let mut wrong = [&[0][..], &section(5, 9)].concat();
        wrong[5] ^= 1;
        assert_eq!(push(&mut sections, &packet(true, 3, &wrong)), (None, 1));
        assert_eq!(push(&mut sections, &packet(true, 4, &[0, 2, 0xb3, 0xfe])), (None, 1));
        assert_eq!(sections.held_bytes(), 0);
        // The pointer leads behind the packet.
        assert_eq!(push(&mut sections, &packet(true, 5, &[184])), (None, 1));
        // The longest section is held whole.
        assert_eq!(push(&mut sections, &packet(true, 6, &[0, 2, 0xb3, 0xfd])), (None, 0));
        for number in 7..=11 {
            assert_eq!(push(&mut sections, &packet(false, number, &[7; 184])).0, None);
            assert!(sections.held_bytes() <= SECTION_BYTES_MAX, "{number}");
        }
    }
}
