//! What a server's count of the bytes that it has read stands for.

/// The output position that a count of 32 bits stands for, after `position` was said as `before` and with so many bytes `written`; `None`
/// for one that does not go on.
pub(super) fn unwrapped(position: u64, before: u32, low: u32, written: u64) -> Option<u64> {
    let step = low.wrapping_sub(before);
    if step == 0 || step >= 1 << 31 {
        return None;
    }
    let said = position + u64::from(step);
    // nginx-rtmp counts from 0 again some bytes before the 32 bits are full.
    let begins_again = said > written && low < before;
    Some(if begins_again { position + u64::from(low) } else { said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_unwrapped_by_what_was_written() {
        const WRAP: u64 = 1 << 32;
        let written = WRAP + 1000;
        assert_eq!(unwrapped(WRAP - 10, u32::MAX - 9, 5, written), Some(WRAP + 5));
        assert_eq!(unwrapped(WRAP + 5, 5, 900, written), Some(WRAP + 900));
        // One that begins again early, and goes on from there.
        assert_eq!(unwrapped(0xf000_0000, 0xf000_0000, 8000, 0xf000_2000), Some(0xf000_0000 + 8000));
        assert_eq!(unwrapped(0xf000_1f40, 8000, 16_000, 0xf001_0000), Some(0xf000_0000 + 16_000));
        assert_eq!(unwrapped(5000, 5000, 4999, written), None);
        assert_eq!(unwrapped(5000, 5000, 5000, written), None);
        assert_eq!(unwrapped(5000, 5000, 9000, 8000), Some(9000), "more than was written is told as it is");
    }
}
