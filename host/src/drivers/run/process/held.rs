//! Answers of a child that wait for viewers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// Bytes of answers of one child that may be in memory at once, until their viewers have read them.
const ANSWER_BYTES_HELD_MAX: u64 = 256 * 1024 * 1024;

/// Bytes of answers that are in memory.
#[derive(Debug, Default)]
pub(super) struct Held(AtomicU64);

impl Held {
    /// Room for these bytes, until they are dropped; `None` where there is none.
    pub(super) fn hold(self: &Arc<Self>, bytes: Bytes) -> Option<Bytes> {
        let len = bytes.len() as u64;
        let share = Share { held: self.clone(), len };
        let before = self.0.fetch_add(len, Ordering::AcqRel);
        // Too many are given back by the drop of their share.
        (before + len <= ANSWER_BYTES_HELD_MAX).then(|| Bytes::from_owner(HeldBytes { bytes, _share: share }))
    }
}

struct Share {
    held: Arc<Held>,
    len: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.len, Ordering::AcqRel);
    }
}

struct HeldBytes {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_bytes_wait_for_viewers_and_no_more() {
        let held = Arc::new(Held::default());
        let half = Bytes::from(vec![0; (ANSWER_BYTES_HELD_MAX / 2) as usize]);
        let first = held.hold(half.clone()).unwrap();
        let second = held.hold(half).unwrap();
        assert!(held.hold(Bytes::from_static(b"x")).is_none());
        // A viewer holds a part of it.
        let part = first.slice(..10);
        drop(first);
        assert!(held.hold(Bytes::from_static(b"x")).is_none());
        drop(part);
        assert_eq!(held.hold(Bytes::from_static(b"x")).unwrap(), "x");
        drop(second);
        assert_eq!(held.0.load(Ordering::Relaxed), 0);
    }
}
