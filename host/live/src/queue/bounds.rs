//! What a queue without a disk behind it holds before it leaves packets out.

use std::time::Duration;

/// Limits of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Bounds {
    /// Most packets waiting.
    pub(in super::super) packets: usize,
    /// Most bytes waiting.
    pub(in super::super) bytes: usize,
    /// Longest time a packet may wait. Counted in time that passes and not in that of the media: what comes all at once does
    /// not make a destination slow.
    pub(in super::super) wait: Duration,
}

impl Bounds {
    /// Where nothing else is set: what an encoder catches up at once after a minute without network.
    pub(in super::super) const USUAL: Self =
        Self { packets: 8192, bytes: 32 * 1024 * 1024, wait: Duration::from_secs(5) };
}
