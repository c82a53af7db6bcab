//! A mock host: drives a driver through its life in a unit test, over the real C table.
//!
//! ```ignore
//! satcast_plugin_api::driver_entry!(entry, MyDriver);
//! let kit = Testkit::start(entry)?;
//! let dest = kit.open("tcp", &json!({ "host": "127.0.0.1" }))?;
//! dest.push(testkit::config(Codec::H264, b"avcC"));
//! assert!(dest.wait_for_state(State::Live));
//! dest.stop();
//! dest.wait_for_end()?;
//! ```
//!
//! Connections go to any address: the outbound guard is the real host's. There are no retries and no limits here.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use crate::Error;
use crate::abi::{HOST_FLAG_STATIC, SatcastDriver};
use crate::driver_state::State;
use crate::host::{
    Asset, AssetBody, Connected, Delivery, Driver, DriverWaker, Instance, LogLine, MediaSource, Packet,
    Playback, Recv, Services, Table,
};
use crate::packet::{Codec, Kind};

/// How long the waiting functions wait.
pub const WAIT_MAX: Duration = Duration::from_secs(20);
/// What a destination is given to end.
pub const STOP_DEADLINE_MS: u32 = 2_000;

/// Driver log lines of all levels reach the kit.
static MAX_LEVEL: AtomicU32 = AtomicU32::new(5);

/// A driver under test.
pub struct Testkit {
    driver: Driver,
    shared: Arc<Shared>,
    next_dest: AtomicU64,
}

/// One opening of a destination.
pub struct TestDestination {
    dest: u64,
    queue: Arc<Queue>,
    instance: Mutex<Option<Instance>>,
    shared: Arc<Shared>,
}

/// What a destination has reported so far.
#[derive(Debug, Default)]
pub struct Report {
    /// States in order, with reasons.
    pub states: Vec<(State, Option<Error>)>,
    /// Events in order.
    pub events: Vec<(String, String)>,
    /// The outcome, when it has ended.
    pub outcome: Option<Result<(), Error>>,
    /// How often it reported an end.
    pub ends: u32,
    /// Published assets by name.
    pub assets: BTreeMap<String, Recorded>,
    /// What viewers can see, as told last.
    pub playback: Option<Playback>,
}

/// A published asset. Dropping it, which a repeated name and a retraction do, gives its file back to the driver.
#[derive(Debug)]
pub struct Recorded {
    /// As the host gets it.
    pub asset: Asset,
    folder: PathBuf,
}

impl Recorded {
    /// Its bytes, from memory or the file. Empty for parts.
    ///
    /// # Errors
    /// The file cannot be read, or is shorter than told.
    pub fn bytes(&self) -> std::io::Result<Vec<u8>> {
        match &self.asset.body {
            AssetBody::Memory(body) => Ok(body.as_ref().to_vec()),
            AssetBody::File { path, offset, len, .. } => {
                let file = std::fs::File::open(self.folder.join(path))?;
                let size = usize::try_from(*len).map_err(std::io::Error::other)?;
                let mut bytes = vec![0; size];
                file.read_exact_at(&mut bytes, *offset)?;
                Ok(bytes)
            }
            AssetBody::Parts(_) => Ok(Vec::new()),
        }
    }
}

#[derive(Default)]
struct Shared {
    reports: Mutex<BTreeMap<u64, Report>>,
    changed: Condvar,
    counters: Mutex<BTreeMap<(u64, String), Arc<AtomicU64>>>,
    logs: Mutex<Vec<LogLine>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Testkit {
    /// Checks and initialises the driver of `entry`, made by [`driver_entry!`](crate::driver_entry).
    pub fn start(entry: extern "C" fn(u32) -> *const SatcastDriver) -> Result<Self, Error> {
        // SAFETY: the entry is code of this binary.
        #[allow(unsafe_code)]
        let table = unsafe { Table::read(entry) }.map_err(|error| Error::internal(error.to_string()))?;
        let shared = Arc::new(Shared::default());
        let driver = Driver::start(table, shared.clone(), &MAX_LEVEL, HOST_FLAG_STATIC)?;
        Ok(Self { driver, shared, next_dest: AtomicU64::new(1) })
    }

    /// The driver's description.
    pub fn table(&self) -> &Table {
        self.driver.table()
    }

    /// The driver's own check of a configuration.
    pub fn validate(&self, type_name: &str, config: &Value) -> Result<(), Error> {
        self.driver.validate(type_name, &config.to_string())
    }

    /// Opens a destination.
    pub fn open(&self, type_name: &str, config: &Value) -> Result<TestDestination, Error> {
        let dest = self.next_dest.fetch_add(1, Ordering::Relaxed);
        let queue = Arc::new(Queue::default());
        lock(&self.shared.reports).insert(dest, Report::default());
        let instance = self.driver.open(dest, 1, type_name, &config.to_string(), queue.clone())?;
        Ok(TestDestination { dest, queue, instance: Mutex::new(Some(instance)), shared: self.shared.clone() })
    }

    /// Forgets what a destination published, as the host does some time after its end.
    pub fn forget_assets(&self, destination: &TestDestination) {
        let mut assets = BTreeMap::new();
        self.shared.change(destination.dest, |report| assets = std::mem::take(&mut report.assets));
        drop(assets);
    }

    /// The folder the driver gets.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn data_dir(&self) -> Result<PathBuf, Error> {
        self.shared.data_dir()
    }

    /// Waits until a destination's report satisfies `is_met`; false after [`WAIT_MAX`].
    pub fn wait_until(&self, destination: &TestDestination, is_met: impl Fn(&Report) -> bool) -> bool {
        destination.wait(|report| is_met(report).then_some(())).is_some()
    }

    /// All log lines so far.
    pub fn logs(&self) -> Vec<LogLine> {
        lock(&self.shared.logs).clone()
    }

    /// Ends the driver.
    pub fn shut_down(self) {
        self.driver.shut_down();
    }
}

impl TestDestination {
    /// Queues a packet.
    pub fn push(&self, packet: Packet) {
        let waker = {
            let mut state = lock(&self.queue.state);
            state.packets.push_back(Delivery { packet: Arc::new(packet), discontinuity: false });
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Closes the queue and asks for the end, as the host does.
    pub fn stop(&self) {
        self.queue.close();
        if let Some(instance) = &*lock(&self.instance) {
            instance.stop(STOP_DEADLINE_MS);
        }
    }

    /// Waits until the last reported state is `state`; false after [`WAIT_MAX`] or when it ends before.
    pub fn wait_for_state(&self, state: State) -> bool {
        self.wait(|report| {
            if report.states.last().is_some_and(|(last, _)| *last == state) {
                return Some(true);
            }
            report.outcome.is_some().then_some(false)
        })
        .unwrap_or(false)
    }

    /// Waits until the destination reports its end, and destroys it.
    pub fn wait_for_end(&self) -> Result<(), Error> {
        let outcome = self.wait(|report| report.outcome.clone());
        // An instance that has not ended must not be destroyed; it is leaked instead.
        let instance = lock(&self.instance).take();
        if let (Some(instance), true) = (instance, outcome.is_some()) {
            instance.destroy();
        }
        outcome.unwrap_or_else(|| Err(Error::internal("the destination did not end")))
    }

    /// Looks at what was reported so far.
    pub fn report<R>(&self, look: impl FnOnce(&Report) -> R) -> R {
        look(lock(&self.shared.reports).entry(self.dest).or_default())
    }

    /// A counter of the destination, 0 if it was never asked for.
    pub fn counter(&self, name: &str) -> u64 {
        let counters = lock(&self.shared.counters);
        counters.get(&(self.dest, name.to_string())).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Packets the driver took and has not released.
    pub fn leased_packets(&self) -> u64 {
        self.queue.leased.load(Ordering::Acquire)
    }

    fn wait<R>(&self, mut look: impl FnMut(&Report) -> Option<R>) -> Option<R> {
        let end = Instant::now() + WAIT_MAX;
        let mut reports = lock(&self.shared.reports);
        loop {
            if let Some(found) = look(reports.entry(self.dest).or_default()) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            reports =
                self.shared.changed.wait_timeout(reports, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A configuration packet at time 0.
pub fn config(codec: Codec, record: &'static [u8]) -> Packet {
    Packet { config: true, ..media(codec, 0, 0, false, Bytes::from_static(record)) }
}

/// A media packet.
pub fn media(codec: Codec, sequence: u64, dts_ms: i64, keyframe: bool, payload: Bytes) -> Packet {
    let kind = if matches!(codec, Codec::Aac | Codec::Opus) { Kind::Audio } else { Kind::Video };
    Packet {
        kind,
        codec,
        config: false,
        keyframe,
        discontinuity: false,
        track: 0,
        source: 1,
        sequence,
        dts_ns: dts_ms * 1_000_000,
        pts_ns: dts_ms * 1_000_000,
        payload,
    }
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    leased: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    packets: VecDeque<Delivery>,
    closed: bool,
    waker: Option<DriverWaker>,
}

impl Queue {
    fn close(&self) {
        let waker = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl MediaSource for Queue {
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv {
        let mut state = lock(&self.state);
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

impl Shared {
    fn change(&self, dest: u64, change: impl FnOnce(&mut Report)) {
        change(lock(&self.reports).entry(dest).or_default());
        self.changed.notify_all();
    }
}

impl Services for Shared {
    fn log(&self, line: LogLine) {
        lock(&self.logs).push(line);
    }

    fn state(&self, dest: u64, state: State, reason: Option<Error>) {
        self.change(dest, |report| report.states.push((state, reason)));
    }

    fn event(&self, dest: u64, name: &str, json: &str) {
        self.change(dest, |report| report.events.push((name.to_string(), json.to_string())));
    }

    fn metric(&self, dest: u64, name: &str) -> Option<Arc<AtomicU64>> {
        Some(lock(&self.counters).entry((dest, name.to_string())).or_default().clone())
    }

    fn stopped(&self, dest: u64, outcome: Result<(), Error>) {
        self.change(dest, |report| {
            report.outcome = Some(outcome);
            report.ends += 1;
        });
    }

    fn connect(&self, _: u64, host: String, port: u16, timeout: Duration, done: Connected) {
        std::thread::spawn(move || done(connect_unguarded(&host, port, timeout)));
    }

    fn data_dir(&self) -> Result<PathBuf, Error> {
        let path = std::env::temp_dir().join(format!("satcast-testkit-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map(|()| path)
            .map_err(|error| Error::internal(format!("cannot make the test folder: {error}")))
    }

    fn publish(&self, dest: u64, asset: Asset) -> Result<(), Error> {
        let recorded = Recorded { folder: self.data_dir()?, asset };
        let mut replaced = None;
        self.change(dest, |report| {
            replaced = report.assets.insert(recorded.asset.name.clone(), recorded);
        });
        // The driver's code runs when a piece goes: not under the lock.
        drop(replaced);
        Ok(())
    }

    fn retract(&self, dest: u64, name: &str) {
        let mut removed = None;
        self.change(dest, |report| removed = report.assets.remove(name));
        drop(removed);
    }

    fn playback(&self, dest: u64, playback: Playback) -> Result<(), Error> {
        self.change(dest, |report| report.playback = Some(playback));
        Ok(())
    }
}

fn connect_unguarded(host: &str, port: u16, timeout: Duration) -> Result<std::os::fd::OwnedFd, Error> {
    use std::net::{TcpStream, ToSocketAddrs as _};
    let network = |error: std::io::Error| Error::network(format!("cannot connect to {host}:{port}: {error}"));
    let address = (host, port)
        .to_socket_addrs()
        .map_err(network)?
        .next()
        .ok_or_else(|| Error::network(format!("{host} has no address")))?;
    let stream = TcpStream::connect_timeout(&address, timeout).map_err(network)?;
    stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(network)?;
    Ok(stream.into())
}
