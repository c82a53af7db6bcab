//! A UDP relay between a caller and the service that loses, delays and reorders datagrams by a seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::soak;

/// Longest datagram.
const DATAGRAM_BYTES: usize = 2_048;
/// Pause of the relay when nothing is due.
const PAUSE: Duration = Duration::from_millis(1);

/// What the network does.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Of a thousand datagrams, this many are lost, in both directions.
    pub loss_permille: u64,
    /// Time of each datagram on its way.
    pub delay: Duration,
    /// Most further time, by chance, in which later ones overtake it.
    pub jitter: Duration,
}

/// 5 % of loss, 100 ms each way, and reordering.
pub const BAD: Weather =
    Weather { loss_permille: 50, delay: Duration::from_millis(100), jitter: Duration::from_millis(8) };

/// A running relay; dropped, it ends.
#[derive(Debug)]
pub struct Lossy {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lossy {
    /// A relay for one caller at a time in front of `target`.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn before(target: SocketAddr, weather: Weather) -> Self {
        let open = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            socket.set_nonblocking(true).expect("a socket that does not block");
            socket
        };
        let (front, back) = (open(), open());
        back.connect(target).expect("an address");
        let address = front.local_addr().expect("an address");
        let over = Arc::new(AtomicBool::new(false));
        let (seed, told) = (soak::seed(), Arc::clone(&over));
        let thread = thread::spawn(move || Relay { front, back, caller: None, seed, weather }.run(&told));
        Self { address, over, thread: Some(thread) }
    }

    /// Where the caller connects.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

struct Relay {
    front: UdpSocket,
    back: UdpSocket,
    caller: Option<SocketAddr>,
    seed: u64,
    weather: Weather,
}

/// When it is due, its number, whether it goes to the service, and its bytes.
type OnItsWay = Reverse<(Instant, u64, bool, Vec<u8>)>;

impl Relay {
    fn run(mut self, over: &AtomicBool) {
        let (mut on_their_way, mut number) = (BinaryHeap::<OnItsWay>::new(), 0);
        let mut block = [0; DATAGRAM_BYTES];
        while !over.load(Ordering::Relaxed) {
            let mut came = true;
            while std::mem::take(&mut came) {
                for to_service in [true, false] {
                    let Some(bytes) = self.read(&mut block, to_service) else { continue };
                    came = true;
                    number += 1;
                    if soak::next(&mut self.seed) % 1_000 < self.weather.loss_permille {
                        continue;
                    }
                    let jitter = soak::next(&mut self.seed) % (self.weather.jitter.as_micros() as u64 + 1);
                    let due = Instant::now() + self.weather.delay + Duration::from_micros(jitter);
                    on_their_way.push(Reverse((due, number, to_service, block[..bytes].to_vec())));
                }
            }
            while on_their_way.peek().is_some_and(|Reverse((due, ..))| *due <= Instant::now()) {
                if let Some(Reverse((_, _, to_service, bytes))) = on_their_way.pop() {
                    let _refused_counts_as_lost = match (to_service, self.caller) {
                        (true, _) => self.back.send(&bytes),
                        (false, Some(caller)) => self.front.send_to(&bytes, caller),
                        (false, None) => Ok(0),
                    };
                }
            }
            thread::sleep(PAUSE);
        }
    }

    fn read(&mut self, block: &mut [u8], from_caller: bool) -> Option<usize> {
        let read: io::Result<usize> = if from_caller {
            self.front.recv_from(block).map(|(bytes, caller)| {
                self.caller = Some(caller);
                bytes
            })
        } else {
            self.back.recv(block)
        };
        read.ok()
    }
}
