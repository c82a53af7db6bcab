//! Answers of a child that wait for viewers.

use bytes::Bytes;
use satcast_quota::Quota;

use crate::published::counted;

/// Most bytes of answers of one child in memory, until their viewers have read them.
const ANSWER_BYTES_HELD_MAX: u64 = 256 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Held(Quota<()>);

impl Default for Held {
    fn default() -> Self {
        Self(Quota::new(ANSWER_BYTES_HELD_MAX, ANSWER_BYTES_HELD_MAX))
    }
}

impl Held {
    /// Counts these bytes until they are dropped; `None` when the limit is reached.
    pub(super) fn hold(&self, bytes: Bytes) -> Option<Bytes> {
        Some(counted(self.0.try_take((), bytes.len() as u64).ok()?, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_wait_for_viewers_are_limited() {
        let held = Held::default();
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
        assert_eq!(held.0.taken(), 0);
    }
}
