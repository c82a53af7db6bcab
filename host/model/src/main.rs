//! Model check with loom of a destination's queue, over every interleaving of a publisher, a driver and its releases: no packet is
//! lost or delivered twice, no driver sleeps while packets wait for it, and each waker is called or dropped exactly once.
//!
//! `cargo run --manifest-path host/model/Cargo.toml`, which `cargo xtask test` does. It compiles the host's own source with loom's locks
//! instead of the system's. It is a separate program, not a test of the host: it uses the shipped source without its unit tests.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use satcast_plugin_api::host::{Delivery, DriverWaker, MediaSource as _, Recv};
use satcast_plugin_api::{Codec, Packet};

#[path = "../../live/src/group.rs"]
#[allow(dead_code)] // The model needs only its configurations.
mod group;
#[path = "../../live/src/queue/mod.rs"]
#[allow(dead_code)] // The observers of a queue are not part of the model.
mod queue;

mod locks {
    pub(super) use loom::sync::atomic::AtomicUsize;
    pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
}

use queue::{Bounds, Disk, LEASED_BYTES_MAX, Queue, SpillBackend};

/// Most forced thread switches per interleaving; more find nothing new and take much longer.
const SWITCHES_MAX: usize = 3;
/// Arrival time of every packet: none waits too long.
const NOW: Duration = Bounds::USUAL.wait;
/// Fewest interleavings of a useful model; fewer mean that the model does nothing.
const ORDERS_MIN: u64 = 20;
/// More than the memory of a queue with a spool, so that each such packet goes to the spool.
const LARGE_BYTES: usize = 9 * 1024 * 1024;

/// The models are made for a queue that never drops what they put in.
const _: () = assert!(LEASED_BYTES_MAX / 2 <= Bounds::USUAL.bytes && Bounds::USUAL.packets > 3);

fn main() {
    check("packets pushed before the end reach a sleeping driver", pushed);
    check("initial packets and two publishers lose nothing", two_publishers);
    check("a driver over its lease limit continues after a release", held_too_much);
    check("spooled packets arrive in order and wake a sleeping driver", over_a_disk);
    check("a queue with a spool may be dropped at any time", given_up);
    check("a waker is called or dropped once, also when the queue is dropped", waker_ends_once);
}

fn check(name: &str, model: impl Fn() + Send + Sync + 'static) {
    let orders = Arc::new(AtomicU64::new(0));
    let (counted, began) = (orders.clone(), Instant::now());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(SWITCHES_MAX);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let orders = orders.load(Ordering::Relaxed);
    assert!(orders >= ORDERS_MIN, "{name}: {orders} orders only");
    println!("{name}: {orders} orders in {:.1} s", began.elapsed().as_secs_f64());
}

/// A driver that sleeps until its waker is called.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn waker(bell: &loom::sync::Arc<Self>) -> DriverWaker {
        let bell = bell.clone();
        DriverWaker::calling(move || {
            *bell.is_rung.lock().expect("no panic holds it") = true;
            bell.changed.notify_one();
        })
    }

    fn wait(&self) {
        let mut rung = self.is_rung.lock().expect("no panic holds it");
        while !*rung {
            rung = self.changed.wait(rung).expect("no panic holds it");
        }
        *rung = false;
    }
}

fn empty() -> loom::sync::Arc<Queue> {
    loom::sync::Arc::new(Queue::new(Arc::new(AtomicU64::new(0)), Bounds::USUAL))
}

fn wake(waker: Option<DriverWaker>) {
    waker.into_iter().for_each(DriverWaker::wake);
}

fn packet(sequence: u64, packet: Packet) -> Arc<Packet> {
    Arc::new(Packet { source: 1, sequence, ..packet })
}

fn config(sequence: u64) -> Arc<Packet> {
    packet(sequence, Packet::configuration(Codec::H264, Bytes::from_static(b"c")))
}

fn media(sequence: u64, keyframe: bool) -> Arc<Packet> {
    packet(sequence, Packet::media(Codec::H264, keyframe, 0, 0, Bytes::from_static(b"media")))
}

/// Half of the lease limit of a driver.
fn half(sequence: u64) -> Arc<Packet> {
    static PAYLOAD: OnceLock<Bytes> = OnceLock::new();
    let payload = PAYLOAD.get_or_init(|| vec![0; LEASED_BYTES_MAX / 2].into()).clone();
    packet(sequence, Packet::media(Codec::H264, true, 0, 0, payload))
}

/// Takes packets one at a time until the queue is closed; returns their numbers. It sleeps forever, which loom reports, if a
/// wake-up is lost.
fn drive(queue: &Queue, releases: bool) -> Vec<u64> {
    let bell = loom::sync::Arc::new(Bell::default());
    let (mut seen, mut batch) = (Vec::new(), Vec::new());
    loop {
        match queue.recv(1, &mut batch, Bell::waker(&bell)) {
            Recv::Closed => return seen,
            Recv::Empty => bell.wait(),
            Recv::Ready => {
                for delivery in batch.drain(..) {
                    seen.push(delivery.packet.sequence);
                    if releases {
                        queue.released(delivery.packet.payload.len());
                    }
                }
            }
        }
    }
}

fn pushed() {
    let queue = empty();
    let taking = queue.clone();
    let driver = thread::spawn(move || drive(&taking, true));
    for packet in [config(1), media(2, true), media(3, false)] {
        wake(queue.push(&packet, true, NOW));
    }
    wake(queue.close());
    assert_eq!(driver.join().expect("a driver that ends"), [1, 2, 3]);
}

fn two_publishers() {
    let queue = empty();
    let mut configs = group::Configs::default();
    configs.replace(&config(1));
    wake(queue.begin(&configs, [media(2, true)].iter(), NOW));
    let taking = queue.clone();
    let driver = thread::spawn(move || drive(&taking, true));
    let pushing = queue.clone();
    let other = thread::spawn(move || wake(pushing.push(&media(3, false), true, NOW)));
    wake(queue.push(&media(4, false), true, NOW));
    other.join().expect("a publisher that ends");
    wake(queue.close());
    let mut seen = driver.join().expect("a driver that ends");
    seen[2..].sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4]);
}

/// A disk that never fails, and a thread of loom's beside the queue.
struct Around;

#[derive(Default)]
struct Plate(VecDeque<Delivery>);

impl Disk for Plate {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn append(&mut self, packets: &[Delivery]) -> io::Result<()> {
        self.0.extend(packets.iter().cloned());
        Ok(())
    }

    fn take(&mut self) -> io::Result<Vec<Delivery>> {
        Ok(self.0.pop_front().into_iter().collect())
    }
}

impl SpillBackend for Around {
    fn bytes_max(&self) -> u64 {
        u64::MAX
    }

    fn disk(&self) -> Box<dyn Disk> {
        Box::new(Plate::default())
    }

    fn start(&self, body: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        thread::spawn(body);
        Ok(())
    }

    fn wake(&self, waker: DriverWaker) {
        waker.wake();
    }

    fn overflows(&self) {
        panic!("it has no end");
    }

    fn failed(&self, error: &io::Error) {
        panic!("{error}");
    }
}

fn spilling(dropped: &Arc<AtomicU64>) -> loom::sync::Arc<Queue> {
    loom::sync::Arc::new(Queue::spilling(dropped.clone(), Arc::new(Around)))
}

/// Too large for the queue's memory.
fn large(sequence: u64, keyframe: bool) -> Arc<Packet> {
    static PAYLOAD: OnceLock<Bytes> = OnceLock::new();
    let payload = PAYLOAD.get_or_init(|| vec![0; LARGE_BYTES].into()).clone();
    packet(sequence, Packet::media(Codec::H264, keyframe, 0, 0, payload))
}

fn over_a_disk() {
    let dropped = Arc::default();
    let queue = spilling(&dropped);
    let taking = queue.clone();
    let driver = thread::spawn(move || drive(&taking, true));
    for packet in [large(1, true), large(2, false)] {
        wake(queue.push(&packet, true, NOW));
    }
    wake(queue.close());
    assert_eq!(driver.join().expect("a driver that ends"), [1, 2]);
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
}

fn given_up() {
    let dropped = Arc::default();
    let queue = spilling(&dropped);
    wake(queue.push(&large(1, true), true, NOW));
    let taking = queue.clone();
    let driver = thread::spawn(move || drive(&taking, true));
    wake(queue.close());
    wake(queue.give_up());
    let seen = driver.join().expect("a driver that ends");
    assert_eq!(seen.len() as u64 + dropped.load(Ordering::SeqCst), 1, "the packet was delivered or counted");
}

fn held_too_much() {
    let queue = empty();
    let mut held = Vec::new();
    for sequence in [1, 2] {
        wake(queue.push(&half(sequence), true, NOW));
        assert_eq!(queue.recv(1, &mut held, DriverWaker::calling(|| ())), Recv::Ready);
    }
    let (taking, releasing) = (queue.clone(), queue.clone());
    let driver = thread::spawn(move || drive(&taking, false));
    let release = thread::spawn(move || releasing.released(LEASED_BYTES_MAX / 2));
    wake(queue.push(&half(3), true, NOW));
    release.join().expect("a release that ends");
    // Not earlier: closing the queue wakes the driver anyway.
    wake(queue.close());
    assert_eq!(driver.join().expect("a driver that ends"), [3]);
}

/// Counts how its waker ends.
#[derive(Default)]
struct Ends {
    called: AtomicU64,
    gone: AtomicU64,
}

struct Gone(Arc<Ends>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, Ordering::SeqCst);
    }
}

fn waker_ends_once() {
    let (queue, ends) = (empty(), Arc::new(Ends::default()));
    let (abandoning, pushing) = (queue.clone(), queue.clone());
    let gone = Gone(ends.clone());
    let waker = DriverWaker::calling(move || {
        gone.0.called.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(queue.recv(1, &mut Vec::new(), waker), Recv::Empty);
    let abandon = thread::spawn(move || abandoning.abandoned());
    let push = thread::spawn(move || wake(pushing.push(&media(1, true), true, NOW)));
    wake(queue.close());
    abandon.join().expect("an end");
    push.join().expect("a publisher that ends");
    assert_eq!(ends.gone.load(Ordering::SeqCst), 1);
    assert!(ends.called.load(Ordering::SeqCst) <= 1);
    let nothing = queue.recv(9, &mut Vec::new(), DriverWaker::calling(|| ()));
    assert_eq!(nothing, Recv::Closed, "a dropped queue keeps nothing");
}
