//! The host's functions for a running destination.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;

use super::State;
use super::hostref::HostRef;
use super::time::Time;
use crate::driver_state::Reported;
use crate::recording::About;
use crate::{Asset, Error, Playback};

/// First minor version of hosts that let viewers wait.
const FOLLOWED_MINOR: u32 = 4;

/// A running destination's handle to the host. Cheap to clone; usable from any task of the driver.
#[derive(Clone)]
pub struct Ctx {
    host: Arc<HostRef>,
    dest: u64,
    source: u64,
    about: Arc<About>,
    bytes_sent: Option<&'static AtomicU64>,
    stopping: watch::Receiver<bool>,
    reported: Arc<Mutex<Reported>>,
}

impl Ctx {
    pub(crate) fn new(
        host: Arc<HostRef>,
        dest: u64,
        source: u64,
        about: About,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let bytes_sent = host.metric(dest, "bytes_sent");
        Self { host, dest, source, about: Arc::new(about), bytes_sent, stopping, reported: Arc::default() }
    }

    /// `[any]` The stream and session of this opening. Empty with a host before minor version 2.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// `[any]` The driver's time. Use it for waits, so that tests can skip them.
    pub fn time(&self) -> &Time {
        &self.host.time
    }

    /// `[any]` Session of the media; all destinations of a session share it.
    pub fn source(&self) -> u64 {
        self.source
    }

    /// `[any]` Reports the state. May be called with each packet: the host gets only changes.
    pub fn state(&self, state: State) {
        self.report(state, None);
    }

    /// `[any]` Reports that the destination is not live, with the reason, while `run` keeps trying.
    pub fn waiting(&self, reason: &Error) {
        self.report(State::Connecting, Some(reason));
    }

    fn report(&self, state: State, reason: Option<&Error>) {
        // Held during the report, so that the host gets reports in order.
        let mut reported = self.reported.lock();
        if reported.is_news(state, reason.is_some()) {
            self.host.state(self.dest, state as u32, reason);
        }
    }

    /// `[any]` Adds to the bytes the destination was sent.
    pub fn bytes_sent(&self, bytes: u64) {
        if let Some(slot) = self.bytes_sent {
            slot.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// `[any]` The driver's own counter; `None` when the host refuses more.
    pub fn counter(&self, name: &str) -> Option<&'static AtomicU64> {
        self.host.metric(self.dest, name)
    }

    /// `[any]` Sends an event to the owner. `data` must be an object without secrets.
    pub fn event(&self, name: &str, data: &Value) {
        self.host.event(self.dest, name, &data.to_string());
    }

    /// `[task]` Resolves when the host asks for the end. Work that does not wait for media must stop then.
    pub async fn stopping(&self) {
        let mut stopping = self.stopping.clone();
        // An error means that the instance is gone, which also ends the run.
        let _ = stopping.wait_for(|stop| *stop).await;
    }

    /// `[task]` A TCP connection to an address the user gave, resolved and checked by the host's outbound guard.
    ///
    /// # Errors
    /// `Config` when the guard refuses the address, `Network` when resolving or connecting fails or takes over `timeout`.
    pub async fn connect(&self, host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Error> {
        super::net::connect(&self.host, self.dest, host, port, timeout).await
    }

    /// `[task]` A UDP socket that sends to one address the user gave and takes datagrams from it alone. The host's outbound guard resolved
    /// and checked the address. Needs a host of minor version 9.
    ///
    /// # Errors
    /// `Config` when the guard refuses the address, `Network` when resolving fails or takes over `timeout`, `Internal` with an older host.
    pub async fn connect_udp(&self, host: &str, port: u16, timeout: Duration) -> Result<UdpSocket, Error> {
        super::net::connect_udp(&self.host, self.dest, host, port, timeout).await
    }

    /// `[any]` The driver's private folder, which exists and outlives sessions.
    pub fn data_dir(&self) -> Result<PathBuf, Error> {
        self.host.data_dir()
    }

    /// `[any]` Publishes an asset for viewers and replaces an earlier one of the same name.
    ///
    /// # Errors
    /// `Internal` when the host refuses the asset: a bad name, also in `followed`, or a limit of the host is reached. The earlier asset stays.
    pub fn publish(&self, asset: Asset) -> Result<(), Error> {
        super::assets::publish(&self.host, self.dest, asset)
    }

    /// `[any]` The host supports [`Followed`](crate::Followed): only then may a playlist promise that viewers can wait.
    pub fn lets_viewers_wait(&self) -> bool {
        self.host.table().abi_minor >= FOLLOWED_MINOR
    }

    /// `[any]` Removes an asset.
    pub fn retract(&self, name: &str) {
        super::assets::retract(&self.host, self.dest, name);
    }

    /// `[any]` Reports where viewers start and what they can see now.
    ///
    /// # Errors
    /// `Internal` when the host has no playback or refuses a name.
    pub fn playback(&self, playback: &Playback) -> Result<(), Error> {
        super::assets::playback(&self.host, self.dest, playback)
    }
}

pub(super) fn missing(extension: &str) -> Error {
    Error::internal(format!("this host does not offer {extension}; use a newer host"))
}
