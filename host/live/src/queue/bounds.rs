//! Limits of a queue without a disk behind it.

use std::time::Duration;

/// Limits of one queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Bounds {
    /// Most packets waiting.
    pub(in super::super) packets: usize,
    /// Most bytes waiting.
    pub(in super::super) bytes: usize,
    /// Longest wait of a packet. In clock time, not media time: a burst of packets does not make a destination slow.
    pub(in super::super) wait: Duration,
}

impl Bounds {
    /// The default: enough for the burst of an encoder after a minute without network.
    pub(in super::super) const USUAL: Self =
        Self { packets: 8192, bytes: 32 * 1024 * 1024, wait: Duration::from_secs(5) };
}
