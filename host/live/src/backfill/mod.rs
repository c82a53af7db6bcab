//! Backfill: a recording that is added to a live stream begins with what the DVR window holds.
//!
//! The driver's source of media is [`Backfill`] instead of the queue. A thread of its own ([`read`]) reads the segments of the session's
//! longest window, oldest first, and gives the next one when the driver has taken the one before: an hour is more than fits in memory. The
//! queue meanwhile keeps what comes, as for any driver that is slow, on disk where its driver must not lose anything. Where the segments
//! come to the first packets that wait there ([`join`]) the reading ends, and the queue is all there is.

mod join;
mod read;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource, Recv};

use self::read::Reading;
pub(super) use self::shared::About;
use self::shared::Shared;
use super::queue::Queue;
use satcast_drivers::Waker;
use satcast_drivers::published::Opening;

/// Stack of the thread that reads.
const STACK_BYTES: usize = 1024 * 1024;

/// Media of one opening: what the window holds, then the queue.
pub(super) struct Backfill {
    shared: Arc<Shared>,
    window: Arc<Opening>,
    about: About,
}

impl Backfill {
    /// What is in `window`, before `queue`. Nothing is read before [`Backfill::start`].
    pub(super) fn new(queue: Arc<Queue>, waker: Waker, window: Arc<Opening>, about: About) -> Self {
        let (state, room) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { queue, waker, state, room }), window, about }
    }

    /// Begins to read, on a thread of its own: it waits for the driver, and viewers need the threads of the runtime for what blocks. It
    /// ends by itself, soon after [`Backfill::give_up`].
    pub(super) fn start(&self) {
        let reading = Reading::new(self.shared.clone(), self.window.clone(), self.about.clone());
        let thread = thread::Builder::new().name("backfill".into()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || reading.run()) {
            let (session, destination) = (&self.about.session, self.about.destination);
            tracing::error!(%session, %destination, %error, "the DVR window cannot be read for a destination");
            self.shared.finish(false);
        }
    }

    /// The driver has taken all of it.
    pub(super) fn is_taken(&self) -> bool {
        let state = self.shared.state.lock();
        state.is_over() && !state.is_given_up
    }

    /// The driver has taken all of it, or nobody takes any more.
    pub(super) fn is_over(&self) -> bool {
        self.shared.state.lock().is_over()
    }

    /// Its destination has ended.
    pub(super) fn give_up(&self) {
        if !self.is_over() {
            let (session, destination) = (&self.about.session, self.about.destination);
            tracing::warn!(%session, %destination, "a destination ends before it took all of its backfill");
        }
        self.shared.give_up();
    }
}

impl MediaSource for Backfill {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
        let (mut state, from) = (self.shared.state.lock(), out.len());
        if state.is_over() {
            let cut = state.cut;
            drop(state);
            let received = self.shared.queue.recv(max, out, waker);
            if cut && let Some(first) = out[from..].iter_mut().find(|delivery| !delivery.packet.is_config()) {
                first.discontinuity = true;
                self.shared.state.lock().cut = false;
            }
            return received;
        }
        if state.packets.is_empty() {
            let old = state.waker.replace(waker);
            drop(state);
            // Foreign code: not under the lock.
            drop(old);
            return Recv::Empty;
        }
        let count = state.packets.len().min(max);
        out.extend(state.packets.drain(..count));
        state.leased += out[from..].iter().map(|delivery| delivery.packet.payload.len()).sum::<usize>();
        drop(state);
        self.shared.room.notify_all();
        drop(waker);
        Recv::Ready
    }

    /// What is let go of counts for segments first: which of the two it was does not matter for what is held in all.
    fn released(&self, bytes: usize) {
        let mut state = self.shared.state.lock();
        let own = bytes.min(state.leased);
        state.leased -= own;
        drop(state);
        self.shared.room.notify_all();
        if own < bytes {
            self.shared.queue.released(bytes - own);
        }
    }

    fn abandoned(&self) {
        self.shared.give_up();
        self.shared.queue.abandoned();
    }
}
