//! What was before a destination: a recording that is added to a live stream begins with what viewers can go back to.
//!
//! The driver's source of media is [`Past`] instead of the queue. A thread of its own ([`feed`]) reads the segments of the longest rewind
//! window of the session, oldest first, and puts their packets in as the driver takes them: an hour is more than fits in memory. The queue
//! meanwhile keeps what comes, as for any driver that is slow, on disk where its driver must not lose anything. At the first packet that
//! waits there ([`joint`]) the reading ends, and the queue is all there is.

mod feed;
mod joint;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource, Recv};
use tokio::sync::watch;

use self::feed::Feed;
use super::queue::{LEASED_BYTES_MAX, Queue};
use super::shelf::Shelf;
use crate::clock::Clock;
use crate::drivers::Waker;
use crate::ids::{DestinationId, SessionId};

/// Most bytes that were read and not taken.
pub(super) const PAST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most packets of them.
pub(super) const PAST_PACKETS_MAX: usize = 2048;
/// Stack of the thread that reads.
const STACK_BYTES: usize = 1024 * 1024;

/// Media of one opening: what was before, then the queue.
pub(super) struct Past {
    core: Arc<Core>,
    window: Arc<Shelf>,
    about: About,
}

/// For whom it is read, for packets and logs.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) destination: DestinationId,
    pub(super) session: SessionId,
    pub(super) source: u64,
}

struct Core {
    queue: Arc<Queue>,
    waker: Waker,
    state: Mutex<State>,
    /// There is room again, or nobody takes any more.
    room: Condvar,
    over: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    packets: VecDeque<Delivery>,
    bytes: usize,
    /// Of the past, that the driver holds.
    leased: usize,
    waker: Option<DriverWaker>,
    /// Nothing more is read.
    is_read: bool,
    /// The first media of the queue follows a loss.
    cut: bool,
    /// Nobody takes any more.
    is_given_up: bool,
}

impl State {
    fn is_full(&self) -> bool {
        self.bytes >= PAST_BYTES_MAX || self.packets.len() >= PAST_PACKETS_MAX
    }

    /// The queue is all there is.
    fn is_over(&self) -> bool {
        self.is_given_up || (self.is_read && self.packets.is_empty())
    }
}

impl Past {
    /// What is in `window`, before `queue`. Nothing is read before [`Past::start`].
    pub(super) fn new(queue: Arc<Queue>, waker: Waker, window: Arc<Shelf>, about: About) -> Self {
        let (state, room, over) = (Mutex::default(), Condvar::new(), watch::Sender::new(false));
        Self { core: Arc::new(Core { queue, waker, state, room, over }), window, about }
    }

    /// Begins to read, on a thread of its own: it waits for the driver, and viewers need the threads of the runtime for what blocks. It
    /// ends by itself, soon after [`Past::give_up`].
    pub(super) fn start(&self) {
        let feed = Feed::new(self.core.clone(), self.window.clone(), self.about.clone());
        let thread = thread::Builder::new().name("past".into()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || feed.run()) {
            let (session, destination) = (&self.about.session, self.about.destination);
            tracing::error!(%session, %destination, %error, "what was before a destination cannot be read");
            self.core.finish(false);
        }
    }

    /// Waits until the driver has taken all of it, or until `until` on the `clock`.
    pub(super) async fn settled(&self, clock: &Clock, until: Duration) {
        let mut over = self.core.over.subscribe();
        if clock.timeout_at(until, over.wait_for(|over| *over)).await.is_none() {
            let (session, destination) = (&self.about.session, self.about.destination);
            tracing::warn!(%session, %destination, "a destination ends before it took all that was before it");
        }
    }

    /// The driver has taken all of it.
    pub(super) fn is_taken(&self) -> bool {
        let state = self.core.lock();
        state.is_read && state.packets.is_empty() && !state.is_given_up
    }

    /// Its destination has ended.
    pub(super) fn give_up(&self) {
        self.core.give_up();
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a packet in when there is room; false when nobody takes it any more. Blocks.
    fn put(&self, delivery: Delivery) -> bool {
        let mut state = self.lock();
        while state.is_full() && !state.is_given_up {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.is_given_up {
            return false;
        }
        state.bytes += delivery.packet.payload.len();
        state.packets.push_back(delivery);
        let waker = state.waker.take();
        drop(state);
        self.waker.wake(waker);
        true
    }

    /// Waits for `pause`, or until nobody takes any more; false then.
    fn pause(&self, pause: Duration) -> bool {
        let state = self.lock();
        let waited = self.room.wait_timeout_while(state, pause, |state| !state.is_given_up);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_given_up
    }

    /// All was read; something is missing before the queue if `cut`.
    fn finish(&self, cut: bool) {
        let mut state = self.lock();
        (state.is_read, state.cut) = (true, cut);
        let (waker, is_over) = (state.waker.take(), state.is_over());
        drop(state);
        self.tell(is_over);
        self.waker.wake(waker);
    }

    fn give_up(&self) {
        let mut state = self.lock();
        state.is_given_up = true;
        let (packets, waker) = (std::mem::take(&mut state.packets), state.waker.take());
        state.bytes = 0;
        drop(state);
        self.room.notify_all();
        self.tell(true);
        self.waker.wake(waker);
        drop(packets);
    }

    fn tell(&self, is_over: bool) {
        if is_over {
            self.over.send_replace(true);
        }
    }

    /// From the queue, whose first media is marked if something is missing before it.
    fn recv_live(&self, cut: bool, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
        let from = out.len();
        let received = self.queue.recv(max, out, waker);
        if cut && let Some(first) = out[from..].iter_mut().find(|delivery| !delivery.packet.is_config()) {
            first.discontinuity = true;
            self.lock().cut = false;
        }
        received
    }
}

impl MediaSource for Past {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
        let core = &self.core;
        let mut state = core.lock();
        if state.is_over() {
            let cut = state.cut;
            drop(state);
            return core.recv_live(cut, max, out, waker);
        }
        if state.packets.is_empty() || state.leased >= LEASED_BYTES_MAX {
            let old = state.waker.replace(waker);
            drop(state);
            // Foreign code: not under the lock.
            drop(old);
            return Recv::Empty;
        }
        let count = state.packets.len().min(max);
        let from = out.len();
        out.extend(state.packets.drain(..count));
        let taken: usize = out[from..].iter().map(|delivery| delivery.packet.payload.len()).sum();
        state.bytes -= taken;
        state.leased += taken;
        let is_over = state.is_over();
        drop(state);
        core.room.notify_all();
        core.tell(is_over);
        drop(waker);
        Recv::Ready
    }

    /// What is let go of counts for the past first: which of the two it was does not matter for what is held in all.
    fn released(&self, bytes: usize) {
        let mut state = self.core.lock();
        let own = bytes.min(state.leased);
        let before = state.leased;
        state.leased -= own;
        let has_room = before >= LEASED_BYTES_MAX && state.leased < LEASED_BYTES_MAX;
        let waker = if has_room { state.waker.take() } else { None };
        drop(state);
        if own < bytes {
            self.core.queue.released(bytes - own);
        }
        if let Some(waker) = waker {
            // This already is a thread of the driver.
            waker.wake();
        }
    }

    fn abandoned(&self) {
        self.core.give_up();
        self.core.queue.abandoned();
    }
}
