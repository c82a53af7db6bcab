//! The overflow of a full queue whose destination must not lose packets: a tail in memory, and a disk between the queue and the tail.
//!
//! When the queue is full, new packets go to the tail. A thread of the queue writes the tail to the disk. When the queue has free space,
//! the thread moves packets from the disk, then from the tail, back into the queue. Only that thread waits for the disk, and the order is
//! kept. When the tail is empty, the thread ends, and the queue works like any other. When the tail or the disk is full, new packets are
//! dropped up to a keyframe, and waiting packets are kept.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use satcast_plugin_api::Packet;
use satcast_plugin_api::host::{Delivery, DriverWaker};

use super::super::locks::{Condvar, MutexGuard};
use super::{Bounds, Core, Queued, State};

/// Most bytes in the queue before new packets go to the tail. A queue without a disk may hold more.
pub(in super::super) const FRONT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most bytes of the tail, which takes the packets that arrive while the disk writes.
pub(in super::super) const TAIL_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most packets of the tail.
pub(in super::super) const TAIL_PACKETS_MAX: usize = 16 * 1024;
/// Bytes of one write, so that there is not one write for each packet.
const WRITE_BYTES: usize = 1024 * 1024;
/// This many packets are written as well, so that a tail of small packets goes to the disk long before it is full.
const WRITE_PACKETS: usize = 4096;
/// Pause before a failed write is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Slow storage for packets, which may fail. Dropping it frees the space.
pub(in super::super) trait Disk: Send {
    /// Bytes in use; 0 only when it holds no packets.
    fn bytes(&self) -> u64;
    /// Appends packets. After an error it holds none of them.
    fn append(&mut self, packets: &[Delivery]) -> io::Result<()>;
    /// Takes at least one packet from the front. After an error all its packets are lost.
    fn take(&mut self) -> io::Result<Vec<Delivery>>;
}

/// Resources for the spill of one queue.
pub(in super::super) trait SpillBackend: Send + Sync + 'static {
    /// Most bytes in tail and disk together.
    fn bytes_max(&self) -> u64;
    /// Creates an empty disk. Does not wait.
    fn disk(&self) -> Box<dyn Disk>;
    /// Runs `body` on a thread of its own.
    fn start(&self, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;
    fn wake(&self, waker: DriverWaker);
    /// Packets are lost from now on, until there is free space again.
    fn overflows(&self);
    /// A write or a read of the disk failed.
    fn failed(&self, error: &io::Error);
}

pub(super) struct Spill {
    pub(super) backend: Arc<dyn SpillBackend>,
    /// Signals work to the thread.
    work: Condvar,
}

impl Spill {
    pub(super) fn new(backend: Arc<dyn SpillBackend>) -> Self {
        Self { backend, work: Condvar::new() }
    }
}

/// Packets that arrived after the queue was full. Protected by the queue's lock.
#[derive(Default)]
pub(super) struct Tail {
    /// New packets go to the tail.
    pub(super) is_active: bool,
    pub(super) packets: VecDeque<Queued>,
    pub(super) bytes: usize,
    /// Bytes on the disk.
    on_disk: u64,
    /// Media packets on the disk.
    media_on_disk: u64,
    /// Takes no packets until an eighth is free.
    is_full: bool,
    /// The last write failed.
    is_blocked: bool,
    /// The thread waits for work.
    sleeps: bool,
    has_thread: bool,
    /// The destination has ended.
    is_given_up: bool,
}

impl Tail {
    /// Whether `bytes` more do not fit. Once full, it stays full until an eighth is free: rare gaps are better than one in each GOP.
    fn is_full_for(&mut self, bytes: usize, bytes_max: u64) -> bool {
        let all = self.on_disk + self.bytes as u64;
        let part = |most: u64| if self.is_full { most - most / 8 } else { most };
        let is_over = (self.bytes + bytes) as u64 > part(TAIL_BYTES_MAX as u64)
            || self.packets.len() as u64 >= part(TAIL_PACKETS_MAX as u64)
            || all + bytes as u64 > part(bytes_max);
        self.is_full = is_over;
        is_over
    }

    /// Packets and bytes; of the packets on disk, the media.
    pub(super) fn depth(&self) -> (u64, u64) {
        (self.media_on_disk + self.packets.len() as u64, self.on_disk + self.bytes as u64)
    }

    pub(super) fn media(&self) -> u64 {
        let media = self.packets.iter().filter(|queued| !queued.delivery.packet.is_config());
        self.media_on_disk + media.count() as u64
    }

    /// The packets of the next write.
    fn batch(&self) -> Vec<Delivery> {
        let mut bytes = 0;
        let fits = |queued: &&Queued| {
            let is_first = bytes == 0;
            bytes += queued.delivery.packet.payload.len().max(1);
            is_first || bytes <= WRITE_BYTES
        };
        self.packets.iter().take_while(fits).map(|queued| queued.delivery.clone()).collect()
    }

    /// Enough packets for a write.
    fn is_worth_writing(&self) -> bool {
        self.bytes >= WRITE_BYTES || self.packets.len() >= WRITE_PACKETS
    }

    fn forget_first(&mut self, count: usize) {
        for queued in self.packets.drain(..count.min(self.packets.len())) {
            self.bytes -= queued.delivery.packet.payload.len();
        }
    }
}

impl State {
    /// As [`State::is_over`], for a queue with a disk behind it: the wait of a packet does not matter.
    pub(super) fn is_front_full(&self, packet: &Packet) -> bool {
        self.packets.len() >= Bounds::USUAL.packets + self.burst.packets
            || self.bytes + packet.payload.len() > FRONT_BYTES_MAX + self.burst.bytes
    }

    /// Puts a packet into the tail. Returns the number of media packets lost.
    fn spill(&mut self, packet: &Arc<Packet>, has_video: bool, bytes_max: u64, now: Duration) -> u64 {
        self.tail.is_active = true;
        let is_full = self.tail.is_full_for(packet.payload.len(), bytes_max);
        self.waiting |= is_full;
        if packet.is_config() {
            // A configuration that does not fit is queued with the next keyframe.
            self.take_config(packet, now);
            return 0;
        }
        if self.waiting && !is_full && !has_video {
            self.open(now);
        }
        if !is_full && self.take(packet, now) {
            return 0;
        }
        self.cut |= self.started;
        u64::from(self.started)
    }

    fn has_space(&self) -> bool {
        self.packets.len() < Bounds::USUAL.packets / 2 && self.bytes < FRONT_BYTES_MAX / 2
    }

    fn put_back(&mut self, queued: Queued) {
        self.bytes += queued.delivery.packet.payload.len();
        self.packets.push_back(queued);
    }

    /// Moves packets from the tail into the queue; false when it moved none.
    fn refill(&mut self) -> bool {
        let before = self.tail.packets.len();
        while self.has_space()
            && let Some(queued) = self.tail.packets.pop_front()
        {
            self.tail.bytes -= queued.delivery.packet.payload.len();
            self.put_back(queued);
        }
        self.tail.packets.len() < before
    }

    fn has_work(&self) -> bool {
        self.tail.is_given_up || self.has_space() || (self.tail.is_worth_writing() && !self.tail.is_blocked)
    }
}

impl Core {
    pub(super) fn push_behind(
        self: &Arc<Self>,
        spill: &Spill,
        mut state: MutexGuard<'_, State>,
        packet: &Arc<Packet>,
        has_video: bool,
        now: Duration,
    ) {
        let was_full = state.tail.is_full;
        let lost = state.spill(packet, has_video, spill.backend.bytes_max(), now);
        let overflows = state.tail.is_full && !was_full;
        self.dropped.fetch_add(lost, Ordering::Relaxed);
        if !state.tail.has_thread {
            let (core, backend) = (self.clone(), spill.backend.clone());
            let spiller = Spiller { disk: backend.disk(), core, backend };
            match spill.backend.start(Box::new(move || spiller.run())) {
                Ok(()) => state.tail.has_thread = true,
                // The next packet retries.
                Err(error) => spill.backend.failed(&error),
            }
        }
        self.wake_spiller(state);
        if overflows {
            spill.backend.overflows();
        }
    }

    /// Wakes the thread if it has work.
    pub(super) fn wake_spiller(&self, state: MutexGuard<'_, State>) {
        let wakes = state.tail.sleeps && state.has_work();
        drop(state);
        if let (Some(spill), true) = (&self.spill, wakes) {
            spill.work.notify_one();
        }
    }

    /// The destination has ended: the tail is lost, and the disk is freed.
    pub(super) fn give_up(&self, mut state: MutexGuard<'_, State>) {
        if !state.tail.is_active {
            return;
        }
        self.dropped.fetch_add(state.tail.media(), Ordering::Relaxed);
        let Tail { has_thread, sleeps, .. } = state.tail;
        state.tail = Tail { has_thread, sleeps, is_given_up: has_thread, ..Tail::default() };
        state.closed = true;
        let waker = state.waker_if_ready();
        self.wake_spiller(state);
        if let (Some(spill), Some(waker)) = (&self.spill, waker) {
            spill.backend.wake(waker);
        }
    }
}

/// Next step of the thread.
enum Step {
    /// Packets were moved into the queue.
    Moved,
    Read,
    Write(Vec<Delivery>),
    End,
}

/// The thread of one queue.
struct Spiller {
    core: Arc<Core>,
    disk: Box<dyn Disk>,
    backend: Arc<dyn SpillBackend>,
}

impl Spiller {
    fn run(mut self) {
        loop {
            let is_end = match self.next() {
                Step::Moved => false,
                Step::Read => self.read(),
                Step::Write(packets) => self.write(&packets),
                Step::End => true,
            };
            let waker = self.core.lock().waker_if_ready();
            if let Some(waker) = waker {
                self.backend.wake(waker);
            }
            if is_end {
                return;
            }
        }
    }

    fn next(&self) -> Step {
        let Some(spill) = &self.core.spill else { return Step::End };
        let has_read = self.disk.bytes() == 0;
        let (mut state, mut has_waited) = (self.core.lock(), false);
        loop {
            if state.tail.is_given_up {
                state.tail = Tail::default();
                return Step::End;
            }
            if state.has_space() {
                if !has_read {
                    return Step::Read;
                }
                if state.refill() {
                    return Step::Moved;
                }
                state.tail = Tail::default();
                return Step::End;
            }
            if state.tail.is_worth_writing() && (has_waited || !state.tail.is_blocked) {
                return Step::Write(state.tail.batch());
            }
            state.tail.sleeps = true;
            let waited = spill.work.wait_timeout(state, RETRY_PAUSE).unwrap_or_else(PoisonError::into_inner);
            (state, has_waited) = (waited.0, waited.1.timed_out());
            state.tail.sleeps = false;
        }
    }

    /// Always false: the thread goes on.
    fn write(&mut self, packets: &[Delivery]) -> bool {
        let written = self.disk.append(packets);
        let mut state = self.core.lock();
        if state.tail.is_given_up {
            return false;
        }
        match written {
            Ok(()) => {
                let media = packets.iter().filter(|delivery| !delivery.packet.is_config()).count();
                state.tail.forget_first(packets.len());
                state.tail.media_on_disk += media as u64;
                state.tail.on_disk = self.disk.bytes();
                state.tail.is_blocked = false;
            }
            Err(error) => {
                // The packets stay in the tail.
                let was_blocked = std::mem::replace(&mut state.tail.is_blocked, true);
                drop(state);
                if !was_blocked {
                    self.backend.failed(&error);
                }
            }
        }
        false
    }

    /// Always false: the thread goes on.
    fn read(&mut self) -> bool {
        let taken = self.disk.take();
        let mut state = self.core.lock();
        if state.tail.is_given_up {
            return false;
        }
        match taken {
            Ok(packets) => {
                let media = packets.iter().filter(|delivery| !delivery.packet.is_config()).count();
                state.tail.media_on_disk = state.tail.media_on_disk.saturating_sub(media as u64);
                state.tail.on_disk = self.disk.bytes();
                state.tail.is_blocked = false;
                let queued = |delivery| Queued { delivery, at: Duration::ZERO };
                packets.into_iter().map(queued).for_each(|queued| state.put_back(queued));
            }
            Err(error) => {
                // After a gap, packets before the next keyframe cannot be decoded.
                self.core.dropped.fetch_add(state.tail.media(), Ordering::Relaxed);
                state.tail = Tail { is_active: true, has_thread: true, ..Tail::default() };
                (state.waiting, state.cut) = (true, true);
                drop(state);
                self.disk = self.backend.disk();
                self.backend.failed(&error);
            }
        }
        false
    }
}
