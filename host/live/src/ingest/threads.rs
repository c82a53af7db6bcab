//! The threads of connections. Each has its own runtime, so a batch of packets goes from the socket to the queues without a change of
//! thread. On a runtime with several workers, each timer and socket event also wakes a second worker, which finds no work and sleeps
//! again. With ten small batches a second this was most of the cost of a stream.
//!
//! Connections share a thread, so that one wake-up serves all that are due. Drivers are then woken once for all their packets.

use std::io;
use std::thread;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Most threads on any number of cores: beyond it the network is the limit.
pub(super) const THREADS_MAX: usize = 8;

/// Connections of a thread before the next thread is used.
pub(super) const CONNECTIONS_BEFORE_SPREADING: usize = 32;

/// Running threads. On drop they end together with their tasks.
#[derive(Debug)]
pub(super) struct Threads {
    threads: Vec<Thread>,
    _running: Vec<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Thread {
    handle: Handle,
    connections: Arc<AtomicUsize>,
}

/// The slot of a connection on its thread; released on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot(Arc<AtomicUsize>);

impl ConnectionSlot {
    /// Connections on this thread now, this one included.
    pub(super) fn connections(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    /// One thread for each core, at most [`THREADS_MAX`].
    pub(super) fn start() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut threads = Self { threads: Vec::new(), _running: Vec::new() };
        for number in 0..cores.min(THREADS_MAX) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (running, ended) = oneshot::channel::<()>();
            threads.threads.push(Thread::new(runtime.handle().clone()));
            threads._running.push(running);
            runtime.spawn(satcast_drivers::gather_wakeups());
            thread::Builder::new().name(format!("ingest-{number}")).spawn(move || {
                // Nothing is sent: the dropped sender ends the thread.
                let _ = runtime.block_on(ended);
            })?;
        }
        Ok(threads)
    }

    /// A slot on the first thread with fewer than [`CONNECTIONS_BEFORE_SPREADING`] connections. If there is none, on the thread with the
    /// fewest connections.
    pub(super) fn slot(&self) -> (Handle, ConnectionSlot) {
        let filled = |thread: &&Thread| {
            thread.connections.load(Ordering::Relaxed).max(CONNECTIONS_BEFORE_SPREADING - 1)
        };
        let thread = self.threads.iter().min_by_key(filled).expect("a thread for each core");
        thread.connections.fetch_add(1, Ordering::Relaxed);
        (thread.handle.clone(), ConnectionSlot(Arc::clone(&thread.connections)))
    }
}

impl Thread {
    fn new(handle: Handle) -> Self {
        Self { handle, connections: Arc::default() }
    }
}

#[cfg(test)]
impl Threads {
    /// No threads: work runs on the current runtime, so that a test sees its log lines.
    pub(super) fn here() -> Self {
        Self { threads: vec![Thread::new(Handle::current())], _running: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(threads: &Threads) -> Vec<String> {
        threads.threads.iter().map(|thread| thread.connections.load(Ordering::Relaxed).to_string()).collect()
    }

    #[test]
    fn threads_fill_one_after_the_other_and_then_evenly() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let three = (0..3).map(|_| Thread::new(runtime.handle().clone())).collect();
        let threads = Threads { threads: three, _running: Vec::new() };
        let mut slots: Vec<_> = (0..CONNECTIONS_BEFORE_SPREADING).map(|_| threads.slot().1).collect();
        assert_eq!(names(&threads), ["32", "0", "0"]);
        assert_eq!(slots[0].connections(), CONNECTIONS_BEFORE_SPREADING);
        slots.extend((0..2 * CONNECTIONS_BEFORE_SPREADING + 3).map(|_| threads.slot().1));
        assert_eq!(names(&threads), ["33", "33", "33"]);
        slots.drain(..2);
        assert_eq!(names(&threads), ["31", "33", "33"]);
        let (_, slot) = threads.slot();
        assert_eq!(slot.connections(), CONNECTIONS_BEFORE_SPREADING, "the released slot");
    }

    #[test]
    fn work_runs_on_the_threads_and_ends_with_them() {
        let threads = Threads::start().unwrap();
        assert!((1..=THREADS_MAX).contains(&threads.threads.len()));
        let driver = Builder::new_current_thread().build().unwrap();
        let (handle, _slot) = threads.slot();
        let name = handle.spawn(async { thread::current().name().map(str::to_owned) });
        assert_eq!(driver.block_on(name).unwrap().unwrap(), "ingest-0");
        let unending = handle.spawn(std::future::pending::<()>());
        drop(threads);
        assert!(driver.block_on(unending).unwrap_err().is_cancelled());
    }
}
