//! A mock host: drives a driver through its life in a unit test, over the real C table.
//!
//! ```ignore
//! satcast_plugin_api::driver_entry!(entry, MyDriver);
//!
//! let kit = Testkit::start(entry)?;
//! let dest = kit.open("tcp", &json!({ "host": "127.0.0.1" }))?;
//! dest.push(testkit::config(Codec::H264, b"avcC"));
//! assert!(dest.wait_for_state(State::Live));
//! dest.stop();
//! dest.wait_for_end()?;
//! kit.shut_down();
//! ```
//!
//! Other actions of a host: a queue that drops ([`TestDestination::limit_queue`]), a short deadline
//! ([`TestDestination::stop_within`]), a new configuration ([`TestDestination::reconfigure`]), an operator's settings
//! ([`Options::settings`]), failing calls ([`Testkit::fail`]), requests about recordings ([`Testkit::recordings`]), viewer requests
//! ([`Testkit::get`]).
//!
//! Connections to any address are allowed: only the real host has the outbound guard. There are no retries. Time is the machine's,
//! or the test's with [`Testkit::start_at`]: [`Clock::skip`] moves a driver that waits by [`Time`](crate::driver::Time) through hours.
//! A driver has one slot in a process: start the kit once in each test binary, or put each kit into its own test binary.

mod clock;
mod http;
mod logs;
mod packets;
mod queue;
mod recordings;
mod shared;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

pub use clock::Clock;
pub use http::Answered;
pub use logs::{assert_not_logged, keep_own_logs};
pub use packets::{config, media};
pub use shared::{Recorded, Report};

use crate::abi::{HOST_FLAG_STATIC, SatcastDriver};
use crate::driver_state::State;
use crate::host::{Driver, Instance, LogLine, Services as _, Table};
use crate::recording::About;
use crate::{Error, Packet};
use queue::Queue;
use shared::Shared;

/// Timeout of the waiting functions.
pub const WAIT_MAX: Duration = Duration::from_secs(20);
/// Default stop deadline of a destination, in milliseconds.
pub const STOP_DEADLINE_MS: u32 = 2_000;

/// Driver log lines of all levels reach the kit.
static MAX_LEVEL: AtomicU32 = AtomicU32::new(5);
/// Numbers of the kits of this process, for their folders.
static NEXT_KIT: AtomicU64 = AtomicU64::new(1);

/// Options of the mock host.
#[derive(Debug, Clone)]
pub struct Options {
    /// The operator's settings below `[driver.<id>]`: an object. Not checked against the driver's schema.
    pub settings: Value,
    /// The driver's folder, which is not deleted; `None` makes one that [`Testkit::shut_down`] deletes.
    pub data_dir: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { settings: Value::Object(serde_json::Map::new()), data_dir: None }
    }
}

/// Calls of the host that a test can make fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostCall {
    /// [`Ctx::connect`](crate::driver::Ctx::connect) and [`Ctx::connect_udp`](crate::driver::Ctx::connect_udp).
    Connect,
    /// [`Ctx::counter`](crate::driver::Ctx::counter), which reports no error.
    Counter,
    /// [`Ctx::data_dir`](crate::driver::Ctx::data_dir).
    DataDir,
    /// [`Ctx::publish`](crate::driver::Ctx::publish).
    Publish,
    /// [`Ctx::playback`](crate::driver::Ctx::playback).
    Playback,
    /// The answer to a viewer who has left.
    Respond,
    /// [`Host::recording`](crate::driver::Host::recording).
    Recording,
    /// [`Host::seal`](crate::driver::Host::seal).
    Seal,
    /// [`Host::unseal`](crate::driver::Host::unseal).
    Unseal,
}

/// A driver under test.
pub struct Testkit {
    driver: Driver,
    shared: Arc<Shared>,
    next_dest: AtomicU64,
    own_folder: Option<PathBuf>,
}

/// One opening of a destination.
pub struct TestDestination {
    dest: u64,
    queue: Arc<Queue>,
    instance: Mutex<Option<Instance>>,
    shared: Arc<Shared>,
}

impl Testkit {
    /// Checks and initialises the driver of `entry`, made by [`driver_entry!`](crate::driver_entry).
    ///
    /// # Errors
    /// The table is refused, or the error of the driver's `load`.
    pub fn start(entry: extern "C" fn(u32) -> *const SatcastDriver) -> Result<Self, Error> {
        Self::start_with(entry, Options::default())
    }

    /// [`Testkit::start`] with options.
    ///
    /// # Errors
    /// As [`Testkit::start`].
    pub fn start_with(
        entry: extern "C" fn(u32) -> *const SatcastDriver,
        options: Options,
    ) -> Result<Self, Error> {
        Self::begin(entry, options, None)
    }

    /// [`Testkit::start_with`] for a driver whose time is the test's clock.
    ///
    /// # Errors
    /// As [`Testkit::start`].
    pub fn start_at(
        entry: extern "C" fn(u32) -> *const SatcastDriver,
        options: Options,
        clock: &Clock,
    ) -> Result<Self, Error> {
        Self::begin(entry, options, Some(clock.clone()))
    }

    fn begin(
        entry: extern "C" fn(u32) -> *const SatcastDriver,
        options: Options,
        clock: Option<Clock>,
    ) -> Result<Self, Error> {
        // SAFETY: the entry is code of this binary.
        #[allow(unsafe_code)]
        let table = unsafe { Table::read(entry) }.map_err(|error| Error::internal(error.to_string()))?;
        let (folder, own_folder) = match options.data_dir {
            Some(folder) => (folder, None),
            None => {
                let kit = NEXT_KIT.fetch_add(1, Ordering::Relaxed);
                let name = format!("satcast-testkit-{}-{kit}", std::process::id());
                let folder = std::env::temp_dir().join(name);
                (folder.clone(), Some(folder))
            }
        };
        let shared = Arc::new(Shared::new(folder, options.settings.to_string()));
        let start = || Driver::start(table, shared.clone(), &MAX_LEVEL, HOST_FLAG_STATIC);
        let driver = Clock::while_starting(clock, start)?;
        Ok(Self { driver, shared, next_dest: AtomicU64::new(1), own_folder })
    }

    /// The driver's description.
    pub fn table(&self) -> &Table {
        self.driver.table()
    }

    /// The driver's own check of a configuration.
    ///
    /// # Errors
    /// The driver's error.
    pub fn validate(&self, type_name: &str, config: &Value) -> Result<(), Error> {
        self.driver.validate(type_name, &config.to_string())
    }

    /// Opens a destination.
    ///
    /// # Errors
    /// The driver's error.
    pub fn open(&self, type_name: &str, config: &Value) -> Result<TestDestination, Error> {
        self.open_for(&About::default(), type_name, config)
    }

    /// Opens a destination with facts about its stream and session.
    ///
    /// # Errors
    /// The driver's error.
    pub fn open_for(&self, about: &About, type_name: &str, config: &Value) -> Result<TestDestination, Error> {
        let dest = self.next_dest.fetch_add(1, Ordering::Relaxed);
        let queue = Arc::new(Queue::default());
        self.shared.reports.lock().insert(dest, Report::default());
        let instance = self.driver.open(dest, 1, type_name, &config.to_string(), about, queue.clone())?;
        Ok(TestDestination { dest, queue, instance: Mutex::new(Some(instance)), shared: self.shared.clone() })
    }

    /// Makes a host call fail from now on.
    pub fn fail(&self, call: HostCall, error: Error) {
        self.shared.faults.lock().insert(call, error);
    }

    /// Makes a host call work again.
    pub fn heal(&self, call: HostCall) {
        self.shared.faults.lock().remove(&call);
    }

    /// Removes the assets of a destination, as the host does some time after its end.
    pub fn forget_assets(&self, destination: &TestDestination) {
        let mut assets = BTreeMap::new();
        self.shared.change(destination.dest, |report| assets = std::mem::take(&mut report.assets));
        drop(assets);
    }

    /// The folder the driver gets.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn data_dir(&self) -> Result<PathBuf, Error> {
        self.shared.data_dir()
    }

    /// Waits until a destination's report satisfies `is_met`; false after [`WAIT_MAX`].
    pub fn wait_until(&self, destination: &TestDestination, is_met: impl Fn(&Report) -> bool) -> bool {
        destination.wait(|report| is_met(report).then_some(())).is_some()
    }

    /// All log lines so far. A driver that is linked into the test binary logs to the test's own subscriber instead
    /// ([`keep_own_logs`]): only its panics and the lines of drivers in C appear here.
    pub fn logs(&self) -> Vec<LogLine> {
        self.shared.logs.lock().clone()
    }

    /// Ends the driver.
    pub fn shut_down(self) {
        self.driver.shut_down();
        if let Some(folder) = self.own_folder {
            // The folder does not exist when the driver never asked for it.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl TestDestination {
    /// Queues a packet.
    pub fn push(&self, packet: Packet) {
        self.queue.push(packet);
    }

    /// Limits the queue, so that a slow destination loses packets as in the host: everything before the newest keyframe is
    /// dropped, and the packet after the gap is marked.
    pub fn limit_queue(&self, packets_max: usize) {
        self.queue.limit(Some(packets_max));
    }

    /// Packets that the limited queue dropped.
    pub fn dropped_packets(&self) -> u64 {
        self.queue.dropped()
    }

    /// Offers a new configuration; false when the destination must be opened again to use it.
    ///
    /// # Errors
    /// The driver's error, or the destination was destroyed.
    pub fn reconfigure(&self, config: &Value) -> Result<bool, Error> {
        match &*self.instance.lock() {
            Some(instance) => instance.reconfigure(&config.to_string()),
            None => Err(Error::internal("the destination was destroyed")),
        }
    }

    /// Closes the queue and asks for the end, as the host does.
    pub fn stop(&self) {
        self.stop_within(STOP_DEADLINE_MS);
    }

    /// [`TestDestination::stop`] with a deadline in milliseconds.
    pub fn stop_within(&self, deadline_ms: u32) {
        self.queue.close();
        if let Some(instance) = &*self.instance.lock() {
            instance.stop(deadline_ms);
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
    ///
    /// # Errors
    /// The error that ended it, or no end within [`WAIT_MAX`].
    pub fn wait_for_end(&self) -> Result<(), Error> {
        let outcome = self.wait(|report| report.outcome.clone());
        // An instance that has not ended must not be destroyed; it is leaked instead.
        let instance = self.instance.lock().take();
        if let (Some(instance), true) = (instance, outcome.is_some()) {
            instance.destroy();
        }
        outcome.unwrap_or_else(|| Err(Error::internal("the destination did not end")))
    }

    /// Reads the report so far.
    pub fn report<R>(&self, look: impl FnOnce(&Report) -> R) -> R {
        look(self.shared.reports.lock().entry(self.dest).or_default())
    }

    /// A counter of the destination, 0 if the driver never asked for it.
    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.shared.counters.lock();
        counters.get(&(self.dest, name.to_string())).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Packets the driver took and has not released.
    pub fn leased_packets(&self) -> u64 {
        self.queue.leased.load(Ordering::Acquire)
    }

    fn wait<R>(&self, mut look: impl FnMut(&Report) -> Option<R>) -> Option<R> {
        let end = Instant::now() + WAIT_MAX;
        let mut reports = self.shared.reports.lock();
        loop {
            if let Some(found) = look(reports.entry(self.dest).or_default()) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            self.shared.changed.wait_for(&mut reports, left);
        }
    }
}
