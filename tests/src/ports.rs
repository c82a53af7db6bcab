//! TCP ports of 127.0.0.1 that belong to one test at a time, also across processes and across a restart.

use std::fs::{File, TryLockError};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::source::scratch;

/// Below the range that Linux gives to outgoing connections, so that none of those takes a leased port.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 12_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// One port, reserved for the test until this is dropped, whether something listens on it or not.
#[derive(Debug)]
pub struct Port {
    host: Ipv4Addr,
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port that no other test has and on which nothing listens.
    ///
    /// # Panics
    /// When all ports of the range are taken.
    #[must_use]
    pub fn lease() -> Self {
        let folder = scratch().join("ports");
        std::fs::create_dir_all(&folder).expect("a folder for the leases");
        // Processes start in different places, so that they seldom try the same port.
        let start = u16::try_from(std::process::id() % u32::from(PORTS)).unwrap_or_default().wrapping_mul(37);
        for _ in 0..PORTS {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST_PORT + start.wrapping_add(step) % PORTS;
            let lock = File::create(folder.join(number.to_string())).expect("a lease can be written");
            match lock.try_lock() {
                Ok(()) if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() => {
                    return Self { host: Ipv4Addr::LOCALHOST, number, _lock: lock };
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => panic!("cannot lock a port's lease: {error}"),
            }
        }
        panic!("no port is free between {FIRST_PORT} and {}", FIRST_PORT + PORTS);
    }

    /// The same port of another host of the test: it is free there too, because no other test has its number.
    #[must_use]
    pub fn at(self, host: Ipv4Addr) -> Self {
        Self { host, ..self }
    }

    /// The port with its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.host, self.number))
    }
}
