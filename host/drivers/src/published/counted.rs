//! Memory that counts against a limit until its last reader has dropped it.

use bytes::Bytes;
use satcast_quota::{Key, Permit};

struct Counted<K: Key> {
    bytes: Bytes,
    _permit: Permit<K>,
}

impl<K: Key> AsRef<[u8]> for Counted<K> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The same bytes, counted until the last reference is dropped.
pub fn counted<K: Key + Send + 'static>(permit: Permit<K>, bytes: Bytes) -> Bytes {
    Bytes::from_owner(Counted { bytes, _permit: permit })
}
