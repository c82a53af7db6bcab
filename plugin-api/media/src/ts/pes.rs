//! PES packets (table 2-21): put together from transport stream packets, and their headers.

use super::time::stamp;

/// Bytes up to the length field, which counts the rest.
const START_BYTES: usize = 6;
/// Bytes up to the optional fields.
const FIXED_BYTES: usize = 9;
/// Bytes of one timestamp.
const STAMP_BYTES: usize = 5;
/// stream_id (table 2-22) of video, of MPEG audio, and of the private stream that carries Opus.
pub(super) const ID_VIDEO: u8 = 0xe0;
pub(super) const ID_AUDIO: u8 = 0xc0;
pub(super) const ID_PRIVATE: u8 = 0xbd;
/// stream_id of the headers without optional fields: program stream map, padding, private stream 2, ECM, EMM, program
/// stream directory, DSM-CC, H.222.1 type E.
const IDS_WITHOUT_FIELDS: [u8; 8] = [0xbc, 0xbe, 0xbf, 0xf0, 0xf1, 0xff, 0xf2, 0xf8];

/// The header of a PES packet, as far as it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Timestamps of 33 bits; the decode time is the one of presentation if it is not sent.
    pub(super) stamps: Option<Stamps>,
    /// Where the payload begins.
    pub(super) payload_at: usize,
}

/// Presentation and decode timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamps {
    pub(super) pts: u64,
    pub(super) dts: u64,
}

impl Header {
    /// Reads a header. `None` if it is cut off, scrambled, or no header of a stream.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<FIXED_BYTES>()?;
        let is_stream = head[..3] == [0, 0, 1] && !IDS_WITHOUT_FIELDS.contains(&head[3]);
        // Two fixed bits, then two that say that it is not scrambled.
        if !is_stream || head[6] & 0xf0 != 0x80 {
            return None;
        }
        let payload_at = FIXED_BYTES + usize::from(head[8]);
        let mut fields = bytes.get(FIXED_BYTES..payload_at)?;
        let stamps = match head[7] >> 6 {
            2 => {
                let pts = take_stamp(&mut fields)?;
                Some(Stamps { pts, dts: pts })
            }
            3 => Some(Stamps { pts: take_stamp(&mut fields)?, dts: take_stamp(&mut fields)? }),
            _ => None,
        };
        Some(Header { stamps, payload_at })
    }
}

fn take_stamp(fields: &mut &[u8]) -> Option<u64> {
    let (bytes, rest) = fields.split_first_chunk::<STAMP_BYTES>()?;
    *fields = rest;
    let [high, middle, low] = [bytes[0], bytes[2], bytes[4]].map(|byte| u64::from(byte >> 1));
    Some((high & 7) << 30 | u64::from(bytes[1]) << 22 | middle << 15 | u64::from(bytes[3]) << 7 | low)
}

/// Appends a header without its length; [`close`] writes it. Both times are in ticks.
pub(super) fn open(out: &mut Vec<u8>, stream_id: u8, pts: i64, dts: i64) {
    let both = pts != dts;
    let fields = if both { 2 * STAMP_BYTES } else { STAMP_BYTES };
    // data_alignment_indicator: an access unit begins here.
    let flags = if both { 0xc0 } else { 0x80 };
    out.extend_from_slice(&[0, 0, 1, stream_id, 0, 0, 0x84, flags, fields as u8]);
    push_stamp(out, if both { 3 } else { 2 }, pts);
    if both {
        push_stamp(out, 1, dts);
    }
}

fn push_stamp(out: &mut Vec<u8>, prefix: u8, ticks: i64) {
    let stamp = stamp(ticks);
    let high = (stamp >> 29) as u8 & 0x0e;
    let [middle, low] = [stamp >> 15, stamp].map(|part| (part as u16) << 1 | 1);
    out.push(prefix << 4 | high | 1);
    out.extend_from_slice(&middle.to_be_bytes());
    out.extend_from_slice(&low.to_be_bytes());
}

/// Writes the length of the PES packet `bytes`. Longer ones, which only video may have, keep 0.
pub(super) fn close(bytes: &mut [u8]) {
    let Some(length) = bytes.len().checked_sub(START_BYTES) else { return };
    let length = u16::try_from(length).unwrap_or(0);
    bytes[START_BYTES - 2..START_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// One PES packet that is being put together.
#[derive(Debug)]
pub(super) struct Assembler {
    bytes: Vec<u8>,
    /// A start was seen, and nothing is lost since.
    is_open: bool,
    bytes_max: usize,
}

/// State after a packet was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    /// More has to come, or the start is missing.
    Open,
    /// The PES packet is complete by its length.
    Complete,
    /// It was longer than the limit, and is dropped.
    TooLong,
}

impl Assembler {
    pub(super) fn new(bytes_max: usize) -> Self {
        Assembler { bytes: Vec::new(), is_open: false, bytes_max }
    }

    /// Begins a PES packet.
    pub(super) fn begin(&mut self) {
        self.bytes.clear();
        self.is_open = true;
    }

    /// Adds the payload of a packet.
    pub(super) fn add(&mut self, payload: &[u8]) -> Added {
        if !self.is_open {
            return Added::Open;
        }
        if self.bytes.len() + payload.len() > self.bytes_max {
            self.clear();
            return Added::TooLong;
        }
        self.bytes.extend_from_slice(payload);
        if self.length().is_some_and(|length| self.bytes.len() >= length) {
            Added::Complete
        } else {
            Added::Open
        }
    }

    /// Whether the newest packet had this payload. After the end of a PES packet that cannot be known, and is assumed.
    pub(super) fn is_repeat(&self, payload: &[u8]) -> bool {
        !self.is_open || self.bytes.ends_with(payload)
    }

    /// The bytes of the open PES packet, if it is complete or has no length.
    pub(super) fn whole(&self) -> Option<&[u8]> {
        match self.length() {
            _ if !self.is_open => None,
            Some(length) => self.bytes.get(..length),
            None => (self.bytes.len() >= START_BYTES).then_some(&self.bytes[..]),
        }
    }

    /// An open PES packet has bytes.
    pub(super) fn is_begun(&self) -> bool {
        self.is_open && !self.bytes.is_empty()
    }

    /// Drops the open PES packet and keeps its memory for the next one.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.is_open = false;
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of the whole PES packet, if its header says so.
    fn length(&self) -> Option<usize> {
        let head = self.bytes.first_chunk::<START_BYTES>()?;
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        (length > 0).then_some(START_BYTES + length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pts: i64, dts: i64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        open(&mut bytes, ID_VIDEO, pts, dts);
        bytes.extend_from_slice(payload);
        close(&mut bytes);
        bytes
    }

    #[test]
    fn written_headers_are_read() {
        let top = (1 << 33) - 1;
        for (pts, dts) in
            [(0, 0), (3003, 0), (top, top - 1), (0x1_5555_5555, 0x0_aaaa_aaaa), (5, top), (1 << 32, 1)]
        {
            let bytes = written(pts, dts, &[7; 9]);
            let header = Header::parse(&bytes).expect("a header");
            assert_eq!(header.stamps, Some(Stamps { pts: pts as u64, dts: dts as u64 }), "{pts} {dts}");
            assert_eq!(bytes[header.payload_at..], [7; 9]);
            assert_eq!(usize::from(u16::from_be_bytes([bytes[4], bytes[5]])), bytes.len() - 6);
        }
        // The bits of the standard: PTS of 2^33 - 1 alone, with its marker bits.
        assert_eq!(written(top, top, &[])[9..], [0x2f, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(written(-1, 0, &[])[9..], [0x3f, 0xff, 0xff, 0xff, 0xff, 0x11, 0, 1, 0, 1]);
        assert_eq!(written(0, 0, &vec![7; 1 << 16])[4..6], [0, 0]);
    }

    #[test]
    fn headers_that_are_cut_off_scrambled_or_of_no_stream_are_refused() {
        let bytes = written(9, 5, &[]);
        for end in 0..bytes.len() {
            assert_eq!(Header::parse(&bytes[..end]), None, "cut at {end}");
        }
        let with = |index: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[index] = byte;
            Header::parse(&bytes)
        };
        assert_eq!([with(0, 1), with(2, 0), with(3, 0xbe), with(6, 0x90), with(6, 0x44)], [None; 5]);
        // Both timestamps are announced, and there is room for one.
        assert_eq!(with(8, 5), None);
        assert_eq!(with(7, 0x00), Some(Header { stamps: None, payload_at: bytes.len() }));
    }

    #[test]
    fn packets_are_put_together_up_to_their_length_or_the_next_start() {
        let bytes = written(9, 9, &[7; 30]);
        let mut pes = Assembler::new(1000);
        assert_eq!(pes.add(&bytes), Added::Open, "without a start");
        assert_eq!((pes.whole(), pes.is_begun()), (None, false));
        pes.begin();
        assert_eq!((pes.add(&bytes[..4]), pes.whole()), (Added::Open, None));
        assert!(pes.is_repeat(&bytes[2..4]) && !pes.is_repeat(&bytes[5..9]));
        assert_eq!(pes.add(&bytes[4..]), Added::Complete);
        assert_eq!(pes.whole(), Some(&bytes[..]));
        pes.clear();
        assert!(pes.is_repeat(&[1, 2]), "nothing is known");
        // Stuffing behind the end is left out.
        pes.begin();
        assert_eq!(pes.add(&[&bytes[..], &[0xff; 9]].concat()), Added::Complete);
        assert_eq!(pes.whole(), Some(&bytes[..]));
        // Without a length the next start ends it.
        let mut endless = bytes.clone();
        endless[4..6].fill(0);
        pes.begin();
        assert_eq!((pes.add(&endless), pes.whole()), (Added::Open, Some(&endless[..])));
        assert_eq!(pes.add(&[0; 1000]), Added::TooLong);
        assert_eq!((pes.held_bytes(), pes.whole()), (0, None));
        assert_eq!(pes.add(&[0; 10]), Added::Open);
        assert_eq!(pes.held_bytes(), 0);
    }
}
