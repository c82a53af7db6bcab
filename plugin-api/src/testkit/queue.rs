//! The queue of a destination under test: unlimited, unless a test limits it to see the losses of a slow destination.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::host::{Delivery, DriverWaker, MediaSource, Recv};
use crate::{Kind, Packet};

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    pub(super) leased: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    packets: VecDeque<Delivery>,
    packets_max: Option<usize>,
    dropped: u64,
    // Everything was dropped: media continues with the next keyframe.
    needs_keyframe: bool,
    closed: bool,
    waker: Option<DriverWaker>,
}

impl Queue {
    pub(super) fn limit(&self, packets_max: Option<usize>) {
        self.state.lock().packets_max = packets_max;
    }

    pub(super) fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }

    pub(super) fn push(&self, packet: Packet) {
        let waker = {
            let mut state = self.state.lock();
            state.push(packet);
            if state.packets.is_empty() { None } else { state.waker.take() }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn close(&self) {
        let waker = {
            let mut state = self.state.lock();
            state.closed = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn is_key(packet: &Packet) -> bool {
    packet.keyframe && packet.kind() == Kind::Video
}

impl QueueState {
    /// The host's rule: over the limit everything before the newest keyframe is dropped; without a keyframe everything, and the
    /// queue waits for the next keyframe. Configurations stay.
    fn push(&mut self, packet: Packet) {
        let is_full = self.packets_max.is_some_and(|most| self.packets.len() >= most);
        if is_full && !packet.is_config() {
            self.drop_to_keyframe();
        }
        if self.needs_keyframe && !packet.is_config() {
            if !is_key(&packet) {
                self.dropped += 1;
                return;
            }
            self.needs_keyframe = false;
            self.packets.push_back(Delivery { packet: Arc::new(packet), discontinuity: true });
            return;
        }
        self.packets.push_back(Delivery { packet: Arc::new(packet), discontinuity: false });
    }

    fn drop_to_keyframe(&mut self) {
        let keep_from = self.packets.iter().rposition(|queued| is_key(&queued.packet)).filter(|at| {
            // Dropping up to it must drop something, or the queue would stay full.
            self.packets.iter().take(*at).any(|queued| !queued.packet.is_config())
        });
        let rest = self.packets.split_off(keep_from.unwrap_or(self.packets.len()));
        let (configs, lost): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.packets).into_iter().partition(|queued| queued.packet.is_config());
        self.dropped += lost.len() as u64;
        self.packets.extend(configs);
        match rest.len() {
            0 => self.needs_keyframe = true,
            _ => {
                let first = self.packets.len();
                self.packets.extend(rest);
                self.packets[first].discontinuity = true;
            }
        }
    }
}

impl MediaSource for Queue {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
        let mut state = self.state.lock();
        if state.packets.is_empty() && !state.closed {
            let old = state.waker.replace(waker);
            drop(state);
            drop(old);
            return Recv::Empty;
        }
        if state.packets.is_empty() {
            return Recv::Closed;
        }
        let count = state.packets.len().min(max);
        out.extend(state.packets.drain(..count));
        self.leased.fetch_add(count as u64, Ordering::AcqRel);
        Recv::Ready
    }

    fn released(&self, _: usize) {
        self.leased.fetch_sub(1, Ordering::AcqRel);
    }

    fn abandoned(&self) {
        self.close();
    }
}
