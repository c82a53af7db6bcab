//! The expendable thread that wakes a driver and runs its callbacks.

use std::sync::Arc;
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
