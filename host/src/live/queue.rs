//! The bounded queue between a session and one destination. The publisher never waits; a destination that does not keep up
//! loses packets up to the next keyframe, alone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource, Packet, Recv};
use satcast_plugin_api::packet::Kind;

use super::group::Configs;
use super::locks::{AtomicUsize, Mutex, MutexGuard};

/// Most packets waiting: what an encoder catches up at once after a minute without network.
pub(super) const QUEUE_PACKETS_MAX: usize = 8192;
/// Most bytes waiting.
pub(super) const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Longest time a packet may wait. Counted in time that passes and not in that of the media: what comes all at once does
/// not make a destination slow.
pub(super) const QUEUE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Most bytes a driver may hold at once; it gets no more until it lets go of some.
pub(super) const LEASED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The queue of one opening of one destination.
pub(super) struct Queue {
    state: Mutex<State>,
    leased_bytes: AtomicUsize,
    dropped: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    packets: VecDeque<Queued>,
    bytes: usize,
    closed: bool,
    waker: Option<DriverWaker>,
    /// Media is left out until a video keyframe comes.
    waiting: bool,
    /// Media was handed in before, so what is left out now is a loss.
    started: bool,
    /// The next media packet follows a loss.
    cut: bool,
    /// Newest configuration of each track, queued or not.
    configs: Configs,
    /// Configuration that holds just before the first queued packet.
    head_configs: Configs,
    /// What the first group may exceed the limits by, until the queue was empty once.
    burst: Burst,
}

struct Queued {
    delivery: Delivery,
    /// Monotonic time at which it came.
    at: Duration,
}

#[derive(Default, Clone, Copy)]
struct Burst {
    packets: usize,
    bytes: usize,
}

impl Queue {
    /// An empty queue that waits for a keyframe; lost packets are added to `dropped`.
    pub(super) fn new(dropped: Arc<AtomicU64>) -> Self {
        let state = Mutex::new(State { waiting: true, ..State::default() });
        Self { state, leased_bytes: AtomicUsize::new(0), dropped }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in what a destination needs to start at once at the monotonic time `now`: `configs`, then the kept `group`,
    /// keyframe first.
    pub(super) fn begin<'a>(
        &self,
        configs: &Configs,
        group: impl Iterator<Item = &'a Arc<Packet>>,
        now: Duration,
    ) -> Option<DriverWaker> {
        let mut state = self.lock();
        for packet in configs.iter() {
            state.configs.replace(packet);
        }
        for packet in group {
            state.take(packet, now);
        }
        state.burst = Burst { packets: state.packets.len(), bytes: state.bytes };
        state.waker_if_ready()
    }

    /// Puts in a packet that came at the monotonic time `now`. Without video in the session (`has_video` false) nothing
    /// waits for a keyframe.
    pub(super) fn push(&self, packet: &Arc<Packet>, has_video: bool, now: Duration) -> Option<DriverWaker> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        // Configurations count as well: an encoder may change them without end.
        if state.is_over(packet, now) {
            let lost = state.make_room(has_video);
            self.dropped.fetch_add(lost, Ordering::Relaxed);
        }
        if packet.config {
            state.take_config(packet, now);
            return state.waker_if_ready();
        }
        if state.waiting && !has_video {
            state.open(now);
        }
        if !state.take(packet, now) && state.started {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        state.waker_if_ready()
    }

    /// No more packets come; those inside are still handed out.
    pub(super) fn close(&self) -> Option<DriverWaker> {
        let mut state = self.lock();
        state.closed = true;
        state.waker.take()
    }
}

impl State {
    fn waker_if_ready(&mut self) -> Option<DriverWaker> {
        if self.packets.is_empty() { None } else { self.waker.take() }
    }

    fn is_over(&self, packet: &Packet, now: Duration) -> bool {
        let first = self.packets.iter().find(|queued| !queued.delivery.packet.config);
        self.packets.len() >= QUEUE_PACKETS_MAX + self.burst.packets
            || self.bytes + packet.payload.len() > QUEUE_BYTES_MAX + self.burst.bytes
            || first.is_some_and(|first| now.saturating_sub(first.at) > QUEUE_WAIT_MAX)
    }

    /// Configurations are never lost: while media waits for a keyframe they wait with it.
    fn take_config(&mut self, packet: &Arc<Packet>, now: Duration) {
        self.configs.replace(packet);
        if !self.waiting {
            self.enqueue(packet, false, now);
        }
    }

    /// Queues a media packet, or leaves it out while waiting for a keyframe.
    fn take(&mut self, packet: &Arc<Packet>, now: Duration) -> bool {
        if self.waiting {
            if !(packet.keyframe && packet.kind == Kind::Video) {
                return false;
            }
            self.open(now);
        }
        let cut = std::mem::take(&mut self.cut);
        self.enqueue(packet, cut, now);
        self.started = true;
        true
    }

    /// Ends the waiting: the configurations that hold now go first.
    fn open(&mut self, now: Duration) {
        self.waiting = false;
        let configs = self.configs.clone();
        for packet in configs.iter() {
            self.enqueue(packet, false, now);
        }
    }

    fn enqueue(&mut self, packet: &Arc<Packet>, discontinuity: bool, at: Duration) {
        self.bytes += packet.payload.len();
        self.packets.push_back(Queued { delivery: Delivery { packet: packet.clone(), discontinuity }, at });
    }

    /// Drops from the head to the newest queued keyframe; without one, everything. Returns the media packets lost.
    fn make_room(&mut self, has_video: bool) -> u64 {
        self.burst = Burst::default();
        let keep_from = if has_video { self.newest_keyframe() } else { Some(self.packets.len() / 2) };
        let mut lost = 0;
        for Queued { delivery: queued, .. } in self.packets.drain(..keep_from.unwrap_or(self.packets.len())) {
            self.bytes -= queued.packet.payload.len();
            if queued.packet.config {
                self.head_configs.replace(&queued.packet);
            } else {
                lost += 1;
            }
        }
        if keep_from.is_none() {
            self.waiting = true;
            self.cut = true;
            return lost;
        }
        let mut at = Duration::ZERO;
        if let Some(first) = self.packets.front_mut() {
            first.delivery.discontinuity = true;
            at = first.at;
        }
        let configs: Vec<Arc<Packet>> = self.head_configs.iter().cloned().collect();
        for packet in configs.into_iter().rev() {
            self.bytes += packet.payload.len();
            self.packets.push_front(Queued { delivery: Delivery { packet, discontinuity: false }, at });
        }
        lost
    }

    /// Position of the newest queued keyframe, if dropping up to it would drop any media.
    fn newest_keyframe(&self) -> Option<usize> {
        let is_key =
            |queued: &Queued| queued.delivery.packet.keyframe && queued.delivery.packet.kind == Kind::Video;
        let at = self.packets.iter().rposition(is_key)?;
        self.packets.iter().take(at).any(|queued| !queued.delivery.packet.config).then_some(at)
    }
}

impl MediaSource for Queue {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
        let mut state = self.lock();
        // Checked under the lock, and released() locks after it has counted down: no wake-up is lost.
        let holds_too_much = self.leased_bytes.load(Ordering::Acquire) >= LEASED_BYTES_MAX;
        if state.packets.is_empty() && state.closed {
            return Recv::Closed;
        }
        if state.packets.is_empty() || holds_too_much {
            let old = state.waker.replace(waker);
            drop(state);
            // Foreign code: not under the lock.
            drop(old);
            return Recv::Empty;
        }
        let count = state.packets.len().min(max);
        let mut taken_bytes = 0;
        for _ in 0..count {
            let Some(Queued { delivery: queued, .. }) = state.packets.pop_front() else { break };
            taken_bytes += queued.packet.payload.len();
            if queued.packet.config {
                state.head_configs.replace(&queued.packet);
            }
            out.push(queued);
        }
        state.bytes -= taken_bytes;
        if state.packets.is_empty() {
            state.burst = Burst::default();
        }
        self.leased_bytes.fetch_add(taken_bytes, Ordering::AcqRel);
        drop(state);
        drop(waker);
        Recv::Ready
    }

    fn released(&self, bytes: usize) {
        let before = self.leased_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if before < LEASED_BYTES_MAX || before - bytes >= LEASED_BYTES_MAX {
            return;
        }
        let waker = self.lock().waker_if_ready();
        if let Some(waker) = waker {
            // This already is a thread of the driver.
            waker.wake();
        }
    }

    fn abandoned(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.packets.clear();
        state.bytes = 0;
        let waker = state.waker.take();
        drop(state);
        drop(waker);
    }
}

#[cfg(test)]
impl Queue {
    /// Packets and bytes waiting.
    pub(crate) fn level(&self) -> (usize, usize) {
        let state = self.lock();
        (state.packets.len(), state.bytes)
    }

    /// Takes everything that waits as `(sequence, config, discontinuity)`.
    pub(crate) fn drain(&self) -> Vec<(u64, bool, bool)> {
        let mut state = self.lock();
        state.bytes = 0;
        let packets: Vec<_> = state.packets.drain(..).collect();
        packets
            .iter()
            .map(|Queued { delivery: d, .. }| (d.packet.sequence, d.packet.config, d.discontinuity))
            .collect()
    }
}
