//! The expendable thread that wakes a driver and runs its callbacks, and the wake-ups for it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{self, Poll};
use std::thread;

use parking_lot::{Condvar, Mutex};
use satcast_plugin_api::Error;
use satcast_plugin_api::host::DriverWaker;

/// The pump thread of one driver: runs its wakers and other foreign code, off the threads that take media in.
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
    sleeping: bool,
    ended: bool,
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

    fn add(&self, add: impl FnOnce(&mut PumpState)) {
        let mut state = self.shared.state.lock();
        add(&mut state);
        // A notification is a system call even when the thread is not sleeping.
        if state.sleeping && !state.is_empty() {
            state.sleeping = false;
            drop(state);
            self.shared.filled.notify_one();
        }
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
    fn run(&self) {
        let (mut wakers, mut calls) = (Vec::new(), Vec::new());
        loop {
            {
                let mut state = self.state.lock();
                while state.is_empty() && !state.ended {
                    state.sleeping = true;
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

/// Wakes a driver that waits for media on its pump thread, once for all media that a thread took in at one time.
///
/// A wake-up costs two thread switches, to the pump and to the driver. On a thread that runs [`gather_wakeups`], a
/// task at the end of the runtime's queue gives the wake-ups of all ready tasks to the pumps together.
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
