//! What the thread that reads a backfill and the driver that takes it share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use satcast_plugin_api::host::{Delivery, DriverWaker};

use crate::queue::{LEASED_BYTES_MAX, Queue};
use satcast_core::ids::{DestinationId, SessionId};
use satcast_drivers::Waker;

/// For whom it is read, for packets and logs.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) destination: DestinationId,
    pub(crate) session: SessionId,
    pub(crate) source: u64,
}

/// What the reading thread and the driver share.
pub(super) struct Shared {
    pub(super) queue: Arc<Queue>,
    pub(super) waker: Waker,
    pub(super) state: Mutex<State>,
    /// There is room again, or nobody takes any more.
    pub(super) room: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// Of one segment, not taken.
    pub(super) packets: VecDeque<Delivery>,
    /// Bytes of segments that the driver holds.
    pub(super) leased: usize,
    pub(super) waker: Option<DriverWaker>,
    /// Nothing more is read.
    pub(super) is_read: bool,
    /// The first media of the queue follows a loss.
    pub(super) cut: bool,
    /// Nobody takes any more.
    pub(super) is_given_up: bool,
}

impl State {
    /// The queue is all there is.
    pub(super) fn is_over(&self) -> bool {
        self.is_given_up || (self.is_read && self.packets.is_empty())
    }
}

impl Shared {
    /// Gives the packets of a segment when those of the one before were taken; false when nobody takes any more. Blocks.
    pub(super) fn put(&self, packets: Vec<Delivery>) -> bool {
        let must_wait = |state: &mut State| {
            let has_room = state.packets.is_empty() && state.leased < LEASED_BYTES_MAX;
            !has_room && !packets.is_empty() && !state.is_given_up
        };
        let mut state = self.state.lock();
        self.room.wait_while(&mut state, must_wait);
        if state.is_given_up {
            return false;
        }
        state.packets.extend(packets);
        let waker = if state.packets.is_empty() { None } else { state.waker.take() };
        drop(state);
        self.waker.wake(waker);
        true
    }

    /// Waits for `pause`, or until nobody takes any more; false then.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        self.room.wait_while_for(&mut state, |state| !state.is_given_up, pause);
        !state.is_given_up
    }

    /// All was read; something is missing before the queue if `cut`.
    pub(super) fn finish(&self, cut: bool) {
        let mut state = self.state.lock();
        (state.is_read, state.cut) = (true, cut);
        let waker = state.waker.take();
        drop(state);
        self.waker.wake(waker);
    }

    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        state.is_given_up = true;
        let (packets, waker) = (std::mem::take(&mut state.packets), state.waker.take());
        drop(state);
        self.room.notify_all();
        self.waker.wake(waker);
        drop(packets);
    }
}
