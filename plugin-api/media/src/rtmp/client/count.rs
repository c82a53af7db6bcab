//! Unwraps the 32-bit counts in a server's acknowledgements.

/// Output position of the 32-bit count `low`. The count before it was `before`, for the output position `position`; `written`
/// bytes were written so far. `None` if the count goes back or repeats.
pub(super) fn unwrapped(position: u64, before: u32, low: u32, written: u64) -> Option<u64> {
    let step = low.wrapping_sub(before);
    if step == 0 || step >= 1 << 31 {
        return None;
    }
    let reported = position + u64::from(step);
    // nginx-rtmp restarts its count at 0 some bytes before the 32 bits are full.
    let restarts = reported > written && low < before;
    Some(if restarts { position + u64::from(low) } else { reported })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_unwrapped_with_the_written_total() {
        const WRAP: u64 = 1 << 32;
        let written = WRAP + 1000;
        assert_eq!(unwrapped(WRAP - 10, u32::MAX - 9, 5, written), Some(WRAP + 5));
        assert_eq!(unwrapped(WRAP + 5, 5, 900, written), Some(WRAP + 900));
        // A count that restarts early and continues from there.
        assert_eq!(unwrapped(0xf000_0000, 0xf000_0000, 8000, 0xf000_2000), Some(0xf000_0000 + 8000));
        assert_eq!(unwrapped(0xf000_1f40, 8000, 16_000, 0xf001_0000), Some(0xf000_0000 + 16_000));
        assert_eq!(unwrapped(5000, 5000, 4999, written), None);
        assert_eq!(unwrapped(5000, 5000, 5000, written), None);
        assert_eq!(
            unwrapped(5000, 5000, 9000, 8000),
            Some(9000),
            "a count over the written total is returned unchanged; the session cuts it"
        );
    }
}
