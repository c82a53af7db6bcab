//! The socket of one encoder with the protocol state behind it: bytes in, events out, replies back.
//!
//! While its encoder publishes and a wait between reads is set, the socket is taken out of the runtime's event queue
//! and read by the clock: left inside, every arriving segment would still wake the process, and waiting would save
//! nothing (measured: 2 to 3 times the CPU).

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::alarm::Alarm;
use super::block::{BLOCK_BYTES, Block};
use super::end::End;
use super::tls::Tls;

/// What is taken of a connection in one turn until its publish is accepted: a stranger has not earned more, and what comes
/// behind its request waits in the kernel for the decision.
const SETUP_TURN_BYTES: usize = 16 * 1024;
/// Bytes taken from one connection before others get their turn.
pub(super) const TURN_BYTES_MAX: usize = 1024 * 1024;

/// Bytes read at once while the goodbye waits for the encoder's.
const DRAIN_BYTES: usize = 4 * 1024;

/// One connection's socket, protocol state and unsent replies.
pub(super) struct Wire {
    socket: Socket,
    tls: Option<Tls>,
    /// The publish was accepted: a turn reads all that has come.
    admitted: bool,
    /// The last turn ended before a short read: more bytes may be there already.
    more: bool,
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
        let mut session = ServerSession::new(ServerConfig::default());
        // A queue counts payloads, not the blocks they hold in memory.
        session.set_block_bytes(BLOCK_BYTES);
        Self {
            socket: Socket::Watched(socket),
            tls,
            admitted: false,
            more: false,
            session,
            replies: BytesMut::new(),
            replies_max,
            stuck_since: None,
        }
    }

    /// The encoder may publish: from now on it gets longer turns.
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

    /// Waits until there may be bytes to [`Self::take`], or room to send stuck replies. An unwatched socket is read at `due`, one
    /// of which more is there at once, when others had their turn. Nothing is lost when the future is dropped.
    pub(super) async fn ready(&mut self, due: Instant) -> Result<(), End> {
        let interest = match self.replies.is_empty() {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        match &mut self.socket {
            _ if self.more => tokio::task::yield_now().await,
            Socket::Watched(socket) => drop(socket.ready(interest).await?),
            Socket::Unwatched(_, alarm) => alarm.at(due).await,
            Socket::Lost => return Err(io::Error::from(ErrorKind::NotConnected).into()),
        }
        Ok(())
    }

    /// Hands what has come to the session, until a read comes up short or the turn is over; events go to `on_event`.
    pub(super) fn take(&mut self, mut on_event: impl FnMut(ServerEvent)) -> Result<(), End> {
        let mut block = Block::of_thread();
        let turn_max = if self.admitted { TURN_BYTES_MAX } else { SETUP_TURN_BYTES };
        let mut left = turn_max;
        self.more = true;
        while self.more && left > 0 {
            let room = if self.admitted { BLOCK_BYTES } else { left };
            let read = match self.read_now(&mut block.bytes()[..room]) {
                Err(error) if is_transient(&error) => 0,
                read => read?,
            };
            // With TLS a short read may stand before the end, of which the socket says nothing.
            self.more = read == room || (self.tls.is_some() && read > 0);
            left = left.saturating_sub(read);
            if read > 0 {
                let fed = block.lend(read, |bytes| self.session.input(bytes));
                self.events(&mut on_event);
                fed?;
            }
        }
        Ok(())
    }

    /// Events that wait without new bytes.
    pub(super) fn events(&mut self, on_event: &mut impl FnMut(ServerEvent)) {
        while let Some(event) = self.session.poll_event() {
            on_event(event);
        }
    }

    fn read_now(&mut self, block: &mut [u8]) -> io::Result<usize> {
        ended(match (&mut self.socket, &mut self.tls) {
            (Socket::Watched(socket), Some(tls)) => tls.read(&mut Trying(socket), block),
            (Socket::Watched(socket), None) => Trying(socket).read(block),
            (Socket::Unwatched(socket, _), Some(tls)) => tls.read(socket, block),
            (Socket::Unwatched(socket, _), None) => socket.read(block),
            (Socket::Lost, _) => Err(ErrorKind::NotConnected.into()),
        })
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
            let mut rest = vec![0; DRAIN_BYTES];
            while socket.read(&mut rest).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        // Whatever goes wrong here, the connection is over.
        let _outcome = timeout(linger, farewell).await;
    }
}

/// Reads what has come to a socket in the runtime's event queue.
struct Trying<'a>(&'a mut TcpStream);

impl io::Read for Trying<'_> {
    /// As the runtime reads itself, which takes a short read for the last one; `try_read` would need another to see that.
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(block);
        // Who waits for bytes asks again for them with a waker of its own.
        match Pin::new(&mut *self.0).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
            Poll::Ready(read) => read.map(|()| buffer.filled().len()),
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    }
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

#[cfg(test)]
mod tests {
    use satcast_media::rtmp::client::{ClientConfig, ClientEvent, ClientSession};
    use satcast_media::{Codec, Packet};
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
            let _nothing_yet = timeout(Duration::from_millis(20), wire.ready(Instant::now())).await;
            let mut request = None;
            wire.take(|event| {
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
    async fn usual_packets_leave_the_block_to_the_next_read() {
        let (mut wire, mut socket, mut client) = publishing().await;
        wire.admit();
        let block = Block::of_thread().bytes().as_ptr();
        for bytes in [300, 10_000, 50_000, 100_000] {
            let sent = Packet::media(Codec::Aac, false, 0, 0, vec![7; bytes].into());
            client.send(&sent).unwrap();
            let output = client.output().take();
            socket.write_all(&output).await.unwrap();
            wait_until_all_has_come(&wire, output.len()).await;
            let mut arrived = Vec::new();
            let keep = |event| {
                if let ServerEvent::Packet(packet) = event {
                    arrived.push(packet);
                }
            };
            wire.take(keep).unwrap();
            assert!(arrived == [sent], "{bytes}");
            assert_eq!(Block::of_thread().bytes().as_ptr(), block, "{bytes}");
        }
    }

    /// So that one read gets it all.
    async fn wait_until_all_has_come(wire: &Wire, bytes: usize) {
        let Socket::Watched(socket) = &wire.socket else { panic!("read by the clock") };
        let mut seen = vec![0; bytes];
        timeout(Duration::from_secs(20), async {
            while socket.peek(&mut seen).await.unwrap() < bytes {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("everything in time");
    }
}
