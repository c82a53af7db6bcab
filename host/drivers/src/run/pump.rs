//! The expendable thread that wakes a driver and runs its callbacks, and the wake-ups for it. A driver may take this work over: its
//! own thread then wakes for media without another thread in between.

use std::cell::RefCell;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{self, Poll};
use std::thread;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use satcast_plugin_api::Error;
use satcast_plugin_api::host::DriverWaker;

/// The pump of one driver: its wakers and other foreign code, which run off the threads that take media in. They run on the pump
/// thread, or on a thread of the driver that has taken the pump.
pub(crate) struct Pump {
    shared: Arc<PumpShared>,
}

struct PumpShared {
    state: Mutex<PumpState>,
    filled: Condvar,
}

#[derive(Default)]
struct PumpState {
    wakers: Vec<DriverWaker>,
    calls: Vec<Box<dyn FnOnce() + Send>>,
    /// The thread that runs them waits for more.
    sleeping: bool,
    ended: bool,
    /// The driver has taken the pump. Its thread waits for this eventfd, and the pump thread only for the end.
    bell: Option<Arc<File>>,
}

impl Pump {
    pub(crate) fn start(id: &str) -> Result<Self, Error> {
        let shared = Arc::new(PumpShared { state: Mutex::new(PumpState::default()), filled: Condvar::new() });
        let on_thread = shared.clone();
        thread::Builder::new()
            .name(format!("p:{id}"))
            .spawn(move || on_thread.run())
            .map_err(|error| Error::internal(format!("cannot start a thread for driver {id}: {error}")))?;
        Ok(Self { shared })
    }

    /// Wakes all of `wakers` soon. At most one waker per open destination waits here, so the list is bounded.
    pub(crate) fn wake(&self, wakers: impl IntoIterator<Item = DriverWaker>) {
        self.add(|state| state.wakers.extend(wakers));
    }

    /// Runs `call`, which runs code of the driver, soon. The caller bounds the number of calls.
    pub(crate) fn run(&self, call: impl FnOnce() + Send + 'static) {
        self.add(|state| state.calls.push(Box::new(call)));
    }

    /// Gives the pump to the driver, with an eventfd that is added to when [`Pump::run_due`] has something to run. `None` when the
    /// system has no free descriptor.
    pub(crate) fn give_away(&self) -> Option<OwnedFd> {
        let bell = File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?);
        let drivers = bell.try_clone().ok()?;
        let mut state = self.shared.state.lock();
        state.bell = Some(Arc::new(bell));
        state.sleeping = true;
        self.shared.wake(state);
        Some(drivers.into())
    }

    /// The driver no longer runs anything: the pump thread does again.
    pub(crate) fn take_back(&self) {
        self.shared.state.lock().bell = None;
        self.shared.filled.notify_one();
    }

    /// Runs everything that is due, on this thread, for a driver that has taken the pump.
    pub(crate) fn run_due(&self) {
        let (wakers, calls) = {
            let mut state = self.shared.state.lock();
            if state.bell.is_none() {
                return;
            }
            state.sleeping = true;
            let next = Vec::with_capacity(state.wakers.len());
            (std::mem::replace(&mut state.wakers, next), std::mem::take(&mut state.calls))
        };
        wakers.into_iter().for_each(DriverWaker::wake);
        calls.into_iter().for_each(|call| call());
    }

    fn add(&self, add: impl FnOnce(&mut PumpState)) {
        let mut state = self.shared.state.lock();
        add(&mut state);
        self.shared.wake(state);
    }
}

impl PumpState {
    fn is_empty(&self) -> bool {
        self.wakers.is_empty() && self.calls.is_empty()
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.shared.state.lock().ended = true;
        self.shared.filled.notify_one();
    }
}

impl PumpShared {
    /// Wakes the thread that runs what is due, if it sleeps and there is something. A notification is a system call even when the
    /// thread is not sleeping.
    fn wake(&self, mut state: MutexGuard<'_, PumpState>) {
        if !state.sleeping || state.is_empty() {
            return;
        }
        state.sleeping = false;
        let bell = state.bell.clone();
        drop(state);
        match bell {
            Some(bell) => ring(&bell),
            None => {
                self.filled.notify_one();
            }
        }
    }

    fn run(&self) {
        let (mut wakers, mut calls) = (Vec::new(), Vec::new());
        loop {
            {
                let mut state = self.state.lock();
                while (state.is_empty() || state.bell.is_some()) && !state.ended {
                    if state.bell.is_none() {
                        state.sleeping = true;
                    }
                    self.filled.wait(&mut state);
                }
                state.sleeping = false;
                if state.is_empty() {
                    return;
                }
                std::mem::swap(&mut wakers, &mut state.wakers);
                std::mem::swap(&mut calls, &mut state.calls);
            }
            wakers.drain(..).for_each(DriverWaker::wake);
            calls.drain(..).for_each(|call| call());
        }
    }
}

/// Adds to an eventfd.
fn ring(mut bell: &File) {
    match bell.write(&1_u64.to_ne_bytes()) {
        Ok(_) => {}
        // The count is full: the driver has not read it since 2^64 rings, and has an event.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => tracing::error!(%error, "cannot wake a driver"),
    }
}

/// Wakes a driver that waits for media, once for all media that a thread took in at one time.
///
/// A wake-up costs a thread switch to the driver, and one more to the pump thread of a driver that has not taken its pump. On a
/// thread that runs [`gather_wakeups`], a task at the end of the runtime's queue gives the wake-ups of all ready tasks to the pumps
/// together.
#[derive(Clone)]
pub struct Waker {
    pump: Arc<Pump>,
}

/// Wake-ups until the end of this round of the thread's tasks: at most one for each open destination.
#[derive(Default)]
struct Gathered {
    wakers: Vec<(Arc<Pump>, DriverWaker)>,
    /// The task that gives them to the pumps.
    task: Option<task::Waker>,
}

thread_local! {
    static GATHERED: RefCell<Option<Gathered>> = const { RefCell::new(None) };
}

impl Waker {
    pub(crate) fn new(pump: Arc<Pump>) -> Self {
        Self { pump }
    }

    /// Wakes `wakers` soon; at most one system call. On a thread that gathers wake-ups, after the tasks that are
    /// ready now.
    pub fn wake(&self, wakers: impl IntoIterator<Item = DriverWaker>) {
        let mut wakers = wakers.into_iter().peekable();
        if wakers.peek().is_none() {
            return;
        }
        GATHERED.with_borrow_mut(|gathered| match gathered {
            Some(gathered) => {
                gathered.wakers.extend(wakers.map(|waker| (Arc::clone(&self.pump), waker)));
                if let Some(task) = gathered.task.take() {
                    task.wake();
                }
            }
            None => self.pump.wake(wakers),
        });
    }
}

/// Gathers the wake-ups of the current thread, for as long as it runs. For a single-threaded runtime only: a task of
/// its own there, which runs after the tasks that were ready before it.
pub async fn gather_wakeups() {
    /// Clears the gathered wake-ups when the task ends.
    struct Gathering;
    impl Drop for Gathering {
        fn drop(&mut self) {
            if let Some(gathered) = GATHERED.take() {
                give(gathered.wakers);
            }
        }
    }

    GATHERED.set(Some(Gathered::default()));
    let _gathering = Gathering;
    poll_fn(|context| {
        let wakers = GATHERED.with_borrow_mut(|gathered| {
            let gathered = gathered.get_or_insert_default();
            gathered.task = Some(context.waker().clone());
            std::mem::take(&mut gathered.wakers)
        });
        give(wakers);
        Poll::<()>::Pending
    })
    .await;
}

/// Gives each pump its wake-ups together.
fn give(mut wakers: Vec<(Arc<Pump>, DriverWaker)>) {
    while let Some((pump, _)) = wakers.first() {
        let pump = Arc::clone(pump);
        let (own, others): (Vec<_>, Vec<_>) =
            wakers.into_iter().partition(|(other, _)| Arc::ptr_eq(other, &pump));
        pump.wake(own.into_iter().map(|(_, waker)| waker));
        wakers = others;
    }
}

#[cfg(any(test, feature = "testing"))]
impl Waker {
    /// A waker of no driver.
    pub fn idle() -> Self {
        Self::new(Arc::new(Pump::start("test").expect("a thread")))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    fn held() -> Option<usize> {
        GATHERED.with_borrow(|gathered| gathered.as_ref().map(|gathered| gathered.wakers.len()))
    }

    fn numbered_waker(sender: &Sender<usize>, number: usize) -> DriverWaker {
        let sender = sender.clone();
        DriverWaker::calling(move || sender.send(number).unwrap())
    }

    fn received(woken: &Receiver<usize>, count: usize) -> Vec<usize> {
        let mut all: Vec<_> =
            (0..count).map(|_| woken.recv_timeout(Duration::from_secs(30)).expect("a wake-up")).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn drivers_are_woken_after_all_tasks_that_were_ready() {
        let (sender, woken) = channel();
        let (one, other) = (Waker::idle(), Waker::idle());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.spawn(gather_wakeups());
        runtime.block_on(async {
            tokio::task::yield_now().await;
            let tasks = [0, 1, 2, 3, 4, 5].map(|number| {
                let waker = if number % 2 == 0 { one.clone() } else { other.clone() };
                let driver = numbered_waker(&sender, number);
                tokio::spawn(async move {
                    waker.wake([driver]);
                    held()
                })
            });
            for (number, task) in tasks.into_iter().enumerate() {
                assert_eq!(task.await.unwrap(), Some(number + 1), "no wake-up before the end of the round");
            }
            tokio::task::yield_now().await;
            assert_eq!(held(), Some(0));
        });
        assert_eq!(received(&woken, 6), [0, 1, 2, 3, 4, 5]);
    }

    /// Rings of the bell since the last call.
    fn rings(bell: &mut File) -> u64 {
        let mut count = [0; 8];
        match bell.read(&mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_driver_with_the_pump_is_rung_once_and_runs_what_is_due_on_its_own_thread() {
        let (sender, woken) = channel();
        let pump = Pump::start("test").unwrap();
        let mut bell = File::from(pump.give_away().unwrap());
        pump.run_due();
        assert_eq!(rings(&mut bell), 0, "nothing is due");
        for round in 0..2 {
            pump.wake([numbered_waker(&sender, round)]);
            pump.wake([numbered_waker(&sender, round + 10)]);
            assert_eq!(rings(&mut bell), 1, "the second wake-up finds the driver awake");
            assert!(woken.try_recv().is_err(), "the pump thread leaves it to the driver");
            pump.run_due();
            assert_eq!(woken.try_iter().collect::<Vec<_>>(), [round, round + 10]);
        }
        let named = sender.clone();
        pump.run(move || {
            assert_eq!(thread::current().name(), Some("p:test"));
            named.send(7).unwrap();
        });
        pump.take_back();
        assert_eq!(received(&woken, 1), [7], "the pump thread runs what the driver has left");
        pump.run_due();
        pump.wake([numbered_waker(&sender, 8)]);
        assert_eq!(received(&woken, 1), [8]);
        assert_eq!(rings(&mut bell), 1, "that of the call");
    }

    #[test]
    fn wakeups_before_and_after_the_driver_has_the_pump_are_not_lost() {
        let (sender, woken) = channel();
        for round in 0..200 {
            let pump = Arc::new(Pump::start("test").unwrap());
            let adding = {
                let (pump, sender) = (pump.clone(), sender.clone());
                thread::spawn(move || {
                    for _ in 0..20 {
                        pump.wake([numbered_waker(&sender, round)]);
                    }
                })
            };
            let bell = pump.give_away().unwrap();
            pump.run_due();
            adding.join().unwrap();
            drop(bell);
            // With the last handle of the pump its thread runs the rest, also while the driver has it.
            if round % 2 == 0 {
                pump.take_back();
            }
            drop(pump);
            assert_eq!(received(&woken, 20), [round; 20]);
        }
    }

    #[test]
    fn pending_wakeups_run_when_the_thread_ends_and_other_threads_do_not_gather() {
        let (sender, woken) = channel();
        let waker = Waker::idle();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.spawn(gather_wakeups());
        runtime.block_on(tokio::task::yield_now());
        waker.wake([numbered_waker(&sender, 1), numbered_waker(&sender, 2)]);
        assert_eq!(held(), Some(2), "no task has run since");
        drop(runtime);
        assert_eq!(received(&woken, 2), [1, 2]);
        assert_eq!(held(), None);
        waker.wake([numbered_waker(&sender, 3)]);
        assert_eq!(received(&woken, 1), [3]);
    }
}
