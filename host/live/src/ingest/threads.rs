//! The threads of connections. Each has its own runtime, so a batch of packets goes from the socket to the queues without a change of
//! thread. On a runtime with several workers, each timer and socket event also wakes a second worker, which finds no work and sleeps
//! again. With ten small batches a second this was most of the cost of a stream.
//!
//! Connections share a thread, so that one wake-up serves all that are due. Drivers are then woken once for all their packets. Nothing
//! makes connections that are read as bytes arrive due at the same time, so a thread with many of them rests between its rounds.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::timer::Timer;

/// Most threads on any number of cores: beyond it the network is the limit.
pub(super) const THREADS_MAX: usize = 8;

/// Connections of a thread before the next thread is used.
pub(super) const CONNECTIONS_BEFORE_SPREADING: usize = 32;

/// A thread with this many connections that are read as bytes arrive looks for bytes at most once in [`ROUND_MIN`]. Fewer of them
/// rarely have bytes in the same round, and the rest would only be one more wake-up.
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
    /// Those that are read as bytes arrive.
    prompt: Arc<AtomicUsize>,
}

/// One of several that are counted; no longer counted when it is dropped.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn one_of(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The slot of a connection on its thread; released on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    connection: Counted,
    prompt: Arc<AtomicUsize>,
}

impl ConnectionSlot {
    /// Connections on this thread now, this one included.
    pub(super) fn connections(&self) -> usize {
        self.connection.0.load(Ordering::Relaxed)
    }

    /// The connection is read as bytes arrive, until the result is dropped.
    pub(super) fn read_promptly(&self) -> Counted {
        Counted::one_of(&self.prompt)
    }
}

impl Threads {
    /// One thread for each core, at most [`THREADS_MAX`].
    pub(super) fn start() -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut threads = Self { threads: Vec::new(), _running: Vec::new() };
        for number in 0..cores.min(THREADS_MAX) {
            let prompt: Arc<AtomicUsize> = Arc::default();
            let mut builder = Builder::new_current_thread();
            rest_in_crowds(&mut builder, Arc::clone(&prompt));
            let runtime = builder.enable_all().build()?;
            let (running, ended) = oneshot::channel::<()>();
            threads.threads.push(Thread {
                handle: runtime.handle().clone(),
                connections: Arc::default(),
                prompt,
            });
            threads._running.push(running);
            runtime.spawn(satcast_drivers::gather_wakeups());
            thread::Builder::new().name(format!("ingest-{number}")).spawn(move || {
                // Nothing is sent: the dropped sender ends the thread. Without a descriptor for the timer, connections say so.
                let _ = runtime.block_on(async {
                    let _timer = Timer::of_thread();
                    ended.await
                });
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
        let connection = Counted::one_of(&thread.connections);
        (thread.handle.clone(), ConnectionSlot { connection, prompt: Arc::clone(&thread.prompt) })
    }
}

thread_local! {
    /// When this thread woke up last.
    static WOKEN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Lets the thread of a runtime sleep for the rest of [`ROUND_MIN`] before it waits for events, while it has a [`CROWD`].
fn rest_in_crowds(builder: &mut Builder, prompt: Arc<AtomicUsize>) {
    builder.on_thread_unpark(|| WOKEN.set(Some(Instant::now()))).on_thread_park(move || {
        if prompt.load(Ordering::Relaxed) < CROWD {
            return;
        }
        let rest = WOKEN.get().map_or(Duration::ZERO, |woken| ROUND_MIN.saturating_sub(woken.elapsed()));
        if !rest.is_zero() {
            thread::sleep(rest);
        }
    });
}

/// Logs the panic of a task.
pub(super) fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(failure) = ended
        && failure.is_panic()
    {
        tracing::error!("the task of an encoder's connection panicked; other connections are not affected");
    }
}

#[cfg(test)]
impl Thread {
    fn new(handle: Handle) -> Self {
        Self { handle, connections: Arc::default(), prompt: Arc::default() }
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
        assert_eq!(threads.threads[0].prompt.load(Ordering::Relaxed), 0);
        let prompt = [slots[0].read_promptly(), slots[1].read_promptly()];
        assert_eq!(threads.threads[0].prompt.load(Ordering::Relaxed), 2);
        drop(prompt);
        assert_eq!(threads.threads[0].prompt.load(Ordering::Relaxed), 0);
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
