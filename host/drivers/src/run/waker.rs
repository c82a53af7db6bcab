//! Waking drivers that wait for media, each on its own pump thread, once for all that a thread took in at one time.
//!
//! A wake-up is two switches of threads, to the pump and to the driver. On a thread that runs [`gather_wakeups`] those of all
//! tasks that are ready to run are given to the pumps together, by a task that stands behind them in the runtime's queue.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{self, Poll};

use satcast_plugin_api::host::DriverWaker;

use super::pump::Pump;

/// Wakes drivers that wait for media, each on its own pump thread.
#[derive(Clone)]
pub struct Waker {
    pump: Arc<Pump>,
}

/// What waits for the end of this round of the thread's tasks: at most one for each open destination.
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

    /// Wakes `wakers` soon; at most one system call. On a thread that gathers wake-ups, after the tasks that are ready now.
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

/// Gathers the wake-ups of the thread this runs on, for as long as it runs. For a runtime of one thread only: a task of its
/// own there, whose turn comes after those that were ready before it.
pub async fn gather_wakeups() {
    /// Nothing stays behind when the task ends.
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

/// Gives each pump what is for it, at one time.
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

    fn telling(told: &Sender<usize>, number: usize) -> DriverWaker {
        let told = told.clone();
        DriverWaker::calling(move || told.send(number).unwrap())
    }

    fn told(woken: &Receiver<usize>, count: usize) -> Vec<usize> {
        let mut all: Vec<_> =
            (0..count).map(|_| woken.recv_timeout(Duration::from_secs(30)).expect("a wake-up")).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn drivers_are_woken_after_all_tasks_that_were_ready() {
        let (told_to, woken) = channel();
        let (one, other) = (Waker::idle(), Waker::idle());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.spawn(gather_wakeups());
        runtime.block_on(async {
            tokio::task::yield_now().await;
            let tasks = [0, 1, 2, 3, 4, 5].map(|number| {
                let waker = if number % 2 == 0 { one.clone() } else { other.clone() };
                let driver = telling(&told_to, number);
                tokio::spawn(async move {
                    waker.wake([driver]);
                    held()
                })
            });
            for (number, task) in tasks.into_iter().enumerate() {
                assert_eq!(
                    task.await.unwrap(),
                    Some(number + 1),
                    "none was given away before its round was over"
                );
            }
            tokio::task::yield_now().await;
            assert_eq!(held(), Some(0));
        });
        assert_eq!(told(&woken, 6), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_waits_when_the_thread_ends_is_woken_and_other_threads_do_not_gather() {
        let (told_to, woken) = channel();
        let waker = Waker::idle();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.spawn(gather_wakeups());
        runtime.block_on(tokio::task::yield_now());
        waker.wake([telling(&told_to, 1), telling(&told_to, 2)]);
        assert_eq!(held(), Some(2), "no task has run since");
        drop(runtime);
        assert_eq!(told(&woken, 2), [1, 2]);
        assert_eq!(held(), None);
        waker.wake([telling(&told_to, 3)]);
        assert_eq!(told(&woken, 1), [3]);
    }
}
