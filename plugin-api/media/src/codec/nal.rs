//! NAL units in a byte stream (annex B of ISO/IEC 14496-10 and 23008-2) and with length prefixes
//! (ISO/IEC 14496-15, 5.2.3).

use super::{CodecError, take};

/// The bytes between two units of a byte stream; a fourth zero before it belongs to the unit before.
pub(crate) const START_CODE: [u8; 3] = [0, 0, 1];

/// The NAL units of a byte stream, without start codes and without the zero bytes after a unit. Bytes before the
/// first start code are left out, and so are empty units.
pub(crate) fn annex_b(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = behind_start_code(bytes).map(|(_, behind)| behind);
    let unit = std::iter::from_fn(move || {
        let current = rest?;
        let (unit, behind) = match behind_start_code(current) {
            Some((unit, behind)) => (unit, Some(behind)),
            None => (current, None),
        };
        rest = behind;
        let end = unit.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        Some(&unit[..end])
    });
    unit.filter(|unit| !unit.is_empty())
}

/// Splits at the first start code: the bytes before it and those behind it.
fn behind_start_code(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    // The third byte decides how far the next start code is at least.
    while let Some(third) = bytes.get(at + 2) {
        match third {
            1 if bytes[at..at + 2] == START_CODE[..2] => return Some((&bytes[..at], &bytes[at + 3..])),
            0 => at += 1,
            _ => at += 3,
        }
    }
    None
}

/// Splits a NAL unit with a length prefix of `prefix_bytes` (1, 2 or 4) off the front; `None` at the end.
///
/// # Errors
/// [`CodecError::Truncated`] if a prefix or a unit is cut off.
pub(crate) fn next_prefixed<'a>(
    rest: &mut &'a [u8],
    prefix_bytes: u8,
) -> Result<Option<&'a [u8]>, CodecError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let prefix = take(rest, usize::from(prefix_bytes))?;
    let length = prefix.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
    take(rest, length).map(Some)
}

/// Appends a NAL unit with a length prefix of four bytes. Units are far shorter than 4 GiB: their callers limit them.
pub(crate) fn push_prefixed(unit: &mut Vec<u8>, nal: &[u8]) {
    unit.extend_from_slice(&(nal.len() as u32).to_be_bytes());
    unit.extend_from_slice(nal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_a_byte_stream_have_no_start_codes_and_zeros_around_them() {
        let table: [(&[u8], &[&[u8]]); 9] = [
            (&[0, 0, 0, 1, 9, 0xf0, 0, 0, 0, 1, 0x65, 1, 2], &[&[9, 0xf0], &[0x65, 1, 2]]),
            (&[0, 0, 1, 0x65, 0, 0, 1, 0x41], &[&[0x65], &[0x41]]),
            (&[7, 7, 0, 0, 1, 0x65, 3, 0, 0, 0], &[&[0x65, 3]]),
            (&[0, 0, 1, 0, 0, 1, 0x65], &[&[0x65]]),
            (&[0, 0, 1, 0x65, 0, 0, 3, 1, 0, 0, 2], &[&[0x65, 0, 0, 3, 1, 0, 0, 2]]),
            (&[0, 0, 0, 0, 0, 0, 1, 0x65, 1, 1, 0, 1], &[&[0x65, 1, 1, 0, 1]]),
            (&[0, 0, 1], &[]),
            (&[0x65, 1, 2], &[]),
            (&[], &[]),
        ];
        for (bytes, units) in table {
            assert_eq!(annex_b(bytes).collect::<Vec<_>>(), units, "{bytes:?}");
        }
    }

    #[test]
    fn prefixed_units_are_split_until_one_is_cut_off() {
        let unit = [0, 2, 0x65, 1, 0, 0, 0, 1, 0x41];
        let mut rest = &unit[..];
        let mut next = || next_prefixed(&mut rest, 2);
        assert_eq!(next(), Ok(Some(&[0x65, 1][..])));
        assert_eq!(next(), Ok(Some(&[][..])));
        assert_eq!(next(), Ok(Some(&[0x41][..])));
        assert_eq!(next(), Ok(None));
        for cut in [&[0][..], &[0, 2, 0x65], &[0xff, 0xff, 1]] {
            assert_eq!(next_prefixed(&mut &*cut, 2), Err(CodecError::Truncated), "{cut:?}");
        }
        let mut written = Vec::new();
        push_prefixed(&mut written, &[0x65, 1]);
        assert_eq!(next_prefixed(&mut &written[..], 4), Ok(Some(&[0x65, 1][..])));
        assert_eq!(next_prefixed(&mut &[1, 0x65][..], 1), Ok(Some(&[0x65][..])));
    }
}
