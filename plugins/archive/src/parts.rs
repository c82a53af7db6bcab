//! Sizes of the parts of an upload.
//!
//! A store takes at most 10,000 parts of 5 MiB to 5 GiB each; the last may be smaller. The first parts are small:
//! little is sent twice after an interruption, and a short recording is uploaded while it runs. Later parts are larger,
//! so that a day at 50 Mbit/s (540 GB) fits. The size depends only on the number, so that an upload that continues
//! after a restart has the same parts.

const MIB: u64 = 1024 * 1024;

/// Most parts of an upload (S3's limit).
pub(crate) const PARTS_MAX: usize = 10_000;
/// Number of parts of each size in MiB; the last size applies to all that follow.
const STEPS: [(usize, u64); 3] = [(2000, 8), (2000, 32), (6000, 80)];
/// A larger recording goes on in another file; some margin below the total of all parts.
pub(crate) const FILE_BYTES_MAX: u64 = 560_000_000_000;

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Number, from 0.
    pub(crate) index: usize,
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes; the last part may have fewer.
    pub(crate) bytes: u64,
}

/// Part number `index`; `None` from [`PARTS_MAX`] on.
pub(crate) fn part(index: usize) -> Option<Part> {
    if index >= PARTS_MAX {
        return None;
    }
    let (mut offset, mut left) = (0, index);
    for (count, mib) in STEPS {
        if left < count {
            return Some(Part { index, offset: offset + left as u64 * mib * MIB, bytes: mib * MIB });
        }
        offset += count as u64 * mib * MIB;
        left -= count;
    }
    None
}

/// Part `index` of a file with `written` bytes; `None` while it is incomplete. A closed file has a smaller last part,
/// and is done when there is none.
pub(crate) fn ready(index: usize, written: u64, is_closed: bool) -> Option<Part> {
    let whole = part(index)?;
    if written >= whole.offset + whole.bytes {
        return Some(whole);
    }
    (is_closed && written > whole.offset).then(|| Part { bytes: written - whole.offset, ..whole })
}

/// Bytes in the first `count` parts of a file of `written` bytes.
pub(crate) fn bytes_before(count: usize, written: u64) -> u64 {
    part(count).map_or(written, |part| part.offset.min(written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_at_50_megabits_fits() {
        let last = part(PARTS_MAX - 1).expect("there");
        let all = last.offset + last.bytes;
        assert_eq!(part(PARTS_MAX), None);
        let day = 24 * 3600 * 50_000_000 / 8;
        assert!(day < FILE_BYTES_MAX && FILE_BYTES_MAX < all && all < 5 << 40, "{day} {all}");
        // Every byte of the largest file is in one part, in order, and no part is too small or too large for a store.
        let (mut at, mut index) = (0, 0);
        while let Some(part) = ready(index, FILE_BYTES_MAX, true) {
            assert_eq!((part.index, part.offset), (index, at));
            at += part.bytes;
            index += 1;
            assert!(at == FILE_BYTES_MAX || (5 * MIB..=5 << 30).contains(&part.bytes));
        }
        assert_eq!(at, FILE_BYTES_MAX);
        assert!(index < PARTS_MAX, "{index}");
    }

    #[test]
    fn parts_are_ready_when_complete_and_the_last_when_closed() {
        assert_eq!(ready(0, 8 * MIB - 1, false), None);
        assert_eq!(ready(0, 8 * MIB, false), Some(Part { index: 0, offset: 0, bytes: 8 * MIB }));
        assert_eq!(ready(1, 8 * MIB, true), None);
        assert_eq!(ready(1, 8 * MIB + 1, true), Some(Part { index: 1, offset: 8 * MIB, bytes: 1 }));
        assert_eq!(ready(0, 0, true), None);
        assert_eq!((bytes_before(1, 9 * MIB), bytes_before(2, 9 * MIB)), (8 * MIB, 9 * MIB));
        assert_eq!(part(2000).map(|part| (part.offset, part.bytes)), Some((16_000 * MIB, 32 * MIB)));
    }
}
