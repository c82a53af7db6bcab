//! Checked connections.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::oneshot;

use super::ctx::missing;
use super::hostref::HostRef;
use crate::Error;
use crate::abi::{self, SatcastError, SatcastStr};
use crate::wire::read_error;

/// A UDP socket to one checked address.
pub(super) async fn connect_udp(
    by: &HostRef,
    dest: u64,
    host: &str,
    port: u16,
    timeout: Duration,
) -> Result<UdpSocket, Error> {
    let (done, outcome) = oneshot::channel();
    start(by, abi::EXT_UDP, (dest, host, port, timeout), done)?;
    let socket = std::net::UdpSocket::from(given(outcome).await?);
    socket.set_nonblocking(true).and_then(|()| UdpSocket::from_std(socket)).map_err(unusable)
}

/// Connects for opening `dest`, or with 0 for the driver itself.
pub(super) async fn connect(
    by: &HostRef,
    dest: u64,
    host: &str,
    port: u16,
    timeout: Duration,
) -> Result<TcpStream, Error> {
    let (done, outcome) = oneshot::channel();
    start(by, abi::EXT_NET, (dest, host, port, timeout), done)?;
    let stream = std::net::TcpStream::from(given(outcome).await?);
    stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream)).map_err(unusable)
}

async fn given(outcome: oneshot::Receiver<Result<OwnedFd, Error>>) -> Result<OwnedFd, Error> {
    outcome.await.map_err(|_| Error::internal("the host dropped a connection attempt"))?
}

fn unusable(error: io::Error) -> Error {
    Error::internal(format!("cannot use the socket the host gave: {error}"))
}

/// Asks the extension `name`, which is [`abi::EXT_NET`] or [`abi::EXT_UDP`].
fn start(
    by: &HostRef,
    name: &str,
    (dest, host, port, timeout): (u64, &str, u16, Duration),
    done: oneshot::Sender<Result<OwnedFd, Error>>,
) -> Result<(), Error> {
    // SAFETY: `SatcastNet` is the struct of both names.
    let net = unsafe { by.extension::<abi::SatcastNet>(name) };
    let connect = net.and_then(|net| net.connect).ok_or_else(|| missing(name))?;
    let request = abi::SatcastConnect {
        size: size_of::<abi::SatcastConnect>() as u32,
        timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        host: SatcastStr::new(host),
        port: u32::from(port),
        reserved: 0,
    };
    let done = abi::SatcastConnected { data: Box::into_raw(Box::new(done)).cast(), done: Some(connected) };
    // SAFETY: the request lives for the call; the host calls `done` exactly once in every case.
    unsafe { connect(by.ctx(), dest, &raw const request, done) };
    Ok(())
}

/// Bytes given to a TCP connection that its other side has not acknowledged: on their way, or not even sent (Linux `SIOCOUTQ`,
/// tcp(7)). The bytes that a write has taken say nothing about the other side: the system buffers megabytes. Any thread.
///
/// # Errors
/// The system's error, for a descriptor that is not a connection.
pub fn unacknowledged(connection: &impl AsFd) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one `int` to the pointer, which lives for it. SIOCOUTQ is the same number as TIOCOUTQ.
    let outcome = unsafe { libc::ioctl(connection.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(bytes).unwrap_or_default())
}

/// # Safety
/// `data` must be the sender boxed by [`start`], passed here once; `fd` must be -1 or ours from now on.
unsafe extern "C" fn connected(data: *mut c_void, fd: i32, error: *const SatcastError) {
    // SAFETY: see above.
    let done = unsafe { Box::from_raw(data.cast::<oneshot::Sender<Result<OwnedFd, Error>>>()) };
    let outcome = if fd >= 0 {
        // SAFETY: the descriptor passes to us with this call.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    } else {
        // SAFETY: the error lives for the call.
        Err(unsafe { read_error(error) }.unwrap_or_else(|| Error::network("the connection failed")))
    };
    // The receiver may be gone; dropping the value closes the socket.
    let _ = done.send(outcome);
}
