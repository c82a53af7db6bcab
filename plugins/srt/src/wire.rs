//! A socket and its clock.

use std::io;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::Instant;

/// Most datagrams that are read before other work goes on.
pub(crate) const ROUND_DATAGRAMS: usize = 256;
/// Longer than every datagram of a receiver; longer ones are cut, and then ignored.
pub(crate) const DATAGRAM_BYTES: usize = 2_048;

/// Pause before another try when the system has no room for datagrams, unless it says earlier that it has.
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Time since a connection or listener began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }

    pub(crate) fn at(self, time: Duration) -> Instant {
        self.0 + time
    }
}

/// What became of a datagram that was given to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It left, or counts as lost on its way.
    Gone,
    /// The system has no room now.
    Full,
    /// The other side's system says that nothing listens.
    Refused,
}

impl Sent {
    pub(crate) fn of(sent: &io::Result<usize>) -> Self {
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Self::Full,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Self::Refused,
            _ => Self::Gone,
        }
    }
}

/// Reads what a connected socket has, at most [`ROUND_DATAGRAMS`]; false when nothing listens at the other side.
pub(crate) fn read_all(socket: &UdpSocket, mut take: impl FnMut(&[u8])) -> bool {
    let mut block = [0; DATAGRAM_BYTES];
    for _ in 0..ROUND_DATAGRAMS {
        match socket.try_recv(&mut block) {
            Ok(bytes) => take(&block[..bytes]),
            Err(error) => return error.kind() != io::ErrorKind::ConnectionRefused,
        }
    }
    true
}
