//! One recording in memory, and what the host is told of it.

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
use crate::limits::CUT_WAIT;
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
    /// When its file began, if this process made it.
    pub(crate) begun: Option<Instant>,
    data: Mutex<Data>,
    /// Something changed that its upload may wait for; it alone waits.
    pub(crate) changed: Notify,
    /// It got other keys: no pause is waited for to its end.
    pub(crate) renewed: Notify,
    /// Held while its journal file is written, so that the last state is the last written.
    pub(super) saving: Mutex<()>,
}

/// What it takes of the quotas.
pub(super) struct Held {
    /// One of the recordings in the journal.
    pub(super) slot: Permit<Owner>,
    /// Bytes on the local disk.
    pub(super) bytes: Permit<Owner>,
}

/// What changes of it.
pub(crate) struct Data {
    pub(crate) entry: Entry,
    /// `None` once its journal file is removed, and for one of an earlier instance.
    pub(super) held: Option<Held>,
    /// Somebody records into it.
    pub(crate) is_live: bool,
    /// What it was until its store was asked to delete it: that is told until the store has done it, and holds again if it does not.
    pub(super) before: Option<State>,
    /// Who waits for the store to open the upload.
    pub(crate) answer: Option<Answer>,
    pub(super) task: Option<JoinHandle<()>>,
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
    /// One that takes nothing of the quotas.
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
            failed_at: None,
        };
        Item {
            file_name: data.entry.file_name.clone(),
            begun: is_live.then(Instant::now),
            data: Mutex::new(data),
            changed: Notify::new(),
            renewed: Notify::new(),
            saving: Mutex::new(()),
        }
    }

    /// It as it is now. Only the table changes it.
    pub(crate) fn data(&self) -> impl Deref<Target = Data> {
        self.data.lock()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Data> {
        self.data.lock()
    }

    /// Has `work` be its task: instead of what ran, or only if nothing runs.
    pub(crate) fn run(&self, is_only_if_idle: bool, work: impl Future<Output = ()> + Send + 'static) {
        let mut data = self.lock();
        if !is_only_if_idle || data.task.as_ref().is_none_or(JoinHandle::is_finished) {
            data.task = Some(tokio::spawn(work));
        }
    }

    /// Whoever waits for the store to open the upload.
    pub(crate) fn take_answer(&self) -> Option<Answer> {
        self.lock().answer.take()
    }

    /// Counts a refused request of its upload; how many there were in a row.
    pub(crate) fn refused(&self) -> u32 {
        let mut data = self.lock();
        data.refusals += 1;
        data.refusals
    }

    /// Nobody records into it any more.
    pub(crate) fn left(&self) {
        self.lock().is_live = false;
        self.changed.notify_one();
    }

    /// Takes what a file of `bytes` needs of the quota, before it is written.
    ///
    /// # Errors
    /// `Internal` when that is too much.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Error> {
        let mut data = self.lock();
        let Some(held) = &mut data.held else { return Ok(()) };
        held.bytes.resize(bytes).map_err(|_| stopped(SPOOL_FULL))
    }

    /// Ends its upload where it stands; what it was doing is as after a crash.
    pub(crate) async fn cut(&self) {
        let task = self.lock().task.take();
        let Some(task) = task else { return };
        task.abort();
        let _ = timeout(CUT_WAIT, task).await;
    }
}

impl Data {
    /// Where it stands for others.
    pub(crate) fn told(&self) -> &State {
        self.before.as_ref().unwrap_or(&self.entry.state)
    }

    /// The local copy is there.
    fn has_copy(&self) -> bool {
        match self.told() {
            State::Recording { .. } | State::Uploading { .. } => true,
            State::Failed { has_copy, .. } => *has_copy,
            State::Done { .. } | State::Deleting { .. } | State::Gone { .. } => false,
        }
    }

    /// Bytes it takes on the local disk.
    fn local_bytes(&self) -> u64 {
        if self.has_copy() { self.entry.bytes } else { 0 }
    }

    /// Counts the local copy as it is. While it grows, it is reserved before.
    pub(super) fn count_bytes(&mut self) {
        let bytes = self.local_bytes();
        if let Some(held) = self.held.as_mut().filter(|_| !self.is_live) {
            held.bytes.set(bytes);
        }
    }

    /// A failure at `now`, on the clock of [`Outside::elapsed`](crate::outside::Outside::elapsed); how long nothing has worked since the
    /// end of the recording, in milliseconds, or `None` while it runs.
    ///
    /// Counted from failure to failure while the driver runs, and written down at each: a clock that is set changes nothing, and what
    /// passes between two runs, when nobody tries, does not count.
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

    /// The time of failing begins anew.
    pub(crate) fn restarts_failing(&mut self) {
        self.failed_at = None;
        if let State::Uploading { failing_ms, .. } | State::Deleting { failing_ms, .. } =
            &mut self.entry.state
        {
            *failing_ms = 0;
        }
    }

    /// Something worked: nothing is wrong any more.
    pub(crate) fn progressed(&mut self) {
        self.restarts_failing();
        self.entry.clear_trouble();
    }

    /// Its owner had it deleted.
    pub(crate) fn is_deleted(&self) -> bool {
        matches!(self.told(), State::Deleting { .. } | State::Gone { is_deleted: true })
    }

    /// What the host is told.
    pub(crate) fn recording(&self) -> Recording {
        let entry = &self.entry;
        let (state, trouble) = match self.told() {
            State::Recording { trouble } => (RecordingState::Recording, trouble.as_ref()),
            State::Uploading { trouble, .. } => (RecordingState::Uploading, trouble.as_ref()),
            State::Failed { trouble, .. } => (RecordingState::Failed, Some(trouble)),
            // The host knows by its mark what is not there any more.
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
            url: match self.told() {
                State::Done { url } => Some(url.clone()),
                _ => None,
            },
            started_at_ms: entry.started_at_ms,
            changed_at_ms: entry.changed_at_ms,
            attempt: entry.attempt,
            attempt_opened: entry.attempt_opened,
            has_copy: self.has_copy(),
            gone: matches!(self.told(), State::Deleting { .. } | State::Gone { .. }),
        }
    }
}
