//! Every bound of an opening, with the reason for its size.

use std::time::Duration;

/// Refused tracks that are logged in one opening; an encoder may repeat a bad codec configuration for ever.
pub(crate) const TRACK_REFUSALS_LOGGED_MAX: u32 = 8;
/// Longest wait for the last sequence number to be saved at the end.
pub(crate) const SAVE_WAIT: Duration = Duration::from_millis(500);
/// Longest sleep of the loop; only bounds the arithmetic of timers.
pub(crate) const IDLE_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Target length of parts in nanoseconds.
pub(crate) const PART_NANOS: i64 = 500_000_000;
/// Distance of live players that play parts from the live edge in nanoseconds, or three parts if that is more; half a
/// second of it is for the network.
pub(crate) const PART_HOLD_BACK_NANOS: i64 = 2_000_000_000;

/// Default quota of one destination's window in bytes: an hour at 50 Mbit/s and some more.
pub(crate) const WINDOW_QUOTA_BYTES: u64 = 24 * 1024 * 1024 * 1024;

/// Limits of the window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// A segment is listed without its file after this time: a slow disk must not delay the live edge.
    pub(crate) list_wait: Duration,
    /// Time that a segment stays published after it left the playlist: players with an older playlist still ask for it.
    pub(crate) leave_grace: Duration,
    /// The same for a group of the preview.
    pub(crate) preview_grace: Duration,
    /// The same for a part, which its segment contains as well, in target durations (RFC 8216bis, 6.2.2).
    pub(crate) part_grace_targets: u32,
    /// First pause after a failed write; doubles with each further one.
    pub(crate) retry_first: Duration,
    /// Longest pause between failed writes.
    pub(crate) retry_max: Duration,
    /// The same when space is missing. Space is freed soon, and no more segments should wait than can be kept.
    pub(crate) retry_full_max: Duration,
    /// Number of extra files to remove on a full disk: this many segments can be written before it is full again.
    pub(crate) spare_files: usize,
    /// The disk counts as healthy only after this time without a failure for lack of space. While the disk size limits
    /// the window, the disk is full again each time the spare files are used up.
    pub(crate) full_cooldown: Duration,
    /// Newest segments, the live edge: no limit removes them, and they may be listed without a file. With groups of
    /// three segments and two more being collected, this also covers the newest group of the preview.
    pub(crate) edge_segments: usize,
    /// Newest segments that stay in memory although they have a file: players at the live edge ask for the newest one
    /// alone. The host keeps older ones in memory while several viewers want them.
    pub(crate) memory_segments: usize,
    /// Older listed segments without a file; beyond this number the window is shortened.
    pub(crate) unwritten_segments_max: usize,
    /// The same in bytes.
    pub(crate) unwritten_bytes_max: usize,
    /// Bytes of all segments in memory except the newest: half of the host's limit for an opening.
    pub(crate) memory_bytes_max: usize,
    /// Bytes of all listed segments except the live edge; beyond it older segments leave the playlist. Segments in
    /// their grace time are not counted.
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
            full_cooldown: Duration::from_secs(300),
            edge_segments: 6,
            memory_segments: 1,
            unwritten_segments_max: 30,
            unwritten_bytes_max: 64 * 1024 * 1024,
            memory_bytes_max: 128 * 1024 * 1024,
            window_bytes_max: WINDOW_QUOTA_BYTES,
        }
    }
}
