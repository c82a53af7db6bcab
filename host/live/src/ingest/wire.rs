//! The socket of one encoder with the protocol state behind it: bytes in, events out, replies back.
//!
//! While its encoder publishes and a read wait is set, the socket is outside the runtime's event queue and is read on a timer. Inside,
//! each TCP segment would still wake the process, and the wait would save nothing (measured: 2 to 3 times the CPU). Only the first
//! seconds are read inside, because destinations wait for them.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::end::End;
use super::timer::Timer;
use super::tls::Tls;

/// Most bytes of one read before the publish is accepted. Later bytes wait in the kernel for the decision.
const SETUP_ROUND_BYTES: usize = 16 * 1024;
/// Most bytes of one connection before other connections are read.
pub(super) const ROUND_BYTES_MAX: usize = 1024 * 1024;

/// Phases of one wait in which connections may be read, if there are many. Connections in one phase share the wake-ups of their thread
/// and of the drivers. Several phases keep the bursts towards the destinations small.
const PHASES: u32 = 4;

/// Connections of a thread for each phase.
const CONNECTIONS_A_PHASE: usize = 16;

/// Size of the block. A packet that fills a large part of it keeps the block, and the thread allocates a new one.
const BLOCK_BYTES: usize = 128 * 1024;
/// Bytes of one read while the close waits for the encoder.
const DRAIN_BYTES: usize = 4 * 1024;

/// One connection's socket, protocol state and unsent replies.
pub(super) struct Wire {
    socket: Socket,
    tls: Option<Tls>,
    /// The publish was accepted: a round reads all available bytes.
    admitted: bool,
    /// The last round ended without a short read: more bytes may be available.
    more: bool,
    /// The protocol state. Its replies are sent by the next [`Wire::flush`].
    pub(super) session: ServerSession,
    /// Unsent replies; encrypted with TLS.
    replies: BytesMut,
    replies_max: usize,
    stuck_since: Option<Instant>,
}

enum Socket {
    /// In the runtime's event queue: read as bytes arrive.
    Watched(TcpStream),
    /// Outside the event queue: read on a timer. Non-blocking.
    Unwatched(std::net::TcpStream, Arc<Timer>),
    /// Lost in the change between both, by a failed system call.
    Lost,
}

impl Wire {
    pub(super) fn new(socket: TcpStream, tls: Option<Tls>, replies_max: usize) -> Self {
        let mut session = ServerSession::new(ServerConfig::default());
        // A queue counts payload bytes, not the blocks that payloads keep in memory.
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

    /// The publish was accepted: from now on rounds are longer.
    pub(super) fn admit(&mut self) {
        self.admitted = true;
    }

    /// Takes the socket out of the runtime's event queue. From now on it is read on the timer of this thread.
    pub(super) fn unwatch(&mut self) -> io::Result<()> {
        if let Socket::Watched(socket) = std::mem::replace(&mut self.socket, Socket::Lost) {
            self.socket = Socket::Unwatched(socket.into_std()?, Timer::of_thread()?);
        }
        Ok(())
    }

    /// Waits until there may be bytes to [`Self::take`], or space to send stuck replies. An unwatched socket is read at `due`, or after
    /// other tasks ran if more bytes may be available. Cancel safe.
    pub(super) async fn ready(&mut self, due: Instant) -> Result<(), End> {
        let interest = match self.replies.is_empty() {
            true => Interest::READABLE,
            false => Interest::READABLE | Interest::WRITABLE,
        };
        match &mut self.socket {
            _ if self.more => tokio::task::yield_now().await,
            Socket::Watched(socket) => drop(socket.ready(interest).await?),
            Socket::Unwatched(_, timer) => timer.at(due).await?,
            Socket::Lost => return Err(io::Error::from(ErrorKind::NotConnected).into()),
        }
        Ok(())
    }

    /// Reads into the session until a short read or the end of the round; passes events to `on_event`.
    pub(super) fn take(&mut self, mut on_event: impl FnMut(ServerEvent)) -> Result<(), End> {
        let mut block = Block::of_thread();
        let round_max = if self.admitted { ROUND_BYTES_MAX } else { SETUP_ROUND_BYTES };
        let mut left = round_max;
        self.more = true;
        while self.more && left > 0 {
            let size = if self.admitted { BLOCK_BYTES } else { left };
            let read = match self.read_now(&mut block.bytes()[..size]) {
                Err(error) if is_transient(&error) => 0,
                read => read?,
            };
            // With TLS, the end may follow a short read without a socket event.
            self.more = read == size || (self.tls.is_some() && read > 0);
            left = left.saturating_sub(read);
            if read > 0 {
                let fed = block.lend(read, |bytes| self.session.input(bytes));
                self.events(&mut on_event);
                fed?;
            }
        }
        Ok(())
    }

    /// Pending events.
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

    /// Sends the session's replies, as far as the socket takes them without waiting.
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

    /// Since when replies are stuck because the encoder does not read.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        self.stuck_since
    }

    /// Bytes received so far.
    pub(super) fn bytes_in(&self) -> u64 {
        self.session.stats().bytes_in
    }

    /// Sends the last replies, closes the write side, and waits for the encoder to close, all within `linger`. An immediate close with
    /// unread bytes would reset the connection and lose the status.
    pub(super) async fn close(mut self, linger: Duration) {
        let output = self.session.take_output();
        match &mut self.tls {
            // If TLS fails here, the last replies are dropped.
            Some(tls) => tls.seal_end(&output, &mut self.replies).unwrap_or_default(),
            None => self.replies.extend_from_slice(&output),
        }
        let socket = match self.socket {
            Socket::Watched(socket) => Ok(socket),
            Socket::Unwatched(socket, _) => TcpStream::from_std(socket),
            Socket::Lost => return,
        };
        let Ok(mut socket) = socket else { return };
        let closing = async {
            socket.write_all(&self.replies).await?;
            socket.shutdown().await?;
            let mut rest = vec![0; DRAIN_BYTES];
            while socket.read(&mut rest).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        // Errors do not matter: the connection ends.
        let _outcome = timeout(linger, closing).await;
    }
}

/// Reads from a socket in the runtime's event queue without waiting.
struct Trying<'a>(&'a mut TcpStream);

impl io::Read for Trying<'_> {
    /// Reads as the runtime does, which takes a short read as the last one. `try_read` would need one more read.
    fn read(&mut self, block: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(block);
        // `ready` registers its own waker.
        match Pin::new(&mut *self.0).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
            Poll::Ready(read) => read.map(|()| buffer.filled().len()),
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

/// A read of zero bytes is the end of the stream.
fn ended(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        read => read,
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

thread_local! {
    static SPARE: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// The read buffer: one block for all connections of a thread, because the bytes are parsed before the next connection is read, and
/// most payloads are assembled or copied out of it. The block stays in the processor's cache, and a stream needs no buffer of its own.
/// It is returned to the thread on drop.
struct Block {
    /// All of it is initialised.
    bytes: BytesMut,
}

impl Block {
    fn of_thread() -> Self {
        Self { bytes: SPARE.take() }
    }

    /// A buffer of [`BLOCK_BYTES`].
    fn bytes(&mut self) -> &mut [u8] {
        if self.bytes.is_empty() {
            self.bytes = BytesMut::zeroed(BLOCK_BYTES);
        }
        &mut self.bytes
    }

    /// Gives the first `count` bytes to `parse`, which may keep slices of them.
    fn lend<T>(&mut self, count: usize, parse: impl FnOnce(Bytes) -> T) -> T {
        let whole = std::mem::take(&mut self.bytes).freeze();
        let parsed = parse(whole.slice(..count.min(whole.len())));
        self.bytes = whole.try_into_mut().unwrap_or_default();
        parsed
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        SPARE.set(std::mem::take(&mut self.bytes));
    }
}

/// The grid of the read times of publishing connections. Pure arithmetic on the time since the service started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    step: Duration,
}

impl Pace {
    /// Reads about `wait` apart; `None` for a wait of zero, which reads bytes as they arrive.
    pub(super) fn new(wait: Duration) -> Option<Self> {
        (!wait.is_zero()).then(|| Self { step: (wait / PHASES).max(Duration::from_nanos(1)) })
    }

    /// The next read after `now` on a thread with this many `connections`: after the wait, rounded down to the grid.
    pub(super) fn next(self, now: Duration, connections: usize) -> Duration {
        let phases = phases(connections);
        let step = self.step * (PHASES / phases);
        let steps = now.as_nanos() / step.as_nanos() + u128::from(phases);
        let nanos = steps.saturating_mul(step.as_nanos());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Phases for this many connections. Each grid includes the times of the coarser ones.
fn phases(connections: usize) -> u32 {
    match connections.div_ceil(CONNECTIONS_A_PHASE) {
        0 | 1 => 1,
        2 => 2,
        _ => PHASES,
    }
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
    async fn usual_packets_do_not_keep_the_block() {
        let (mut wire, mut socket, mut client) = publishing().await;
        wire.admit();
        let block = Block::of_thread().bytes().as_ptr();
        for bytes in [300, 10_000, 50_000, 100_000] {
            let sent = Packet::media(Codec::Aac, false, 0, 0, vec![7; bytes].into());
            client.send(&sent).unwrap();
            let output = client.output().take();
            socket.write_all(&output).await.unwrap();
            wait_until_all_arrived(&wire, output.len()).await;
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

    /// Waits until one read gets all bytes.
    async fn wait_until_all_arrived(wire: &Wire, bytes: usize) {
        let Socket::Watched(socket) = &wire.socket else { panic!("an unwatched socket") };
        let mut seen = vec![0; bytes];
        timeout(Duration::from_secs(20), async {
            while socket.peek(&mut seen).await.unwrap() < bytes {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("everything in time");
    }

    #[test]
    fn a_block_is_reused_unless_a_part_of_it_is_kept() {
        let at = Block::of_thread().bytes().as_ptr();
        let mut block = Block::of_thread();
        assert_eq!((block.bytes().as_ptr(), block.bytes().len()), (at, BLOCK_BYTES));
        block.bytes()[..3].copy_from_slice(b"abc");
        assert_eq!(block.lend(2, |bytes| bytes.to_vec()), b"ab");
        assert_eq!((block.bytes().as_ptr(), block.bytes().len()), (at, BLOCK_BYTES), "nobody kept any of it");
        let kept = block.lend(2, |bytes| bytes);
        assert_ne!(block.bytes().as_ptr(), at);
        block.bytes()[..2].copy_from_slice(b"xy");
        drop(block);
        assert_eq!(kept, &b"ab"[..]);
        assert_eq!(Block::of_thread().bytes().len(), BLOCK_BYTES);
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Enough connections for all phases.
    const MANY: usize = 2 * CONNECTIONS_A_PHASE + 1;

    #[test]
    fn reads_fall_on_the_grid_and_keep_their_distance() {
        let pace = Pace::new(ms(100)).unwrap();
        for (now, next) in [(0, 100), (1, 100), (24, 100), (25, 125), (99, 175), (100, 200), (101, 200)] {
            assert_eq!(pace.next(ms(now), MANY), ms(next), "{now}");
        }
        for now in 0..1_000 {
            let wait = pace.next(ms(now), MANY) - ms(now);
            assert!(wait > ms(75) && wait <= ms(100), "{now}: {wait:?}");
        }
    }

    #[test]
    fn few_connections_share_a_phase() {
        let pace = Pace::new(ms(100)).unwrap();
        for (connections, next) in [
            (0, 200),
            (1, 200),
            (CONNECTIONS_A_PHASE, 200),
            (CONNECTIONS_A_PHASE + 1, 250),
            (2 * CONNECTIONS_A_PHASE, 250),
            (MANY, 275),
            (usize::MAX, 275),
        ] {
            assert_eq!(pace.next(ms(180), connections), ms(next), "{connections}");
        }
    }

    #[test]
    fn a_read_in_time_keeps_its_phase() {
        let pace = Pace::new(ms(100)).unwrap();
        for connections in [1, CONNECTIONS_A_PHASE + 1, MANY] {
            let mut due = pace.next(ms(33), connections);
            for _ in 0..10 {
                let next = pace.next(due + ms(3), connections);
                assert_eq!(next - due, ms(100));
                due = next;
            }
        }
    }

    #[test]
    fn no_wait_means_no_grid_and_tiny_waits_work() {
        assert!(Pace::new(Duration::ZERO).is_none());
        let pace = Pace::new(Duration::from_nanos(1)).unwrap();
        assert!(pace.next(ms(5), MANY) > ms(5));
    }
}
