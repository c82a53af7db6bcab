//! The bounded queue between a session and one destination. The publisher never waits; a destination that does not keep up
//! loses packets up to the next keyframe, alone. One that must not lose any has a disk behind its queue ([`spill`]).

mod spill;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource, Recv};
use satcast_plugin_api::{Codec, Kind, Packet};

pub(super) use self::spill::{Disk, SpillBackend};
#[cfg(test)]
pub(super) use self::spill::{FRONT_BYTES_MAX, TAIL_BYTES_MAX, TAIL_PACKETS_MAX};
use self::spill::{Spill, Tail};
use super::group::Configs;
use super::locks::{AtomicUsize, Mutex, MutexGuard};

/// Most unreleased bytes of a driver; it gets no more packets until it releases some.
pub(super) const LEASED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Packets whose memory an empty queue keeps: more than one read of an encoder has. The first GOP of a destination has many more.
pub(super) const PACKETS_KEPT: usize = 32;

/// Limits of a queue without a disk behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Most packets waiting.
    pub(super) packets: usize,
    /// Most bytes waiting.
    pub(super) bytes: usize,
    /// Longest wait of a packet. In clock time, not media time: a burst of packets does not make a destination slow.
    pub(super) wait: Duration,
}

impl Bounds {
    /// The default: enough for the burst of an encoder after a minute without network.
    pub(super) const USUAL: Self =
        Self { packets: 8192, bytes: 32 * 1024 * 1024, wait: Duration::from_secs(5) };
}

/// The queue of one opening of one destination.
pub(super) struct Queue {
    core: Arc<Core>,
}

/// The first packets of a queue.
#[derive(Default)]
pub(super) struct Head {
    /// Newest configuration of each track.
    pub(super) configs: Configs,
    /// First video packet.
    pub(super) video: Option<Arc<Packet>>,
    /// First audio packet.
    pub(super) audio: Option<Arc<Packet>>,
}

struct Core {
    state: Mutex<State>,
    bounds: Bounds,
    leased_bytes: AtomicUsize,
    dropped: Arc<AtomicU64>,
    /// Takes the packets that do not fit into the queue.
    spill: Option<Spill>,
}

#[derive(Default)]
struct State {
    packets: VecDeque<Queued>,
    bytes: usize,
    closed: bool,
    waker: Option<DriverWaker>,
    /// Media is dropped until the next video keyframe.
    waiting: bool,
    /// Media was queued before, so drops count as losses.
    started: bool,
    /// The next media packet follows a loss.
    cut: bool,
    /// Newest configuration of each track, queued or not.
    configs: Configs,
    /// Configurations in force before the first queued packet.
    head_configs: Configs,
    /// By how much the first GOP may exceed the limits, until the queue is empty for the first time.
    burst: Burst,
    /// Packets behind a full queue that spills.
    tail: Tail,
}

struct Queued {
    delivery: Delivery,
    /// Monotonic arrival time.
    at: Duration,
}

#[derive(Default, Clone, Copy)]
struct Burst {
    packets: usize,
    bytes: usize,
}

impl Queue {
    /// An empty queue that waits for a keyframe; lost packets are added to `dropped`.
    pub(super) fn new(dropped: Arc<AtomicU64>, bounds: Bounds) -> Self {
        Self::with(dropped, bounds, None)
    }

    /// As [`Queue::new`], for a destination that must not lose packets.
    pub(super) fn spilling(dropped: Arc<AtomicU64>, backend: Arc<dyn SpillBackend>) -> Self {
        Self::with(dropped, Bounds::USUAL, Some(Spill::new(backend)))
    }

    fn with(dropped: Arc<AtomicU64>, bounds: Bounds, spill: Option<Spill>) -> Self {
        let state = Mutex::new(State { waiting: true, ..State::default() });
        Self { core: Arc::new(Core { state, bounds, leased_bytes: AtomicUsize::new(0), dropped, spill }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.core.lock()
    }

    /// Queues the packets with which a destination starts at the monotonic time `now`: `configs`, then the kept GOP, keyframe first.
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

    /// Queues a packet that arrived at the monotonic time `now`. Without video in the session (`has_video` false) the queue does not
    /// wait for a keyframe.
    pub(super) fn push(&self, packet: &Arc<Packet>, has_video: bool, now: Duration) -> Option<DriverWaker> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        if let Some(spill) = &self.core.spill {
            if state.tail.is_active || state.is_front_full(packet) {
                self.core.push_behind(spill, state, packet, has_video, now);
                return None;
            }
        } else if state.is_over(packet, now, self.core.bounds) {
            // Configurations count as well: an encoder may change them repeatedly.
            let lost = state.drop_to_keyframe(has_video);
            self.core.dropped.fetch_add(lost, Ordering::Relaxed);
        }
        if packet.is_config() {
            state.take_config(packet, now);
            return state.waker_if_ready();
        }
        if state.waiting && !has_video {
            state.open(now);
        }
        if !state.take(packet, now) && state.started {
            self.core.dropped.fetch_add(1, Ordering::Relaxed);
        }
        state.waker_if_ready()
    }

    /// Codecs of video and audio as last handed out; `None` for a track without packets so far.
    pub(super) fn given(&self) -> [Option<Codec>; 2] {
        self.lock().head_configs.codecs()
    }

    /// The packets that will be handed out first.
    pub(super) fn head(&self) -> Head {
        let state = self.lock();
        let first = |kind: Kind| {
            let mut packets = state.packets.iter().map(|queued| &queued.delivery.packet);
            packets.find(|packet| !packet.is_config() && packet.kind() == kind).cloned()
        };
        Head { configs: state.configs.clone(), video: first(Kind::Video), audio: first(Kind::Audio) }
    }

    /// Media packets that wait, in memory and on disk.
    pub(super) fn media_waiting(&self) -> u64 {
        let state = self.lock();
        let front = state.packets.iter().filter(|queued| !queued.delivery.packet.is_config()).count();
        front as u64 + state.tail.media()
    }

    /// Everything that waits: packets and bytes, in memory and on disk.
    pub(super) fn depth(&self) -> (u64, u64) {
        let state = self.lock();
        let (packets, bytes) = state.tail.depth();
        (state.packets.len() as u64 + packets, state.bytes as u64 + bytes)
    }

    /// The driver holds the maximum of unreleased bytes.
    pub(super) fn is_held_up(&self) -> bool {
        self.core.leased_bytes.load(Ordering::Acquire) >= LEASED_BYTES_MAX
    }

    /// Takes no more packets. Queued ones are still handed out.
    pub(super) fn close(&self) -> Option<DriverWaker> {
        let mut state = self.lock();
        state.closed = true;
        state.waker.take()
    }

    /// The destination has ended, even if its driver still runs. Waiting packets are not handed out any more; for a lossless destination
    /// they count as lost. The caller wakes a sleeping driver, which must see the end.
    pub(super) fn give_up(&self) -> Option<DriverWaker> {
        let mut state = self.lock();
        self.discard(&mut state);
        let waker = if state.tail.is_active { None } else { state.waker_if_ready() };
        self.core.give_up(state);
        waker
    }

    /// Closes the queue and drops its packets.
    fn discard(&self, state: &mut State) {
        state.closed = true;
        if self.core.spill.is_some() {
            let lost = state.packets.iter().filter(|queued| !queued.delivery.packet.is_config()).count();
            self.core.dropped.fetch_add(lost as u64, Ordering::Relaxed);
        }
        state.packets.clear();
        state.bytes = 0;
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn waker_if_ready(&mut self) -> Option<DriverWaker> {
        if self.packets.is_empty() && !self.has_ended() { None } else { self.waker.take() }
    }

    /// Closed and empty.
    fn has_ended(&self) -> bool {
        self.closed && self.packets.is_empty() && !self.tail.is_active
    }

    fn is_over(&self, packet: &Packet, now: Duration, bounds: Bounds) -> bool {
        let first = self.packets.iter().find(|queued| !queued.delivery.packet.is_config());
        self.packets.len() >= bounds.packets + self.burst.packets
            || self.bytes + packet.payload.len() > bounds.bytes + self.burst.bytes
            || first.is_some_and(|first| now.saturating_sub(first.at) > bounds.wait)
    }

    /// Configurations are never lost. Before a keyframe they are kept and queued with it.
    fn take_config(&mut self, packet: &Arc<Packet>, now: Duration) {
        self.configs.replace(packet);
        if !self.waiting {
            self.enqueue(packet, false, now);
        }
    }

    /// Queues a media packet, or drops it while waiting for a keyframe.
    fn take(&mut self, packet: &Arc<Packet>, now: Duration) -> bool {
        if self.waiting {
            if !(packet.keyframe && packet.kind() == Kind::Video) {
                return false;
            }
            self.open(now);
        }
        let cut = std::mem::take(&mut self.cut);
        self.enqueue(packet, cut, now);
        self.started = true;
        true
    }

    /// Ends the wait for a keyframe: queues the current configurations first.
    fn open(&mut self, now: Duration) {
        self.waiting = false;
        let configs = self.configs.clone();
        for packet in configs.iter() {
            self.enqueue(packet, false, now);
        }
    }

    fn enqueue(&mut self, packet: &Arc<Packet>, discontinuity: bool, at: Duration) {
        let queued = Queued { delivery: Delivery { packet: packet.clone(), discontinuity }, at };
        let (packets, bytes) = match self.tail.is_active {
            true => (&mut self.tail.packets, &mut self.tail.bytes),
            false => (&mut self.packets, &mut self.bytes),
        };
        *bytes += packet.payload.len();
        packets.push_back(queued);
    }

    /// Drops packets from the front up to the newest queued keyframe; without one, all. Returns the number of media packets lost.
    fn drop_to_keyframe(&mut self, has_video: bool) -> u64 {
        self.burst = Burst::default();
        let keep_from = if has_video { self.newest_keyframe() } else { Some(self.packets.len() / 2) };
        let mut lost = 0;
        for Queued { delivery: queued, .. } in self.packets.drain(..keep_from.unwrap_or(self.packets.len())) {
            self.bytes -= queued.packet.payload.len();
            if queued.packet.is_config() {
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
            |queued: &Queued| queued.delivery.packet.keyframe && queued.delivery.packet.kind() == Kind::Video;
        let at = self.packets.iter().rposition(is_key)?;
        self.packets.iter().take(at).any(|queued| !queued.delivery.packet.is_config()).then_some(at)
    }
}

impl MediaSource for Queue {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
        let mut state = self.lock();
        // Checked under the lock. released() takes the lock after it has counted down, so no wake-up is lost.
        let holds_too_much = self.core.leased_bytes.load(Ordering::Acquire) >= LEASED_BYTES_MAX;
        if state.has_ended() {
            return Recv::Closed;
        }
        if state.packets.is_empty() || holds_too_much {
            let old = state.waker.replace(waker);
            drop(state);
            // Driver code: not under the lock.
            drop(old);
            return Recv::Empty;
        }
        let count = state.packets.len().min(max);
        let mut taken_bytes = 0;
        for _ in 0..count {
            let Some(Queued { delivery: queued, .. }) = state.packets.pop_front() else { break };
            taken_bytes += queued.packet.payload.len();
            if queued.packet.is_config() {
                state.head_configs.replace(&queued.packet);
            }
            out.push(queued);
        }
        state.bytes -= taken_bytes;
        if state.packets.is_empty() {
            state.burst = Burst::default();
            state.packets.shrink_to(PACKETS_KEPT);
        }
        self.core.leased_bytes.fetch_add(taken_bytes, Ordering::AcqRel);
        self.core.wake_spiller(state);
        drop(waker);
        Recv::Ready
    }

    fn released(&self, bytes: usize) {
        let before = self.core.leased_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if before < LEASED_BYTES_MAX || before - bytes >= LEASED_BYTES_MAX {
            return;
        }
        let waker = self.lock().waker_if_ready();
        if let Some(waker) = waker {
            // This is already a thread of the driver.
            waker.wake();
        }
    }

    fn abandoned(&self) {
        let mut state = self.lock();
        self.discard(&mut state);
        let waker = state.waker.take();
        self.core.give_up(state);
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

    /// Packets for which memory is reserved.
    pub(crate) fn reserved(&self) -> usize {
        self.lock().packets.capacity()
    }

    /// Packets in the tail in memory.
    pub(crate) fn tail_packets(&self) -> usize {
        self.lock().tail.packets.len()
    }

    /// Takes all queued packets as `(sequence, config, discontinuity)`.
    pub(crate) fn drain(&self) -> Vec<(u64, bool, bool)> {
        let mut state = self.lock();
        state.bytes = 0;
        let packets: Vec<_> = state.packets.drain(..).collect();
        packets
            .iter()
            .map(|Queued { delivery: d, .. }| (d.packet.sequence, d.packet.is_config(), d.discontinuity))
            .collect()
    }
}
