//! The two expendable threads the host keeps for each driver: *control* calls into the driver, *pump* wakes it.
//!
//! Driver code that blocks or never returns holds up one of these threads and nothing else of the host.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use satcast_plugin_api::Error;
use satcast_plugin_api::host::{Driver, DriverWaker, Services, Table};
use tokio::sync::oneshot;

/// Calls waiting for one driver; more are refused.
pub(super) const CALLS_QUEUED_MAX: usize = 1024;
/// How long `init` of a driver may take.
pub(super) const INIT_TIMEOUT_MS: u64 = 5_000;

type Job = Box<dyn FnOnce(&Driver) + Send>;

/// The control thread of one driver.
pub(super) struct Control {
    id: String,
    jobs: SyncSender<Job>,
    hung: Arc<AtomicBool>,
}

impl Control {
    /// Starts the thread and the driver on it. Blocks for at most [`INIT_TIMEOUT_MS`].
    pub(super) fn start(
        table: Table,
        services: Arc<dyn Services>,
        max_level: &'static AtomicU32,
        flags: u32,
    ) -> Result<Self, Error> {
        let id = table.id().to_string();
        let (jobs, queue) = sync_channel(CALLS_QUEUED_MAX);
        let (started, outcome) = sync_channel(1);
        let hung = Arc::new(AtomicBool::new(false));
        let seen = hung.clone();
        thread::Builder::new()
            .name(format!("c:{id}"))
            .spawn(move || match Driver::start(table, services, max_level, flags) {
                Ok(driver) => {
                    // The host may have given up waiting; the driver then idles until the process ends.
                    let _ = started.send(Ok(()));
                    run_jobs(driver, &queue, &seen);
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
        Ok(Self { id, jobs, hung })
    }

    /// Runs `job` on the control thread and waits for it, at most `limit`. A driver that is over a limit takes no further
    /// calls until the late one returns. `job` learns by its own means that nobody waits any more.
    pub(super) async fn call<R: Send + 'static>(
        &self,
        limit: Duration,
        job: impl FnOnce(&Driver) -> R + Send + 'static,
        late: impl FnOnce(R) + Send + 'static,
    ) -> Result<R, Error> {
        if self.hung.load(Ordering::Acquire) {
            return Err(self.no_answer());
        }
        let (answer, outcome) = oneshot::channel();
        self.send(Box::new(move |driver| {
            if let Err(result) = answer.send(job(driver)) {
                late(result);
            }
        }))?;
        match tokio::time::timeout(limit, outcome).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) => Err(Error::internal(format!("driver {} has ended", self.id))),
            Err(_) => {
                self.hung.store(true, Ordering::Release);
                tracing::error!(driver = %self.id, limit_ms = limit.as_millis() as u64, "driver does not return");
                Err(self.no_answer())
            }
        }
    }

    /// Queues `job` without waiting for it.
    pub(super) fn post(&self, job: impl FnOnce(&Driver) + Send + 'static) -> Result<(), Error> {
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

    fn no_answer(&self) -> Error {
        Error::internal(format!("driver {} does not answer; restart the service if it stays so", self.id))
    }
}

fn run_jobs(driver: Driver, queue: &Receiver<Job>, hung: &AtomicBool) {
    while let Ok(job) = queue.recv() {
        job(&driver);
        hung.store(false, Ordering::Release);
    }
    driver.shut_down();
}

/// The pump thread of one driver: runs its wakers, which are foreign code, off the threads that take media in.
pub(super) struct Pump {
    shared: Arc<PumpShared>,
}

struct PumpShared {
    state: Mutex<PumpState>,
    filled: Condvar,
}

#[derive(Default)]
struct PumpState {
    wakers: Vec<DriverWaker>,
    sleeping: bool,
    ended: bool,
}

impl Pump {
    pub(super) fn start(id: &str) -> Result<Self, Error> {
        let shared = Arc::new(PumpShared { state: Mutex::new(PumpState::default()), filled: Condvar::new() });
        let on_thread = shared.clone();
        thread::Builder::new()
            .name(format!("p:{id}"))
            .spawn(move || on_thread.run())
            .map_err(|error| Error::internal(format!("cannot start a thread for driver {id}: {error}")))?;
        Ok(Self { shared })
    }

    /// Wakes all of `wakers` soon. At most one waker per open destination waits here, so the list is bounded.
    pub(super) fn wake(&self, wakers: impl IntoIterator<Item = DriverWaker>) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.wakers.extend(wakers);
        // A notification is a system call even when nobody sleeps.
        if state.sleeping && !state.wakers.is_empty() {
            state.sleeping = false;
            drop(state);
            self.shared.filled.notify_one();
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.shared.filled.notify_one();
    }
}

impl PumpShared {
    fn run(&self) {
        let mut taken = Vec::new();
        loop {
            {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                while state.wakers.is_empty() && !state.ended {
                    state.sleeping = true;
                    state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                state.sleeping = false;
                if state.wakers.is_empty() {
                    return;
                }
                std::mem::swap(&mut taken, &mut state.wakers);
            }
            taken.drain(..).for_each(DriverWaker::wake);
        }
    }
}
