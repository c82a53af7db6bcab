//! LATM in LOAS (ISO/IEC 14496-3, 1.7): AAC frames whose configuration is sent in the frames.
//!
//! One program with one layer is read, as all encoders send it.

use super::adts::Framed;
use crate::codec::aac::AacConfig;
use crate::codec::{BitReader, CodecError};

/// First byte of a header: the high bits of the sync word of AudioSyncStream (1.7.2).
pub(super) const FIRST_BYTE: u8 = 0x56;
/// Bytes of the header, which its length does not count.
const HEADER_BYTES: usize = 3;
/// Object types whose configuration ends with three flags (4.4.1): AAC Main, LC, SSR, LTP.
const OBJECTS: std::ops::RangeInclusive<u8> = 1..=4;

/// Finds the length of the frame at the front.
pub(super) fn framed(bytes: &[u8]) -> Framed {
    if bytes.first() != Some(&FIRST_BYTE) {
        return Framed::Not;
    }
    let Some([_, middle, low]) = bytes.first_chunk::<HEADER_BYTES>() else { return Framed::Short };
    let total = HEADER_BYTES + usize::from(u16::from_be_bytes([middle & 0x1f, *low]));
    match total {
        _ if middle & 0xe0 != 0xe0 => Framed::Not,
        total if bytes.len() < total => Framed::Short,
        total => Framed::Whole(total),
    }
}

/// StreamMuxConfig (table 1.42).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamMux {
    /// AudioSpecificConfig.
    pub(super) record: Vec<u8>,
    /// Frames in an element after the first one.
    more_frames: u32,
}

/// Reads AudioMuxElement (table 1.41) from a whole frame. `mux` keeps the configuration for elements without one.
///
/// # Errors
/// Any [`CodecError`]; [`CodecError::Field`] for a configuration that is not read.
pub(super) fn element(mux: &mut Option<StreamMux>, frame: &[u8]) -> Result<Vec<Vec<u8>>, CodecError> {
    let mut bits = BitReader::plain(frame.get(HEADER_BYTES..).ok_or(CodecError::Truncated)?);
    let has_config = !bits.flag()?;
    if has_config {
        // The old one is of no use for what follows a configuration that cannot be read.
        *mux = None;
        *mux = Some(StreamMux::read(&mut bits)?);
    }
    let mux = mux.as_ref().ok_or(CodecError::Field("LATM element without a configuration before it"))?;
    (0..=mux.more_frames).map(|_| payload(&mut bits)).collect()
}

/// PayloadLengthInfo and PayloadMux (tables 1.44 and 1.45) of a frame.
fn payload(bits: &mut BitReader<'_>) -> Result<Vec<u8>, CodecError> {
    let mut bytes = 0;
    loop {
        let part = bits.bits(8)?;
        bytes += part as usize;
        if part != 255 {
            break;
        }
    }
    copy(bits, bytes * 8)
}

/// Copies bits to bytes; the last byte is filled with zeros.
fn copy(bits: &mut BitReader<'_>, count: usize) -> Result<Vec<u8>, CodecError> {
    if count > bits.left() {
        return Err(CodecError::Truncated);
    }
    let step = |at: usize| (count - at).min(8) as u32;
    (0..count).step_by(8).map(|at| bits.bits(step(at)).map(|byte| (byte << (8 - step(at))) as u8)).collect()
}

impl StreamMux {
    fn read(bits: &mut BitReader<'_>) -> Result<Self, CodecError> {
        let version = bits.flag()?;
        if version && bits.flag()? {
            return Err(CodecError::Field("LATM version"));
        }
        if version {
            number(bits)?;
        }
        // One time for all streams; then frames, programs and layers.
        let is_framed = bits.flag()?;
        let more_frames = bits.bits(6)?;
        let others = bits.bits(4 + 3)?;
        if !is_framed || others != 0 {
            return Err(CodecError::Field("number of LATM programs"));
        }
        let record = if version {
            let count = number(bits)? as usize;
            let record = copy(bits, count)?;
            specific_config(&mut BitReader::plain(&record))?;
            record
        } else {
            let mut end = bits.clone();
            specific_config(&mut end)?;
            let count = bits.left() - end.left();
            copy(bits, count)?
        };
        if bits.bits(3)? != 0 {
            return Err(CodecError::Field("LATM frame length type"));
        }
        // Fullness of the buffer.
        bits.skip(8)?;
        skip_other_data(bits, version)?;
        let has_crc = bits.flag()?;
        bits.skip(if has_crc { 8 } else { 0 })?;
        Ok(StreamMux { record, more_frames })
    }
}

/// The length of data that is not audio: it stands behind the frames and is not read.
fn skip_other_data(bits: &mut BitReader<'_>, version: bool) -> Result<(), CodecError> {
    if !bits.flag()? {
        return Ok(());
    }
    if version {
        return number(bits).map(drop);
    }
    loop {
        let more = bits.flag()?;
        bits.skip(8)?;
        if !more {
            return Ok(());
        }
    }
}

/// LatmGetValue (table 1.43).
fn number(bits: &mut BitReader<'_>) -> Result<u32, CodecError> {
    let bytes = bits.bits(2)? + 1;
    bits.bits(bytes * 8)
}

/// Reads AudioSpecificConfig up to the end of GASpecificConfig (4.4.1): in version 0 nothing else says how long it is.
fn specific_config(bits: &mut BitReader<'_>) -> Result<(), CodecError> {
    let config = AacConfig::read(bits)?;
    // Without a channel configuration a list of elements follows.
    if !OBJECTS.contains(&config.object_type) || config.channel_configuration == 0 {
        return Err(CodecError::Field("LATM audio object type or channels"));
    }
    let depends_on_core = bits.flag()?;
    bits.skip(if depends_on_core { 14 } else { 0 })?;
    let has_extension = bits.flag()?;
    bits.skip(u32::from(has_extension))
}

/// Writes elements for tests: no encoder of Satcast sends LATM.
#[cfg(test)]
pub(super) mod writing {
    use super::{FIRST_BYTE, HEADER_BYTES};

    /// Bits, most significant first.
    #[derive(Default)]
    struct Bits {
        bytes: Vec<u8>,
        count: usize,
    }

    impl Bits {
        fn push(&mut self, value: u32, count: u32) {
            for bit in (0..count).rev() {
                if self.count.is_multiple_of(8) {
                    self.bytes.push(0);
                }
                let last = self.bytes.len() - 1;
                self.bytes[last] |= ((value >> bit & 1) as u8) << (7 - self.count % 8);
                self.count += 1;
            }
        }
    }

    /// A frame with the configuration `record`, whose first `record_bits` count, or with the one before.
    pub(crate) fn frame(record: Option<(&[u8], u32)>, version: bool, payloads: &[&[u8]]) -> Vec<u8> {
        let mut bits = Bits::default();
        bits.push(u32::from(record.is_none()), 1);
        if let Some((record, record_bits)) = record {
            bits.push(u32::from(version), 1);
            if version {
                bits.push(0, 1);
                bits.push(0xff, 2 + 8);
            }
            bits.push(1, 1);
            bits.push(payloads.len() as u32 - 1, 6);
            bits.push(0, 7);
            if version {
                bits.push(record_bits, 2 + 8);
            }
            for bit in 0..record_bits {
                bits.push(u32::from(record[bit as usize / 8] >> (7 - bit % 8) & 1), 1);
            }
            bits.push(0xff, 3 + 8);
            // Other data of 0x102 bits, and a checksum.
            bits.push(1, 1);
            let other = if version { [(1, 2), (0x102, 16)] } else { [(0x101, 9), (0x02, 9)] };
            other.into_iter().for_each(|(value, count)| bits.push(value, count));
            bits.push(0x155, 9);
        }
        for payload in payloads {
            let full = payload.len() / 255;
            (0..full).for_each(|_| bits.push(255, 8));
            bits.push((payload.len() % 255) as u32, 8);
            payload.iter().for_each(|byte| bits.push((*byte).into(), 8));
        }
        let length = bits.bytes.len();
        [&[FIRST_BYTE, 0xe0 | (length >> 8) as u8, length as u8][..HEADER_BYTES], &bits.bytes].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::writing::frame;
    use super::*;

    const RECORD: (&[u8], u32) = (&[0x11, 0x90], 16);

    #[test]
    fn elements_of_both_versions_are_read() {
        // HE-AAC needs 25 bits: the extension before the three flags.
        let he: (&[u8], u32) = (&[0x2b, 0x11, 0x88, 0x00], 25);
        for (record, version) in [(RECORD, false), (RECORD, true), (he, false), (he, true)] {
            let lists: [&[&[u8]]; 3] = [&[&[1, 2, 3]], &[&[9; 255], &[8; 254], &[7; 700]], &[&[], &[5]]];
            for payloads in lists {
                let mut mux = None;
                let expected: Vec<Vec<u8>> = payloads.iter().map(|payload| payload.to_vec()).collect();
                let bytes = frame(Some(record), version, payloads);
                assert_eq!(framed(&bytes), Framed::Whole(bytes.len()));
                assert_eq!(element(&mut mux, &bytes).as_ref(), Ok(&expected));
                assert_eq!(mux.as_ref().map(|mux| &mux.record[..]), Some(record.0), "{version}");
                let again = frame(None, version, payloads);
                assert_eq!(element(&mut mux, &again), Ok(expected));
            }
        }
    }

    #[test]
    fn truncation_at_any_byte_is_an_error() {
        let bytes = frame(Some(RECORD), false, &[&[7; 300]]);
        for end in 0..bytes.len() {
            assert_eq!(element(&mut None, &bytes[..end]), Err(CodecError::Truncated), "cut at {end}");
            let expected = if end == 0 { Framed::Not } else { Framed::Short };
            assert_eq!(framed(&bytes[..end]), expected, "cut at {end}");
        }
    }

    #[test]
    fn elements_that_are_not_read_leave_no_configuration() {
        let mut mux = None;
        assert!(matches!(element(&mut mux, &frame(None, false, &[&[1]])), Err(CodecError::Field(_))));
        assert!(element(&mut mux, &frame(Some(RECORD), false, &[&[1]])).is_ok());
        // Object type 6, and no channel configuration.
        for record in [[0x31, 0x90], [0x11, 0x80]] {
            let bytes = frame(Some((&record, 16)), false, &[&[1]]);
            assert!(matches!(element(&mut mux, &bytes), Err(CodecError::Field(_))), "{record:?}");
            assert_eq!(mux, None);
        }
        // Version 1A; several programs.
        for body in [[0x60, 0, 0, 0], [0x20, 0x01, 0, 0]] {
            let bytes = [&[FIRST_BYTE, 0xe0, 4][..], &body].concat();
            assert!(matches!(element(&mut mux, &bytes), Err(CodecError::Field(_))), "{body:?}");
        }
        assert_eq!((framed(&[0x56, 0xc0, 0]), framed(&[0x57, 0xe0, 0])), (Framed::Not, Framed::Not));
    }

    #[test]
    fn mutated_elements_do_not_panic() {
        let mut random = crate::testing::Random::new(0x1a7);
        let good = frame(Some(RECORD), true, &[&[7; 300], &[8; 20]]);
        let mut refused = 0;
        for _ in 0..5000 {
            let mut bytes = good.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(40);
                bytes[at] = random.next() as u8;
            }
            refused += usize::from(element(&mut None, &bytes).is_err());
        }
        assert!(refused > 200, "mutation changes nothing: {refused}");
    }
}
