//! AV1CodecConfigurationRecord (AV1 in ISO base media, 2.3), temporal units and the temporal delimiter.

use bytes::{Buf, Bytes};
use shiguredo_mp4::bitstream::av1::{decode_leb128, parse_frame_header_prefix, parse_sequence_header};

use super::{BitReader, CodecError, take_array};

/// Types of OBUs (AV1 bitstream, 6.2.2).
const OBU_SEQUENCE_HEADER: u8 = 1;
const OBU_TEMPORAL_DELIMITER: u8 = 2;
const OBU_FRAME_HEADER: u8 = 3;
const OBU_FRAME: u8 = 6;
const OBU_PADDING: u8 = 15;

/// av1C body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Av1Config<'a> {
    /// Sequence profile, 0 to 7.
    pub profile: u8,
    /// Sequence level index, 0 to 31.
    pub level: u8,
    /// High tier.
    pub high_tier: bool,
    /// Bits per sample: 8, 10 or 12.
    pub bit_depth: u8,
    /// No chroma.
    pub monochrome: bool,
    /// Chroma subsampling in x.
    pub subsampling_x: bool,
    /// Chroma subsampling in y.
    pub subsampling_y: bool,
    /// Chroma sample position, 0 to 3.
    pub sample_position: u8,
    /// The OBUs after the four header bytes, usually one sequence header; not parsed.
    pub config_obus: &'a [u8],
}

impl<'a> Av1Config<'a> {
    /// Reads an av1C body.
    ///
    /// # Errors
    /// Any [`CodecError`].
    pub fn parse(record: &'a [u8]) -> Result<Self, CodecError> {
        let mut rest = record;
        let [marker, profile, flags, _delay] = take_array(&mut rest)?;
        if marker != 0x81 {
            return Err(CodecError::Version(marker));
        }
        let bit_depth = match (flags & 0x40 != 0, flags & 0x20 != 0) {
            (true, true) => 12,
            (true, false) => 10,
            (false, _) => 8,
        };
        Ok(Av1Config {
            profile: profile >> 5,
            level: profile & 0x1f,
            high_tier: flags & 0x80 != 0,
            bit_depth,
            monochrome: flags & 0x10 != 0,
            subsampling_x: flags & 0x08 != 0,
            subsampling_y: flags & 0x04 != 0,
            sample_position: flags & 0x03,
            config_obus: rest,
        })
    }
}

/// The av1C body of a sequence header, an OBU with its size.
///
/// # Errors
/// [`CodecError::Field`] when it is not one.
pub(crate) fn record(sequence_header: &[u8]) -> Result<Vec<u8>, CodecError> {
    let broken = CodecError::Field("sequence header");
    let has_size = sequence_header.first().is_some_and(|header| header & 2 != 0);
    let obu = Obu::first(sequence_header).filter(|obu| has_size && obu.whole.len() == sequence_header.len());
    let obu = obu.filter(|obu| obu.kind == OBU_SEQUENCE_HEADER).ok_or(broken)?;
    let header = parse_sequence_header(obu.payload).map_err(|_| broken)?;
    let flags = [
        header.seq_tier_0 != 0,
        header.high_bitdepth,
        header.twelve_bit,
        header.monochrome,
        header.chroma_subsampling_x != 0,
        header.chroma_subsampling_y != 0,
    ];
    let flags = flags.into_iter().fold(0, |bits, flag| bits << 1 | u8::from(flag));
    let fields = [
        0x81,
        header.seq_profile << 5 | header.seq_level_idx_0,
        flags << 2 | header.chroma_sample_position,
        // No delay of the presentation is told.
        0,
    ];
    Ok([&fields[..], sequence_header].concat())
}

/// One OBU (AV1 bitstream, 5.3).
#[derive(Debug, Clone, Copy)]
struct Obu<'a> {
    kind: u8,
    /// With its header and size.
    whole: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Obu<'a> {
    /// The first OBU of `bytes`; one without a size extends to their end.
    fn first(bytes: &'a [u8]) -> Option<Self> {
        let header = *bytes.first()?;
        if header & 0x80 != 0 {
            return None;
        }
        let mut start = 1 + usize::from(header & 4 != 0);
        let mut end = bytes.len();
        if header & 2 != 0 {
            let (size, read) = decode_leb128(bytes.get(start..)?).ok()?;
            start += read;
            end = start.checked_add(usize::try_from(size).ok()?)?;
        }
        Some(Obu { kind: (header >> 3) & 0xf, whole: bytes.get(..end)?, payload: bytes.get(start..end)? })
    }
}

/// A temporal unit as a sample of ISO base media (AV1 in ISO base media, 2.4).
#[derive(Debug)]
pub(crate) struct TemporalUnit<'a> {
    /// Its OBUs without delimiters and padding; empty if it has no frame.
    pub(crate) sample: Vec<u8>,
    /// The sequence header in front of its first frame, an OBU.
    pub(crate) sequence_header: Option<&'a [u8]>,
    /// Decoding can start here: it has a sequence header, and shows a key frame first.
    pub(crate) keyframe: bool,
}

impl<'a> TemporalUnit<'a> {
    /// Reads a temporal unit; `None` if it is broken, or has two different sequence headers in front. The OBUs are not
    /// collected: a sender can make millions of them.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let sample = Vec::with_capacity(bytes.len());
        let mut unit = TemporalUnit { sample, sequence_header: None, keyframe: false };
        let mut has_frame = false;
        let mut rest = bytes;
        while !rest.is_empty() {
            let obu = Obu::first(rest)?;
            rest = &rest[obu.whole.len()..];
            match obu.kind {
                OBU_TEMPORAL_DELIMITER | OBU_PADDING => continue,
                OBU_SEQUENCE_HEADER if !has_frame => {
                    if unit.sequence_header.is_some_and(|header| header != obu.whole) {
                        return None;
                    }
                    unit.sequence_header = Some(obu.whole);
                }
                OBU_FRAME | OBU_FRAME_HEADER if !has_frame => {
                    has_frame = true;
                    unit.keyframe = unit.starts_with(obu.payload).unwrap_or(false);
                }
                _ => {}
            }
            unit.sample.extend_from_slice(obu.whole);
        }
        if !has_frame {
            unit.sample.clear();
        }
        Some(unit)
    }

    /// Whether decoding can start with this frame; `None` if that cannot be told.
    fn starts_with(&self, frame: &[u8]) -> Option<bool> {
        let header = parse_sequence_header(Obu::first(self.sequence_header?)?.payload).ok()?;
        Some(parse_frame_header_prefix(frame, &header).ok()?.is_rap())
    }
}

/// Transfer characteristics in the payload of a sequence header OBU (AV1 bitstream, 5.5); `None` if absent.
pub fn transfer(sequence_header: &[u8]) -> Option<u32> {
    let mut bits = BitReader::plain(sequence_header);
    let profile = bits.bits(3).ok()?;
    before_colour(&mut bits).ok()?;
    colour_transfer(&mut bits, profile).ok().flatten()
}

/// Reads from the still picture flag to the flags before color_config (5.5.1).
fn before_colour(bits: &mut BitReader<'_>) -> Result<(), CodecError> {
    bits.skip(1)?;
    let reduced = bits.flag()?;
    if reduced {
        bits.skip(5)?;
    } else {
        operating_points(bits)?;
    }
    let (width_bits, height_bits) = (bits.bits(4)? + 1, bits.bits(4)? + 1);
    bits.skip(width_bits + height_bits)?;
    if !reduced && bits.flag()? {
        bits.skip(7)?;
    }
    bits.skip(3)?;
    if !reduced {
        bits.skip(4)?;
        let order_hint = bits.flag()?;
        bits.skip(if order_hint { 2 } else { 0 })?;
        let screen_content = bits.flag()? || bits.flag()?;
        if screen_content && !bits.flag()? {
            bits.skip(1)?;
        }
        bits.skip(if order_hint { 3 } else { 0 })?;
    }
    bits.skip(3)
}

fn operating_points(bits: &mut BitReader<'_>) -> Result<(), CodecError> {
    let mut delay_bits = None;
    if bits.flag()? {
        bits.skip(64)?;
        if bits.flag()? {
            skip_uvlc(bits)?;
        }
        if bits.flag()? {
            delay_bits = Some(bits.bits(5)? + 1);
            bits.skip(42)?;
        }
    }
    let display_delay = bits.flag()?;
    for _ in 0..=bits.bits(5)? {
        bits.skip(12)?;
        if bits.bits(5)? > 7 {
            bits.skip(1)?;
        }
        if let Some(delay_bits) = delay_bits
            && bits.flag()?
        {
            bits.skip(2 * delay_bits + 1)?;
        }
        if display_delay && bits.flag()? {
            bits.skip(4)?;
        }
    }
    Ok(())
}

/// uvlc (4.10.3): as many value bits as leading zeros; no value bits after 32 zeros.
fn skip_uvlc(bits: &mut BitReader<'_>) -> Result<(), CodecError> {
    let mut zeros = 0;
    while !bits.flag()? {
        zeros += 1;
    }
    bits.skip(if zeros < 32 { zeros } else { 0 })
}

/// color_config (5.5.2) up to the transfer characteristics.
fn colour_transfer(bits: &mut BitReader<'_>, profile: u32) -> Result<Option<u32>, CodecError> {
    let high_depth = bits.flag()?;
    if profile == 2 && high_depth {
        bits.skip(1)?;
    }
    if profile != 1 {
        bits.skip(1)?;
    }
    if !bits.flag()? {
        return Ok(None);
    }
    bits.skip(8)?;
    bits.bits(8).map(Some)
}

/// Removes temporal delimiters from the front of a temporal unit, as ISO base media and Enhanced RTMP require.
pub fn strip_temporal_delimiter(mut unit: Bytes) -> Bytes {
    while let Some(bytes) = delimiter_bytes(&unit) {
        unit.advance(bytes);
    }
    unit
}

/// Length of the temporal delimiter OBU at the front, if there is one with an empty body.
fn delimiter_bytes(unit: &[u8]) -> Option<usize> {
    let obu = Obu::first(unit)?;
    (obu.kind == OBU_TEMPORAL_DELIMITER && obu.payload.is_empty()).then_some(obu.whole.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fmp4::tests::{AV1, AV1_PQ};
    use crate::testing::hex;

    #[test]
    fn delimiters_are_removed_at_the_front_only() {
        let table: [(&[u8], &[u8]); 7] = [
            (&[0x12, 0, 0x0a, 1, 9], &[0x0a, 1, 9]),
            (&[0x12, 0, 0x12, 0, 0x32, 0], &[0x32, 0]),
            (&[0x16, 0x20, 0, 0x32], &[0x32]),
            (&[0x10], &[]),
            (&[0x12], &[0x12]),
            (&[0x32, 1, 0x12, 0], &[0x32, 1, 0x12, 0]),
            (&[], &[]),
        ];
        for (unit, expected) in table {
            assert_eq!(strip_temporal_delimiter(Bytes::from_static(unit)), expected, "{unit:?}");
        }
    }

    #[test]
    fn record_fields_are_read() {
        let config = Av1Config::parse(&[0x81, 0x05, 0x0c, 0x00, 0x0a, 0x01]).expect("valid");
        assert_eq!((config.profile, config.level, config.bit_depth), (0, 5, 8));
        assert_eq!((config.subsampling_x, config.subsampling_y, config.monochrome), (true, true, false));
        assert_eq!(config.config_obus, [0x0a, 0x01]);
        let deep = Av1Config::parse(&[0x81, 0x4c, 0xf1, 0x00]).expect("valid");
        assert_eq!((deep.profile, deep.level, deep.bit_depth), (2, 12, 12));
        assert_eq!((deep.high_tier, deep.monochrome, deep.sample_position), (true, true, 1));
        assert_eq!(Av1Config::parse(&[0x81, 0, 0x40, 0]).map(|config| config.bit_depth), Ok(10));
    }

    #[test]
    fn a_record_is_made_of_a_sequence_header() {
        for record_of_encoder in [AV1, AV1_PQ] {
            let wanted = hex(record_of_encoder);
            assert_eq!(record(&wanted[4..]), Ok(wanted.clone()), "{record_of_encoder}");
            for end in 4..wanted.len() {
                assert!(record(&wanted[4..end]).is_err(), "{end}");
            }
            assert!(record(&[&wanted[4..], &wanted[4..]].concat()).is_err(), "two headers");
        }
    }

    #[test]
    fn a_temporal_unit_is_read_without_delimiters_and_padding() {
        let sequence = &hex(AV1)[4..];
        let (delimiter, padding) = ([0x12, 0], [0x7a, 1, 0x80]);
        // Frames that are shown: a key frame, another one, a key frame that is kept for later, and one that was kept.
        let [key, inter, hidden, kept] = [0x10, 0x30, 0x00, 0x88].map(|first| [0x32, 2, first, 7]);
        for (obus, wanted, keyframe) in [
            (vec![&delimiter[..], sequence, &key, &padding], [sequence, &key].concat(), true),
            (vec![&delimiter, &inter], inter.to_vec(), false),
            (vec![sequence, &inter, &key], [sequence, &inter, &key].concat(), false),
            (vec![sequence, &hidden], [sequence, &hidden].concat(), false),
            (vec![sequence, &kept], [sequence, &kept].concat(), false),
            (vec![&key], key.to_vec(), false),
            (vec![sequence, sequence, &key], [sequence, sequence, &key].concat(), true),
            (vec![sequence, &padding], vec![], false),
            (vec![&delimiter], vec![], false),
            (vec![sequence, &[0x30, 0x10, 7]], [sequence, &[0x30, 0x10, 7]].concat(), true),
        ] {
            let bytes = obus.concat();
            let unit = TemporalUnit::read(&bytes).expect("a unit");
            assert_eq!((&unit.sample, unit.keyframe), (&wanted, keyframe), "{bytes:02x?}");
            assert_eq!(unit.sequence_header, obus.contains(&sequence).then_some(sequence));
        }
        let behind = [&key[..], sequence].concat();
        let unit = TemporalUnit::read(&behind).expect("a unit");
        assert_eq!((unit.sequence_header, unit.keyframe), (None, false), "the header is behind the frame");
        let two = [sequence, &hex(AV1_PQ)[4..], &key].concat();
        for broken in [&two[..], &[0x32, 9, 1], &[0x80], &[0x32]] {
            assert!(TemporalUnit::read(broken).is_none(), "{broken:02x?}");
        }
    }

    #[test]
    fn broken_records_are_refused() {
        for end in 0..4 {
            assert_eq!(Av1Config::parse(&[0x81, 5, 0, 0][..end]), Err(CodecError::Truncated));
        }
        assert_eq!(Av1Config::parse(&[1, 5, 0, 0]), Err(CodecError::Version(1)));
    }
}
