//! The form of datagrams (3): headers, control packets, and sequence numbers of 31 bits.

/// Bytes of every header.
pub(super) const HEADER_BYTES: usize = 16;
/// Bit of control packets in the first word.
const CONTROL: u32 = 1 << 31;
/// Bits of sequence numbers.
pub(super) const SEQUENCE: u32 = 0x7fff_ffff;
/// Bit in reports of lost packets: a range begins.
pub(super) const RANGE: u32 = 1 << 31;

/// Control types (table 1), and the subtypes of the one for extensions.
pub(super) const HANDSHAKE: u16 = 0;
pub(super) const KEEP_ALIVE: u16 = 1;
pub(super) const ACK: u16 = 2;
pub(super) const NAK: u16 = 3;
pub(super) const SHUTDOWN: u16 = 5;
pub(super) const ACKACK: u16 = 6;
pub(super) const DROP_REQUEST: u16 = 7;
pub(super) const EXTENSION: u16 = 0x7fff;
pub(super) const SUBTYPE_KM_REQUEST: u16 = 3;
pub(super) const SUBTYPE_KM_RESPONSE: u16 = 4;

/// Which key a data packet is encrypted with (3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parity {
    Even,
    Odd,
}

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    Data {
        sequence: u32,
        /// `None`: not encrypted. `Err`: bits that only control packets have.
        parity: Result<Option<Parity>, ()>,
        is_repeat: bool,
        timestamp: u32,
    },
    Control {
        kind: u16,
        subtype: u16,
        /// Depends on the type.
        info: u32,
        timestamp: u32,
    },
}

/// The word at the byte `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// The socket that a datagram is for; 0 for a handshake. `None`: no SRT.
pub fn destination(datagram: &[u8]) -> Option<u32> {
    word(datagram, 12)
}

impl Header {
    /// Reads the header; `None` if the datagram is too short.
    pub(super) fn parse(datagram: &[u8]) -> Option<Self> {
        let (first, info) = (word(datagram, 0)?, word(datagram, 4)?);
        let timestamp = word(datagram, 8)?;
        destination(datagram)?;
        if first & CONTROL != 0 {
            let (kind, subtype) = ((first >> 16) as u16 & 0x7fff, first as u16);
            return Some(Self::Control { kind, subtype, info, timestamp });
        }
        let parity = match info >> 27 & 3 {
            0 => Ok(None),
            1 => Ok(Some(Parity::Even)),
            2 => Ok(Some(Parity::Odd)),
            _ => Err(()),
        };
        Some(Self::Data { sequence: first, parity, is_repeat: info >> 26 & 1 == 1, timestamp })
    }
}

/// A control packet.
pub(super) fn control(
    kind: u16,
    subtype: u16,
    info: u32,
    timestamp: u32,
    to: u32,
    content: &[u32],
) -> Vec<u8> {
    let first = CONTROL | u32::from(kind) << 16 | u32::from(subtype);
    [first, info, timestamp, to].iter().chain(content).flat_map(|word| word.to_be_bytes()).collect()
}

/// How far `to` is ahead of `from`; negative behind it.
pub(super) fn distance(from: u32, to: u32) -> i64 {
    let ahead = i64::from(to.wrapping_sub(from) & SEQUENCE);
    if ahead > i64::from(SEQUENCE / 2) { ahead - i64::from(SEQUENCE) - 1 } else { ahead }
}

/// The sequence number `steps` after `from`.
pub(super) fn after(from: u32, steps: usize) -> u32 {
    from.wrapping_add(steps as u32) & SEQUENCE
}

/// Appends a run of lost packets to a report.
pub(super) fn push_run(words: &mut Vec<u32>, first: u32, last: u32) {
    if first == last {
        words.push(first);
    } else {
        words.extend([first | RANGE, last]);
    }
}

/// Bytes as big-endian words; a rest is filled with zeros.
pub(super) fn to_words(bytes: &[u8]) -> Vec<u32> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().div_ceil(4) * 4, 0);
    padded.chunks_exact(4).filter_map(|chunk| word(chunk, 0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read() {
        let data = [0x12u32, 0xe400_0001 | 1 << 27, 77, 9].map(u32::to_be_bytes).concat();
        let header = Header::parse(&data);
        let parity = Ok(Some(Parity::Even));
        assert_eq!(header, Some(Header::Data { sequence: 0x12, parity, is_repeat: true, timestamp: 77 }));
        assert_eq!(destination(&data), Some(9));
        let written = control(EXTENSION, 3, 5, 6, 7, &[8]);
        let header = Header::parse(&written);
        assert_eq!(header, Some(Header::Control { kind: EXTENSION, subtype: 3, info: 5, timestamp: 6 }));
        assert_eq!((destination(&written), word(&written, HEADER_BYTES)), (Some(7), Some(8)));
        for end in 0..HEADER_BYTES {
            assert_eq!(Header::parse(&written[..end]), None, "{end}");
        }
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert_eq!(distance(SEQUENCE, 0), 1);
        assert_eq!(distance(0, SEQUENCE), -1);
        assert_eq!(distance(5, 5), 0);
        assert_eq!(after(SEQUENCE, 2), 1);
        assert_eq!(distance(0, SEQUENCE / 2), i64::from(SEQUENCE / 2));
        assert_eq!(to_words(b"\0\0\x01\0\x02"), [256, 0x0200_0000]);
    }
}
