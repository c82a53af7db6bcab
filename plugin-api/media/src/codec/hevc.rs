//! HEVCDecoderConfigurationRecord (ISO/IEC 14496-15, 8.3.3.1) and the sequence parameter set.

use super::{BitReader, CodecError, PARAMETER_SETS_MAX, VideoSize, push_nals, take_array, take_nal};

/// NAL unit type of a sequence parameter set.
pub const NAL_SPS: u8 = 33;

/// Further NAL unit types (ISO/IEC 23008-2, table 7-1): video and picture parameter set, access unit delimiter.
pub(crate) const NAL_VPS: u8 = 32;
pub(crate) const NAL_PPS: u8 = 34;
pub(crate) const NAL_DELIMITER: u8 = 35;
/// Types of frames at which decoding can start: BLA, IDR and CRA. Their slices have no other types.
pub(crate) const NAL_RANDOM_ACCESS: std::ops::RangeInclusive<u8> = 16..=21;

/// Type of a NAL unit.
pub(crate) fn nal_type(nal: &[u8]) -> u8 {
    nal.first().map_or(0, |first| (first >> 1) & 0x3f)
}

/// Number of a picture parameter set (7.3.2.3.1).
pub(crate) fn pps_id(pps: &[u8]) -> Option<u32> {
    BitReader::nal(pps.get(2..)?).ue().ok()
}

/// Number of a video parameter set (7.3.2.1).
pub(crate) fn vps_id(vps: &[u8]) -> Option<u32> {
    vps.get(2).map(|byte| u32::from(byte >> 4))
}

/// Writes an hvcC body from parameter sets, with length prefixes of four bytes. The fields that only describe how a
/// stream may be decoded in parallel, and its frame rate, say "unknown".
///
/// # Errors
/// [`CodecError::TooMany`]; [`CodecError::Field`] if a list is empty or a set is too long; any error of a set that
/// cannot be read.
pub(crate) fn record(vps: &[Vec<u8>], sps: &[Vec<u8>], pps: &[Vec<u8>]) -> Result<Vec<u8>, CodecError> {
    if vps.len() + sps.len() + pps.len() > PARAMETER_SETS_MAX {
        return Err(CodecError::TooMany);
    }
    let (Some(first), false, false) = (sps.first(), vps.is_empty(), pps.is_empty()) else {
        return Err(CodecError::Field("empty parameter set list"));
    };
    let mut record = vec![1];
    let mut bits = BitReader::nal(first);
    bits.skip(16 + 8)?;
    for _ in 0..PROFILE_BITS / 8 {
        record.push(bits.bits(8)? as u8);
    }
    let mut bits = BitReader::nal(first);
    let head = read_head(&mut bits)?;
    let [luma_depth, chroma_depth] = [bits.ue()?, bits.ue()?];
    if luma_depth.max(chroma_depth) > 7 {
        return Err(CodecError::Field("bit depth"));
    }
    record.extend_from_slice(&[0xf0, 0, 0xfc, 0xfc | head.chroma as u8]);
    record.extend_from_slice(&[0xf8 | luma_depth as u8, 0xf8 | chroma_depth as u8, 0, 0]);
    // Layers are counted from one here; lengths of four bytes are written as three.
    record.push(((head.sub_layers as u8 + 1) & 7) << 3 | u8::from(head.nested) << 2 | 3);
    record.push(3);
    for (nal_type, sets) in [(NAL_VPS, vps), (NAL_SPS, sps), (NAL_PPS, pps)] {
        // All sets of the type are here and none in the access units.
        record.extend_from_slice(&[0x80 | nal_type, 0, sets.len() as u8]);
        push_nals(&mut record, sets)?;
    }
    Ok(record)
}

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
    read_head(&mut BitReader::nal(sps)).map(|head| head.size)
}

/// Transfer characteristics in a sequence parameter set NAL unit; `None` if absent.
pub fn transfer(sps: &[u8]) -> Option<u32> {
    let mut bits = BitReader::nal(sps);
    let head = read_head(&mut bits).ok()?;
    super::hevc_tail::transfer(&mut bits, head.sub_layers).ok().flatten()
}

/// Bits of the general part of profile_tier_level (7.3.3): profile, compatibility, constraints and level.
const PROFILE_BITS: u32 = 96;

/// A sequence parameter set up to its bit depths.
struct Head {
    size: VideoSize,
    /// Chroma format, 0 to 3.
    chroma: u32,
    /// Sub-layers after the first, 0 to 7.
    sub_layers: u32,
    /// Sub-layers are nested: a decoder can change between them at any frame.
    nested: bool,
}

fn read_head(bits: &mut BitReader<'_>) -> Result<Head, CodecError> {
    if (bits.bits(16)? >> 9) & 0x3f != u32::from(NAL_SPS) {
        return Err(CodecError::Field("nal unit type"));
    }
    bits.skip(4)?;
    let sub_layers = bits.bits(3)?;
    let nested = bits.flag()?;
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
    Ok(Head { size: VideoSize::cropped(coded, crop)?, chroma, sub_layers, nested })
}

/// profile_tier_level (ISO/IEC 23008-2, 7.3.3) with `sub_layers` sub-layers after the first, at most 7.
fn skip_profile_tier_level(bits: &mut BitReader<'_>, sub_layers: u32) -> Result<(), CodecError> {
    bits.skip(PROFILE_BITS)?;
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
