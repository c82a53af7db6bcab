//! Packets of a queue that must not lose any.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use satcast_plugin_api::Packet;
use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource as _, Recv};

use super::queue::*;
use super::spool::Spool;
use satcast_core::ids::AccountId;
use satcast_drivers::Waker;
use satcast_drivers::testing::{audio, video, video_config};

const WAIT_MAX: Duration = Duration::from_secs(60);
/// A GOP of two seconds.
const GROUP: u64 = 60;

/// A disk in memory that a test can block, break and repair.
#[derive(Default)]
struct Hand {
    takes_nothing: AtomicBool,
    loses_all: AtomicBool,
    writes: AtomicU64,
    failures: AtomicU64,
    overflows: AtomicU64,
    /// Held by a test while the disk hangs.
    hang: Mutex<()>,
    bytes_max: u64,
}

struct Plate {
    hand: Arc<Hand>,
    packets: VecDeque<Delivery>,
}

impl Disk for Plate {
    fn bytes(&self) -> u64 {
        self.packets.iter().map(|delivery| delivery.packet.payload.len().max(1) as u64).sum()
    }

    fn append(&mut self, packets: &[Delivery]) -> io::Result<()> {
        drop(self.hand.hang.lock());
        if self.hand.takes_nothing.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.packets.extend(packets.iter().cloned());
        self.hand.writes.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn take(&mut self) -> io::Result<Vec<Delivery>> {
        if self.hand.loses_all.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(self.packets.drain(..self.packets.len().min(10)).collect())
    }
}

struct Around(Arc<Hand>);

impl SpillBackend for Around {
    fn bytes_max(&self) -> u64 {
        self.0.bytes_max
    }

    fn disk(&self) -> Box<dyn Disk> {
        Box::new(Plate { hand: self.0.clone(), packets: VecDeque::new() })
    }

    fn start(&self, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        thread::Builder::new().spawn(body).map(drop)
    }

    fn wake(&self, waker: DriverWaker) {
        waker.wake();
    }

    fn overflows(&self) {
        self.0.overflows.fetch_add(1, Ordering::SeqCst);
    }

    fn failed(&self, _: &io::Error) {
        self.0.failures.fetch_add(1, Ordering::SeqCst);
    }
}

struct Rig {
    queue: Queue,
    dropped: Arc<AtomicU64>,
    hand: Arc<Hand>,
}

impl Rig {
    fn new(bytes_max: u64) -> Self {
        let (dropped, hand) = (Arc::<AtomicU64>::default(), Arc::new(Hand { bytes_max, ..Hand::default() }));
        Self { queue: Queue::spilling(dropped.clone(), Arc::new(Around(hand.clone()))), dropped, hand }
    }

    fn push(&self, packet: &Arc<Packet>) {
        assert!(self.queue.push(packet, true, Duration::ZERO).is_none(), "no driver waits");
    }

    fn frames(&self, sequences: std::ops::Range<u64>) {
        sequences.for_each(|sequence| self.push(&frame(sequence)));
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Closes the queue and takes everything.
    fn rest(&self) -> Vec<Delivery> {
        drop(self.queue.close());
        let mut got = Vec::new();
        while let Some(more) = take(&self.queue) {
            got.extend(more);
        }
        got
    }
}

/// Thirty a second of 25 kB, which is 6 Mbit/s.
fn frame(sequence: u64) -> Arc<Packet> {
    let frame = video(sequence, sequence as i64 * 1000 / 30, sequence.is_multiple_of(GROUP));
    let payload = Bytes::from(vec![sequence as u8; 25_000]);
    Arc::new(Packet { payload, ..(*frame).clone() })
}

/// Waits for the next packets; `None` at the end.
fn take(queue: &Queue) -> Option<Vec<Delivery>> {
    loop {
        let (wake, woken) = mpsc::channel();
        let waker = DriverWaker::calling(move || wake.send(()).unwrap_or_default());
        let mut out = Vec::new();
        match queue.recv(256, &mut out, waker) {
            Recv::Ready => {
                out.iter().for_each(|delivery| queue.released(delivery.packet.payload.len()));
                return Some(out);
            }
            Recv::Closed => return None,
            Recv::Empty => assert!(woken.recv_timeout(WAIT_MAX).is_ok(), "the driver is not woken"),
        }
    }
}

#[track_caller]
fn until(event: &str, mut is_met: impl FnMut() -> bool) {
    for _ in 0..WAIT_MAX.as_millis() / 5 {
        if is_met() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("timeout: {event}");
}

fn sequences(got: &[Delivery]) -> Vec<u64> {
    got.iter().map(|delivery| delivery.packet.sequence).collect()
}

/// Checks that media is in order, and that each gap is followed by a keyframe with a discontinuity.
#[track_caller]
fn assert_whole_groups(got: &[Delivery]) {
    let mut before = None;
    for delivery in got.iter().filter(|delivery| !delivery.packet.is_config()) {
        let sequence = delivery.packet.sequence;
        let follows = before.is_none_or(|before| before + 1 == sequence);
        assert_eq!(delivery.discontinuity, !follows, "{before:?}, {sequence}");
        assert!(follows || (before < Some(sequence) && delivery.packet.keyframe), "{before:?}, {sequence}");
        before = Some(sequence);
    }
}

fn real(folder: &Path) -> (Queue, Arc<AtomicU64>) {
    let dropped = Arc::<AtomicU64>::default();
    let (folder, waker) = (folder.to_owned(), Waker::idle());
    let (account, shares) = (AccountId(1), Arc::default());
    let (bytes_max, free_bytes_min) = (1 << 30, 0);
    let (clock, span) = (satcast_core::clock::Clock::system(), tracing::Span::none());
    let spool = Spool { account, shares, folder, bytes_max, free_bytes_min, waker, clock, span };
    (Queue::spilling(dropped.clone(), Arc::new(spool)), dropped)
}

#[test]
fn a_stall_of_a_minute_loses_no_packets_with_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (queue, dropped) = real(&folder.path().join("spool"));
    let push = |packet: &Arc<Packet>| drop(queue.push(packet, true, Duration::ZERO));
    push(&video_config(1_000_000, b"first"));
    let all = 60 * 30;
    (0..all / 2).for_each(|sequence| push(&frame(sequence)));
    // Within the part on disk.
    push(&video_config(2_000_000, b"second"));
    (all / 2..all).for_each(|sequence| push(&frame(sequence)));
    assert!(queue.level().1 <= FRONT_BYTES_MAX);
    let mut got = Vec::new();
    while got.len() < 900 {
        got.extend(take(&queue).unwrap());
    }
    // The stream continues while the backlog is taken.
    (all..all + 300).for_each(|sequence| push(&frame(sequence)));
    drop(queue.close());
    while let Some(more) = take(&queue) {
        got.extend(more);
    }
    let expected = std::iter::once(1_000_000).chain(0..all / 2).chain([2_000_000]).chain(all / 2..all + 300);
    assert!(sequences(&got).into_iter().eq(expected), "all, in order");
    let as_sent = |delivery: &&Delivery| {
        let (sent, got) = (frame(delivery.packet.sequence), &delivery.packet);
        (sent.dts_ns, sent.keyframe, &sent.payload) == (got.dts_ns, got.keyframe, &got.payload)
            && !delivery.discontinuity
    };
    assert_eq!(
        got.iter().filter(|delivery| !delivery.packet.is_config()).filter(as_sent).count() as u64,
        all + 300
    );
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    assert_eq!(std::fs::read_dir(folder.path().join("spool")).unwrap().count(), 0, "no file has a name");
}

#[test]
fn a_full_spool_drops_up_to_a_keyframe_and_keeps_waiting_packets() {
    let rig = Rig::new(TAIL_BYTES_MAX as u64 / 2);
    rig.push(&video_config(0, b"old"));
    rig.frames(0..GROUP * 20);
    let lost = rig.dropped();
    assert!(lost > GROUP, "{lost}");
    assert_eq!(rig.hand.overflows.load(Ordering::SeqCst), 1, "reported once");
    rig.push(&video_config(1, b"new"));
    let mut got = Vec::new();
    while got.len() < 600 {
        got.extend(take(&rig.queue).unwrap());
    }
    // There is space again, which is used from the next keyframe on.
    rig.frames(GROUP * 20..GROUP * 22);
    got.extend(rig.rest());
    assert_eq!(rig.dropped(), lost, "a keyframe followed at once");
    assert_whole_groups(&got);
    let again = got.iter().position(|delivery| delivery.discontinuity).unwrap();
    assert_eq!(
        &got[again - 1].packet.payload[..],
        b"new",
        "the configuration after the gap comes before the media"
    );
    assert_eq!(got.iter().filter(|delivery| !delivery.packet.is_config()).count() as u64 + lost, GROUP * 22);
}

#[test]
fn small_packets_go_to_the_disk_too() {
    let rig = Rig::new(u64::MAX);
    rig.push(&video_config(0, b"held"));
    rig.push(&frame(0));
    // Ten minutes of audio without a reader, at the pace of the disk.
    let all = (Bounds::USUAL.packets + 2 * TAIL_PACKETS_MAX) as u64;
    for sequence in 1..=all {
        rig.push(&audio(sequence, sequence as i64 * 21));
        if sequence.is_multiple_of(TAIL_PACKETS_MAX as u64 / 4) {
            until("room in the tail", || rig.queue.tail_packets() < TAIL_PACKETS_MAX / 2);
        }
    }
    assert_eq!(rig.rest().len() as u64, all + 2);
    assert_eq!(rig.dropped(), 0);
}

#[test]
fn a_full_disk_loses_no_packets_before_memory_is_full_and_is_retried() {
    let rig = Rig::new(u64::MAX);
    rig.hand.takes_nothing.store(true, Ordering::SeqCst);
    rig.frames(0..GROUP * 10);
    until("a failure", || rig.hand.failures.load(Ordering::SeqCst) > 0);
    assert_eq!((rig.dropped(), rig.hand.failures.load(Ordering::SeqCst)), (0, 1), "reported once");
    rig.frames(GROUP * 10..GROUP * 40);
    let lost = rig.dropped();
    assert!(lost > GROUP * 10, "{lost}");
    rig.hand.takes_nothing.store(false, Ordering::SeqCst);
    let mut next = GROUP * 40;
    // Until the retry wrote the waiting packets.
    until("room", || {
        rig.frames(next..next + GROUP);
        next += GROUP;
        rig.dropped() + 9 * GROUP < next - 1_700
    });
    let got = rig.rest();
    assert_whole_groups(&got);
    assert_eq!(got.len() as u64 + rig.dropped(), next);
}

#[test]
fn a_disk_that_hangs_does_not_block_the_queue() {
    let rig = Rig::new(u64::MAX);
    let hang = rig.hand.hang.lock();
    rig.frames(0..GROUP * 40);
    let lost = rig.dropped();
    let memory = (FRONT_BYTES_MAX + TAIL_BYTES_MAX) as u64 / 25_000;
    assert!((GROUP * 40 - memory - 2..=GROUP * 40 - memory + 2).contains(&lost), "{lost}");
    let first = take(&rig.queue).unwrap();
    assert_eq!(sequences(&first), (0..256).collect::<Vec<_>>(), "the packets in memory are available");
    drop(hang);
    let mut got = first;
    got.extend(rig.rest());
    assert_whole_groups(&got);
    assert_eq!(got.len() as u64 + rig.dropped(), GROUP * 40);
}

#[test]
fn packets_lost_by_a_disk_are_counted_and_followed_by_a_keyframe() {
    let rig = Rig::new(u64::MAX);
    rig.push(&video_config(0, b"v"));
    rig.frames(0..GROUP * 15);
    until("packets on the disk", || rig.hand.writes.load(Ordering::SeqCst) > 0);
    rig.hand.loses_all.store(true, Ordering::SeqCst);
    let mut got = take(&rig.queue).unwrap();
    until("the loss", || {
        rig.hand.failures.load(Ordering::SeqCst) > 0 || {
            got.extend(take(&rig.queue).unwrap_or_default());
            false
        }
    });
    rig.hand.loses_all.store(false, Ordering::SeqCst);
    rig.frames(GROUP * 15 + 1..GROUP * 18);
    got.extend(rig.rest());
    assert_whole_groups(&got);
    let media = got.iter().filter(|delivery| !delivery.packet.is_config()).count() as u64;
    assert_eq!(media + rig.dropped(), GROUP * 18 - 1);
    let again = got.iter().position(|delivery| delivery.discontinuity).unwrap();
    assert_eq!(got[again].packet.sequence, GROUP * 16);
    assert_eq!(&got[again - 1].packet.payload[..], b"v", "the configuration from disk is repeated");
}

#[test]
fn audio_alone_continues_as_soon_as_there_is_space() {
    let rig = Rig::new(1000);
    let large = |sequence| Arc::new(Packet { payload: vec![0; 300].into(), ..(*audio(sequence, 0)).clone() });
    let most = (Bounds::USUAL.packets + 100) as u64;
    (0..most).for_each(|sequence| drop(rig.queue.push(&large(sequence), false, Duration::ZERO)));
    assert_eq!(rig.dropped(), most - Bounds::USUAL.packets as u64 - 3);
    let mut got = take(&rig.queue).unwrap();
    while got.len() < Bounds::USUAL.packets + 3 {
        got.extend(take(&rig.queue).unwrap());
    }
    drop(rig.queue.push(&large(most), false, Duration::ZERO));
    got.extend(rig.rest());
    let last = got.last().unwrap();
    assert_eq!((last.packet.sequence, last.discontinuity), (most, true));
}

#[test]
fn packets_without_bytes_are_limited_too() {
    let rig = Rig::new(u64::MAX);
    let hang = rig.hand.hang.lock();
    let empty =
        |sequence| Arc::new(Packet { payload: Bytes::new(), ..(*video(sequence, 0, sequence == 0)).clone() });
    let most = (Bounds::USUAL.packets + TAIL_PACKETS_MAX) as u64;
    (0..most + 7).for_each(|sequence| rig.push(&empty(sequence)));
    assert_eq!(rig.dropped(), 7);
    drop(hang);
    assert_eq!(rig.rest().len() as u64, most);
}

#[test]
fn an_abandoned_or_given_up_queue_frees_its_disk_and_counts_losses() {
    for is_driver in [true, false] {
        let rig = Rig::new(u64::MAX);
        rig.frames(0..GROUP * 15);
        match is_driver {
            true => rig.queue.abandoned(),
            false => drop(rig.queue.give_up()),
        }
        assert_eq!(rig.dropped(), GROUP * 15);
        assert!(rig.rest().is_empty(), "a late driver gets no packets that were counted as lost");
        until("the end of the thread", || Arc::strong_count(&rig.hand) == 2);
    }
}
