//! The threads connections run on: each with a runtime of its own, so that a batch of packets goes from the socket to the
//! queues without a hop. On a runtime of several workers every timer and socket event also wakes a second worker that
//! looks for work, finds none and sleeps again; at ten small batches a second that was most of the cost of a stream.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Most threads, however many cores there are: beyond it the network is the limit.
pub(super) const THREADS_MAX: usize = 8;

/// Running threads; they end when this is dropped, with whatever still runs on them.
#[derive(Debug)]
pub(super) struct Threads {
    handles: Vec<Handle>,
    next: usize,
    _running: Vec<oneshot::Sender<()>>,
}

impl Threads {
    /// One thread for each core, at most [`THREADS_MAX`].
    pub(super) fn start() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut threads = Self { handles: Vec::new(), next: 0, _running: Vec::new() };
        for number in 0..cores.min(THREADS_MAX) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (running, ended) = oneshot::channel::<()>();
            threads.handles.push(runtime.handle().clone());
            threads._running.push(running);
            thread::Builder::new().name(format!("ingest-{number}")).spawn(move || {
                // Nothing is ever sent: the dropped sender is the end.
                let _ = runtime.block_on(ended);
            })?;
        }
        Ok(threads)
    }

    /// The threads in turn.
    pub(super) fn next(&mut self) -> Handle {
        let handle = self.handles[self.next % self.handles.len()].clone();
        self.next = self.next.wrapping_add(1);
        handle
    }
}

#[cfg(test)]
impl Threads {
    /// No threads: work runs where this is called, so that a test sees its log lines.
    pub(super) fn here() -> Self {
        Self { handles: vec![Handle::current()], next: 0, _running: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_goes_round_the_threads_and_ends_with_them() {
        let mut threads = Threads::start().unwrap();
        let count = threads.handles.len();
        assert!((1..=THREADS_MAX).contains(&count));
        let name = || thread::current().name().map(str::to_owned);
        let driver = Builder::new_current_thread().build().unwrap();
        let names: Vec<_> = (0..count + 1)
            .map(|_| driver.block_on(threads.next().spawn(async move { name() })).unwrap().unwrap())
            .collect();
        assert_eq!(names[0], "ingest-0");
        assert_eq!(names[count], names[0], "round and round");
        let unending = threads.next().spawn(std::future::pending::<()>());
        drop(threads);
        assert!(driver.block_on(unending).unwrap_err().is_cancelled());
    }
}
