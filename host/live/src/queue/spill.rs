//! What comes behind a full queue whose destination must not lose anything: a tail in memory, and a disk between it and the queue.
//!
//! Once the queue is full, everything new goes to its tail. A thread of the queue's own writes the tail to the disk, and puts what is
//! there, then the tail itself, back into the queue as it gets room. Nobody but that thread waits for the disk, the order stays, and when
//! the tail is empty the thread ends and the queue is again like any other. Where tail or disk hold no more, what comes is left out up to
//! a keyframe, as it is for others, and what waits is kept.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use satcast_plugin_api::Packet;
use satcast_plugin_api::host::{Delivery, DriverWaker};

use super::super::locks::{Condvar, MutexGuard};
use super::{Bounds, Core, Queued, State};

/// Most bytes in memory before what comes goes to the tail; without a disk a queue may hold more, as then it is all there is.
pub(in super::super) const FRONT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most bytes of the tail: what comes while the disk writes.
pub(in super::super) const TAIL_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most packets of the tail.
pub(in super::super) const TAIL_PACKETS_MAX: usize = 16 * 1024;
/// Written at once, so that the disk is not asked for every packet.
const WRITE_BYTES: usize = 1024 * 1024;
/// Written at once also when there are so many, so that a tail of small packets goes to the disk long before it is full.
const WRITE_PACKETS: usize = 4096;
/// Pause before a disk that took nothing is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A place for packets that is slow, and may fail. Its drop gives everything back.
pub(in super::super) trait Disk: Send {
    /// Bytes that it takes up now; 0 only when nothing is on it.
    fn bytes(&self) -> u64;
    /// Puts packets at the end. On an error none of them is there.
    fn append(&mut self, packets: &[Delivery]) -> io::Result<()>;
    /// Takes packets from the front, at least one. On an error everything that was there is lost.
    fn take(&mut self) -> io::Result<Vec<Delivery>>;
}

/// What a queue that must not lose anything has around it.
pub(in super::super) trait Surroundings: Send + Sync + 'static {
    /// Most bytes that may wait beside the queue.
    fn bytes_max(&self) -> u64;
    /// An empty disk. Does not wait.
    fn disk(&self) -> Box<dyn Disk>;
    /// Runs `body` on a thread of its own.
    fn start(&self, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;
    /// Wakes a driver.
    fn wake(&self, waker: DriverWaker);
    /// Packets are lost from now on, until there is room again.
    fn overflows(&self);
    /// The disk takes nothing for now, or lost what it had.
    fn failed(&self, error: &io::Error);
}

pub(super) struct Spill {
    pub(super) around: Arc<dyn Surroundings>,
    /// There may be something to do for the thread.
    work: Condvar,
}

impl Spill {
    pub(super) fn new(around: Arc<dyn Surroundings>) -> Self {
        Self { around, work: Condvar::new() }
    }
}

/// What came after the queue was full, under the queue's lock.
#[derive(Default)]
pub(super) struct Tail {
    /// Everything new goes here.
    pub(super) is_active: bool,
    pub(super) packets: VecDeque<Queued>,
    pub(super) bytes: usize,
    /// Bytes on the disk.
    on_disk: u64,
    /// Media packets on the disk.
    media_on_disk: u64,
    /// Nothing more is taken until there is room again for more than a moment.
    is_full: bool,
    /// The disk took nothing when it was asked last.
    is_blocked: bool,
    /// The thread waits for something to do.
    sleeps: bool,
    has_thread: bool,
    /// Nobody takes from the queue any more.
    is_given_up: bool,
}

impl Tail {
    /// Whether `bytes` more find no room. Once full it stays so until an eighth is free: a gap now and then is better than one in every group.
    fn is_full_for(&mut self, bytes: usize, bytes_max: u64) -> bool {
        let all = self.on_disk + self.bytes as u64;
        let part = |most: u64| if self.is_full { most - most / 8 } else { most };
        let is_over = (self.bytes + bytes) as u64 > part(TAIL_BYTES_MAX as u64)
            || self.packets.len() as u64 >= part(TAIL_PACKETS_MAX as u64)
            || all + bytes as u64 > part(bytes_max);
        self.is_full = is_over;
        is_over
    }

    pub(super) fn media(&self) -> u64 {
        let media = self.packets.iter().filter(|queued| !queued.delivery.packet.is_config());
        self.media_on_disk + media.count() as u64
    }

    /// What is to be written next.
    fn batch(&self) -> Vec<Delivery> {
        let mut bytes = 0;
        let fits = |queued: &&Queued| {
            let is_first = bytes == 0;
            bytes += queued.delivery.packet.payload.len().max(1);
            is_first || bytes <= WRITE_BYTES
        };
        self.packets.iter().take_while(fits).map(|queued| queued.delivery.clone()).collect()
    }

    /// There is enough to be worth a write.
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
    /// As [`State::is_over`], for a queue with a disk behind it: how long a packet waited does not matter.
    pub(super) fn is_front_full(&self, packet: &Packet) -> bool {
        self.packets.len() >= Bounds::USUAL.packets + self.burst.packets
            || self.bytes + packet.payload.len() > FRONT_BYTES_MAX + self.burst.bytes
    }

    /// Puts a packet into the tail. Returns the media packets lost.
    fn spill(&mut self, packet: &Arc<Packet>, has_video: bool, bytes_max: u64, now: Duration) -> u64 {
        self.tail.is_active = true;
        let is_full = self.tail.is_full_for(packet.payload.len(), bytes_max);
        self.waiting |= is_full;
        if packet.is_config() {
            // What finds no room comes with the keyframe that is waited for.
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

    fn has_room(&self) -> bool {
        self.packets.len() < Bounds::USUAL.packets / 2 && self.bytes < FRONT_BYTES_MAX / 2
    }

    fn put_back(&mut self, queued: Queued) {
        self.bytes += queued.delivery.packet.payload.len();
        self.packets.push_back(queued);
    }

    /// Moves packets from the tail into the queue; false when there is none.
    fn refill(&mut self) -> bool {
        let before = self.tail.packets.len();
        while self.has_room()
            && let Some(queued) = self.tail.packets.pop_front()
        {
            self.tail.bytes -= queued.delivery.packet.payload.len();
            self.put_back(queued);
        }
        self.tail.packets.len() < before
    }

    /// The thread has something to do.
    fn has_work(&self) -> bool {
        self.tail.is_given_up || self.has_room() || (self.tail.is_worth_writing() && !self.tail.is_blocked)
    }
}

impl Core {
    /// Puts a packet behind a full queue.
    pub(super) fn push_behind(
        self: &Arc<Self>,
        spill: &Spill,
        mut state: MutexGuard<'_, State>,
        packet: &Arc<Packet>,
        has_video: bool,
        now: Duration,
    ) {
        let was_full = state.tail.is_full;
        let lost = state.spill(packet, has_video, spill.around.bytes_max(), now);
        let overflows = state.tail.is_full && !was_full;
        self.dropped.fetch_add(lost, Ordering::Relaxed);
        if !state.tail.has_thread {
            let (core, around) = (self.clone(), spill.around.clone());
            let spiller = Spiller { disk: around.disk(), core, around };
            match spill.around.start(Box::new(move || spiller.run())) {
                Ok(()) => state.tail.has_thread = true,
                // The next packet asks again.
                Err(error) => spill.around.failed(&error),
            }
        }
        self.tell_spill(state);
        if overflows {
            spill.around.overflows();
        }
    }

    /// Lets the thread look again if it has something to do.
    pub(super) fn tell_spill(&self, state: MutexGuard<'_, State>) {
        let tells = state.tail.sleeps && state.has_work();
        drop(state);
        if let (Some(spill), true) = (&self.spill, tells) {
            spill.work.notify_one();
        }
    }

    /// Nobody takes from the tail any more: it is lost, and the disk is given back.
    pub(super) fn give_up(&self, mut state: MutexGuard<'_, State>) {
        if !state.tail.is_active {
            return;
        }
        self.dropped.fetch_add(state.tail.media(), Ordering::Relaxed);
        let Tail { has_thread, sleeps, .. } = state.tail;
        state.tail = Tail { has_thread, sleeps, is_given_up: has_thread, ..Tail::default() };
        state.closed = true;
        let waker = state.waker_if_ready();
        self.tell_spill(state);
        if let (Some(spill), Some(waker)) = (&self.spill, waker) {
            spill.around.wake(waker);
        }
    }
}

/// What the thread does next.
enum Step {
    /// The queue was given new packets.
    Moved,
    Read,
    Write(Vec<Delivery>),
    End,
}

/// The thread of one queue.
struct Spiller {
    core: Arc<Core>,
    disk: Box<dyn Disk>,
    around: Arc<dyn Surroundings>,
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
                self.around.wake(waker);
            }
            if is_end {
                return;
            }
        }
    }

    fn next(&self) -> Step {
        let Some(spill) = &self.core.spill else { return Step::End };
        let has_read = self.disk.bytes() == 0;
        let (mut state, mut rested) = (self.core.lock(), false);
        loop {
            if state.tail.is_given_up {
                state.tail = Tail::default();
                return Step::End;
            }
            if state.has_room() {
                if !has_read {
                    return Step::Read;
                }
                if state.refill() {
                    return Step::Moved;
                }
                state.tail = Tail::default();
                return Step::End;
            }
            if state.tail.is_worth_writing() && (rested || !state.tail.is_blocked) {
                return Step::Write(state.tail.batch());
            }
            state.tail.sleeps = true;
            let waited = spill.work.wait_timeout(state, RETRY_PAUSE).unwrap_or_else(PoisonError::into_inner);
            (state, rested) = (waited.0, waited.1.timed_out());
            state.tail.sleeps = false;
        }
    }

    /// Never the end.
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
                // They stay where they are.
                let was_blocked = std::mem::replace(&mut state.tail.is_blocked, true);
                drop(state);
                if !was_blocked {
                    self.around.failed(&error);
                }
            }
        }
        false
    }

    /// Never the end.
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
                // What comes after a hole is no use before the next keyframe.
                self.core.dropped.fetch_add(state.tail.media(), Ordering::Relaxed);
                state.tail = Tail { is_active: true, has_thread: true, ..Tail::default() };
                (state.waiting, state.cut) = (true, true);
                drop(state);
                self.disk = self.around.disk();
                self.around.failed(&error);
            }
        }
        false
    }
}
