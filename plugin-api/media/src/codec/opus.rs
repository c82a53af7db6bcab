//! OpusHead, the Opus identification header (RFC 7845, 5.1).

use super::{CodecError, take, take_array};

/// Rate at which Opus counts samples, in hertz (RFC 7845, section 4).
pub const SAMPLE_RATE: u32 = 48_000;

/// OpusHead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpusConfig<'a> {
    /// Output channels, 1 to 255.
    pub channels: u8,
    /// Samples at 48 kHz to drop at the start.
    pub pre_skip: u16,
    /// Sample rate before encoding in hertz, for information; 0 is unknown.
    pub input_sample_rate: u32,
    /// Gain in 1/256 dB.
    pub output_gain: i16,
    /// Channel mapping family.
    pub mapping_family: u8,
    /// Stream count, coupled count and channel mapping; empty for family 0.
    pub mapping: &'a [u8],
}

impl<'a> OpusConfig<'a> {
    /// Reads an OpusHead with its magic.
    ///
    /// # Errors
    /// Any [`CodecError`].
    pub fn parse(record: &'a [u8]) -> Result<Self, CodecError> {
        let mut rest = record;
        if take_array(&mut rest)? != *b"OpusHead" {
            return Err(CodecError::Field("magic"));
        }
        let [version, channels] = take_array(&mut rest)?;
        // Only the high four bits are incompatible changes.
        if version >> 4 != 0 {
            return Err(CodecError::Version(version));
        }
        if channels == 0 {
            return Err(CodecError::Field("channel count"));
        }
        let pre_skip = u16::from_le_bytes(take_array(&mut rest)?);
        let input_sample_rate = u32::from_le_bytes(take_array(&mut rest)?);
        let output_gain = i16::from_le_bytes(take_array(&mut rest)?);
        let [mapping_family] = take_array(&mut rest)?;
        let mapping = match mapping_family {
            0 if channels > 2 => return Err(CodecError::Field("channel count")),
            0 => &[],
            _ => take(&mut rest, 2 + usize::from(channels))?,
        };
        Ok(OpusConfig { channels, pre_skip, input_sample_rate, output_gain, mapping_family, mapping })
    }
}

/// Writes an OpusHead without a gain, for media whose rate before encoding is not known. `mapping` is empty for family 0,
/// and otherwise stream count, coupled count and the mapping of each channel.
pub fn head(channels: u8, pre_skip: u16, family: u8, mapping: &[u8]) -> Vec<u8> {
    let [skip_low, skip_high] = pre_skip.to_le_bytes();
    let rate = SAMPLE_RATE.to_le_bytes();
    let fields = [1, channels, skip_low, skip_high, rate[0], rate[1], rate[2], rate[3], 0, 0, family];
    [&b"OpusHead"[..], &fields, mapping].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEREO: &[u8] = b"OpusHead\x01\x02\x38\x01\x80\xbb\x00\x00\xff\xff\x00";

    #[test]
    fn a_stereo_header_is_read() {
        let config = OpusConfig::parse(STEREO).expect("valid");
        assert_eq!((config.channels, config.pre_skip, config.input_sample_rate), (2, 312, 48_000));
        assert_eq!((config.output_gain, config.mapping_family, config.mapping), (-1, 0, &[][..]));
    }

    #[test]
    fn a_surround_header_has_its_mapping() {
        let record = b"OpusHead\x01\x03\0\0\0\0\0\0\0\0\x01\x02\x01\x00\x02\x01";
        assert_eq!(OpusConfig::parse(record).map(|config| config.mapping), Ok(&[2, 1, 0, 2, 1][..]));
        for end in 0..record.len() {
            assert_eq!(OpusConfig::parse(&record[..end]), Err(CodecError::Truncated), "cut at {end}");
        }
    }

    #[test]
    fn broken_headers_are_refused() {
        let with = |index: usize, byte: u8| {
            let mut record = STEREO.to_vec();
            record[index] = byte;
            OpusConfig::parse(&record).map(|config| config.channels)
        };
        assert_eq!(with(0, b'o'), Err(CodecError::Field("magic")));
        assert_eq!(with(8, 0x10), Err(CodecError::Version(0x10)));
        assert_eq!(with(9, 0), Err(CodecError::Field("channel count")));
        assert_eq!(with(9, 3), Err(CodecError::Field("channel count")));
        assert_eq!(with(18, 1), Err(CodecError::Truncated));
        assert_eq!(with(8, 0x0f), Ok(2));
    }
}
