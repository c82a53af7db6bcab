//! An RTMP server of the tests that records the received media and can imitate failures of real servers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::socket::{setsockopt, sockopt};
use parking_lot::Mutex;
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use satcast_media::{Codec, Packet};

use crate::ports::Port;
use crate::record::{Record, Track};
use crate::wait;

/// Pause between two looks at a socket or a flag.
const POLL: Duration = Duration::from_millis(20);
const READ_BLOCK_BYTES: usize = 256 * 1024;
/// Receive buffer of a sink that stalls or is slow: small, so that the sender notices soon.
const STALLED_BUFFER_BYTES: usize = 16 * 1024;
const SLOW_READS_PER_SECOND: usize = 20;
const NANOS_PER_MILLI: i64 = 1_000_000;

/// Behaviour of a sink towards a publisher.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// Keeps a record of every packet.
    Record,
    /// Reads and discards, as cheaply as possible, for benchmarks.
    Discard,
    /// Accepts the publish and then never reads again.
    Stall,
    /// Reads this many bytes a second.
    Slow(usize),
    /// Refuses the publish.
    Refuse {
        /// Status code, for instance `NetStream.Publish.BadName`.
        code: &'static str,
        /// Text beside it.
        description: &'static str,
    },
}

/// A received packet.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The packet.
    pub record: Record,
    /// Time of arrival.
    pub at: Instant,
    /// Number of its accepted publish, from 1.
    pub publish: usize,
}

/// An RTMP server on a port of its own; it listens until it is killed or dropped.
#[derive(Debug)]
pub struct Sink {
    port: Port,
    shared: Arc<Shared>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Shared {
    behaviour: Behaviour,
    arrivals: Mutex<Vec<Arrival>>,
    /// Stream names that publishers asked for.
    names: Mutex<Vec<String>>,
    publishes: AtomicUsize,
    attempts: AtomicUsize,
    open: AtomicUsize,
    bytes: AtomicU64,
}

/// One run of the sink, between two kills.
#[derive(Debug)]
struct Running {
    life: Arc<Life>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Life {
    over: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Sink {
    /// A sink that records.
    #[must_use]
    pub fn recording() -> Self {
        Self::start(Behaviour::Record)
    }

    /// A sink that records, at an address of this host.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn recording_at(host: Ipv4Addr) -> Self {
        Self::listen(Port::lease().at(host), Behaviour::Record)
    }

    /// A sink with this behaviour.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn start(behaviour: Behaviour) -> Self {
        Self::listen(Port::lease(), behaviour)
    }

    fn listen(port: Port, behaviour: Behaviour) -> Self {
        let shared = Shared {
            behaviour,
            arrivals: Mutex::default(),
            names: Mutex::default(),
            publishes: AtomicUsize::new(0),
            attempts: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
        };
        let mut sink = Self { port, shared: Arc::new(shared), running: None };
        sink.restart();
        sink
    }

    /// Listens again after [`Sink::kill`], on the same port; it keeps the received media.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn restart(&mut self) {
        self.kill();
        let listener = TcpListener::bind(self.port.address()).expect("the leased port is free");
        listener.set_nonblocking(true).expect("a listener that does not block");
        if matches!(self.shared.behaviour, Behaviour::Stall | Behaviour::Slow(_)) {
            // Sockets inherit it from their listener.
            setsockopt(&listener, sockopt::RcvBuf, &STALLED_BUFFER_BYTES).expect("a small receive buffer");
        }
        let (life, shared) = (Arc::new(Life::default()), Arc::clone(&self.shared));
        let its_life = Arc::clone(&life);
        let thread = std::thread::spawn(move || accept(&listener, &its_life, &shared));
        self.running = Some(Running { life, thread });
    }

    /// Closes the port and every connection at once.
    pub fn kill(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.life.over.store(true, Ordering::SeqCst);
        for socket in running.life.sockets.lock().drain(..) {
            // Fails only when the other side has closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        let joined = running.thread.join();
        if !std::thread::panicking() {
            joined.expect("the sink's thread did not panic");
        }
    }

    /// Its URL without a stream name.
    #[must_use]
    pub fn url(&self) -> String {
        format!("rtmp://{}/app", self.port.address())
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// All received packets, in order.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.arrivals.lock().clone()
    }

    /// The packets since the last call, in order, which it forgets: for runs of hours.
    #[must_use]
    pub fn take_arrivals(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.shared.arrivals.lock())
    }

    /// The packets of one accepted publish, counted from 1, in order.
    #[must_use]
    pub fn records_of(&self, publish: usize) -> Vec<Record> {
        let arrivals = self.shared.arrivals.lock();
        arrivals
            .iter()
            .filter(|arrival| arrival.publish == publish)
            .map(|arrival| arrival.record.clone())
            .collect()
    }

    /// The packets of all publishes, in order.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.shared.arrivals.lock().iter().map(|arrival| arrival.record.clone()).collect()
    }

    /// The stream names that publishers asked for.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.shared.names.lock().clone()
    }

    /// Number of accepted publishes.
    #[must_use]
    pub fn publishes(&self) -> usize {
        self.shared.publishes.load(Ordering::SeqCst)
    }

    /// Number of requested publishes, including refused ones.
    #[must_use]
    pub fn attempts(&self) -> usize {
        self.shared.attempts.load(Ordering::SeqCst)
    }

    /// Number of bytes read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::SeqCst)
    }

    /// Waits until it has at least `count` media packets (no configuration); returns their number.
    ///
    /// # Panics
    /// When it has not in time.
    #[track_caller]
    pub fn wait_for_media(&self, count: usize) -> usize {
        wait::until(&format!("{count} packets at the sink"), || {
            let media = self.shared.arrivals.lock().iter().filter(|arrival| !arrival.record.config).count();
            if media >= count { Ok(media) } else { Err(format!("{media} packets")) }
        })
    }
}

impl Sink {
    /// Waits until every publisher has left and all of its packets are recorded.
    ///
    /// # Panics
    /// When one is still connected at the end of the wait.
    #[track_caller]
    pub fn wait_until_left(&self) {
        wait::until("the publisher to leave the sink", || self.left());
    }

    /// Whether every publisher has left; the error says how many have not.
    ///
    /// # Errors
    /// One is connected.
    pub fn left(&self) -> Result<(), String> {
        match self.shared.open.load(Ordering::SeqCst) {
            0 => Ok(()),
            open => Err(format!("{open} connections")),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.kill();
    }
}

fn accept(listener: &TcpListener, life: &Arc<Life>, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    while !life.over.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false).expect("a socket that blocks");
                let second = socket.try_clone().expect("a second handle on the socket");
                life.sockets.lock().push(second);
                let (life, shared) = (Arc::clone(life), Arc::clone(shared));
                shared.open.fetch_add(1, Ordering::SeqCst);
                threads.push(std::thread::spawn(move || {
                    serve(socket, &life, &shared);
                    shared.open.fetch_sub(1, Ordering::SeqCst);
                }));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(POLL),
            Err(error) => panic!("the sink cannot accept: {error}"),
        }
    }
    for thread in threads {
        thread.join().expect("a connection's thread did not panic");
    }
}

/// One connection, until either side ends it.
fn serve(mut socket: TcpStream, life: &Life, shared: &Shared) {
    // Without it, a kill would wait for a connection that was accepted just before.
    socket.set_read_timeout(Some(POLL)).expect("a read time-out");
    let mut session = ServerSession::new(ServerConfig::default());
    let slow = match shared.behaviour {
        Behaviour::Slow(bytes_per_second) => Some(bytes_per_second / SLOW_READS_PER_SECOND),
        _ => None,
    };
    let mut block = vec![0; slow.unwrap_or(READ_BLOCK_BYTES)];
    let mut publish = 0;
    while !life.over.load(Ordering::SeqCst) {
        let count = match socket.read(&mut block) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => return,
        };
        shared.bytes.fetch_add(count as u64, Ordering::SeqCst);
        if slow.is_some() && publish > 0 {
            std::thread::sleep(Duration::from_secs(1) / SLOW_READS_PER_SECOND as u32);
        }
        let input = session.input(Bytes::copy_from_slice(&block[..count]));
        let mut refused = false;
        while let Some(event) = session.poll_event() {
            match event {
                ServerEvent::PublishRequested { id, stream_key, .. } => {
                    shared.attempts.fetch_add(1, Ordering::SeqCst);
                    shared.names.lock().push(stream_key);
                    if let Behaviour::Refuse { code, description } = &shared.behaviour {
                        session.reject_publish(id, code, description);
                        refused = true;
                    } else if session.accept_publish(id).is_ok() {
                        publish = shared.publishes.fetch_add(1, Ordering::SeqCst) + 1;
                    }
                }
                ServerEvent::Packet(packet) => keep(shared, publish, &packet),
                _ => {}
            }
        }
        if socket.write_all(&session.take_output()).is_err() || input.is_err() || refused {
            return;
        }
        while publish > 0 && matches!(shared.behaviour, Behaviour::Stall) && !life.over.load(Ordering::SeqCst)
        {
            std::thread::sleep(POLL);
        }
    }
}

fn keep(shared: &Shared, publish: usize, packet: &Packet) {
    if !matches!(shared.behaviour, Behaviour::Record) {
        return;
    }
    let track = match packet.codec {
        Codec::H264 | Codec::Hevc | Codec::Av1 => Track::Video,
        Codec::Aac | Codec::Opus => Track::Audio,
    };
    let times = (packet.dts_ns / NANOS_PER_MILLI, packet.pts_ns / NANOS_PER_MILLI);
    let record = Record::new(track, packet.is_config(), packet.keyframe, times, &packet.payload);
    shared.arrivals.lock().push(Arrival { record, at: Instant::now(), publish });
}
