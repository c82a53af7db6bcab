//! Codec configurations, parsed with bounds.
//!
//! Parsers borrow from the record, never panic, and hold no more than the record's own size. They read the fields that
//! Satcast needs to describe and repackage a track; they do not validate a whole bitstream.

pub mod aac;
pub mod av1;
pub mod avc;
mod bits;
pub mod hevc;
mod hevc_tail;
pub(crate) mod nal;
pub mod opus;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use bits::BitReader;

/// Most parameter sets in one record; a longer list is refused.
pub const PARAMETER_SETS_MAX: usize = 64;

/// Reasons for which a codec configuration is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The record ends inside a field.
    #[error("codec configuration record is cut off")]
    Truncated,
    /// A version this crate does not know.
    #[error("codec configuration record has version {0}, which is not known")]
    Version(u8),
    /// More parameter sets than [`PARAMETER_SETS_MAX`].
    #[error("codec configuration record has too many parameter sets")]
    TooMany,
    /// A field has an impossible value.
    #[error("codec configuration record has an impossible {0}")]
    Field(&'static str),
}

/// Video size in pixels, after cropping; both sides are 1 to 65,535.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VideoSize {
    /// Width.
    pub width: u32,
    /// Height.
    pub height: u32,
}

impl VideoSize {
    /// Coded size minus cropping.
    fn cropped(coded: (u64, u64), crop: (u64, u64)) -> Result<Self, CodecError> {
        let side = |coded: u64, crop: u64| {
            let side = coded.checked_sub(crop).filter(|side| (1..=65_535).contains(side));
            side.and_then(|side| u32::try_from(side).ok()).ok_or(CodecError::Field("video size"))
        };
        Ok(VideoSize { width: side(coded.0, crop.0)?, height: side(coded.1, crop.1)? })
    }
}

/// Aspect ratio index that is followed by two numbers (ISO/IEC 14496-10, table E-1).
const EXTENDED_SAR: u32 = 255;

/// Reads the transfer characteristics from the video usability information. Its start is the same in H.264 and HEVC
/// (ISO/IEC 14496-10 and 23008-2, annex E.2.1). The presence flag before it is read too.
fn vui_transfer(bits: &mut BitReader<'_>) -> Result<Option<u32>, CodecError> {
    if !bits.flag()? {
        return Ok(None);
    }
    if bits.flag()? && bits.bits(8)? == EXTENDED_SAR {
        bits.skip(32)?;
    }
    if bits.flag()? {
        bits.skip(1)?;
    }
    if !bits.flag()? {
        return Ok(None);
    }
    bits.skip(4)?;
    if !bits.flag()? {
        return Ok(None);
    }
    bits.skip(8)?;
    bits.bits(8).map(Some)
}

/// Splits `count` bytes off the front.
fn take<'a>(rest: &mut &'a [u8], count: usize) -> Result<&'a [u8], CodecError> {
    let (head, tail) = rest.split_at_checked(count).ok_or(CodecError::Truncated)?;
    *rest = tail;
    Ok(head)
}

/// Splits a fixed number of bytes off the front.
fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], CodecError> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(CodecError::Truncated)?;
    *rest = tail;
    Ok(*head)
}

/// Splits a NAL unit with a 16-bit length prefix off the front.
fn take_nal<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], CodecError> {
    let bytes = u16::from_be_bytes(take_array(rest)?);
    take(rest, usize::from(bytes))
}

/// Appends NAL units with a 16-bit length prefix each.
fn push_nals(record: &mut Vec<u8>, sets: &[Vec<u8>]) -> Result<(), CodecError> {
    for set in sets {
        let bytes = u16::try_from(set.len()).map_err(|_| CodecError::Field("parameter set length"))?;
        record.extend_from_slice(&bytes.to_be_bytes());
        record.extend_from_slice(set);
    }
    Ok(())
}
