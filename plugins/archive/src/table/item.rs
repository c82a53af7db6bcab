//! One recording in memory, and its report to the host.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use satcast_plugin_api::{Class, Error};
use satcast_quota::Permit;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::entry::{Entry, Owner, State, Trouble};
use crate::full::{SPOOL_FULL, stopped};
use crate::limits::{CUT_WAIT, NOTICE_ASKED, millis};
use crate::parts::{self, Part};
use satcast_plugin_api::driver::{Answer, Recording, RecordingState};

/// Error of a deleted recording.
pub(crate) const DELETED: &str = "the recording was deleted";
/// Suffix of the error of a waiting upload.
pub(crate) const AGAIN: &str = "; the upload is tried again";
/// Suffix of the error of a recording whose destination was given another store.
pub(crate) const STAYS: &str = ". The upload began before the destination was given another store, and must end at the \
     first store: set the destination back to that store, with keys that work, or delete the recording";

/// A recording. Its file name never changes.
pub(crate) struct Item {
    pub(crate) file_name: String,
    /// When its file began, if this process created it.
    pub(crate) begun: Option<Instant>,
    data: Mutex<Data>,
    /// Wakes its upload after a change; only the upload waits on it.
    pub(crate) changed: Notify,
    /// It has new keys: the pause before the next try ends early.
    pub(crate) renewed: Notify,
    /// Held while its index is made.
    pub(crate) indexing: tokio::sync::Mutex<()>,
    /// Held while its journal file is written, so that the latest state is written last.
    pub(super) saving: Mutex<()>,
}

/// Its permits of the quotas.
pub(super) struct Held {
    /// One of the recordings in the journal.
    pub(super) slot: Permit<Owner>,
    /// Bytes on the local disk.
    pub(super) bytes: Permit<Owner>,
}

/// The data that changes.
pub(crate) struct Data {
    pub(crate) entry: Entry,
    /// `None` once its journal file is removed, and for a recording of an earlier instance.
    pub(super) held: Option<Held>,
    /// A recorder writes to it.
    pub(crate) is_live: bool,
    /// State before its deletion was requested at the store. It is reported until the store has deleted it, and
    /// restored if that fails.
    pub(super) before: Option<State>,
    /// Pending answer to a retry request: given when the store has opened the upload.
    pub(crate) answer: Option<Answer>,
    pub(super) task: Option<JoinHandle<()>>,
    /// Restarts of the upload in this attempt.
    pub(crate) restarts: u32,
    /// Consecutive refused requests of its upload.
    pub(crate) refusals: u32,
    /// The host has told the owner that it will be deleted at this time.
    pub(crate) told_ms: Option<i64>,
    /// It is being deleted because its retention is over: no read begins any more.
    pub(crate) is_expiring: bool,
    /// When it was last read for viewers, on the clock of [`Outside::elapsed`](crate::outside::Outside::elapsed).
    pub(crate) read_at: Option<Duration>,
    /// Time of the last failure, on the clock of [`Outside::elapsed`](crate::outside::Outside::elapsed).
    pub(crate) failed_at: Option<Duration>,
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file_name)
    }
}

impl Item {
    /// A recording without permits.
    pub(crate) fn new(entry: Entry, is_live: bool) -> Self {
        Item::holding(entry, is_live, None)
    }

    pub(super) fn holding(entry: Entry, is_live: bool, held: Option<Held>) -> Self {
        let data = Data {
            entry,
            held,
            is_live,
            before: None,
            answer: None,
            task: None,
            restarts: 0,
            refusals: 0,
            told_ms: None,
            is_expiring: false,
            read_at: None,
            failed_at: None,
        };
        Item {
            file_name: data.entry.file_name.clone(),
            begun: is_live.then(Instant::now),
            data: Mutex::new(data),
            changed: Notify::new(),
            renewed: Notify::new(),
            indexing: tokio::sync::Mutex::default(),
            saving: Mutex::new(()),
        }
    }

    /// Read access. Only the table changes the data.
    pub(crate) fn data(&self) -> impl Deref<Target = Data> {
        self.data.lock()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Data> {
        self.data.lock()
    }

    /// Sets its task: replaces a running one, or with `is_only_if_idle` starts only if none runs.
    pub(crate) fn run(&self, is_only_if_idle: bool, work: impl Future<Output = ()> + Send + 'static) {
        let mut data = self.lock();
        if !is_only_if_idle || data.task.as_ref().is_none_or(JoinHandle::is_finished) {
            data.task = Some(tokio::spawn(work));
        }
    }

    /// Takes the pending answer to a retry request.
    pub(crate) fn take_answer(&self) -> Option<Answer> {
        self.lock().answer.take()
    }

    /// Counts a refused request of its upload; returns the consecutive refusals.
    pub(crate) fn refused(&self) -> u32 {
        let mut data = self.lock();
        data.refusals += 1;
        data.refusals
    }

    /// The host has told the owner of its deletion at this time. It is not in the journal: the host repeats it.
    pub(crate) fn announced(&self, at_ms: i64) {
        self.lock().told_ms = Some(at_ms);
    }

    /// Notes that it is read for a viewer at `now`, on the clock of [`Outside::elapsed`](crate::outside::Outside::elapsed);
    /// false when it is being deleted.
    pub(crate) fn begin_read(&self, now: Duration) -> bool {
        let mut data = self.lock();
        data.read_at = Some(now);
        !data.is_expiring
    }

    /// Begins its deletion at the end of its retention if `may_go`; false if not, or if something else changes it.
    pub(crate) fn begin_expiry(&self, may_go: impl FnOnce(&Data) -> bool) -> bool {
        let mut data = self.lock();
        data.is_expiring = matches!(data.entry.state, State::Done { .. }) && may_go(&data);
        data.is_expiring
    }

    /// The store has not deleted it.
    pub(crate) fn keep_after_all(&self) {
        self.lock().is_expiring = false;
    }

    /// The recorder is gone.
    pub(crate) fn left(&self) {
        self.lock().is_live = false;
        self.changed.notify_one();
    }

    /// Takes the quota for a file of `bytes` before it is written.
    ///
    /// # Errors
    /// `Internal` when the quota is exceeded.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Error> {
        let mut data = self.lock();
        let Some(held) = &mut data.held else { return Ok(()) };
        held.bytes.resize(bytes).map_err(|_| stopped(SPOOL_FULL))
    }

    /// Cancels its upload; the state is as after a crash.
    pub(crate) async fn cut(&self) {
        let task = self.lock().task.take();
        let Some(task) = task else { return };
        task.abort();
        let _ = timeout(CUT_WAIT, task).await;
    }
}

impl Data {
    /// The state that is reported.
    pub(crate) fn reported(&self) -> &State {
        self.before.as_ref().unwrap_or(&self.entry.state)
    }

    fn has_copy(&self) -> bool {
        match self.reported() {
            State::Recording { .. } | State::Uploading { .. } => true,
            State::Failed { has_copy, .. } => *has_copy,
            State::Done { .. } | State::Deleting { .. } | State::Gone { .. } => false,
        }
    }

    fn local_bytes(&self) -> u64 {
        if self.has_copy() { self.entry.bytes } else { 0 }
    }

    /// Part `index` of a recording that is to be uploaded, if it is complete.
    pub(crate) fn part(&self, index: usize) -> Option<Part> {
        match self.entry.state {
            State::Recording { .. } => parts::ready(index, self.entry.bytes, false),
            State::Uploading { .. } => parts::ready(index, self.entry.bytes, true),
            _ => None,
        }
    }

    /// Counts the local copy at its current size. While it grows, its bytes are reserved before.
    pub(super) fn count_bytes(&mut self) {
        let bytes = self.local_bytes();
        if let Some(held) = self.held.as_mut().filter(|_| !self.is_live) {
            held.bytes.set(bytes);
        }
    }

    /// Notes a failure at `now`, on the clock of [`Outside::elapsed`](crate::outside::Outside::elapsed). Returns the
    /// time without progress since the end of the recording in milliseconds, or `None` while it runs.
    ///
    /// The time is counted from failure to failure while the driver runs, and saved at each: changes of the wall clock
    /// and time between two runs do not count.
    pub(super) fn failed(&mut self, now: Duration, error: &Error) -> Option<u64> {
        if let State::Recording { trouble } | State::Uploading { trouble, .. } = &mut self.entry.state {
            *trouble = Some(Trouble::new(error));
        }
        let (State::Uploading { failing_ms, .. } | State::Deleting { failing_ms, .. }) =
            &mut self.entry.state
        else {
            return None;
        };
        let before = self.failed_at.replace(now).unwrap_or(now);
        let passed = u64::try_from(now.saturating_sub(before).as_millis()).unwrap_or(u64::MAX);
        *failing_ms = failing_ms.saturating_add(passed);
        Some(*failing_ms)
    }

    /// Resets the time without progress.
    pub(crate) fn restarts_failing(&mut self) {
        self.failed_at = None;
        if let State::Uploading { failing_ms, .. } | State::Deleting { failing_ms, .. } =
            &mut self.entry.state
        {
            *failing_ms = 0;
        }
    }

    /// Progress: clears the failure.
    pub(crate) fn progressed(&mut self) {
        self.restarts_failing();
        self.entry.clear_trouble();
    }

    /// Its owner deleted it.
    pub(crate) fn is_deleted(&self) -> bool {
        matches!(self.reported(), State::Deleting { .. } | State::Gone { is_deleted: true })
    }

    /// The host must tell the owner of its deletion before the driver deletes it.
    fn asks_notice(&self, now_ms: i64) -> bool {
        // Only the instance that keeps it can be answered.
        let is_asked = self.held.is_some() && self.told_ms.is_none();
        is_asked && self.expires_at().is_some_and(|at| at.saturating_sub(now_ms) <= millis(NOTICE_ASKED))
    }

    fn expires_at(&self) -> Option<i64> {
        self.entry.expires_at_ms.filter(|_| matches!(self.reported(), State::Done { .. }))
    }

    /// The report for the host, at `now_ms` since 1970.
    pub(crate) fn recording(&self, now_ms: i64) -> Recording {
        let entry = &self.entry;
        let (state, trouble) = match self.reported() {
            State::Recording { trouble } => (RecordingState::Recording, trouble.as_ref()),
            State::Uploading { trouble, .. } => (RecordingState::Uploading, trouble.as_ref()),
            State::Failed { trouble, .. } => (RecordingState::Failed, Some(trouble)),
            // Its mark tells the host that it is gone.
            State::Done { .. } | State::Deleting { .. } | State::Gone { .. } => (RecordingState::Ready, None),
        };
        let again = if state == RecordingState::Failed { "" } else { AGAIN };
        let stays = if entry.stays() { STAYS } else { "" };
        let reason = match trouble {
            Some(Trouble { error, class }) => Some((format!("{error}{again}{stays}"), *class)),
            None => self.is_deleted().then(|| (DELETED.to_owned(), Class::Config)),
        };
        let (error, error_class) = reason.unzip();
        let uploaded_bytes = match state {
            RecordingState::Ready => entry.bytes,
            _ => parts::bytes_before(entry.parts(), entry.bytes),
        };
        Recording {
            file_name: entry.file_name.clone(),
            destination_id: entry.about.destination_id,
            session_id: entry.about.session_id.clone(),
            state,
            size_bytes: entry.bytes,
            uploaded_bytes,
            duration_ms: entry.duration_ms,
            error,
            error_class,
            url: match self.reported() {
                State::Done { url } => Some(url.clone()),
                _ => None,
            },
            started_at_ms: entry.started_at_ms,
            changed_at_ms: entry.changed_at_ms,
            attempt: entry.attempt,
            attempt_opened: entry.attempt_opened,
            has_copy: self.has_copy(),
            gone: matches!(self.reported(), State::Deleting { .. } | State::Gone { .. }),
            expires_at_ms: self.expires_at(),
            asks_notice: self.asks_notice(now_ms),
            audio_only: entry.audio_only,
        }
    }
}
