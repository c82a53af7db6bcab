//! What the UDP ports share: opening one, and reading it in rounds.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::sleep;

use super::limits::{ACCEPT_PAUSE_MS, UDP_RECEIVE_BUFFER_BYTES};

/// Most datagrams that are read before other tasks of the thread run.
const ROUND_DATAGRAMS: usize = 256;
/// Larger than every datagram of an encoder; longer ones are cut, and are then refused.
pub(super) const DATAGRAM_BYTES: usize = 2_048;

/// Opens the port.
pub(super) fn bind(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    // The system cuts it to its own limit (net.core.rmem_max).
    let _may_be_refused =
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, UDP_RECEIVE_BUFFER_BYTES);
    Ok(socket)
}

/// Takes what waits at the socket, and lets other tasks of the thread run.
pub(super) async fn read_round(
    socket: &UdpSocket,
    block: &mut [u8; DATAGRAM_BYTES],
    mut take: impl FnMut(&[u8], SocketAddr),
) {
    for _ in 0..ROUND_DATAGRAMS {
        match socket.try_recv_from(block) {
            Ok((bytes, from)) => take(&block[..bytes], from),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // An error of one datagram, such as an unreachable peer, or a lack of memory.
            Err(_) => {
                sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                break;
            }
        }
    }
    // Readiness costs no budget in tokio, and this thread serves encoders too.
    tokio::task::yield_now().await;
}
