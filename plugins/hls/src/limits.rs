//! Every bound of an opening, with the reason for its size.

use std::time::Duration;

/// Refused tracks that are told in one opening; an encoder may repeat a bad record for ever.
pub(crate) const TRACK_REFUSALS_TOLD_MAX: u32 = 8;
/// How long the last sequence number may take to be saved at the end.
pub(crate) const SAVE_WAIT: Duration = Duration::from_millis(500);
/// Longest sleep of the loop; only bounds the arithmetic of timers.
pub(crate) const IDLE_WAIT_MAX: Duration = Duration::from_secs(3600);

/// How long parts should be, in nanoseconds.
pub(crate) const PART_NANOS: i64 = 500_000_000;
/// How far behind live players stay that play parts, in nanoseconds, or three parts if that is more: half a second is for the network.
pub(crate) const PART_HOLD_BACK_NANOS: i64 = 2_000_000_000;

/// Bytes of one destination's window unless the operator says otherwise: an hour at 50 Mbit/s and some more.
pub(crate) const WINDOW_QUOTA_BYTES: u64 = 24 * 1024 * 1024 * 1024;

/// What the window keeps, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// A segment is listed without its file after this time: a slow disk must not hold up the live edge.
    pub(crate) list_wait: Duration,
    /// A segment stays published so long after it left the list: players with an older list still ask for it.
    pub(crate) leave_grace: Duration,
    /// The same for a group of the preview.
    pub(crate) preview_grace: Duration,
    /// The same for a part, which is in its segment as well, in target durations (RFC 8216bis, 6.2.2).
    pub(crate) part_grace_targets: u32,
    /// First pause after a failed write; doubles with each further one.
    pub(crate) retry_first: Duration,
    /// Longest pause between failed writes.
    pub(crate) retry_max: Duration,
    /// The same when space is what is missing: the files that make room are gone soon, and more should not wait than can be kept.
    pub(crate) retry_full_max: Duration,
    /// Files that go beyond what a full disk is short of: so many segments are written before it is full again.
    pub(crate) spare_files: usize,
    /// The disk counts as well only when nothing failed for lack of space for this time; while the window is what the disk
    /// holds, it is found full each time the spare files are used up.
    pub(crate) full_quiet: Duration,
    /// Newest segments that stay in memory, written or not. With groups of three segments and two that are being gathered this
    /// covers the newest group of the preview as well.
    pub(crate) edge_segments: usize,
    /// Older listed segments without a file; beyond it the window is shortened.
    pub(crate) unwritten_segments_max: usize,
    /// The same in bytes.
    pub(crate) unwritten_bytes_max: usize,
    /// Bytes of all segments in memory, but for the newest: half of what the host allows an opening.
    pub(crate) memory_bytes_max: usize,
    /// Bytes of all that is listed, but for the live edge: older segments leave the list. Those in their grace time come on top.
    pub(crate) window_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            list_wait: Duration::from_millis(500),
            leave_grace: Duration::from_secs(90),
            preview_grace: Duration::from_secs(30),
            part_grace_targets: 3,
            retry_first: Duration::from_secs(1),
            retry_max: Duration::from_secs(30),
            retry_full_max: Duration::from_secs(4),
            spare_files: 8,
            full_quiet: Duration::from_secs(300),
            edge_segments: 6,
            unwritten_segments_max: 30,
            unwritten_bytes_max: 64 * 1024 * 1024,
            memory_bytes_max: 128 * 1024 * 1024,
            window_bytes_max: WINDOW_QUOTA_BYTES,
        }
    }
}
