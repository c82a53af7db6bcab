//! Media in the child: packets whose payload stays in the shared memory until the library lets go of them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_plugin_api::driver_state::{Reported, State as DriverState};
use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource, Recv};

use super::super::notes::Note;
use super::link::Link;

/// The queue of a destination as the library sees it: what the host handed over last. More is asked for when the library
/// waits and not before, so that what it does not read stays in the host's queue, where it can be dropped.
pub(super) struct RemoteQueue {
    dest: u64,
    link: Arc<Link>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    packets: VecDeque<Delivery>,
    waker: Option<DriverWaker>,
    is_asked_for: bool,
    is_over: bool,
    reported: Reported,
}

impl RemoteQueue {
    pub(super) fn new(dest: u64, link: Arc<Link>) -> Self {
        Self { dest, link, state: Mutex::default() }
    }

    /// Takes packets of the host.
    pub(super) fn take(self: &Arc<Self>, notes: &[Note]) {
        let mut state = self.state.lock();
        state.is_asked_for = false;
        for note in notes {
            let payload = Leased { note: *note, link: self.link.clone() };
            // What is left out is let go of by its drop.
            if let Some(packet) = note.packet(Bytes::from_owner(payload)).filter(|_| !state.is_over) {
                state.packets.push_back(Delivery { packet: Arc::new(packet), discontinuity: false });
            }
        }
        let waker = state.waker.take();
        drop(state);
        self.link.pump.wake(waker);
    }

    /// Whether the host is to be told of what the library says of its state.
    pub(super) fn is_news(&self, state: DriverState, has_reason: bool) -> bool {
        self.state.lock().reported.is_news(state, has_reason)
    }

    /// No more will come.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let waker = state.waker.take();
        drop(state);
        self.link.pump.wake(waker);
    }
}

impl MediaSource for RemoteQueue {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
        let mut state = self.state.lock();
        if !state.packets.is_empty() {
            let count = state.packets.len().min(max);
            out.extend(state.packets.drain(..count));
            drop(state);
            return Recv::Ready;
        }
        if state.is_over {
            return Recv::Closed;
        }
        let old = state.waker.replace(waker);
        let asks = !std::mem::replace(&mut state.is_asked_for, true);
        drop(state);
        // Foreign code: not under the lock.
        drop(old);
        if asks {
            self.link.want(self.dest);
        }
        Recv::Empty
    }

    // Its payload says so when it goes.
    fn released(&self, _: usize) {}

    fn abandoned(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let (packets, waker) = (std::mem::take(&mut state.packets), state.waker.take());
        drop(state);
        drop(packets);
        drop(waker);
        self.link.abandon(self.dest);
    }
}

/// A payload in the shared memory.
struct Leased {
    note: Note,
    link: Arc<Link>,
}

impl AsRef<[u8]> for Leased {
    fn as_ref(&self) -> &[u8] {
        // Both come from the host; outside would be its fault, and then there is nothing.
        self.link.view.slice(self.note.offset as usize, self.note.len as usize).unwrap_or_default()
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.link.release(self.note.lease, self.note.len);
    }
}
