//! The mock host's services: they record the driver's reports, and fail where a test asks for it.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Answered, HostCall};
use crate::driver_state::State;
use crate::host::{Connected, LogLine, Services};
use crate::recording::Recording;
use crate::{Asset, AssetBody, Error, HttpResponse, Playback};

/// The reports of a destination so far.
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
    /// The last playback report.
    pub playback: Option<Playback>,
}

/// A published asset. Dropping it (because the name is published again or retracted) gives its file back to the driver.
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
    /// The file cannot be read, or is shorter than reported.
    pub fn bytes(&self) -> std::io::Result<Vec<u8>> {
        read(&self.asset.body, &self.folder)
    }
}

/// The bytes of a body.
pub(super) fn read(body: &AssetBody, folder: &Path) -> std::io::Result<Vec<u8>> {
    match body {
        AssetBody::Memory(body) => Ok(body.to_vec()),
        AssetBody::File { path, offset, len, .. } => {
            read_range(&std::fs::File::open(folder.join(path))?, *offset, *len)
        }
        AssetBody::Open { file: Some(file), offset, len } => read_range(file, *offset, *len),
        AssetBody::Open { file: None, .. } | AssetBody::Parts(_) => Ok(Vec::new()),
    }
}

/// `len` bytes of a file.
fn read_range(file: &std::fs::File, offset: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).map_err(std::io::Error::other)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

pub(super) struct Shared {
    pub(super) reports: Mutex<BTreeMap<u64, Report>>,
    pub(super) changed: Condvar,
    pub(super) counters: Mutex<BTreeMap<(u64, String), Arc<AtomicU64>>>,
    pub(super) logs: Mutex<Vec<LogLine>>,
    pub(super) faults: Mutex<BTreeMap<HostCall, Error>>,
    pub(super) recordings: Mutex<Vec<Recording>>,
    pub(super) requests: Mutex<BTreeMap<u64, Option<Answered>>>,
    pub(super) folder: PathBuf,
    settings: String,
}

impl Shared {
    pub(super) fn new(folder: PathBuf, settings: String) -> Self {
        Self {
            reports: Mutex::default(),
            changed: Condvar::new(),
            counters: Mutex::default(),
            logs: Mutex::default(),
            faults: Mutex::default(),
            recordings: Mutex::default(),
            requests: Mutex::default(),
            folder,
            settings,
        }
    }

    pub(super) fn change(&self, dest: u64, change: impl FnOnce(&mut Report)) {
        change(self.reports.lock().entry(dest).or_default());
        self.changed.notify_all();
    }

    fn fails(&self, call: HostCall) -> Result<(), Error> {
        self.faults.lock().get(&call).map_or(Ok(()), |error| Err(error.clone()))
    }
}

impl Services for Shared {
    fn log(&self, line: LogLine) {
        self.logs.lock().push(line);
        self.changed.notify_all();
    }

    fn state(&self, dest: u64, state: State, reason: Option<Error>) {
        self.change(dest, |report| report.states.push((state, reason)));
    }

    fn event(&self, dest: u64, name: &str, json: &str) {
        self.change(dest, |report| report.events.push((name.to_string(), json.to_string())));
    }

    fn metric(&self, dest: u64, name: &str) -> Option<Arc<AtomicU64>> {
        self.fails(HostCall::Counter).ok()?;
        Some(self.counters.lock().entry((dest, name.to_string())).or_default().clone())
    }

    fn stopped(&self, dest: u64, outcome: Result<(), Error>) {
        self.change(dest, |report| {
            report.outcome = Some(outcome);
            report.ends += 1;
        });
    }

    fn connect(&self, _: u64, host: String, port: u16, timeout: Duration, done: Connected) {
        if let Err(error) = self.fails(HostCall::Connect) {
            return done(Err(error));
        }
        std::thread::spawn(move || done(connect_unguarded(&host, port, timeout)));
    }

    fn connect_udp(&self, _: u64, host: String, port: u16, _: Duration, done: Connected) {
        if let Err(error) = self.fails(HostCall::Connect) {
            return done(Err(error));
        }
        std::thread::spawn(move || done(connect_udp_unguarded(&host, port)));
    }

    fn data_dir(&self) -> Result<PathBuf, Error> {
        self.fails(HostCall::DataDir)?;
        std::fs::create_dir_all(&self.folder)
            .map(|()| self.folder.clone())
            .map_err(|error| Error::internal(format!("cannot make the test folder: {error}")))
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }

    fn publish(&self, dest: u64, asset: Asset) -> Result<(), Error> {
        self.fails(HostCall::Publish)?;
        let recorded = Recorded { folder: self.folder.clone(), asset };
        let mut replaced = None;
        self.change(dest, |report| {
            replaced = report.assets.insert(recorded.asset.name.clone(), recorded);
        });
        // Dropping an asset runs code of the driver, so not under the lock.
        drop(replaced);
        Ok(())
    }

    fn retract(&self, dest: u64, name: &str) {
        let mut removed = None;
        self.change(dest, |report| removed = report.assets.remove(name));
        drop(removed);
    }

    fn playback(&self, dest: u64, playback: Playback) -> Result<(), Error> {
        self.fails(HostCall::Playback)?;
        self.change(dest, |report| report.playback = Some(playback));
        Ok(())
    }

    fn respond(&self, token: u64, response: Option<HttpResponse>) -> bool {
        let gone = self.fails(HostCall::Respond).is_err();
        let answered = Answered::new(response, &self.folder);
        let mut requests = self.requests.lock();
        let is_waited_for = requests.get(&token).is_some_and(Option::is_none) && !gone;
        if is_waited_for {
            requests.insert(token, Some(answered));
        }
        drop(requests);
        // Waiting threads check under this lock.
        drop(self.reports.lock());
        self.changed.notify_all();
        is_waited_for
    }

    fn recording(&self, recording: Recording) -> Result<(), Error> {
        self.fails(HostCall::Recording)?;
        self.recordings.lock().push(recording);
        self.changed.notify_all();
        Ok(())
    }

    fn seal(&self, text: &str) -> Result<String, Error> {
        self.fails(HostCall::Seal)?;
        Ok(super::recordings::seal(text))
    }

    fn unseal(&self, sealed: &str) -> Result<String, Error> {
        self.fails(HostCall::Unseal)?;
        super::recordings::unseal(sealed)
    }
}

fn resolved_unguarded(host: &str, port: u16) -> Result<SocketAddr, Error> {
    let found = (host, port).to_socket_addrs();
    let mut found =
        found.map_err(|error| Error::network(format!("cannot resolve {host}:{port}: {error}")))?;
    found.next().ok_or_else(|| Error::network(format!("{host} has no address")))
}

fn connect_udp_unguarded(host: &str, port: u16) -> Result<std::os::fd::OwnedFd, Error> {
    let network = |error: std::io::Error| Error::network(format!("cannot connect to {host}:{port}: {error}"));
    let address = resolved_unguarded(host, port)?;
    let own: SocketAddr = if address.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(own).map_err(network)?;
    socket.connect(address).and_then(|()| socket.set_nonblocking(true)).map_err(network)?;
    Ok(socket.into())
}

fn connect_unguarded(host: &str, port: u16, timeout: Duration) -> Result<std::os::fd::OwnedFd, Error> {
    let network = |error: std::io::Error| Error::network(format!("cannot connect to {host}:{port}: {error}"));
    let address = resolved_unguarded(host, port)?;
    let stream = TcpStream::connect_timeout(&address, timeout).map_err(network)?;
    stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(network)?;
    Ok(stream.into())
}
