//! Every bound of the driver, with the reason for its size.

use std::time::Duration;

use satcast_plugin_api::recording::PROBE_SECS;

use crate::config::Settings;
use crate::parts;
use crate::upload::attempts::Pauses;
use crate::upload::sockets::Times;

/// Requests on their way at one time, over all recordings. One store, and one account, has a quarter of them: whichever hangs must not
/// hold up the others.
const REQUESTS_AT_ONCE: u64 = 32;
/// Memory of all parts on their way, in MiB, shared like the requests: a quarter is eight small parts, and one of the largest goes
/// alone.
const PARTS_MIB: u64 = 256;
/// Parts of one recording on their way at one time.
pub(crate) const PARTS_OF_ONE: usize = 2;
/// Recordings in the journal. Beyond [`kept`] those that the store has are forgotten, the oldest of whoever has most first.
const KNOWN_MAX: u64 = 16_000;
/// Files that one destination may begin within a minute. Encoders change their configuration a few times an hour.
const FILES_PER_MINUTE_MAX: usize = 10;
/// Longest wait until a store has opened an upload that somebody asked for and pays for. The host waits for 20 s.
pub(crate) const ASKED_OPEN_MAX: Duration = Duration::from_secs(15);
/// Longest wait for an upload to end that was cut; it ends at its next pause, which is milliseconds away.
pub(crate) const CUT_WAIT: Duration = Duration::from_secs(2);
/// Longest wait until the store has removed what is asked for to be removed. The host waits for 20 s.
pub(crate) const REMOVE_MAX: Duration = Duration::from_secs(12);
/// How long a recording whose days were over is still told of, and the driver's least life by then: the host lists every minute.
pub(crate) const GONE_TOLD: Duration = Duration::from_secs(7 * 24 * 3600);
pub(crate) const GONE_LIFE_MIN: Duration = Duration::from_secs(3600);
/// Stores whose old objects are deleted side by side.
pub(crate) const RETENTION_AT_ONCE: usize = 8;
/// Longest time for ending uploads of a recording whose copy is given up.
pub(crate) const GIVE_UP_ENDING_MAX: Duration = Duration::from_secs(60);
/// Wait until a journal that cannot be written is tried again.
pub(crate) const SAVE_RETRY: Duration = Duration::from_secs(5);
/// Uploads of one recording begun anew, because the store lost parts, before it counts as failed.
pub(crate) const RESTARTS_MAX: u32 = 5;
/// Uploads of one recording that are still to be ended.
pub(crate) const STALE_MAX: usize = 8;
/// Longest reason of a failure that is kept.
pub(crate) const ERROR_CHARS_MAX: usize = 1000;
/// Longest ETag and upload id that a store may give.
pub(crate) const TOKEN_BYTES_MAX: usize = 2048;
/// The same for an ETag, of which there may be 10,000.
pub(crate) const ETAG_BYTES_MAX: usize = 128;
/// Refused tracks that are told in one opening; an encoder may repeat a bad record for ever.
pub(crate) const TRACK_REFUSALS_TOLD_MAX: u32 = 8;
/// Without packets for so long, what is there is written.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// Floor before recording is tried again when there is no room.
pub(crate) const FULL_RETRY: Duration = Duration::from_secs(30);

/// What an operator or a test may change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) pauses: Pauses,
    pub(crate) times: Times,
    /// A store that has not opened an upload after this time is told as silent; it is waited for all the same.
    pub(crate) silent_after: Duration,
    /// Bytes of all local copies.
    pub(crate) spool_quota: u64,
    /// Bytes that stay free on the disk.
    pub(crate) free_min: u64,
    /// Bytes and age of failed local copies.
    pub(crate) failed_quota: u64,
    pub(crate) failed_age: Duration,
    /// A file of this size, or this length in nanoseconds, goes on in another one at the next keyframe.
    pub(crate) file_bytes: u64,
    pub(crate) file_ns: i64,
    pub(crate) known: u64,
    pub(crate) files_per_minute: usize,
    pub(crate) requests_at_once: u64,
    pub(crate) parts_mib: u64,
    /// Media is made durable this often: what a crash of the machine, not of the process, may lose.
    pub(crate) sync_every: Duration,
    /// The host is told how a running recording grows this often.
    pub(crate) tell_every: Duration,
    /// How often old copies are looked for.
    pub(crate) keep_every: Duration,
}

impl Limits {
    /// Those of an operator.
    pub(crate) fn new(settings: &Settings) -> Self {
        Limits {
            pauses: Pauses::new(settings.retry_hours),
            times: Times::default(),
            silent_after: Duration::from_secs(PROBE_SECS),
            spool_quota: settings.spool_quota_bytes,
            free_min: settings.free_bytes_min,
            failed_quota: settings.failed_quota_bytes,
            failed_age: Duration::from_secs(u64::from(settings.failed_days) * 24 * 3600),
            file_bytes: parts::FILE_BYTES_MAX,
            file_ns: 24 * 3600 * 1_000_000_000,
            known: KNOWN_MAX,
            files_per_minute: FILES_PER_MINUTE_MAX,
            requests_at_once: REQUESTS_AT_ONCE,
            parts_mib: PARTS_MIB,
            sync_every: Duration::from_secs(2),
            tell_every: Duration::from_secs(5),
            keep_every: Duration::from_secs(60),
        }
    }
}

/// Of so many recordings that may be in the journal, how many are kept before old ones are forgotten: less than one account may have
/// by itself, so that old ones never keep a new one out.
pub(crate) fn kept(known: u64) -> u64 {
    known.saturating_mul(5) / 8
}
