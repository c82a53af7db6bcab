//! The threads of connections. Each has its own runtime, so a batch of packets goes from the socket to the queues without a change of
//! thread. On a runtime with several workers, each timer and socket event also wakes a second worker, which finds no work and sleeps
//! again. With ten small batches a second this was most of the cost of a stream.
//!
//! Connections share a thread, so that one wake-up serves all that are due. Drivers are then woken once for all their packets. Without
//! a wait between reads nothing makes connections due at the same time, so a crowded thread rests between its rounds.

use std::cell::Cell;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Most threads on any number of cores: beyond it the network is the limit.
pub(super) const THREADS_MAX: usize = 8;

/// Connections of a thread before the next thread is used.
pub(super) const CONNECTIONS_BEFORE_SPREADING: usize = 32;

/// Without a wait between reads, a thread with this many connections looks for new bytes at most once in [`ROUND_MIN`]. Fewer
/// connections rarely have bytes in the same round, and the rest would only be one more wake-up.
const CROWD: usize = 16;

/// Least time between two looks of a crowded thread for new bytes. A packet is late by this time at most.
const ROUND_MIN: Duration = Duration::from_millis(1);

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
    /// One thread for each core, at most [`THREADS_MAX`]. `rests`: they rest between rounds while they are crowded.
    pub(super) fn start(rests: bool) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut threads = Self { threads: Vec::new(), _running: Vec::new() };
        for number in 0..cores.min(THREADS_MAX) {
            let connections: Arc<AtomicUsize> = Arc::default();
            let mut builder = Builder::new_current_thread();
            if rests {
                rest_in_crowds(&mut builder, Arc::clone(&connections));
            }
            let runtime = builder.enable_all().build()?;
            let (running, ended) = oneshot::channel::<()>();
            threads.threads.push(Thread { handle: runtime.handle().clone(), connections });
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

thread_local! {
    /// When this thread woke up last.
    static WOKEN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets the thread of a runtime sleep for the rest of [`ROUND_MIN`] before it waits for events, while it has a [`CROWD`].
fn rest_in_crowds(builder: &mut Builder, connections: Arc<AtomicUsize>) {
    builder.on_thread_unpark(|| WOKEN.set(Some(Instant::now()))).on_thread_park(move || {
        let rest = WOKEN.get().map_or(Duration::ZERO, |woken| ROUND_MIN.saturating_sub(woken.elapsed()));
        if !rest.is_zero() && connections.load(Ordering::Relaxed) >= CROWD {
            thread::sleep(rest);
        }
    });
}

#[cfg(test)]
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
    fn a_crowded_thread_takes_what_came_in_a_round_together() {
        const MESSAGES: usize = 300;
        let mut builder = Builder::new_current_thread();
        rest_in_crowds(&mut builder, Arc::new(AtomicUsize::new(CROWD)));
        let runtime = builder.enable_all().build().unwrap();
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let sending = thread::spawn(move || {
            for _ in 0..MESSAGES {
                sender.send(()).unwrap();
                thread::sleep(ROUND_MIN / 10);
            }
        });
        let started = Instant::now();
        let (mut taken, mut rounds) = (Vec::new(), 0);
        runtime.block_on(async {
            while received.recv_many(&mut taken, MESSAGES).await > 0 {
                rounds += 1;
            }
        });
        let took = started.elapsed();
        sending.join().unwrap();
        assert_eq!(taken.len(), MESSAGES);
        // A message may come while those of its round are being taken.
        let most = took.as_millis() / ROUND_MIN.as_millis() + MESSAGES as u128 / 20;
        assert!(rounds <= most, "{rounds} rounds in {took:?}");
    }

    #[test]
    fn work_runs_on_the_threads_and_ends_with_them() {
        let threads = Threads::start(true).unwrap();
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
