//! A started driver, and the expendable thread that calls into it; [`super::pump`] is the thread that wakes the driver.
//!
//! Driver code that blocks or never returns holds up one of these threads and nothing else of the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use satcast_plugin_api::host::{BytesDone, Done, Driver, Instance, Listing, MediaSource, Recordings};
use satcast_plugin_api::recording::FinishedFile;
use satcast_plugin_api::{Error, HttpRequest};
use tokio::sync::oneshot;

use super::process::{Remote, RemoteInstance, ToOpen};
use crate::load::images::Lease;
use satcast_core::clock::Clock;

/// Limit of `open` and `validate` of a driver.
pub const CALL_TIMEOUT_MS: u64 = 1_000;
/// Most queued calls of one driver; more are refused.
pub(crate) const CALLS_QUEUED_MAX: usize = 1024;
/// Limit of `init` of a driver.
pub(crate) const INIT_TIMEOUT_MS: u64 = 5_000;

/// How long a call may wait for the calls before it.
pub(crate) const CALL_QUEUE_WAIT_MS: u64 = 10_000;
/// A driver that is in one call for longer gets no further calls from anyone.
pub(crate) const BUSY_MS_MAX: u64 = 2_000;

type Job = Box<dyn FnOnce(&Backend) + Send>;

pub(crate) struct Control {
    id: String,
    jobs: SyncSender<Job>,
    progress: Arc<Progress>,
    clock: Clock,
    /// Account of the last call that exceeded its limit.
    hung_for: Mutex<Option<i64>>,
}

/// The account and the destination of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallOwner {
    pub(crate) account: i64,
    pub(crate) destination: Option<i64>,
}

/// Which call runs, and which exceeded its limit. Numbers grow, so that a late answer and a late verdict cannot be
/// mixed up.
#[derive(Default)]
struct Progress {
    started: AtomicU64,
    ended: AtomicU64,
    overdue: AtomicU64,
    /// Monotonic milliseconds at which the running call began, plus one; 0 = none runs.
    busy_from: AtomicU64,
}

impl Progress {
    fn hangs(&self, now: Duration) -> bool {
        let busy_from = self.busy_from.load(Ordering::Acquire);
        self.overdue.load(Ordering::Acquire) > self.ended.load(Ordering::Acquire)
            || (busy_from != 0 && millis(now).saturating_sub(busy_from) > BUSY_MS_MAX)
    }
}

impl Control {
    /// Starts the thread and runs `begin` on it, which starts the driver. Blocks for at most [`INIT_TIMEOUT_MS`].
    pub(crate) fn start(
        id: &str,
        clock: Clock,
        begin: impl FnOnce() -> Result<Backend, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let id = id.to_string();
        let (jobs, queue) = sync_channel(CALLS_QUEUED_MAX);
        let (started, outcome) = sync_channel(1);
        let progress = Arc::new(Progress::default());
        let (seen, time) = (progress.clone(), clock.clone());
        thread::Builder::new()
            .name(format!("c:{id}"))
            .spawn(move || match begin() {
                Ok(driver) => {
                    // The host may have given up waiting; the driver then idles until the process ends.
                    let _ = started.send(Ok(()));
                    run_jobs(driver, &queue, &seen, &time);
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            })
            .map_err(|error| Error::internal(format!("cannot start a thread for driver {id}: {error}")))?;
        let limit = Duration::from_millis(INIT_TIMEOUT_MS);
        outcome.recv_timeout(limit).unwrap_or_else(|_| {
            Err(Error::internal(format!("driver {id} did not start within {INIT_TIMEOUT_MS} ms")))
        })?;
        Ok(Self { id, jobs, progress, clock, hung_for: Mutex::default() })
    }

    /// Runs `job` on the control thread and waits for it: [`CALL_QUEUE_WAIT_MS`] until it begins, `limit` from then
    /// on. A driver that exceeds a limit gets no further calls until the late call returns, whose result goes to
    /// `late`.
    pub(crate) async fn call<R: Send + 'static>(
        &self,
        limit: Duration,
        job: impl FnOnce(&Backend) -> R + Send + 'static,
        late: impl FnOnce(R) + Send + 'static,
    ) -> Result<R, Error> {
        self.call_for(None, limit, job, late).await
    }

    /// Like [`Control::call`], with a known owner.
    pub(crate) async fn call_for<R: Send + 'static>(
        &self,
        owner: Option<CallOwner>,
        limit: Duration,
        job: impl FnOnce(&Backend) -> R + Send + 'static,
        late: impl FnOnce(R) + Send + 'static,
    ) -> Result<R, Error> {
        if self.progress.hangs(self.clock.monotonic()) {
            return Err(self.no_answer());
        }
        let (begin, begun) = oneshot::channel();
        let (answer, outcome) = oneshot::channel();
        let progress = self.progress.clone();
        self.send(Box::new(move |driver| {
            // The caller has stopped waiting: the call is not started.
            if begin.send(progress.started.load(Ordering::Acquire)).is_err() {
                return;
            }
            if let Err(result) = answer.send(job(driver)) {
                late(result);
            }
        }))?;
        let ended = |_| Error::internal(format!("driver {} has ended", self.id));
        let wait = Duration::from_millis(CALL_QUEUE_WAIT_MS);
        let number = tokio::time::timeout(wait, begun).await.map_err(|_| self.no_answer())?.map_err(ended)?;
        match tokio::time::timeout(limit, outcome).await {
            Ok(result) => result.map_err(ended),
            Err(_) => {
                self.progress.overdue.fetch_max(number, Ordering::AcqRel);
                let (account, destination) =
                    (owner.map(|owner| owner.account), owner.and_then(|owner| owner.destination));
                *self.hung_for.lock() = account;
                let limit_ms = limit.as_millis() as u64;
                tracing::error!(driver = %self.id, limit_ms, account, destination, "driver does not return");
                Err(self.no_answer())
            }
        }
    }

    /// Queues `job` without waiting for it.
    pub(crate) fn post(&self, job: impl FnOnce(&Backend) + Send + 'static) -> Result<(), Error> {
        self.send(Box::new(job))
    }

    fn send(&self, job: Job) -> Result<(), Error> {
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Error::internal(format!(
                "driver {} has {CALLS_QUEUED_MAX} calls waiting; it is too slow",
                self.id
            )),
            TrySendError::Disconnected(_) => Error::internal(format!("driver {} has ended", self.id)),
        })
    }

    /// Its trouble: a call that does not return.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.progress.hangs(self.clock.monotonic()).then(|| silence(&self.id))
    }

    /// The account in whose call it hangs now; `None` when it does not hang, or the account is not known.
    pub(crate) fn hung_for(&self) -> Option<i64> {
        self.trouble()?;
        *self.hung_for.lock()
    }

    fn no_answer(&self) -> Error {
        Error::internal(silence(&self.id))
    }
}

pub(crate) fn limit() -> Duration {
    Duration::from_millis(CALL_TIMEOUT_MS)
}

/// Text about a driver whose call does not return.
pub fn silence(id: &str) -> String {
    format!(
        "driver {id} does not return from a call; if this lasts, the operator can enable the driver again to reload it"
    )
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64 + 1
}

fn run_jobs(driver: Backend, queue: &Receiver<Job>, progress: &Progress, clock: &Clock) {
    while let Ok(job) = queue.recv() {
        let number = progress.started.fetch_add(1, Ordering::AcqRel) + 1;
        progress.busy_from.store(millis(clock.monotonic()), Ordering::Release);
        job(&driver);
        progress.busy_from.store(0, Ordering::Release);
        progress.ended.store(number, Ordering::Release);
    }
    driver.shut_down();
}

/// A started driver: on threads of this process, or in a process of its own. Modules above see no difference. Its functions
/// may block; they are called on its control thread.
pub(crate) enum Backend {
    /// Its code runs here, in this image; `None` where it is linked in.
    Thread(Box<Driver>, Option<Lease>),
    Process(Arc<Remote>),
}

pub(crate) enum Held {
    /// Of one that runs here.
    Thread(Box<Instance>),
    /// Of one that runs in a child.
    Process(RemoteInstance),
}

pub(crate) enum Kept<'a> {
    /// Of one that runs here.
    Thread(Recordings),
    /// Of one that runs in a child.
    Process(&'a Remote),
}

impl Backend {
    /// Checks a configuration that its schema accepts, for `account`.
    pub(crate) fn validate(&self, account: i64, kind: &str, config: &str) -> Result<(), Error> {
        match self {
            Backend::Thread(driver, _) => driver.validate(kind, config),
            Backend::Process(remote) => remote.validate(account, kind, config),
        }
    }

    pub(crate) fn open(&self, to_open: &ToOpen, media: Arc<dyn MediaSource>) -> Result<Held, Error> {
        match self {
            Backend::Thread(driver, _) => {
                let ToOpen { dest, source, kind, config, about } = to_open;
                let opened = driver.open(*dest, *source, kind, config, about, media);
                opened.map(|opened| Held::Thread(Box::new(opened)))
            }
            Backend::Process(remote) => remote.open(to_open, media).map(Held::Process),
        }
    }

    /// Its recordings interface, if it keeps any.
    pub(crate) fn recordings(&self) -> Option<Kept<'_>> {
        match self {
            Backend::Thread(driver, _) => driver.recordings().map(Kept::Thread),
            Backend::Process(remote) => remote.keeps_recordings().then_some(Kept::Process(remote)),
        }
    }

    /// Passes a viewer's request on; false when the driver answers none.
    pub(crate) fn request(&self, dest: u64, token: u64, request: &HttpRequest) -> bool {
        match self {
            Backend::Thread(driver, _) => {
                driver.http().map(|http| http.request(dest, token, request)).is_some()
            }
            Backend::Process(remote) => remote.request(dest, token, request),
        }
    }

    /// Must be the last call.
    pub(crate) fn shut_down(self) {
        match self {
            Backend::Thread(driver, lease) => {
                driver.shut_down();
                drop(lease);
            }
            Backend::Process(remote) => remote.end(),
        }
    }
}

impl Kept<'_> {
    /// All recordings that it knows.
    pub(crate) fn list(&self) -> Result<Listing, Error> {
        match self {
            Kept::Thread(recordings) => recordings.list(),
            Kept::Process(remote) => remote.list_recordings(),
        }
    }

    /// Requests another upload; `done` is called when the upload is opened, or cannot be.
    pub(crate) fn retry(&self, file_name: &str, done: Done) {
        match self {
            Kept::Thread(recordings) => recordings.retry(file_name, done),
            Kept::Process(remote) => remote.retry_recording(file_name.to_owned(), done),
        }
    }

    /// Requests the removal of a recording; `done` gets the outcome.
    pub(crate) fn delete(&self, file_name: &str, remove_object: bool, done: Done) {
        match self {
            Kept::Thread(recordings) => recordings.delete(file_name, remove_object, done),
            Kept::Process(remote) => remote.delete_recording(file_name.to_owned(), remove_object, done),
        }
    }

    /// Whether it can read its recordings.
    pub(crate) fn can_read(&self) -> bool {
        match self {
            Kept::Thread(recordings) => recordings.can_read(),
            Kept::Process(remote) => remote.reads_recordings(),
        }
    }

    /// Requests `len` bytes of a recording.
    pub(crate) fn read(&self, file_name: &str, offset: u64, len: u32, done: BytesDone) {
        match self {
            Kept::Thread(recordings) => recordings.read(file_name, offset, len, done),
            Kept::Process(remote) => remote.read_recording(file_name.to_owned(), offset, len, done),
        }
    }

    /// Requests a page of the index of a recording, in its JSON form.
    pub(crate) fn index(&self, file_name: &str, first: u64, most: u32, done: BytesDone) {
        match self {
            Kept::Thread(recordings) => recordings.index(file_name, first, most, done),
            Kept::Process(remote) => remote.index_recording(file_name.to_owned(), first, most, done),
        }
    }

    /// Gives it a finished file; `done` gets the outcome.
    pub(crate) fn keep(&self, kind: &str, config: &str, file: &FinishedFile, done: Done) {
        match self {
            Kept::Thread(recordings) => recordings.keep(kind, config, file, done),
            Kept::Process(remote) => {
                remote.keep_file(kind.to_owned(), config.to_owned(), file.clone(), done);
            }
        }
    }

    /// Checks whether a configuration can record; `done` gets the outcome.
    pub(crate) fn probe(&self, kind: &str, config: &str, done: Done) {
        match self {
            Kept::Thread(recordings) => recordings.probe(kind, config, done),
            Kept::Process(remote) => remote.probe_recordings(kind.to_owned(), config.to_owned(), done),
        }
    }

    /// Passes the current configuration of a destination on; `None` = it was deleted.
    pub(crate) fn configured(&self, id: i64, kind: &str, config: Option<&str>) -> Result<(), Error> {
        match self {
            Kept::Thread(recordings) => recordings.configured(id, kind, config),
            Kept::Process(remote) => remote.configured(id, kind, config),
        }
    }

    /// Confirms that the owner of a recording is told of its deletion.
    pub(crate) fn announced(&self, file_name: &str, expires_at_ms: i64) -> Result<(), Error> {
        match self {
            Kept::Thread(recordings) => recordings.announced(file_name, expires_at_ms),
            Kept::Process(remote) => remote.announced(file_name, expires_at_ms),
        }
    }

    /// Addresses of recordings; `None` for a recording without one.
    pub(crate) fn sign(&self, names: &[String], valid: Duration) -> Result<Vec<Option<String>>, Error> {
        match self {
            Kept::Thread(recordings) => {
                Ok(names.iter().map(|name| recordings.sign(name, valid).ok()).collect())
            }
            Kept::Process(remote) => remote.sign_recordings(names, valid),
        }
    }
}

impl Held {
    /// Offers a new configuration; false when the destination must be opened again for it.
    pub(crate) fn reconfigure(&self, config: &str) -> Result<bool, Error> {
        match self {
            Held::Thread(instance) => instance.reconfigure(config),
            Held::Process(instance) => instance.reconfigure(config),
        }
    }

    pub(crate) fn stop(&self, deadline_ms: u32) {
        match self {
            Held::Thread(instance) => instance.stop(deadline_ms),
            Held::Process(instance) => instance.stop(deadline_ms),
        }
    }

    /// Frees it after its end.
    pub(crate) fn destroy(self) {
        match self {
            Held::Thread(instance) => instance.destroy(),
            Held::Process(instance) => instance.destroy(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_after_the_end_of_its_call_is_ignored() {
        let progress = Progress::default();
        assert!(!progress.hangs(Duration::ZERO));
        progress.overdue.fetch_max(3, Ordering::AcqRel);
        assert!(progress.hangs(Duration::ZERO));
        progress.ended.store(3, Ordering::Release);
        assert!(!progress.hangs(Duration::ZERO), "the late call returned");
        progress.overdue.fetch_max(2, Ordering::AcqRel);
        assert!(!progress.hangs(Duration::ZERO), "the verdict is about a call that has ended");
    }

    #[test]
    fn a_call_without_a_waiting_caller_hangs_too() {
        let (progress, began) = (Progress::default(), Duration::from_secs(9));
        let limit = Duration::from_millis(BUSY_MS_MAX);
        progress.busy_from.store(millis(began), Ordering::Release);
        assert!(!progress.hangs(began + limit));
        assert!(progress.hangs(began + limit + Duration::from_millis(1)));
        progress.busy_from.store(0, Ordering::Release);
        assert!(!progress.hangs(began + limit * 9));
    }

    #[test]
    fn silence_text() {
        assert_eq!(
            silence("x"),
            "driver x does not return from a call; if this lasts, the operator can enable the driver again to reload it"
        );
    }
}
