//! The part of an HEVC sequence parameter set after the picture size, up to the transfer characteristics
//! (ISO/IEC 23008-2, 7.3.2.2.1, 7.3.4, 7.3.7).

use super::{BitReader, CodecError, vui_transfer};

/// Short-term reference picture sets (7.4.3.2.1).
const SHORT_TERM_SETS_MAX: u32 = 64;
/// Pictures in one short-term reference picture set (7.4.8).
const SHORT_TERM_PICTURES_MAX: u32 = 16;
/// Long-term reference pictures (7.4.3.2.1).
const LONG_TERM_PICTURES_MAX: u32 = 32;
/// Largest log2_max_pic_order_cnt_lsb_minus4.
const ORDER_COUNT_BITS_MAX: u32 = 12;

/// Reads from the bit depths on; `sub_layers` is the number of sub-layers after the first.
pub(super) fn transfer(bits: &mut BitReader<'_>, sub_layers: u32) -> Result<Option<u32>, CodecError> {
    bits.ue()?;
    bits.ue()?;
    let order_count = at_most(bits.ue()?, ORDER_COUNT_BITS_MAX)? + 4;
    let described = if bits.flag()? { sub_layers + 1 } else { 1 };
    // Three numbers for each sub-layer, then six of block sizes and depths.
    for _ in 0..described * 3 + 6 {
        bits.ue()?;
    }
    if bits.flag()? && bits.flag()? {
        skip_scaling_lists(bits)?;
    }
    bits.skip(2)?;
    if bits.flag()? {
        bits.skip(8)?;
        bits.ue()?;
        bits.ue()?;
        bits.skip(1)?;
    }
    let sets = at_most(bits.ue()?, SHORT_TERM_SETS_MAX)?;
    let mut pictures = 0;
    for set in 0..sets {
        pictures = short_term_set(bits, set, pictures)?;
    }
    if bits.flag()? {
        let count = at_most(bits.ue()?, LONG_TERM_PICTURES_MAX)?;
        bits.skip(count * (order_count + 1))?;
    }
    bits.skip(2)?;
    vui_transfer(bits)
}

fn at_most(value: u32, max: u32) -> Result<u32, CodecError> {
    if value > max { Err(CodecError::Field("parameter set count")) } else { Ok(value) }
}

fn skip_scaling_lists(bits: &mut BitReader<'_>) -> Result<(), CodecError> {
    for size in 0..4 {
        for _ in 0..if size == 3 { 2 } else { 6 } {
            if !bits.flag()? {
                bits.ue()?;
                continue;
            }
            if size > 1 {
                bits.se()?;
            }
            for _ in 0..if size == 0 { 16 } else { 64 } {
                bits.se()?;
            }
        }
    }
    Ok(())
}

/// Reads a short-term reference picture set; `before` and the result are numbers of pictures in a set.
fn short_term_set(bits: &mut BitReader<'_>, set: u32, before: u32) -> Result<u32, CodecError> {
    if set > 0 && bits.flag()? {
        bits.skip(1)?;
        bits.ue()?;
        let mut pictures = 0;
        for _ in 0..=before {
            let used = bits.flag()?;
            let kept = used || bits.flag()?;
            pictures += u32::from(kept);
        }
        return at_most(pictures, SHORT_TERM_PICTURES_MAX);
    }
    let pictures =
        at_most(bits.ue()?, SHORT_TERM_PICTURES_MAX)? + at_most(bits.ue()?, SHORT_TERM_PICTURES_MAX)?;
    for _ in 0..pictures {
        bits.ue()?;
        bits.skip(1)?;
    }
    at_most(pictures, SHORT_TERM_PICTURES_MAX)
}
