//! The loading side: safe wrappers round the C table.
//!
//! A host implements [`Services`] (the functions for drivers) and [`MediaSource`] (the queue of a destination), checks a
//! table with [`Table::read`], starts it with [`Driver::start`] and opens [`Instance`]s. All functions of [`Driver`] and
//! [`Instance`] run driver code on the calling thread: call them from a thread that may hang.
//!
//! This module owns no thread and no policy. It reads the clock only for driver threads that wait for media.

#[allow(unsafe_code)] // Functions a driver calls.
mod assets;
#[allow(unsafe_code)] // A function a driver calls.
mod crash;
#[allow(unsafe_code)] // Reads and calls the driver's table.
mod driver;
#[allow(unsafe_code)] // Functions a driver calls.
mod extensions;
#[allow(unsafe_code)] // Reads a driver's descriptions.
mod followed;
#[allow(unsafe_code)] // Calls the driver's table; functions a driver calls.
mod http;
#[allow(unsafe_code)] // Hands out reference-counted packets.
mod lease;
mod listing;
#[allow(unsafe_code)] // Functions a driver calls.
mod pump;
#[allow(unsafe_code)] // Calls the driver's table; functions a driver calls.
mod recordings;
#[allow(unsafe_code)] // Functions a driver calls.
mod services;
#[allow(unsafe_code)] // Reads the driver's table.
mod table;
#[allow(unsafe_code)] // Functions a driver calls.
mod wait;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use driver::{Driver, Instance};
pub use http::Http;
pub use listing::{Listing, REFUSED_NAMED_MAX, RefusedRecording};
pub use recordings::{
    BytesDone, Done, Recordings, SIGNED_BYTES_MAX, checked_range, is_signed_address, read_index,
};
pub use services::DriverWaker;
pub use table::{Table, TableError};

use crate::driver_state::State;
use crate::recording::Recording;
use crate::{Asset, Error, HttpResponse, Packet, Playback};

/// A packet on its way to one destination.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The packet, shared by all destinations of its session.
    pub packet: Arc<Packet>,
    /// Packets before this one were dropped for this destination.
    pub discontinuity: bool,
}

/// Result of [`MediaSource::recv`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recv {
    /// Packets were handed over.
    Ready,
    /// Nothing yet; the queue keeps the waker.
    Empty,
    /// Closed, and everything was handed over.
    Closed,
}

/// The queue of one destination, filled by the host, emptied by the driver. Called from driver threads; must not block.
pub trait MediaSource: Send + Sync + 'static {
    /// Appends up to `max` deliveries to `out` (with 0 it only checks), or keeps `waker` and wakes it once when packets arrive or the queue is
    /// closed. Both happen under one lock, so that no wake-up is lost.
    fn recv(&self, max: usize, out: &mut Vec<Delivery>, waker: DriverWaker) -> Recv;

    /// The driver released a packet of `bytes` bytes.
    fn released(&self, bytes: usize);

    /// The driver released the queue.
    fn abandoned(&self);
}

/// One log line of a driver. Text may hold anything: the host redacts and limits it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogLine {
    /// The opening; 0 = the driver itself.
    pub dest: u64,
    /// 1 error to 5 trace.
    pub level: u32,
    /// Module of the driver.
    pub target: String,
    /// The constant phrase.
    pub message: String,
    /// Names and values.
    pub fields: Vec<(String, String)>,
}

/// Called with the outcome of a connection attempt.
pub type Connected = Box<dyn FnOnce(Result<OwnedFd, Error>) + Send>;

/// The host's functions for one driver. Called from driver threads with the number of the opening; the number of an ended opening
/// must be harmless. Must not block.
pub trait Services: Send + Sync + 'static {
    /// Writes a log line.
    fn log(&self, line: LogLine);
    /// The destination's state as the driver reports it, with the reason if it is not live.
    fn state(&self, dest: u64, state: State, reason: Option<Error>);
    /// An event for the owner; `json` is unchecked.
    fn event(&self, dest: u64, name: &str, json: &str);
    /// The counter `name`; `None` when there are too many or the opening is unknown.
    fn metric(&self, dest: u64, name: &str) -> Option<Arc<AtomicU64>>;
    /// The destination has ended.
    fn stopped(&self, dest: u64, outcome: Result<(), Error>);
    /// Begins a checked connection, with `dest` 0 for the driver itself; calls `done` exactly once.
    fn connect(&self, dest: u64, host: String, port: u16, timeout: Duration, done: Connected);
    /// As [`Services::connect`], for a UDP socket that is connected to a checked address.
    fn connect_udp(&self, dest: u64, host: String, port: u16, timeout: Duration, done: Connected) {
        let _ = (dest, host, port, timeout);
        done(Err(Error::internal("this host makes no UDP sockets")));
    }
    /// From now on the driver calls [`Services::run_pump`], on a thread of its own, when the eventfd is added to. `None`: the host goes
    /// on waking the driver itself.
    fn take_pump(&self) -> Option<OwnedFd> {
        None
    }
    /// Wakes the driver and makes its other callbacks, as far as they are due, on this thread.
    fn run_pump(&self) {}
    /// The host wakes the driver itself again.
    fn give_back_pump(&self) {}
    /// The driver's own folder; created if it is missing.
    fn data_dir(&self) -> Result<PathBuf, Error>;
    /// The operator's settings for the driver: a JSON object, valid by the manifest's schema.
    fn settings(&self) -> String {
        "{}".to_string()
    }
    /// Publishes an asset for viewers.
    fn publish(&self, dest: u64, asset: Asset) -> Result<(), Error>;
    /// Removes an asset.
    fn retract(&self, dest: u64, name: &str);
    /// Takes a report of what viewers can see.
    fn playback(&self, dest: u64, playback: Playback) -> Result<(), Error>;
    /// The answer to the request `token`; `None` = the answer broke a rule, and the viewer gets an error. False when no request waits for it.
    fn respond(&self, token: u64, response: Option<HttpResponse>) -> bool {
        let _ = (token, response);
        false
    }
    /// A recording of the driver has changed.
    fn recording(&self, recording: Recording) -> Result<(), Error> {
        let _ = recording;
        Err(Error::internal("this host keeps no list of recordings"))
    }
    /// Encrypts a text for this driver.
    fn seal(&self, text: &str) -> Result<String, Error> {
        let _ = text;
        Err(Error::internal("this host encrypts nothing for drivers"))
    }
    /// Decrypts the output of [`Services::seal`] for this driver.
    fn unseal(&self, sealed: &str) -> Result<String, Error> {
        let _ = sealed;
        Err(Error::internal("this host encrypts nothing for drivers"))
    }
}
