//! One recording in memory, and what the host is told of it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use satcast_plugin_api::{Class, Error};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::config::Target;
use crate::journal::{Entry, Stage};
use crate::limits::{CUT_WAIT, ERROR_CHARS_MAX};
use crate::parts;
use satcast_plugin_api::driver::{Answer, Recording, RecordingState};

/// Why a deleted recording is not there.
pub(crate) const DELETED: &str = "it was deleted";
/// What is said of an upload that waits after a failure.
pub(crate) const AGAIN: &str = "; it is tried again";
/// What is said of a recording whose destination was given another store.
pub(crate) const STAYS: &str = ". Its upload had begun when its destination was given another store, and ends where it began: set the destination back to \
                     that store, with keys that work, or delete the recording";

/// A recording. Its file name never changes.
pub(crate) struct Item {
    pub(crate) file_name: String,
    data: Mutex<Data>,
    /// Something changed that its upload may wait for; it alone waits.
    pub(crate) changed: Notify,
    /// It got other keys: no pause is waited for to its end.
    pub(crate) renewed: Notify,
    /// Held while its journal file is written, so that the last state is the last written.
    pub(crate) saving: Mutex<()>,
}

/// What changes of it.
pub(crate) struct Data {
    pub(crate) entry: Entry,
    /// Somebody records into it.
    pub(crate) is_live: bool,
    /// Its journal file was removed and must not come back.
    pub(crate) is_gone: bool,
    /// Where it goes, once that was decrypted.
    pub(crate) target: Option<Target>,
    /// Who waits for the store to open the upload.
    pub(crate) answer: Option<Answer>,
    pub(crate) task: Option<AbortHandle>,
    /// Uploads begun anew in this attempt.
    pub(crate) restarts: u32,
    /// Requests of its upload that were refused, in a row.
    pub(crate) refusals: u32,
    /// When the last failure was, on the clock of [`Outside::elapsed`](crate::outside::Outside::elapsed).
    pub(crate) failed_at: Option<Duration>,
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file_name)
    }
}

impl Item {
    pub(crate) fn new(entry: Entry, target: Option<Target>, is_live: bool) -> Self {
        let data = Data {
            entry,
            is_live,
            is_gone: false,
            target,
            answer: None,
            task: None,
            restarts: 0,
            refusals: 0,
            failed_at: None,
        };
        Item {
            file_name: data.entry.file_name.clone(),
            data: Mutex::new(data),
            changed: Notify::new(),
            renewed: Notify::new(),
            saving: Mutex::new(()),
        }
    }

    pub(crate) fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends its upload where it stands; what it was doing is as after a crash.
    pub(crate) async fn cut(&self) {
        let task = self.data().task.take();
        let Some(task) = task else { return };
        task.abort();
        let end = Instant::now() + CUT_WAIT;
        while !task.is_finished() && Instant::now() < end {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// A copy of what the journal should say.
    pub(crate) fn entry(&self) -> Entry {
        self.data().entry.clone()
    }
}

impl Data {
    /// Bytes it takes on the local disk.
    pub(crate) fn local_bytes(&self) -> u64 {
        if self.entry.is_local { self.entry.bytes } else { 0 }
    }

    /// A failure at `now`, on the clock of [`Outside::elapsed`](crate::outside::Outside::elapsed); how long nothing has worked since the
    /// end of the recording, in milliseconds, or `None` while it runs.
    ///
    /// Counted from failure to failure while the driver runs, and written down at each: a clock that is set changes nothing, and what
    /// passes between two runs, when nobody tries, does not count.
    pub(crate) fn failed(&mut self, now: Duration, wall_ms: i64, error: &Error) -> Option<i64> {
        let entry = &mut self.entry;
        entry.failing_since_ms.get_or_insert(wall_ms);
        entry.error = Some(error.message.chars().take(ERROR_CHARS_MAX).collect());
        entry.error_class = Some(error.class);
        if entry.stage == Stage::Recording {
            self.failed_at = None;
            return None;
        }
        let before = self.failed_at.replace(now).unwrap_or(now);
        let passed = u64::try_from(now.saturating_sub(before).as_millis()).unwrap_or(u64::MAX);
        entry.failing_ms = entry.failing_ms.saturating_add(passed);
        Some(i64::try_from(entry.failing_ms).unwrap_or(i64::MAX))
    }

    /// The time of failing begins anew.
    pub(crate) fn restarts_failing(&mut self) {
        self.failed_at = None;
        self.entry.failing_since_ms = None;
        self.entry.failing_ms = 0;
    }

    /// Something worked: nothing is wrong any more.
    pub(crate) fn progressed(&mut self) {
        self.restarts_failing();
        self.entry.error = None;
        self.entry.error_class = None;
    }

    /// Its owner had it deleted.
    pub(crate) fn is_deleted(&self) -> bool {
        match self.entry.stage {
            Stage::Leaving => true,
            Stage::Gone => self.entry.error.is_some(),
            _ => false,
        }
    }

    /// What is told of why it is not there, and whose fault that is.
    fn reason(&self) -> (Option<String>, Option<Class>) {
        let entry = &self.entry;
        let stays = if entry.stays { STAYS } else { "" };
        let text = match (entry.stage, &entry.error) {
            (Stage::Leaving, _) => return (Some(DELETED.to_owned()), Some(Class::Config)),
            (Stage::Recording | Stage::Uploading, Some(error)) => format!("{error}{AGAIN}{stays}"),
            (Stage::Failed, Some(error)) => format!("{error}{stays}"),
            (_, Some(error)) => error.clone(),
            (_, None) => return (None, None),
        };
        (Some(text), entry.error_class)
    }

    /// What the host is told.
    pub(crate) fn recording(&self) -> Recording {
        let entry = &self.entry;
        let state = match entry.stage {
            Stage::Recording => RecordingState::Recording,
            Stage::Uploading => RecordingState::Uploading,
            Stage::Ready => RecordingState::Ready,
            Stage::Failed => RecordingState::Failed,
            // The host knows by its mark that it is not there any more.
            Stage::Gone | Stage::Leaving => RecordingState::Ready,
        };
        let is_gone = matches!(entry.stage, Stage::Gone | Stage::Leaving);
        let (error, error_class) = self.reason();
        let parts = entry.upload.as_ref().map_or(0, |upload| upload.parts.len());
        let uploaded_bytes = match entry.stage {
            Stage::Ready | Stage::Gone | Stage::Leaving => entry.bytes,
            _ => parts::bytes_before(parts, entry.bytes),
        };
        Recording {
            file_name: entry.file_name.clone(),
            destination_id: entry.destination_id,
            session_id: entry.session_id.clone(),
            state,
            size_bytes: entry.bytes,
            uploaded_bytes,
            duration_ms: entry.duration_ms,
            error,
            error_class,
            url: entry.url.clone().filter(|_| !is_gone),
            started_at_ms: entry.started_at_ms,
            changed_at_ms: entry.changed_at_ms,
            attempt: entry.attempt,
            attempt_opened: entry.attempt_opened,
            has_copy: entry.is_local,
            gone: is_gone,
        }
    }
}
