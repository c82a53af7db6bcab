//! A crowd of viewers that read as fast as they can, at little cost of their own: the kernel throws the bodies away.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, recv};

const READ_LIMIT: Duration = Duration::from_secs(30);
/// Longest head of an answer.
const HEAD_BYTES_MAX: usize = 4096;
/// Most bytes thrown away by one call.
const DISCARD_BYTES: usize = 256 * 1024;
/// A viewer needs little stack.
const STACK_BYTES: usize = 512 * 1024;

/// What is asked for; may be exchanged while they read.
pub type Paths = Arc<RwLock<Vec<String>>>;

#[derive(Debug, Default)]
struct Counts {
    over: AtomicBool,
    bytes: AtomicU64,
    answers: AtomicU64,
    failures: AtomicU64,
}

/// Viewers with a connection each; dropped, they leave.
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
        let counts = Arc::<Counts>::default();
        let start = |number: usize| {
            let (counts, paths) = (Arc::clone(&counts), Arc::clone(paths));
            let first = number * paths.read().unwrap_or_else(PoisonError::into_inner).len() / viewers.max(1);
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            thread.spawn(move || view(address, first, &paths, &counts)).expect("a thread for a viewer")
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
        self.counts.answers.load(Ordering::Relaxed)
    }

    /// Answers that were not 200, and lost connections.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.counts.failures.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.counts.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn view(address: SocketAddr, first: usize, paths: &Paths, counts: &Counts) {
    let mut at = first;
    while !counts.over.load(Ordering::Relaxed) {
        if connected(address, &mut at, paths, counts).is_err() {
            counts.failures.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn connected(address: SocketAddr, at: &mut usize, paths: &Paths, counts: &Counts) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(READ_LIMIT))?;
    socket.set_nodelay(true)?;
    let mut discarded = vec![0; DISCARD_BYTES];
    while !counts.over.load(Ordering::Relaxed) {
        let path = {
            let paths = paths.read().unwrap_or_else(PoisonError::into_inner);
            paths.get(*at % paths.len().max(1)).cloned().unwrap_or_default()
        };
        *at += 1;
        socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes())?;
        let (status, mut left, had) = head(&mut socket)?;
        counts.bytes.fetch_add(had, Ordering::Relaxed);
        counts.failures.fetch_add(u64::from(status != 200), Ordering::Relaxed);
        while left > 0 {
            let most = DISCARD_BYTES.min(usize::try_from(left).unwrap_or(DISCARD_BYTES));
            let got = recv(socket.as_raw_fd(), &mut discarded[..most], MsgFlags::MSG_TRUNC)? as u64;
            if got == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            left -= got;
            counts.bytes.fetch_add(got, Ordering::Relaxed);
        }
        counts.answers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
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
