//! Deadlines for writes: a peer that does not read its response loses the connection and its slot.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::{Sent, ServerLimits};

/// A socket whose pending write must make progress within a time limit, and at a minimum rate over a longer window. A slow
/// reader of a large answer is not cut off, as any progress restarts the first limit; one that only pretends to read is.
/// Also counts the written bytes.
#[derive(Debug)]
pub(super) struct WriteDeadline<T> {
    socket: T,
    stall: Duration,
    rate_window: Duration,
    rate_bytes_min: u64,
    sent: Sent,
    timer: Pin<Box<Sleep>>,
    /// Start of the pending write's wait.
    waiting: Option<Instant>,
    /// Time waited, and bytes written, since the last check of the rate.
    waited: Duration,
    written: u64,
}

impl<T> WriteDeadline<T> {
    pub(super) fn new(socket: T, limits: &ServerLimits, sent: Sent) -> Self {
        Self {
            socket,
            stall: limits.write_stall_timeout,
            rate_window: limits.write_rate_window,
            rate_bytes_min: limits.write_rate_bytes_min,
            sent,
            timer: Box::pin(sleep(limits.write_stall_timeout)),
            waiting: None,
            waited: Duration::ZERO,
            written: 0,
        }
    }

    /// Passes on the result of a write and counts its bytes.
    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.sent.add(bytes);
            self.written += bytes as u64;
        }
        self.watch(context, written)
    }

    /// Passes on the result of a write; a write that is pending for too long, or too slow, becomes an error.
    fn watch<R>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            if let Some(since) = self.waiting.take() {
                self.waited += since.elapsed();
                if self.waited >= self.rate_window && !self.is_fast_enough() {
                    return Poll::Ready(Err(too_slow()));
                }
            }
            return written;
        }
        if self.waiting.is_none() {
            let now = Instant::now();
            self.waiting = Some(now);
            self.timer.as_mut().reset(now + self.stall);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(too_slow()))
    }

    /// Checks the bytes of a window of waiting, and begins the next window.
    fn is_fast_enough(&mut self) -> bool {
        let enough = self.written >= self.rate_bytes_min;
        (self.waited, self.written) = (Duration::ZERO, 0);
        enough
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer does not read its response")
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteDeadline<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.wrote(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.wrote(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.socket).poll_shutdown(context);
        self.watch(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::{WRITE_RATE_BYTES_MIN, WRITE_RATE_WINDOW, WRITE_STALL_TIMEOUT};
    use super::*;

    const LIMIT: Duration = WRITE_STALL_TIMEOUT;
    /// Buffer between the two sockets.
    const BUFFER_BYTES: usize = 4 * 1024;

    fn pair(sent: &Sent) -> (WriteDeadline<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let (socket, peer) = tokio::io::duplex(BUFFER_BYTES);
        (WriteDeadline::new(socket, &ServerLimits::default(), sent.clone()), peer)
    }

    /// Reads `bytes` every `pause` until the end; returns the total.
    async fn read_slowly(mut peer: impl AsyncRead + Unpin, bytes: usize, pause: Duration) -> usize {
        let mut part = vec![0; bytes];
        let mut total = 0;
        loop {
            tokio::time::sleep(pause).await;
            match peer.read(&mut part).await.unwrap() {
                0 => return total,
                count => total += count,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_without_progress_ends_after_the_limit_and_not_before() {
        let (mut socket, _peer) = pair(&Sent::default());
        tokio::time::sleep(LIMIT * 2).await;
        socket.write_all(&[0; BUFFER_BYTES]).await.unwrap();
        let began = Instant::now();
        let error = socket.write_all(&[0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!((LIMIT..LIMIT * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_but_steady_reader_is_served_to_the_end_and_counted() {
        let sent = Sent::default();
        let (mut socket, peer) = pair(&sent);
        // A little above the minimum rate, in bursts with long pauses.
        let pause = Duration::from_millis(BUFFER_BYTES as u64 * 1_000 * 9 / 10 / 1_024);
        let reader = tokio::spawn(read_slowly(peer, BUFFER_BYTES, pause));
        let (first, second) = ([0; 500], [0; 500]);
        let mut total = socket.write_vectored(&[IoSlice::new(&first), IoSlice::new(&second)]).await.unwrap();
        let large = vec![0; 10 * WRITE_RATE_BYTES_MIN as usize];
        socket.write_all(&large).await.unwrap();
        total += large.len();
        socket.shutdown().await.unwrap();
        drop(socket);
        assert_eq!(reader.await.unwrap(), total);
        assert_eq!(sent.bytes(), total as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_of_single_bytes_loses_its_slot() {
        let sent = Sent::default();
        let (mut socket, peer) = pair(&sent);
        let reader = tokio::spawn(read_slowly(peer, 1, LIMIT - Duration::from_secs(1)));
        let large = vec![0; 2 * WRITE_RATE_BYTES_MIN as usize];
        let began = Instant::now();
        let error = socket.write_all(&large).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = began.elapsed();
        assert!((WRITE_RATE_WINDOW..WRITE_RATE_WINDOW + LIMIT).contains(&took), "{took:?}");
        drop(socket);
        assert_eq!(reader.await.unwrap() as u64, sent.bytes());
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_a_pending_write_is_not_waiting() {
        let (mut socket, peer) = pair(&Sent::default());
        let reader = tokio::spawn(read_slowly(peer, 1_000, Duration::from_millis(1)));
        for _ in 0..5 {
            tokio::time::sleep(WRITE_RATE_WINDOW).await;
            socket.write_all(&[0; 100]).await.unwrap();
        }
        drop(socket);
        assert_eq!(reader.await.unwrap(), 500);
    }
}
