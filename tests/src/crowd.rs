//! Many viewers that read as fast as they can, or at a steady pace, at little cost: the kernel discards the bodies.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, recv};
use parking_lot::RwLock;
use socket2::{Domain, Socket, Type};

use crate::usage;

const READ_LIMIT: Duration = Duration::from_secs(30);
/// Longest head of an answer.
const HEAD_BYTES_MAX: usize = 4096;
/// Most bytes discarded by one call.
const DISCARD_BYTES: usize = 256 * 1024;
/// A viewer needs little stack.
const STACK_BYTES: usize = 512 * 1024;

/// Viewers per source address: servers limit the connections of each address.
const VIEWERS_PER_ADDRESS: usize = 250;
/// Steps of the measured times: an answer is in the step of the logarithm of its microseconds, eight to each doubling.
const STEPS: usize = 256;
const STEPS_PER_DOUBLING: f64 = 8.0;

/// The requested paths, some with a range behind a space (`/file bytes=0-99`); they may be replaced while the viewers read.
pub type Paths = Arc<RwLock<Vec<String>>>;

#[derive(Debug)]
struct Counts {
    over: AtomicBool,
    bytes: AtomicU64,
    /// Of each viewer.
    answers: Vec<AtomicU64>,
    failures: AtomicU64,
    times: [AtomicU64; STEPS],
}

impl Counts {
    fn took(&self, time: Duration) {
        let step = (time.as_micros().max(1) as f64).log2() * STEPS_PER_DOUBLING;
        self.times[(step as usize).min(STEPS - 1)].fetch_add(1, Ordering::Relaxed);
    }
}

/// Viewers with a connection each; dropping it closes the connections.
#[derive(Debug)]
pub struct Crowd {
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// `viewers` of them ask the server at `address` for `paths` in turn, spread evenly over them at the beginning.
    ///
    /// # Panics
    /// When there is nothing to ask for or no thread can be started.
    #[must_use]
    pub fn start(address: SocketAddr, viewers: usize, paths: &Paths) -> Self {
        Self::begin(address, viewers, paths, None)
    }

    /// The same, each viewer once in `every`, and not all at the same moment.
    ///
    /// # Panics
    /// When there is nothing to ask for or no thread can be started.
    #[must_use]
    pub fn paced(address: SocketAddr, viewers: usize, paths: &Paths, every: Duration) -> Self {
        Self::begin(address, viewers, paths, Some(every))
    }

    fn begin(address: SocketAddr, viewers: usize, paths: &Paths, every: Option<Duration>) -> Self {
        usage::allow_many_files();
        let counts = Arc::new(Counts {
            over: AtomicBool::default(),
            bytes: AtomicU64::default(),
            answers: (0..viewers).map(|_| AtomicU64::default()).collect(),
            failures: AtomicU64::default(),
            times: std::array::from_fn(|_| AtomicU64::default()),
        });
        let began = Instant::now();
        let start = |number: usize| {
            let at = number * paths.read().len() / viewers.max(1);
            let from = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + (number / VIEWERS_PER_ADDRESS) as u32);
            let pace = every.map(|every| {
                let first = began + every.mul_f64(number as f64 / viewers as f64);
                Pace { every, next: first }
            });
            let (paths, counts) = (Arc::clone(paths), Arc::clone(&counts));
            let viewer = Viewer { from, address, number, at, pace, paths, counts };
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn(move || viewer.run()).expect("a thread for a viewer")
        };
        let threads = (0..viewers).map(start).collect();
        Self { counts, threads }
    }

    /// Bytes of bodies received so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// Whole answers received so far.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.answers_of_each().iter().sum()
    }

    /// Whole answers that each viewer received so far.
    #[must_use]
    pub fn answers_of_each(&self) -> Vec<u64> {
        self.counts.answers.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Milliseconds within which ninety-nine of a hundred answers came whole, those since `before` (as [`Crowd::times`]
    /// gave them); not a number when there were none. Exact to a tenth.
    #[must_use]
    pub fn p99_ms(&self, before: &[u64]) -> f64 {
        let since: Vec<u64> = self.times().iter().zip(before).map(|(now, before)| now - before).collect();
        let all: u64 = since.iter().sum();
        let mut slower = all / 100;
        for (step, count) in since.iter().enumerate().rev() {
            if *count > slower {
                return 2_f64.powf((step + 1) as f64 / STEPS_PER_DOUBLING) / 1000.0;
            }
            slower -= count;
        }
        f64::NAN
    }

    /// How many answers came in which time so far.
    #[must_use]
    pub fn times(&self) -> Vec<u64> {
        self.counts.times.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Answers that were not those of a whole file or range, and lost connections.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.counts.failures.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.counts.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its reason.
            let _ = thread.join();
        }
    }
}

/// When a viewer asks.
struct Pace {
    every: Duration,
    next: Instant,
}

impl Pace {
    /// Waits for the time of the next request.
    fn wait(&mut self) {
        std::thread::sleep(self.next.saturating_duration_since(Instant::now()));
        self.next += self.every;
    }
}

struct Viewer {
    from: Ipv4Addr,
    address: SocketAddr,
    number: usize,
    /// Place of the next path.
    at: usize,
    pace: Option<Pace>,
    paths: Paths,
    counts: Arc<Counts>,
}

impl Viewer {
    fn run(mut self) {
        while !self.counts.over.load(Ordering::Relaxed) {
            if self.connected().is_err() {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// Asks over one connection until the end.
    fn connected(&mut self) -> std::io::Result<()> {
        let mut socket = connect_from(self.from, self.address)?;
        socket.set_read_timeout(Some(READ_LIMIT))?;
        socket.set_nodelay(true)?;
        let mut discarded = vec![0_u8; DISCARD_BYTES];
        loop {
            if let Some(pace) = &mut self.pace {
                pace.wait();
            }
            if self.counts.over.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.ask(&mut socket, &mut discarded)?;
        }
    }

    fn ask(&mut self, socket: &mut TcpStream, discarded: &mut [u8]) -> std::io::Result<()> {
        let path = {
            let paths = self.paths.read();
            paths.get(self.at % paths.len().max(1)).cloned().unwrap_or_default()
        };
        self.at += 1;
        let (counts, asked) = (&self.counts, Instant::now());
        let (path, range, wanted) = match path.split_once(' ') {
            Some((path, range)) => (path, format!("range: {range}\r\n"), 206),
            None => (path.as_str(), String::new(), 200),
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{range}\r\n", self.address);
        socket.write_all(request.as_bytes())?;
        let (status, mut left, had) = head(socket)?;
        counts.bytes.fetch_add(had, Ordering::Relaxed);
        counts.failures.fetch_add(u64::from(status != wanted), Ordering::Relaxed);
        while left > 0 {
            let most = DISCARD_BYTES.min(usize::try_from(left).unwrap_or(DISCARD_BYTES));
            let got = recv(socket.as_raw_fd(), &mut discarded[..most], MsgFlags::MSG_TRUNC)? as u64;
            if got == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            left -= got;
            counts.bytes.fetch_add(got, Ordering::Relaxed);
        }
        counts.took(asked.elapsed());
        counts.answers[self.number].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// A connection from one of the loopback addresses.
fn connect_from(from: Ipv4Addr, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&address.into())?;
    Ok(socket.into())
}

/// Status, bytes of the body to come, and those that came with the head.
fn head(socket: &mut TcpStream) -> std::io::Result<(u16, u64, u64)> {
    let invalid = || std::io::Error::from(std::io::ErrorKind::InvalidData);
    let mut block = [0; HEAD_BYTES_MAX];
    let mut filled = 0;
    loop {
        let count = socket.read(&mut block[filled..])?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        filled += count;
        if let Some(end) = block[..filled].windows(4).position(|window| window == b"\r\n\r\n") {
            let text = std::str::from_utf8(&block[..end]).map_err(|_| invalid())?;
            let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
            let length = text.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse::<u64>().ok())
                    .flatten()
            });
            let had = (filled - end - 4) as u64;
            let left = length.and_then(|length| length.checked_sub(had)).ok_or_else(invalid)?;
            return Ok((status, left, had));
        }
    }
}
