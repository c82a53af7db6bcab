//! Files of recordings at other nodes: pages of their indexes and ranges of their bytes, below `/node/vod/`.
//!
//! Nothing is kept here. The node with the file answers from its own driver alone, so nothing is asked in a circle.

use std::time::Duration;

use satcast_plugin_api::host::SIGNED_BYTES_MAX;
use satcast_plugin_api::recording::{INDEX_BYTES_MAX, READ_RANGE_BYTES_MAX, READ_SECS};

/// Prefix of these addresses.
pub(crate) const FILES_PREFIX: &str = "/node/vod/";
/// Longest wait for a part, longer than the other node waits for its driver.
pub(super) const PART_WAIT: Duration = Duration::from_secs(READ_SECS + 3);
/// Most parts that are asked for at a time, and those for the viewers of one account: a store may answer slowly, and live playback
/// needs requests to the same nodes. Further ones wait for a place, as long as for an answer.
pub(super) const PARTS_MAX: u64 = 128;
pub(super) const PARTS_PER_ACCOUNT_MAX: u64 = 64;

/// A part of the file of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::playback) enum Part {
    /// A page of its index, from this fragment on.
    Index { first: u64 },
    /// `len` bytes from `offset` on.
    Bytes { offset: u64, len: u32 },
    /// A signed address of the store; empty without one.
    Signed,
}

impl Part {
    /// The address of a part of this recording.
    pub(super) fn address(self, id: i64) -> String {
        match self {
            Part::Index { first } => format!("{FILES_PREFIX}{id}/index/{first}"),
            Part::Bytes { offset, len } => format!("{FILES_PREFIX}{id}/bytes/{offset}/{len}"),
            Part::Signed => format!("{FILES_PREFIX}{id}/signed"),
        }
    }

    /// The recording and the part at an address.
    pub(in crate::playback) fn parse(path: &str) -> Option<(i64, Self)> {
        let parts: Vec<&str> = path.strip_prefix(FILES_PREFIX)?.split('/').collect();
        let (id, part) = match parts[..] {
            [id, "index", first] => (id, Part::Index { first: first.parse().ok()? }),
            [id, "bytes", offset, len] => {
                (id, Part::Bytes { offset: offset.parse().ok()?, len: len.parse().ok()? })
            }
            [id, "signed"] => (id, Part::Signed),
            _ => return None,
        };
        let is_allowed = match part {
            Part::Bytes { len, .. } => (1..=READ_RANGE_BYTES_MAX).contains(&len),
            Part::Index { .. } | Part::Signed => true,
        };
        Some((id.parse().ok()?, part)).filter(|_| is_allowed)
    }

    /// Longest answer.
    pub(super) fn bytes_max(self) -> usize {
        match self {
            Part::Index { .. } => INDEX_BYTES_MAX,
            Part::Bytes { len, .. } => len as usize,
            Part::Signed => SIGNED_BYTES_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_was_written() {
        let longest = Part::Bytes { offset: u64::MAX, len: READ_RANGE_BYTES_MAX };
        for part in [Part::Index { first: 0 }, Part::Bytes { offset: 7, len: 1 }, longest, Part::Signed] {
            assert_eq!(Part::parse(&part.address(9)), Some((9, part)));
        }
        let beyond = format!("9/bytes/0/{}", READ_RANGE_BYTES_MAX + 1);
        for other in ["", "9", "9/index", "x/signed", "9/signed/", "9/bytes/0/0", "9/bytes/-1/5", &beyond] {
            assert_eq!(Part::parse(&format!("{FILES_PREFIX}{other}")), None, "{other}");
        }
    }
}
