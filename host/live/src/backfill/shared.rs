//! State shared by the reading thread of a backfill and the driver.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use satcast_plugin_api::host::{Delivery, DriverWaker};

use crate::queue::{LEASED_BYTES_MAX, Queue};
use satcast_drivers::Waker;

pub(super) struct Shared {
    pub(super) queue: Arc<Queue>,
    pub(super) waker: Waker,
    pub(super) state: Mutex<State>,
    /// The driver has taken or released packets, or the destination has ended.
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// Packets of one segment that the driver has not taken.
    pub(super) packets: VecDeque<Delivery>,
    /// Unreleased bytes of segments.
    pub(super) leased: usize,
    pub(super) waker: Option<DriverWaker>,
    /// The reading has ended.
    pub(super) is_read: bool,
    /// The first media packet of the queue follows a loss.
    pub(super) cut: bool,
    /// The destination has ended.
    pub(super) is_given_up: bool,
}

impl State {
    /// From now on media comes from the queue only.
    pub(super) fn is_over(&self) -> bool {
        self.is_given_up || (self.is_read && self.packets.is_empty())
    }
}

impl Shared {
    /// Blocks until the packets of the previous segment were taken, then offers these. False when the destination has ended.
    pub(super) fn put(&self, packets: Vec<Delivery>) -> bool {
        let must_wait = |state: &mut State| {
            let has_space = state.packets.is_empty() && state.leased < LEASED_BYTES_MAX;
            !has_space && !packets.is_empty() && !state.is_given_up
        };
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, must_wait);
        if state.is_given_up {
            return false;
        }
        state.packets.extend(packets);
        let waker = if state.packets.is_empty() { None } else { state.waker.take() };
        drop(state);
        self.waker.wake(waker);
        true
    }

    /// Waits for `pause`. False when the destination has ended.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.is_given_up, pause);
        !state.is_given_up
    }

    /// The reading has ended. `cut`: media is missing before the queue.
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
        self.changed.notify_all();
        self.waker.wake(waker);
        drop(packets);
    }
}
