//! The cost of the C table, on one thread with everything in the cache: a call of the host, a packet on loan, and a packet's whole way
//! through a queue. Each is compared with plain Rust (`dyn`), the cost without a boundary.
//!
//! `cargo xtask bench parts`. The queue is a deque behind a lock, as the host's is; limits and drops are left out, since a destination
//! that keeps up never meets them. Figures for comparison, in nanoseconds, from the study that chose this boundary (8 KiB packets,
//! another machine of the same class): a call with its caught panic 1.2; a packet taken one at a time 35, eight to thirty-two at a time 25; a
//! header for each destination 60, a plain reference 10.
#![allow(unsafe_code)] // Stands on the driver's side of the table.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use parking_lot::Mutex;
use satcast_plugin_api::abi::{
    self, SatcastDriver, SatcastErrorSink, SatcastHost, SatcastMedia, SatcastOpen, SatcastPacket, SatcastStr,
    SatcastWaker,
};
use satcast_plugin_api::driver::State;
use satcast_plugin_api::host::{
    Connected, Delivery, Driver, DriverWaker, LogLine, MediaSource, Recv, Services, Table,
};
use satcast_plugin_api::recording::About;
use satcast_plugin_api::{Asset, Codec, Error, Packet, Playback};

const PACKET_BYTES: usize = 8 * 1024;
/// Packets taken in one call.
const BATCHES: [usize; 3] = [1, 8, 32];

static MAX_LEVEL: AtomicU32 = AtomicU32::new(3);
static HOST: AtomicPtr<SatcastHost> = AtomicPtr::new(std::ptr::null_mut());
static MEDIA: AtomicPtr<SatcastMedia> = AtomicPtr::new(std::ptr::null_mut());

/// A host that does nothing.
#[derive(Default)]
struct Idle(AtomicU64);

impl Services for Idle {
    fn log(&self, _: LogLine) {}
    fn state(&self, dest: u64, _: State, _: Option<Error>) {
        self.0.store(dest, Ordering::Relaxed);
    }
    fn event(&self, _: u64, _: &str, _: &str) {}
    fn metric(&self, _: u64, _: &str) -> Option<Arc<AtomicU64>> {
        None
    }
    fn stopped(&self, _: u64, _: Result<(), Error>) {}
    fn connect(&self, _: u64, _: String, _: u16, _: Duration, done: Connected) {
        done(Err(Error::internal("not here")));
    }
    fn data_dir(&self) -> Result<PathBuf, Error> {
        Err(Error::internal("not here"))
    }
    fn publish(&self, _: u64, _: Asset) -> Result<(), Error> {
        Ok(())
    }
    fn retract(&self, _: u64, _: &str) {}
    fn playback(&self, _: u64, _: Playback) -> Result<(), Error> {
        Ok(())
    }
}

/// A queue like the host's.
#[derive(Default)]
struct Queue {
    state: Mutex<(VecDeque<Delivery>, Option<DriverWaker>)>,
    leased: AtomicU64,
}

impl Queue {
    fn push(&self, packet: &Arc<Packet>) {
        let mut state = self.state.lock();
        state.0.push_back(Delivery { packet: packet.clone(), discontinuity: false });
        let waker = state.1.take();
        drop(state);
        drop(waker);
    }
}

impl MediaSource for Queue {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
        let mut state = self.state.lock();
        if state.0.is_empty() {
            state.1 = Some(waker);
            return Recv::Empty;
        }
        let count = state.0.len().min(max);
        out.extend(state.0.drain(..count));
        drop(state);
        self.leased.fetch_add((count * PACKET_BYTES) as u64, Ordering::AcqRel);
        Recv::Ready
    }

    fn released(&self, bytes: usize) {
        self.leased.fetch_sub(bytes as u64, Ordering::AcqRel);
    }

    fn abandoned(&self) {}
}

/// A source that always has the same packet, and no lock: only the header on loan costs time.
struct Endless(Arc<Packet>);

impl MediaSource for Endless {
    fn recv(&self, _: usize, out: &mut Vec<Delivery>, _: DriverWaker) -> Recv {
        out.push(Delivery { packet: self.0.clone(), discontinuity: false });
        Recv::Ready
    }

    fn released(&self, _: usize) {}

    fn abandoned(&self) {}
}

unsafe extern "C" fn init(host: *const SatcastHost, _: *const SatcastErrorSink) -> i32 {
    HOST.store(host.cast_mut(), Ordering::Release);
    abi::OK
}

unsafe extern "C" fn open(
    request: *const SatcastOpen,
    instance: *mut *mut c_void,
    _: *const SatcastErrorSink,
) -> i32 {
    // SAFETY: both live for the call.
    unsafe {
        MEDIA.store((*request).media, Ordering::Release);
        *instance = std::ptr::dangling_mut::<u8>().cast();
    }
    abi::OK
}

unsafe extern "C" fn stop(_: *mut c_void, _: u32) -> i32 {
    abi::OK
}

unsafe extern "C" fn destroy(_: *mut c_void) {}

unsafe extern "C" fn deinit() {}

extern "C" fn entry(_: u32) -> *const SatcastDriver {
    const MANIFEST: &str = r#"{"title":"Bench","types":[{"name":"bench","title":"Bench","schema":{}}]}"#;
    Box::leak(Box::new(SatcastDriver {
        magic: abi::MAGIC,
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        size: size_of::<SatcastDriver>(),
        flags: abi::FLAG_PANIC_UNWIND,
        id: SatcastStr::new("bench"),
        version: SatcastStr::new("1"),
        toolchain: SatcastStr::new("bench"),
        manifest_json: SatcastStr::new(MANIFEST),
        init: Some(init),
        validate: None,
        open: Some(open),
        stop: Some(stop),
        destroy: Some(destroy),
        deinit: Some(deinit),
        get_extension: None,
    }))
}

/// The driver's side of one queue.
struct Side {
    host: &'static SatcastHost,
    media: *mut SatcastMedia,
}

impl Side {
    fn of(driver: &Driver, source: Arc<dyn MediaSource>) -> Self {
        let instance = driver.open(1, 1, "bench", "{}", &About::default(), source);
        // Never destroyed: the instance lives as long as the benchmark.
        std::mem::forget(instance.expect("an opening"));
        // SAFETY: host tables live for the process.
        let host = unsafe { &*HOST.load(Ordering::Acquire) };
        Self { host, media: MEDIA.load(Ordering::Acquire) }
    }

    /// Takes up to `out.len()` packets, looks at each, and gives them back.
    fn take(&self, out: &mut [*const SatcastPacket]) -> usize {
        let waker = SatcastWaker { data: std::ptr::null_mut(), wake: None, drop: None };
        let recv = self.host.media_recv.expect("a complete table");
        // SAFETY: the queue is open; there is room for as many as are asked for; each packet is released once.
        unsafe {
            let count = recv(self.host.ctx, self.media, out.as_mut_ptr(), out.len(), &raw const waker);
            for packet in &out[..count as usize] {
                black_box(*(**packet).data);
                ((*(**packet).vt).release)(*packet);
            }
            count as usize
        }
    }
}

fn packet() -> Arc<Packet> {
    Arc::new(Packet {
        source: 1,
        sequence: 1,
        ..Packet::media(Codec::H264, true, 0, 0, Bytes::from(vec![7; PACKET_BYTES]))
    })
}

fn boundary(c: &mut Criterion) {
    // SAFETY: the entry is code of this binary.
    let table = unsafe { Table::read(entry) }.expect("a good table");
    let services: Arc<dyn Services> = Arc::new(Idle::default());
    let driver = Driver::start(table, services.clone(), &MAX_LEVEL, abi::HOST_FLAG_STATIC).expect("a start");
    let mut group = c.benchmark_group("host_call");
    group.bench_function("dyn", |b| b.iter(|| black_box(&services).state(black_box(7), State::Live, None)));
    let side = Side::of(&driver, Arc::new(Endless(packet())));
    let state = side.host.state.expect("a complete table");
    group.bench_function("table", |b| {
        // SAFETY: the table's function with the table's context.
        b.iter(|| unsafe { state(side.host.ctx, black_box(7), abi::STATE_LIVE, std::ptr::null()) });
    });
    group.finish();

    let mut group = c.benchmark_group("loan");
    let (shared, mut one) = (packet(), [std::ptr::null(); 1]);
    group.bench_function("reference", |b| b.iter(|| black_box(shared.clone()).payload[0]));
    group.bench_function("table", |b| b.iter(|| side.take(&mut one)));
    group.finish();
    queues(c, &driver);
}

fn queues(c: &mut Criterion, driver: &Driver) {
    let mut group = c.benchmark_group("queue");
    for batch in BATCHES {
        group.throughput(Throughput::Elements(batch as u64));
        let (queue, packet) = (Arc::new(Queue::default()), packet());
        let mut taken = Vec::with_capacity(batch);
        group.bench_function(format!("dyn/{batch}"), |b| {
            let source: Arc<dyn MediaSource> = queue.clone();
            b.iter(|| {
                (0..batch).for_each(|_| queue.push(&packet));
                source.recv(batch, &mut taken, DriverWaker::calling(|| ()));
                for delivery in taken.drain(..) {
                    black_box(delivery.packet.payload[0]);
                    source.released(delivery.packet.payload.len());
                }
            });
        });
        let (side, mut out) = (Side::of(driver, queue.clone()), vec![std::ptr::null(); batch]);
        group.bench_function(format!("table/{batch}"), |b| {
            b.iter(|| {
                (0..batch).for_each(|_| queue.push(&packet));
                assert_eq!(side.take(&mut out), batch);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, boundary);
criterion_main!(benches);
