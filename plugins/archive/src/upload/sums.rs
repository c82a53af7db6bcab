//! Checksums by MD5, for stores without CRC-64/NVME, of parts and of objects made of parts.

use md5::{Digest as _, Md5};

/// MD5 in hexadecimal.
pub(crate) fn md5_hex<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Md5::new();
    chunks.into_iter().for_each(|chunk| hash.update(chunk));
    hex(&hash.finalize())
}

/// The ETag that S3 gives an object of parts with these MD5s: the MD5 of them all, and their number. `None` when one is
/// not an MD5.
pub(crate) fn composite<'a>(etags: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let (mut hash, mut count) = (Md5::new(), 0);
    for etag in etags {
        hash.update(bytes(etag)?);
        count += 1;
    }
    Some(format!("{}-{count}", hex(&hash.finalize())))
}

/// Whether an ETag has the form that [`composite`] makes for `count` parts.
pub(crate) fn is_composite(etag: &str, count: usize) -> bool {
    let Some((sum, number)) = etag.split_once('-') else { return false };
    bytes(sum).is_some() && number.parse() == Ok(count)
}

/// Whether a checksum of an object is the base64 of a CRC-64/NVME and not an ETag of the form of [`composite`].
pub(crate) fn is_crc(sum: &str) -> bool {
    !sum.contains('-')
}

/// Whether it looks like an MD5.
pub(crate) fn is_md5(etag: &str) -> bool {
    bytes(etag).is_some()
}

fn bytes(hex: &str) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    if hex.len() != 32 || !hex.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_match_those_of_the_store() {
        // RFC 1321, appendix A.5.
        assert_eq!(md5_hex([&b"a"[..], b"bc"]), "900150983cd24fb0d6963f7d28e17f72");
        let sums = ["900150983cd24fb0d6963f7d28e17f72", "d41d8cd98f00b204e9800998ecf8427e"];
        let whole = composite(sums).unwrap();
        assert!(is_composite(&whole, 2) && !is_composite(&whole, 3), "{whole}");
        assert_eq!(composite(["no md5"]), None);
        assert!(is_md5(sums[0]) && !is_md5("x") && !is_composite("abc", 1));
        assert!(!is_crc(&whole) && is_crc("rosUhgp5mIg="));
    }
}
