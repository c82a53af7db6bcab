//! AVCDecoderConfigurationRecord (ISO/IEC 14496-15, 5.3.3.1) and the sequence parameter set.

use bytes::Bytes;

use super::nal::{next_prefixed, push_prefixed};
use super::{
    BitReader, CodecError, PARAMETER_SETS_MAX, VideoSize, push_nals, take, take_array, take_nal, vui_transfer,
};

/// Profiles whose parameter set has chroma and scaling fields (ISO/IEC 14496-10, 7.3.2.1.1).
const HIGH_PROFILES: [u32; 13] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135];

/// avcC body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvcConfig<'a> {
    /// Profile number.
    pub profile: u8,
    /// Constraint flags.
    pub compatibility: u8,
    /// Level times ten.
    pub level: u8,
    /// Bytes of each NAL unit's length prefix: 1, 2 or 4.
    pub nal_length_bytes: u8,
    /// Sequence parameter sets, NAL header included.
    pub sps: Vec<&'a [u8]>,
    /// Picture parameter sets, NAL header included.
    pub pps: Vec<&'a [u8]>,
}

impl<'a> AvcConfig<'a> {
    /// Reads an avcC body; the optional fields after the picture parameter sets are not read.
    ///
    /// # Errors
    /// Any [`CodecError`].
    pub fn parse(record: &'a [u8]) -> Result<Self, CodecError> {
        let mut rest = record;
        let [version, profile, compatibility, level, lengths, sps_count] = take_array(&mut rest)?;
        if version != 1 {
            return Err(CodecError::Version(version));
        }
        let nal_length_bytes = (lengths & 3) + 1;
        if nal_length_bytes == 3 {
            return Err(CodecError::Field("nal length size"));
        }
        let sps = nals(&mut rest, sps_count & 0x1f)?;
        let pps_count = take(&mut rest, 1)?[0];
        let pps = nals(&mut rest, pps_count)?;
        Ok(AvcConfig { profile, compatibility, level, nal_length_bytes, sps, pps })
    }

    /// Picture size of the first sequence parameter set.
    ///
    /// # Errors
    /// Any [`CodecError`]; [`CodecError::Field`] when there is no parameter set.
    pub fn video_size(&self) -> Result<VideoSize, CodecError> {
        video_size(self.sps.first().ok_or(CodecError::Field("empty parameter set list"))?)
    }
}

/// NAL unit types (ISO/IEC 14496-10, table 7-1): a slice of an IDR frame, supplemental information, sequence and
/// picture parameter set, access unit delimiter.
pub(crate) const NAL_IDR: u8 = 5;
pub(crate) const NAL_SEI: u8 = 6;
pub(crate) const NAL_SPS: u8 = 7;
pub(crate) const NAL_PPS: u8 = 8;
pub(crate) const NAL_DELIMITER: u8 = 9;

/// Payload type of a recovery point (annex D.1.1).
const SEI_RECOVERY_POINT: u32 = 6;
/// Most sequence parameter sets in a record: the field has five bits.
const SPS_MAX: usize = 31;

/// Type of a NAL unit, which is not empty.
pub(crate) fn nal_type(nal: &[u8]) -> u8 {
    nal.first().map_or(0, |first| first & 0x1f)
}

/// Writes an avcC body from parameter sets, with length prefixes of four bytes.
///
/// # Errors
/// [`CodecError::TooMany`]; [`CodecError::Field`] if a list is empty or a set is too long; any error of a set that
/// cannot be read.
pub(crate) fn record(sps: &[Vec<u8>], pps: &[Vec<u8>]) -> Result<Vec<u8>, CodecError> {
    if sps.len() > SPS_MAX || pps.len() > PARAMETER_SETS_MAX {
        return Err(CodecError::TooMany);
    }
    let (Some(first), false) = (sps.first(), pps.is_empty()) else {
        return Err(CodecError::Field("empty parameter set list"));
    };
    let [_, profile, compatibility, level] = *first.first_chunk().ok_or(CodecError::Truncated)?;
    let mut record = vec![1, profile, compatibility, level, 0xff, 0xe0 | sps.len() as u8];
    push_nals(&mut record, sps)?;
    record.push(pps.len() as u8);
    push_nals(&mut record, pps)?;
    if HIGH_PROFILES.contains(&u32::from(profile)) {
        let mut bits = BitReader::nal(first);
        bits.skip(32)?;
        bits.ue()?;
        let chroma = bits.ue()?;
        if chroma == 3 {
            bits.skip(1)?;
        }
        let [luma_depth, chroma_depth] = [bits.ue()?, bits.ue()?];
        if chroma > 3 || luma_depth.max(chroma_depth) > 7 {
            return Err(CodecError::Field("chroma format"));
        }
        record.extend_from_slice(&[
            0xfc | chroma as u8,
            0xf8 | luma_depth as u8,
            0xf8 | chroma_depth as u8,
            0,
        ]);
    }
    Ok(record)
}

/// Number of a picture parameter set (7.3.2.2).
pub(crate) fn pps_id(pps: &[u8]) -> Option<u32> {
    BitReader::nal(pps.get(1..)?).ue().ok()
}

/// Whether supplemental information says that decoding can start at this access unit without later ones (annex
/// D.1.8): encoders with open GOPs have such access units in place of IDR frames.
pub(crate) fn is_recovery_point(sei: &[u8]) -> bool {
    recovery_frames(sei) == Ok(0)
}

/// recovery_frame_cnt of the first recovery point.
fn recovery_frames(sei: &[u8]) -> Result<u32, CodecError> {
    let mut bits = BitReader::nal(sei.get(1..).unwrap_or_default());
    // The stop bit and its zeros take the last byte, and end the loop as a message that is cut off.
    loop {
        let (kind, bytes) = (sei_number(&mut bits)?, sei_number(&mut bits)?);
        if kind == SEI_RECOVERY_POINT {
            return bits.ue();
        }
        for _ in 0..bytes {
            bits.skip(8)?;
        }
    }
}

/// A number as bytes of 255 and one that is smaller (7.3.2.3.1).
fn sei_number(bits: &mut BitReader<'_>) -> Result<u32, CodecError> {
    let mut number = 0u32;
    loop {
        let part = bits.bits(8)?;
        number = number.saturating_add(part);
        if part != 255 {
            return Ok(number);
        }
    }
}

/// Longest parameter sets that are repeated in keyframes, in bytes. Those of encoders have less than a hundred bytes.
pub const IN_BAND_BYTES_MAX: usize = 4096;

/// The parameter sets of an avcC body in access unit format, each with a four-byte length prefix. `None` for a record whose
/// access units have lengths of another size, and for sets that are longer than [`IN_BAND_BYTES_MAX`].
pub fn in_band(record: &[u8]) -> Option<Bytes> {
    let config = AvcConfig::parse(record).ok().filter(|config| config.nal_length_bytes == 4)?;
    let mut sets = Vec::new();
    for nal in config.sps.iter().chain(&config.pps) {
        push_prefixed(&mut sets, nal);
    }
    (sets.len() <= IN_BAND_BYTES_MAX).then(|| Bytes::from(sets))
}

/// Inserts parameter sets into an access unit: after its delimiter, which must be first (7.4.1.2.3), and before all other units.
/// An access unit that already has parameter sets is returned unchanged.
pub fn with_parameter_sets(sets: &[u8], unit: &Bytes) -> Bytes {
    let mut delimiter_end = 0;
    let mut rest = &unit[..];
    while let Ok(Some(nal)) = next_prefixed(&mut rest, 4) {
        let end = unit.len() - rest.len();
        match nal_type(nal) {
            NAL_SPS => return unit.clone(),
            NAL_DELIMITER if end == 4 + nal.len() => delimiter_end = end,
            _ => {}
        }
    }
    Bytes::from([&unit[..delimiter_end], sets, &unit[delimiter_end..]].concat())
}

fn nals<'a>(rest: &mut &'a [u8], count: u8) -> Result<Vec<&'a [u8]>, CodecError> {
    if usize::from(count) > PARAMETER_SETS_MAX {
        return Err(CodecError::TooMany);
    }
    (0..count).map(|_| take_nal(rest)).collect()
}

/// Video size in a sequence parameter set NAL unit (ISO/IEC 14496-10, 7.3.2.1.1).
///
/// # Errors
/// Any [`CodecError`].
pub fn video_size(sps: &[u8]) -> Result<VideoSize, CodecError> {
    size_then_vui(&mut BitReader::nal(sps))
}

/// Transfer characteristics in a sequence parameter set NAL unit; `None` if absent.
pub fn transfer(sps: &[u8]) -> Option<u32> {
    let mut bits = BitReader::nal(sps);
    size_then_vui(&mut bits).ok()?;
    vui_transfer(&mut bits).ok().flatten()
}

/// Reads a parameter set up to its video usability information.
fn size_then_vui(bits: &mut BitReader<'_>) -> Result<VideoSize, CodecError> {
    if bits.bits(8)? & 0x1f != 7 {
        return Err(CodecError::Field("nal unit type"));
    }
    let profile = bits.bits(8)?;
    bits.skip(16)?;
    bits.ue()?;
    let chroma = if HIGH_PROFILES.contains(&profile) { high_profile_fields(bits)? } else { 1 };
    bits.ue()?;
    order_count_fields(bits)?;
    bits.ue()?;
    bits.skip(1)?;
    let width = (u64::from(bits.ue()?) + 1) * 16;
    let map_units = u64::from(bits.ue()?) + 1;
    let progressive = bits.flag()?;
    if !progressive {
        bits.skip(1)?;
    }
    bits.skip(1)?;
    let fields = if progressive { 1 } else { 2 };
    let height = map_units * 16 * fields;
    let mut crop = (0, 0);
    if bits.flag()? {
        let unit_x = if chroma == 1 || chroma == 2 { 2 } else { 1 };
        let unit_y = if chroma == 1 { 2 } else { 1 } * fields;
        let [left, right, top, bottom] = [bits.ue()?, bits.ue()?, bits.ue()?, bits.ue()?].map(u64::from);
        crop = ((left + right) * unit_x, (top + bottom) * unit_y);
    }
    VideoSize::cropped((width, height), crop)
}

/// Fields of the high profiles; returns the chroma format.
fn high_profile_fields(bits: &mut BitReader<'_>) -> Result<u32, CodecError> {
    let chroma = bits.ue()?;
    if chroma > 3 {
        return Err(CodecError::Field("chroma format"));
    }
    let separate_planes = chroma == 3 && bits.flag()?;
    bits.ue()?;
    bits.ue()?;
    bits.skip(1)?;
    if bits.flag()? {
        for list in 0..if chroma == 3 { 12 } else { 8 } {
            if bits.flag()? {
                skip_scaling_list(bits, if list < 6 { 16 } else { 64 })?;
            }
        }
    }
    // Separate planes are cropped like monochrome.
    Ok(if separate_planes { 0 } else { chroma })
}

fn skip_scaling_list(bits: &mut BitReader<'_>, size: u32) -> Result<(), CodecError> {
    let (mut last, mut next) = (8i64, 8i64);
    for _ in 0..size {
        if next != 0 {
            next = (last + bits.se()?).rem_euclid(256);
        }
        if next != 0 {
            last = next;
        }
    }
    Ok(())
}

fn order_count_fields(bits: &mut BitReader<'_>) -> Result<(), CodecError> {
    match bits.ue()? {
        0 => {
            bits.ue()?;
        }
        1 => {
            bits.skip(1)?;
            bits.se()?;
            bits.se()?;
            let cycle = bits.ue()?;
            if cycle > 255 {
                return Err(CodecError::Field("order count cycle"));
            }
            for _ in 0..cycle {
                bits.se()?;
            }
        }
        2 => {}
        _ => return Err(CodecError::Field("order count type")),
    }
    Ok(())
}
