//! AudioSpecificConfig (ISO/IEC 14496-3, 1.6.2.1).

use super::{BitReader, CodecError};

const SAMPLE_RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350];

/// Channels by channel configuration; 0 stands for "described in the bitstream".
const CHANNELS: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 8, 0, 0, 0, 7, 8, 24, 8, 0];

/// Spectral band replication.
const OBJECT_SBR: u8 = 5;
/// Parametric stereo.
const OBJECT_PS: u8 = 29;

/// Object types whose GASpecificConfig has the frame length (ISO/IEC 14496-3, 4.4.1): AAC Main, LC, SSR,
/// LTP.
const OBJECTS_WITH_FRAME_LENGTH: std::ops::RangeInclusive<u8> = 1..=4;

/// The start of an AudioSpecificConfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AacConfig {
    /// Audio object type at the start of the record, as codec strings name it: 5 is HE-AAC, 29 HE-AAC v2,
    /// else equal to `object_type`.
    pub signalled_type: u8,
    /// Audio object type of the core: 2 is AAC-LC.
    pub object_type: u8,
    /// Sample rate of the core in hertz.
    pub sample_rate: u32,
    /// Channel configuration (ISO/IEC 14496-3, table 1.19), 0 to 15.
    pub channel_configuration: u8,
    /// Channels of the core, or 0 if only the bitstream has the number.
    pub channels: u8,
    /// Output sample rate in hertz when spectral band replication is signalled at the start (HE-AAC).
    pub extension_sample_rate: Option<u32>,
    /// Samples of the core in one access unit: 960 if the record has the short frame length, otherwise 1024.
    pub frame_samples: u32,
}

impl AacConfig {
    /// Reads the fixed start of an AudioSpecificConfig and the frame length; later extensions are not read.
    ///
    /// # Errors
    /// [`CodecError::Truncated`] or [`CodecError::Field`].
    pub fn parse(record: &[u8]) -> Result<Self, CodecError> {
        Self::read(&mut BitReader::plain(record))
    }

    /// Reads the same fields, and leaves `bits` after the frame length flag.
    pub(crate) fn read(bits: &mut BitReader<'_>) -> Result<Self, CodecError> {
        let mut object_type = object_type(bits)?;
        let signalled_type = object_type;
        let sample_rate = sample_rate(bits)?;
        let channel_configuration = bits.bits(4)? as u8;
        let mut extension_sample_rate = None;
        if object_type == OBJECT_SBR || object_type == OBJECT_PS {
            extension_sample_rate = Some(self::sample_rate(bits)?);
            object_type = self::object_type(bits)?;
        }
        if object_type == 0 {
            return Err(CodecError::Field("audio object type"));
        }
        // A record that ends before the flag is read as most decoders read it: the usual length.
        let short = OBJECTS_WITH_FRAME_LENGTH.contains(&object_type) && bits.flag().unwrap_or(false);
        let frame_samples = if short { 960 } else { 1024 };
        Ok(AacConfig {
            signalled_type,
            object_type,
            sample_rate,
            channel_configuration,
            channels: CHANNELS[usize::from(channel_configuration)],
            extension_sample_rate,
            frame_samples,
        })
    }

    /// Index of the sample rate (ISO/IEC 14496-3, table 1.18); `None` for a rate that is not in the table.
    pub(crate) fn rate_index(&self) -> Option<u8> {
        SAMPLE_RATES.iter().position(|rate| *rate == self.sample_rate).map(|index| index as u8)
    }
}

fn object_type(bits: &mut BitReader<'_>) -> Result<u8, CodecError> {
    let value = match bits.bits(5)? {
        31 => 32 + bits.bits(6)?,
        value => value,
    };
    Ok(value as u8)
}

fn sample_rate(bits: &mut BitReader<'_>) -> Result<u32, CodecError> {
    let rate = match bits.bits(4)? {
        15 => bits.bits(24)?,
        index => SAMPLE_RATES.get(index as usize).copied().unwrap_or(0),
    };
    if rate == 0 { Err(CodecError::Field("sample rate")) } else { Ok(rate) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_records_are_read() {
        let config = |object_type, sample_rate, channels, extension_sample_rate: Option<u32>| {
            let signalled_type = if extension_sample_rate.is_some() { 5 } else { object_type };
            Ok(AacConfig {
                signalled_type,
                object_type,
                sample_rate,
                channel_configuration: channels,
                channels,
                extension_sample_rate,
                frame_samples: 1024,
            })
        };
        assert_eq!(AacConfig::parse(&[0x11, 0x90]), config(2, 48_000, 2, None));
        assert_eq!(AacConfig::parse(&[0x12, 0x10, 0x56, 0xe5, 0x00]), config(2, 44_100, 2, None));
        // HE-AAC: object type 5, 24 kHz, stereo, 48 kHz, then AAC-LC.
        assert_eq!(AacConfig::parse(&[0x2b, 0x11, 0x88, 0x00]), config(2, 24_000, 2, Some(48_000)));
        // Explicit rate 0x00bb80 = 48,000 and 5.1 channels.
        assert_eq!(AacConfig::parse(&[0x17, 0x80, 0x5d, 0xc0, 0x30]), config(2, 48_000, 6, None));
        // Frame length flag set.
        assert_eq!(AacConfig::parse(&[0x11, 0x94]).map(|config| config.frame_samples), Ok(960));
        assert_eq!(
            AacConfig::parse(&[0x11, 0xb8]).map(|config| (config.channel_configuration, config.channels)),
            Ok((7, 8))
        );
        let index = |record: &[u8]| AacConfig::parse(record).map(|config| config.rate_index());
        assert_eq!([index(&[0x11, 0x90]), index(&[0x17, 0x80, 0x5d, 0xc0, 0x30])], [Ok(Some(3)); 2]);
        assert_eq!(index(&[0x17, 0x80, 0x5d, 0xc8, 0x30]), Ok(None));
        // Object type by escape: 31, 10 = 42 (USAC).
        assert_eq!(AacConfig::parse(&[0xf9, 0x46, 0x40]).map(|config| config.object_type), Ok(42));
    }

    #[test]
    fn broken_records_are_refused() {
        for record in [&[][..], &[0x11], &[0x2b, 0x11], &[0x17, 0x80, 0x5d]] {
            assert_eq!(AacConfig::parse(record), Err(CodecError::Truncated), "{record:?}");
        }
        assert_eq!(AacConfig::parse(&[0x16, 0x90]), Err(CodecError::Field("sample rate")));
        assert_eq!(AacConfig::parse(&[0x01, 0x90]), Err(CodecError::Field("audio object type")));
    }
}
