//! Threads of a driver that wait for media of several destinations.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::services::{DriverWaker, MediaHandle, with};
use super::{MediaSource, Recv};
use crate::abi::{self, SatcastMedia};

/// Rung by the first queue that has packets or is closed.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// A waker that rings the bell.
    fn waker(self: &Arc<Self>) -> DriverWaker {
        let data = Arc::into_raw(self.clone()).cast_mut().cast();
        DriverWaker { raw: abi::SatcastWaker { data, wake: Some(ring), drop: Some(forget) } }
    }

    /// Waits until the bell rings and resets it; false after `end`.
    fn wait(&self, end: Instant) -> bool {
        let mut rung = self.is_rung.lock();
        self.changed.wait_while_until(&mut rung, |rung| !*rung, end);
        std::mem::take(&mut *rung)
    }
}

/// # Safety
/// `data` must come from [`Bell::waker`], and be passed to one of the two functions once.
unsafe extern "C" fn ring(data: *mut c_void) {
    // SAFETY: see above.
    let bell = unsafe { Arc::from_raw(data.cast_const().cast::<Bell>()) };
    *bell.is_rung.lock() = true;
    bell.changed.notify_one();
}

/// # Safety
/// As [`ring`].
unsafe extern "C" fn forget(data: *mut c_void) {
    // SAFETY: see above.
    drop(unsafe { Arc::from_raw(data.cast_const().cast::<Bell>()) });
}

/// # Safety
/// As [`abi::SatcastWait::wait_any`].
pub(super) unsafe extern "C" fn wait_any(
    ctx: *mut c_void,
    media: *const *mut SatcastMedia,
    count: usize,
    timeout_ms: u32,
) -> isize {
    if media.is_null() || count == 0 || count > abi::WAIT_MEDIA_MAX {
        return abi::WAIT_INVALID;
    }
    // SAFETY: the list and its queues live for the call.
    unsafe {
        with(ctx, abi::WAIT_INVALID, |_| {
            let media = std::slice::from_raw_parts(media, count);
            if media.iter().any(|media| media.is_null()) {
                return abi::WAIT_INVALID;
            }
            let handles = media.iter().map(|media| &*media.cast::<MediaHandle>());
            let sources: Vec<Arc<dyn MediaSource>> = handles.map(|handle| handle.source.clone()).collect();
            first_ready(&sources, Duration::from_millis(u64::from(timeout_ms)))
        })
    }
}

fn first_ready(sources: &[Arc<dyn MediaSource>], timeout: Duration) -> isize {
    let end = Instant::now() + timeout;
    let bell = Arc::new(Bell::default());
    loop {
        let is_ready =
            |source: &Arc<dyn MediaSource>| source.recv(0, &mut Vec::new(), bell.waker()) != Recv::Empty;
        if let Some(position) = sources.iter().position(is_ready) {
            return position as isize;
        }
        if !bell.wait(end) {
            return abi::WAIT_TIMEOUT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Delivery;

    /// A queue without packets.
    #[derive(Default)]
    struct Source(Mutex<(bool, Option<DriverWaker>)>);

    impl Source {
        fn close(&self) {
            let mut state = self.0.lock();
            state.0 = true;
            let waker = state.1.take();
            drop(state);
            waker.into_iter().for_each(DriverWaker::wake);
        }
    }

    impl MediaSource for Source {
        fn recv(&self, _: usize, _: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
            let mut state = self.0.lock();
            if state.0 {
                return Recv::Closed;
            }
            state.1 = Some(waker);
            Recv::Empty
        }

        fn released(&self, _: usize) {}

        fn abandoned(&self) {}
    }

    #[test]
    fn a_waiting_thread_gets_the_ready_queue() {
        let sources: Vec<Arc<Source>> = (0..3).map(|_| Arc::default()).collect();
        let queues: Vec<Arc<dyn MediaSource>> =
            sources.iter().map(|source| source.clone() as Arc<dyn MediaSource>).collect();
        assert_eq!(first_ready(&queues, Duration::ZERO), abi::WAIT_TIMEOUT);
        let waiting = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| first_ready(&queues, Duration::from_secs(20)));
            sources[2].close();
            waiting.join().unwrap()
        });
        assert_eq!(waiting, 2);
        sources[1].close();
        assert_eq!(first_ready(&queues, Duration::ZERO), 1, "the lowest");
    }

    #[test]
    fn invalid_queue_lists_are_refused() {
        let nothing = std::ptr::null_mut::<SatcastMedia>();
        let call = |media, count| {
            // SAFETY: the list is refused before its pointers are used.
            unsafe { wait_any(std::ptr::null_mut(), media, count, 0) }
        };
        assert_eq!(call(std::ptr::null(), 1), abi::WAIT_INVALID);
        assert_eq!(call(&raw const nothing, 0), abi::WAIT_INVALID);
        assert_eq!(call(&raw const nothing, abi::WAIT_MEDIA_MAX + 1), abi::WAIT_INVALID);
    }
}
