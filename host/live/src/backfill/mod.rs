//! Backfill: a recording that is added to a live stream starts with the media in the DVR window.
//!
//! The driver's source of media is [`Backfill`] instead of the queue. A separate thread ([`read`]) reads the segments of the session's
//! longest window, oldest first. It reads the next segment when the driver has taken the one before, because an hour does not fit into
//! memory. Meanwhile the queue keeps new packets, as for any slow driver; on disk for a lossless driver. The reading ends where the
//! segments reach the first packets in the queue ([`join`]). From then on, media comes from the queue.

mod join;
mod read;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};
use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource, Recv};
use tracing::Span;

use self::read::Reading;
use self::shared::Shared;
use super::queue::Queue;
use satcast_drivers::Waker;
use satcast_drivers::published::Opening;

/// Stack of the reading thread.
const STACK_BYTES: usize = 1024 * 1024;

/// Media of one opening: the window, then the queue.
pub(super) struct Backfill {
    shared: Arc<Shared>,
    window: Arc<Opening>,
    source: u64,
}

impl Backfill {
    /// The media in `window`, then in `queue`, for the packets of the session `source`. Nothing is read before [`Backfill::start`].
    pub(super) fn new(queue: Arc<Queue>, waker: Waker, window: Arc<Opening>, source: u64) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(Shared { queue, waker, state, changed }), window, source }
    }

    /// Starts the reading thread. Not a blocking thread of the runtime, because it waits for the driver, and viewers need those threads.
    /// It ends soon after [`Backfill::give_up`].
    pub(super) fn start(&self) {
        let reading = Reading::new(self.shared.clone(), self.window.clone(), self.source);
        let thread = thread::Builder::new().name("backfill".into()).stack_size(STACK_BYTES);
        let span = Span::current();
        if let Err(error) = thread.spawn(move || span.in_scope(|| reading.run())) {
            tracing::error!(%error, "cannot start the backfill of a destination; it gets no earlier media");
            self.shared.finish(false);
        }
    }

    /// The driver has taken the whole backfill.
    pub(super) fn is_taken(&self) -> bool {
        let state = self.shared.state.lock();
        state.is_over() && !state.is_given_up
    }

    /// The driver has taken the whole backfill, or the destination has ended.
    pub(super) fn is_over(&self) -> bool {
        self.shared.state.lock().is_over()
    }

    /// The destination has ended.
    pub(super) fn give_up(&self) {
        if !self.is_over() {
            tracing::warn!("a destination ended before it took all of its backfill");
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
            // Driver code: not under the lock.
            drop(old);
            return Recv::Empty;
        }
        let count = state.packets.len().min(max);
        out.extend(state.packets.drain(..count));
        state.leased += out[from..].iter().map(|delivery| delivery.packet.payload.len()).sum::<usize>();
        drop(state);
        self.shared.changed.notify_all();
        drop(waker);
        Recv::Ready
    }

    /// Released bytes count for segments first. The source does not matter for the sum.
    fn released(&self, bytes: usize) {
        let mut state = self.shared.state.lock();
        let own = bytes.min(state.leased);
        state.leased -= own;
        drop(state);
        self.shared.changed.notify_all();
        if own < bytes {
            self.shared.queue.released(bytes - own);
        }
    }

    fn abandoned(&self) {
        self.shared.give_up();
        self.shared.queue.abandoned();
    }
}
