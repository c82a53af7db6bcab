//! The threads connections run on: each with a runtime of its own, so that a batch of packets goes from the socket to the
//! queues without a hop. On a runtime of several workers every timer and socket event also wakes a second worker that
//! looks for work, finds none and sleeps again; at ten small batches a second that was most of the cost of a stream.
//!
//! A few connections share one thread, so that one wake-up serves them all; drivers are woken once for what a thread took
//! from all that were due.

use std::io;
use std::thread;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Most threads, however many cores there are: beyond it the network is the limit.
pub(super) const THREADS_MAX: usize = 8;

/// Connections that a thread gets before the next one gets any.
pub(super) const CONNECTIONS_BEFORE_SPREADING: usize = 32;

/// Running threads; they end when this is dropped, with whatever still runs on them.
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

/// A connection's place on its thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Seat(Arc<AtomicUsize>);

impl Seat {
    /// Connections on this thread now, this one included.
    pub(super) fn connections(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Seat {
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
                // Nothing is ever sent: the dropped sender is the end.
                let _ = runtime.block_on(ended);
            })?;
        }
        Ok(threads)
    }

    /// A place on the thread that fills up, or on the one with the fewest connections once all have
    /// [`CONNECTIONS_BEFORE_SPREADING`].
    pub(super) fn seat(&self) -> (Handle, Seat) {
        let filled = |thread: &&Thread| {
            thread.connections.load(Ordering::Relaxed).max(CONNECTIONS_BEFORE_SPREADING - 1)
        };
        let thread = self.threads.iter().min_by_key(filled).expect("a thread for each core");
        thread.connections.fetch_add(1, Ordering::Relaxed);
        (thread.handle.clone(), Seat(Arc::clone(&thread.connections)))
    }
}

impl Thread {
    fn new(handle: Handle) -> Self {
        Self { handle, connections: Arc::default() }
    }
}

#[cfg(test)]
impl Threads {
    /// No threads: work runs where this is called, so that a test sees its log lines.
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
    fn a_thread_fills_before_the_next_and_then_all_grow_alike() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let three = (0..3).map(|_| Thread::new(runtime.handle().clone())).collect();
        let threads = Threads { threads: three, _running: Vec::new() };
        let mut seats: Vec<_> = (0..CONNECTIONS_BEFORE_SPREADING).map(|_| threads.seat().1).collect();
        assert_eq!(names(&threads), ["32", "0", "0"]);
        assert_eq!(seats[0].connections(), CONNECTIONS_BEFORE_SPREADING);
        seats.extend((0..2 * CONNECTIONS_BEFORE_SPREADING + 3).map(|_| threads.seat().1));
        assert_eq!(names(&threads), ["33", "33", "33"]);
        seats.drain(..2);
        assert_eq!(names(&threads), ["31", "33", "33"]);
        let (_, seat) = threads.seat();
        assert_eq!(seat.connections(), CONNECTIONS_BEFORE_SPREADING, "the place that became free");
    }

    #[test]
    fn work_runs_on_the_threads_and_ends_with_them() {
        let threads = Threads::start().unwrap();
        assert!((1..=THREADS_MAX).contains(&threads.threads.len()));
        let driver = Builder::new_current_thread().build().unwrap();
        let (handle, _seat) = threads.seat();
        let name = handle.spawn(async { thread::current().name().map(str::to_owned) });
        assert_eq!(driver.block_on(name).unwrap().unwrap(), "ingest-0");
        let unending = handle.spawn(std::future::pending::<()>());
        drop(threads);
        assert!(driver.block_on(unending).unwrap_err().is_cancelled());
    }
}
