//! CRC-64/NVME of the parts of a recording, and of the whole object from those of its parts.
//!
//! The recorder computes it from the bytes that it writes, and the journal keeps it. A part is compared with it when it
//! is read again, and the store compares what arrives with it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm::Crc64Nvme;
use crc_fast::{Digest, checksum_combine};
use serde::{Deserialize, Serialize};

use crate::parts;

/// The checksum of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Crc(u64);

impl Crc {
    /// As stores write it: base64 of the number, most significant byte first.
    pub(crate) fn text(self) -> String {
        STANDARD.encode(self.0.to_be_bytes())
    }

    /// Its last half, for short records.
    pub(crate) fn short(self) -> [u8; 4] {
        let [.., a, b, c, d] = self.0.to_be_bytes();
        [a, b, c, d]
    }

    /// Checksum of a file of `bytes` from those of all its parts; `None` when some are unknown.
    pub(crate) fn of_file(parts: &[Crc], bytes: u64) -> Option<Self> {
        let mut whole = Summing::default().sum();
        for (index, part) in parts.iter().enumerate() {
            let length = parts::ready(index, bytes, true)?.bytes;
            whole = Crc(checksum_combine(Crc64Nvme, whole.0, part.0, length));
        }
        parts::ready(parts.len(), bytes, true).is_none().then_some(whole)
    }
}

/// A checksum in the making.
#[derive(Debug, Clone)]
pub(crate) struct Summing(Digest);

impl Default for Summing {
    fn default() -> Self {
        Summing(Digest::new(Crc64Nvme))
    }
}

impl Summing {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn sum(&self) -> Crc {
        Crc(self.0.finalize())
    }
}

/// The checksums of a file that grows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Growing {
    /// Of the part that is not complete yet, and its bytes so far.
    open: Summing,
    bytes: u64,
    /// Number of complete parts.
    complete: usize,
}

impl Growing {
    /// Adds the next bytes of the file; returns the checksums of the parts that they complete.
    pub(crate) fn add(&mut self, mut bytes: &[u8]) -> Vec<Crc> {
        let mut completed = Vec::new();
        while !bytes.is_empty() {
            let Some(part) = parts::part(self.complete) else { break };
            let left = usize::try_from(part.bytes - self.bytes).unwrap_or(usize::MAX);
            let (these, rest) = bytes.split_at(left.min(bytes.len()));
            self.open.add(these);
            self.bytes += these.len() as u64;
            bytes = rest;
            if self.bytes == part.bytes {
                completed.push(std::mem::take(&mut self.open).sum());
                (self.bytes, self.complete) = (0, self.complete + 1);
            }
        }
        completed
    }

    /// Checksum of the last part of a closed file; `None` when the file ends with a complete part.
    pub(crate) fn last(&self) -> Option<Crc> {
        (self.bytes > 0).then(|| self.open.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn of(bytes: &[u8]) -> Crc {
        let mut sum = Summing::default();
        sum.add(bytes);
        sum.sum()
    }

    #[test]
    fn the_check_value_of_the_algorithm_is_met() {
        // The NVM Express specification and the catalogue of CRCs give AE8B14860A799888 for these nine digits.
        assert_eq!(of(b"123456789").text(), "rosUhgp5mIg=");
        assert_eq!(of(b"").text(), "AAAAAAAAAAA=");
    }

    #[test]
    fn a_file_that_grows_has_the_checksums_of_its_parts_and_of_the_whole() {
        let file: Vec<u8> =
            (0..20 * MIB as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for step in [1 << 20, (3 << 20) + 7, 17 << 20, 20 << 20] {
            let mut growing = Growing::default();
            let mut crcs: Vec<Crc> = file.chunks(step).flat_map(|bytes| growing.add(bytes)).collect();
            assert_eq!(crcs, [of(&file[..8 * MIB]), of(&file[8 * MIB..16 * MIB])], "{step}");
            crcs.extend(growing.last());
            assert_eq!(crcs.len(), 3);
            assert_eq!(Crc::of_file(&crcs, file.len() as u64), Some(of(&file)));
            // One is unknown, or there is one too many.
            assert_eq!(Crc::of_file(&crcs[..2], file.len() as u64), None);
            assert_eq!(Crc::of_file(&crcs, 16 * MIB as u64), None);
        }
        let mut even = Growing::default();
        let crcs = even.add(&file[..16 * MIB]);
        assert_eq!((crcs.len(), even.last()), (2, None));
        assert_eq!(Crc::of_file(&crcs, 16 * MIB as u64), Some(of(&file[..16 * MIB])));
        assert_eq!(Crc::of_file(&[], 0), Some(of(b"")));
    }
}
