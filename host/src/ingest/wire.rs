//! The socket of one encoder with the protocol state behind it: bytes in, events out, replies back.
//!
//! While its encoder publishes and a wait between reads is set, the socket is taken out of the runtime's event queue
//! and read by the clock: left inside, every arriving segment would still wake the process, and waiting would save
//! nothing (measured: 2 to 3 times the CPU).

use std::future::poll_fn;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::alarm::Alarm;
use super::end::End;
use super::tls::Tls;

/// Read block of a connection until its publish is accepted, and what is taken of it in one turn: a stranger has not
/// earned more, and what comes behind its request waits in the kernel for the decision.
const SETUP_BLOCK_BYTES: usize = 16 * 1024;
/// Smallest and largest read block of a publishing connection. A block lives as long as a packet in it.
const BLOCK_BYTES_MIN: usize = 64 * 1024;
/// See [`BLOCK_BYTES_MIN`]. In larger blocks the pictures of a usual stream (6 Mbit/s) are small enough to be copied out
/// of them, which costs more than the second read that one of this size sometimes takes (measured).
const BLOCK_BYTES_MAX: usize = 128 * 1024;
/// A block with less room than this part of it is not read into any more.
const BLOCK_REST_PART: usize = 4;
/// Bytes taken from one connection before others get their turn.
pub(super) const TURN_BYTES_MAX: usize = 1024 * 1024;

/// One connection's socket, read block, protocol state and unsent replies.
pub(super) struct Wire {
    socket: Socket,
    tls: Option<Tls>,
    /// Taken in pieces from the front as bytes come; all of it is initialised.
    block: BytesMut,
    block_bytes: usize,
    /// The publish was accepted: blocks grow, and a turn reads all that has come.
    admitted: bool,
    /// The protocol state; replies it makes leave with the next [`Wire::flush`].
    pub(super) session: ServerSession,
    /// As they go over the wire: with TLS, encrypted.
    replies: BytesMut,
    replies_max: usize,
    stuck_since: Option<Instant>,
}

enum Socket {
    /// In the runtime's event queue: read as soon as bytes come.
    Watched(TcpStream),
    /// Outside of it: read when the time has come. Non-blocking.
    Unwatched(std::net::TcpStream, Alarm),
    /// Lost between the two, which only a failing system call does.
    Lost,
}

impl Wire {
    pub(super) fn new(socket: TcpStream, tls: Option<Tls>, replies_max: usize) -> Self {
        Self {
            socket: Socket::Watched(socket),
            tls,
            block: BytesMut::zeroed(SETUP_BLOCK_BYTES),
            block_bytes: SETUP_BLOCK_BYTES,
            admitted: false,
            session: ServerSession::new(ServerConfig::default()),
            replies: BytesMut::new(),
            replies_max,
            stuck_since: None,
        }
    }

    /// The encoder may publish: from now on it gets larger blocks and longer turns.
    pub(super) fn admit(&mut self) {
        self.admitted = true;
    }

    /// Takes the socket out of the runtime's event queue; from now on it is read by the clock, usually `wait` apart.
    pub(super) fn unwatch(&mut self, wait: Duration) -> io::Result<()> {
        if let Socket::Watched(socket) = std::mem::replace(&mut self.socket, Socket::Lost) {
            self.socket = Socket::Unwatched(socket.into_std()?, Alarm::new(wait));
        }
        Ok(())
    }

    /// Waits for bytes, or for room to send stuck replies, and reads at most once. An unwatched socket is read at
    /// `due`. Zero: nothing was there. Nothing is lost when the future is dropped.
    pub(super) async fn fill(&mut self, due: Instant) -> Result<usize, End> {
        let stuck = !self.replies.is_empty();
        let read = match (&mut self.socket, &mut self.tls) {
            (Socket::Watched(socket), Some(tls)) => {
                // What is decrypted already makes no socket readable, and an answer of TLS itself must leave first.
                let read = ended(tls.read(&mut Trying(socket), &mut self.block));
                if read.as_ref().is_err_and(is_transient) && !tls.has_output() {
                    let room = if stuck { Interest::WRITABLE } else { Interest::READABLE };
                    socket.ready(Interest::READABLE | room).await?;
                }
                read
            }
            (Socket::Watched(socket), None) if stuck => read_or_room(socket, &mut self.block).await,
            (Socket::Watched(socket), None) => ended(socket.read(&mut self.block).await),
            (Socket::Unwatched(_, alarm), _) => {
                alarm.at(due).await;
                self.read_now()
            }
            (Socket::Lost, _) => Err(ErrorKind::NotConnected.into()),
        };
        match read {
            Err(error) if is_transient(&error) => Ok(0),
            read => read.map_err(End::from),
        }
    }

    /// Hands `first` bytes of the block to the session and, once the encoder is admitted, what else has come, until a read
    /// comes up short; events go to `on_event`. True when the turn ended before a short read: more bytes wait.
    pub(super) fn take(&mut self, first: usize, mut on_event: impl FnMut(ServerEvent)) -> Result<bool, End> {
        let mut read = first;
        let mut total = 0;
        loop {
            let full = read > 0 && read == self.block.len();
            total += read;
            let fed = match read {
                0 => Ok(()),
                _ => self.session.input(self.block.split_to(read).freeze()),
            };
            self.events(&mut on_event);
            fed?;
            self.renew_block(total);
            if !full {
                return Ok(false);
            }
            if !self.admitted || total >= TURN_BYTES_MAX {
                return Ok(true);
            }
            read = match self.read_now() {
                Err(error) if is_transient(&error) => return Ok(false),
                read => read?,
            };
        }
    }

    /// Events that wait without new bytes.
    pub(super) fn events(&mut self, on_event: &mut impl FnMut(ServerEvent)) {
        while let Some(event) = self.session.poll_event() {
            on_event(event);
        }
    }

    fn read_now(&mut self) -> io::Result<usize> {
        let block = &mut self.block;
        ended(match (&mut self.socket, &mut self.tls) {
            (Socket::Watched(socket), Some(tls)) => tls.read(&mut Trying(socket), block),
            (Socket::Watched(socket), None) => socket.try_read(block),
            (Socket::Unwatched(socket, _), Some(tls)) => tls.read(socket, block),
            (Socket::Unwatched(socket, _), None) => socket.read(block),
            (Socket::Lost, _) => Err(ErrorKind::NotConnected.into()),
        })
    }

    /// A new block when the old one is nearly used up: twice what came in one turn, so that one read is enough.
    fn renew_block(&mut self, turn_bytes: usize) {
        if self.block.len() < self.block_bytes / BLOCK_REST_PART {
            if self.admitted {
                self.block_bytes = block_bytes_for(turn_bytes);
                // A queue counts payloads, not the blocks they hold in memory.
                self.session.set_block_bytes(self.block_bytes);
            }
            self.block = BytesMut::zeroed(self.block_bytes);
        }
    }

    /// Sends what the session has to say, as far as the socket takes it without waiting.
    pub(super) fn flush(&mut self) -> Result<(), End> {
        let output = self.session.take_output();
        let from_tls = self.tls.as_ref().is_some_and(Tls::has_output);
        if output.is_empty() && self.replies.is_empty() && !from_tls {
            return Ok(());
        }
        match &mut self.tls {
            Some(tls) => tls.seal(&output, &mut self.replies)?,
            None => self.replies.extend_from_slice(&output),
        }
        if self.replies.len() > self.replies_max {
            return Err(End::RepliesFull);
        }
        while !self.replies.is_empty() {
            match self.write_now() {
                Ok(0) => return Err(End::PeerClosed),
                Ok(written) => {
                    let _sent = self.replies.split_to(written);
                    self.stuck_since = None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stuck_since.get_or_insert_with(Instant::now);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write_now(&mut self) -> io::Result<usize> {
        match &mut self.socket {
            Socket::Watched(socket) => socket.try_write(&self.replies),
            Socket::Unwatched(socket, _) => socket.write(&self.replies),
            Socket::Lost => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Since when replies wait for the encoder to read them.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        self.stuck_since
    }

    /// Bytes received so far.
    pub(super) fn bytes_in(&self) -> u64 {
        self.session.stats().bytes_in
    }

    /// Sends the last words, closes our half and waits for the encoder to close its own, all within `linger`. Closing
    /// at once with bytes unread would reset the connection and lose the status on its way.
    pub(super) async fn goodbye(mut self, linger: Duration) {
        let output = self.session.take_output();
        match &mut self.tls {
            // What cannot be said any more is not said.
            Some(tls) => tls.seal_end(&output, &mut self.replies).unwrap_or_default(),
            None => self.replies.extend_from_slice(&output),
        }
        let socket = match self.socket {
            Socket::Watched(socket) => Ok(socket),
            Socket::Unwatched(socket, _) => TcpStream::from_std(socket),
            Socket::Lost => return,
        };
        let Ok(mut socket) = socket else { return };
        let farewell = async {
            socket.write_all(&self.replies).await?;
            socket.shutdown().await?;
            while socket.read(&mut self.block).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        // Whatever goes wrong here, the connection is over.
        let _outcome = timeout(linger, farewell).await;
    }
}

/// Reads what has come to a socket in the runtime's event queue.
struct Trying<'a>(&'a TcpStream);

impl io::Read for Trying<'_> {
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(block)
    }
}

/// Bytes, or room to write (`Ok(0)`), whichever comes first.
async fn read_or_room(socket: &mut TcpStream, block: &mut BytesMut) -> io::Result<usize> {
    poll_fn(|cx| {
        if let Poll::Ready(room) = socket.poll_write_ready(cx) {
            return Poll::Ready(room.map(|()| 0));
        }
        let mut buffer = ReadBuf::new(block);
        let read = Pin::new(&mut *socket).poll_read(cx, &mut buffer);
        read.map(|read| ended(read.map(|()| buffer.filled().len())))
    })
    .await
}

/// A read of nothing is the end of the stream.
fn ended(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        read => read,
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn block_bytes_for(turn_bytes: usize) -> usize {
    (turn_bytes.min(BLOCK_BYTES_MAX) * 2).next_power_of_two().clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use satcast_media::packet::{Codec, Packet, Role, TrackKind};
    use satcast_media::rtmp::client::{ClientConfig, ClientEvent, ClientSession};
    use tokio::net::TcpListener;

    use super::*;

    /// A socket and a client session that publishes over it to the wire.
    async fn publishing() -> (Wire, TcpStream, ClientSession) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut wire = Wire::new(listener.accept().await.unwrap().0, None, usize::MAX);
        let mut client = ClientSession::new(ClientConfig { stream_key: "key".into(), ..Default::default() });
        while client.poll_event() != Some(ClientEvent::Publishing) {
            socket.write_all(&client.output().take()).await.unwrap();
            let read = timeout(Duration::from_millis(20), wire.fill(Instant::now())).await.unwrap_or(Ok(0));
            let mut request = None;
            wire.take(read.unwrap(), |event| {
                if let ServerEvent::PublishRequested { id, .. } = event {
                    request = Some(id);
                }
            })
            .unwrap();
            request.into_iter().for_each(|id| wire.session.accept_publish(id).unwrap());
            wire.flush().unwrap();
            let mut answer = BytesMut::new();
            let _nothing_yet = timeout(Duration::from_millis(20), socket.read_buf(&mut answer)).await;
            client.input(answer.freeze()).unwrap();
        }
        (wire, socket, client)
    }

    #[tokio::test]
    async fn a_small_packet_does_not_keep_a_large_block() {
        let (mut wire, mut socket, mut client) = publishing().await;
        wire.admit();
        wire.block.clear();
        wire.renew_block(usize::MAX);
        for (bytes, copied) in [(BLOCK_BYTES_MAX / 8 - 100, true), (BLOCK_BYTES_MAX / 8 + 100, false)] {
            let (kind, codec, role) = (TrackKind::Audio, Codec::Aac, Role::Data);
            let payload = vec![7; bytes].into();
            let sent = Packet { kind, codec, role, keyframe: false, dts_ns: 0, pts_ns: 0, payload };
            client.send(&sent).unwrap();
            socket.write_all(&client.output().take()).await.unwrap();
            let mut arrived = Vec::new();
            while arrived.is_empty() {
                let read = wire.fill(Instant::now()).await.unwrap();
                let keep = |event| {
                    if let ServerEvent::Packet(packet) = event {
                        arrived.push(packet);
                    }
                };
                wire.take(read, keep).unwrap();
            }
            assert!(arrived == [sent], "{bytes}");
            assert_eq!(arrived[0].payload.is_unique(), copied, "{bytes} of a block of {BLOCK_BYTES_MAX}");
        }
    }

    #[test]
    fn blocks_follow_the_bitrate_within_their_bounds() {
        for (turn, block) in [
            (1, BLOCK_BYTES_MIN),
            (BLOCK_BYTES_MIN / 2, BLOCK_BYTES_MIN),
            (38_000, 128 * 1024),
            (BLOCK_BYTES_MAX / 2 + 1, BLOCK_BYTES_MAX),
            (usize::MAX, BLOCK_BYTES_MAX),
        ] {
            assert_eq!(block_bytes_for(turn), block, "{turn}");
        }
    }
}
