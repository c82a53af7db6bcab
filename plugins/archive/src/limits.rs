//! Every bound of the driver, with the reason for its size.

use std::time::Duration;

use satcast_plugin_api::recording::{PROBE_SECS, READ_SECS};

use crate::config::Settings;
use crate::parts;
use crate::rules::Bounds;
use crate::upload::attempts::Pauses;
use crate::upload::sockets::Times;

/// Concurrent requests over all recordings. One store, and one account, has a quarter of them, so that one that hangs
/// does not block the others.
const REQUESTS_AT_ONCE: u64 = 32;
/// Memory of all parts in flight in MiB, shared like the requests: a quarter is eight small parts, and one of the
/// largest goes alone.
const PARTS_MIB: u64 = 256;
/// Parts of one recording in flight.
pub(crate) const PARTS_OF_ONE: usize = 2;
/// Recordings in the journal. Beyond [`kept`], uploaded ones are forgotten, the oldest of the owner with most first.
const KNOWN_MAX: u64 = 16_000;
/// Files that one destination may begin within a minute. Encoders change their configuration a few times an hour.
const FILES_PER_MINUTE_MAX: usize = 10;
/// Longest wait for a store to open the upload of a paid retry. The host waits for 20 s.
pub(crate) const ASKED_OPEN_MAX: Duration = Duration::from_secs(15);
/// Longest wait for a cancelled upload to end; it ends at its next pause, milliseconds away.
pub(crate) const CUT_WAIT: Duration = Duration::from_secs(2);
/// Longest wait for a store to delete an object on request. The host waits for 20 s.
pub(crate) const REMOVE_MAX: Duration = Duration::from_secs(12);
/// Concurrent reads of stores for viewers, shared like the requests.
pub(crate) const READS_AT_ONCE: u64 = 32;
/// Longest read for a viewer; below the limit of the contract.
pub(crate) const READ_MAX: Duration = Duration::from_secs(READ_SECS - 3);
/// Longest wait for the index of a recording that has none. It is made in the background meanwhile.
pub(crate) const INDEX_WAIT: Duration = Duration::from_secs(8);
/// How long an expired recording is still listed, and the least uptime of the driver by then: the host lists every
/// minute.
pub(crate) const GONE_LISTED: Duration = Duration::from_secs(7 * 24 * 3600);
pub(crate) const GONE_LIFE_MIN: Duration = Duration::from_secs(3600);
/// Stores whose expired objects are deleted concurrently.
pub(crate) const RETENTION_AT_ONCE: usize = 8;
/// Time before a deletion from which the driver asks the host for its notice to the owner.
pub(crate) const NOTICE_ASKED: Duration = Duration::from_secs(48 * 3600);
/// A recording that was read so recently is in use, and stays for the time being.
pub(crate) const READ_PAUSE: Duration = Duration::from_secs(10 * 60);
/// Longest time for which reading postpones a deletion: that of the longest recording.
pub(crate) const READ_LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Longest time to abort the uploads of a recording whose copy is given up.
pub(crate) const GIVE_UP_ENDING_MAX: Duration = Duration::from_secs(60);
/// Wait before a failed journal write is tried again.
pub(crate) const SAVE_RETRY: Duration = Duration::from_secs(5);
/// Restarts of one recording's upload, because the store lost parts, before it counts as failed.
pub(crate) const RESTARTS_MAX: u32 = 5;
/// Uploads of one recording that must still be aborted.
pub(crate) const STALE_MAX: usize = 8;
/// Longest stored error text.
pub(crate) const ERROR_CHARS_MAX: usize = 1000;
/// Longest ETag and upload id that a store may give.
pub(crate) const TOKEN_BYTES_MAX: usize = 2048;
/// The same for an ETag, of which there may be 10,000.
pub(crate) const ETAG_BYTES_MAX: usize = 128;
/// Refused tracks that are logged in one opening; an encoder may repeat a bad codec configuration for ever.
pub(crate) const TRACK_REFUSALS_LOGGED_MAX: u32 = 8;
/// Time without packets after which held media is written.
pub(crate) const FLUSH_AFTER: Duration = Duration::from_secs(1);
/// Least wait before recording is tried again when there is no space.
pub(crate) const FULL_RETRY: Duration = Duration::from_secs(30);

/// Limits that an operator or a test may change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) pauses: Pauses,
    pub(crate) times: Times,
    /// Time after which a store that has not opened an upload is reported as silent; the wait goes on.
    pub(crate) silent_after: Duration,
    /// Bytes of all local copies.
    pub(crate) spool_quota: u64,
    /// Bytes that stay free on the disk.
    pub(crate) free_min: u64,
    /// Bytes and age of failed local copies.
    pub(crate) failed_quota: u64,
    pub(crate) failed_age: Duration,
    /// Days and size of what the operator's store keeps.
    pub(crate) bounds: Bounds,
    /// A file of this size, or of this length in nanoseconds, is followed by another one at the next keyframe.
    pub(crate) file_bytes: u64,
    pub(crate) file_ns: i64,
    pub(crate) known: u64,
    pub(crate) files_per_minute: usize,
    pub(crate) requests_at_once: u64,
    pub(crate) parts_mib: u64,
    /// How often media is synced: a crash of the machine, not of the process, may lose this much.
    pub(crate) sync_every: Duration,
    /// How often the host gets the growth of a running recording.
    pub(crate) report_every: Duration,
    /// How often old copies are looked for.
    pub(crate) keep_every: Duration,
}

impl Limits {
    /// The limits of an operator's settings.
    pub(crate) fn new(settings: &Settings) -> Self {
        Limits {
            pauses: Pauses::new(settings.retry_hours),
            times: Times::default(),
            silent_after: Duration::from_secs(PROBE_SECS),
            spool_quota: settings.spool_quota_bytes,
            free_min: settings.free_bytes_min,
            failed_quota: settings.failed_quota_bytes,
            failed_age: Duration::from_secs(u64::from(settings.failed_days) * 24 * 3600),
            bounds: settings.bounds(),
            file_bytes: parts::FILE_BYTES_MAX,
            file_ns: 24 * 3600 * 1_000_000_000,
            known: KNOWN_MAX,
            files_per_minute: FILES_PER_MINUTE_MAX,
            requests_at_once: REQUESTS_AT_ONCE,
            parts_mib: PARTS_MIB,
            sync_every: Duration::from_secs(2),
            report_every: Duration::from_secs(5),
            keep_every: Duration::from_secs(60),
        }
    }
}

/// Milliseconds of a duration, for times since 1970.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Number of entries, of `known` that the journal may have, that are kept before old ones are forgotten: less than one
/// account may have, so that old entries never block a new one.
pub(crate) fn kept(known: u64) -> u64 {
    known.saturating_mul(5) / 8
}
