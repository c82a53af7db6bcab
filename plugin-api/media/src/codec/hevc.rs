//! HEVCDecoderConfigurationRecord (ISO/IEC 14496-15, 8.3.3.1) and the sequence parameter set.

use super::{BitReader, CodecError, PARAMETER_SETS_MAX, VideoSize, take_array, take_nal};

/// NAL unit type of a sequence parameter set.
pub const NAL_SPS: u8 = 33;

/// One NAL unit of the record with its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParameterSet<'a> {
    /// NAL unit type: 32 VPS, 33 SPS, 34 PPS, 39 and 40 SEI.
    pub nal_type: u8,
    /// NAL unit, header included.
    pub nal: &'a [u8],
}

/// hvcC body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HevcConfig<'a> {
    /// Profile space, 0 to 3.
    pub profile_space: u8,
    /// High tier.
    pub high_tier: bool,
    /// Profile number.
    pub profile: u8,
    /// Profile compatibility flags.
    pub compatibility: u32,
    /// The six bytes of constraint flags.
    pub constraints: [u8; 6],
    /// Level times thirty.
    pub level: u8,
    /// Bytes of each NAL unit's length prefix: 1, 2 or 4.
    pub nal_length_bytes: u8,
    /// Parameter sets in the record's order.
    pub parameter_sets: Vec<ParameterSet<'a>>,
}

impl<'a> HevcConfig<'a> {
    /// Reads an hvcC body.
    ///
    /// # Errors
    /// Any [`CodecError`].
    pub fn parse(record: &'a [u8]) -> Result<Self, CodecError> {
        let mut rest = record;
        let head: [u8; 23] = take_array(&mut rest)?;
        // Version 0 was written before the record was standardised and has the same layout.
        if head[0] > 1 {
            return Err(CodecError::Version(head[0]));
        }
        let nal_length_bytes = (head[21] & 3) + 1;
        if nal_length_bytes == 3 {
            return Err(CodecError::Field("nal length size"));
        }
        let mut parameter_sets = Vec::new();
        for _ in 0..head[22] {
            let [kind, high, low] = take_array(&mut rest)?;
            for _ in 0..u16::from_be_bytes([high, low]) {
                if parameter_sets.len() == PARAMETER_SETS_MAX {
                    return Err(CodecError::TooMany);
                }
                parameter_sets.push(ParameterSet { nal_type: kind & 0x3f, nal: take_nal(&mut rest)? });
            }
        }
        Ok(HevcConfig {
            profile_space: head[1] >> 6,
            high_tier: head[1] & 0x20 != 0,
            profile: head[1] & 0x1f,
            compatibility: u32::from_be_bytes([head[2], head[3], head[4], head[5]]),
            constraints: [head[6], head[7], head[8], head[9], head[10], head[11]],
            level: head[12],
            nal_length_bytes,
            parameter_sets,
        })
    }

    /// Video size from the first sequence parameter set.
    ///
    /// # Errors
    /// Any [`CodecError`]; [`CodecError::Field`] when there is no parameter set.
    pub fn video_size(&self) -> Result<VideoSize, CodecError> {
        let sps = self.parameter_sets.iter().find(|set| set.nal_type == NAL_SPS);
        video_size(sps.ok_or(CodecError::Field("empty parameter set list"))?.nal)
    }
}

/// Video size in a sequence parameter set NAL unit (ISO/IEC 23008-2, 7.3.2.2).
///
/// # Errors
/// Any [`CodecError`].
pub fn video_size(sps: &[u8]) -> Result<VideoSize, CodecError> {
    size_then_tail(&mut BitReader::nal(sps)).map(|(size, _)| size)
}

/// Transfer characteristics in a sequence parameter set NAL unit; `None` if absent.
pub fn transfer(sps: &[u8]) -> Option<u32> {
    let mut bits = BitReader::nal(sps);
    let (_, sub_layers) = size_then_tail(&mut bits).ok()?;
    super::hevc_tail::transfer(&mut bits, sub_layers).ok().flatten()
}

/// Reads a parameter set up to its bit depths; returns the size and the number of sub-layers after the first.
fn size_then_tail(bits: &mut BitReader<'_>) -> Result<(VideoSize, u32), CodecError> {
    if (bits.bits(16)? >> 9) & 0x3f != u32::from(NAL_SPS) {
        return Err(CodecError::Field("nal unit type"));
    }
    bits.skip(4)?;
    let sub_layers = bits.bits(3)?;
    bits.skip(1)?;
    skip_profile_tier_level(bits, sub_layers)?;
    bits.ue()?;
    let chroma = bits.ue()?;
    if chroma > 3 {
        return Err(CodecError::Field("chroma format"));
    }
    let separate_planes = chroma == 3 && bits.flag()?;
    let coded = (u64::from(bits.ue()?), u64::from(bits.ue()?));
    let mut crop = (0, 0);
    if bits.flag()? {
        let unit_x = if !separate_planes && (chroma == 1 || chroma == 2) { 2 } else { 1 };
        let unit_y = if !separate_planes && chroma == 1 { 2 } else { 1 };
        let [left, right, top, bottom] = [bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?].map(u64::from);
        crop = ((left + right) * unit_x, (top + bottom) * unit_y);
    }
    Ok((VideoSize::cropped(coded, crop)?, sub_layers))
}

/// profile_tier_level (ISO/IEC 23008-2, 7.3.3) with `sub_layers` sub-layers after the first, at most 7.
fn skip_profile_tier_level(bits: &mut BitReader<'_>, sub_layers: u32) -> Result<(), CodecError> {
    bits.skip(96)?;
    let mut present = [(false, false); 8];
    for slot in present.iter_mut().take(sub_layers as usize) {
        *slot = (bits.flag()?, bits.flag()?);
    }
    if sub_layers > 0 {
        bits.skip(2 * (8 - sub_layers))?;
    }
    for (profile, level) in present {
        bits.skip(if profile { 88 } else { 0 } + if level { 8 } else { 0 })?;
    }
    Ok(())
}
