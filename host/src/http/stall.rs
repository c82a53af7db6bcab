//! A deadline for writes: a peer that does not take its answer loses the connection, and with it the place it holds.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A socket whose pending write must make progress within a time. Every byte the peer takes starts the time anew, so
/// that a slow reader of a large answer is not cut; TCP itself sees to it that progress comes in whole segments.
#[derive(Debug)]
pub(super) struct WriteDeadline<T> {
    socket: T,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    waiting: bool,
}

impl<T> WriteDeadline<T> {
    pub(super) fn new(socket: T, limit: Duration) -> Self {
        Self { socket, limit, timer: Box::pin(sleep(limit)), waiting: false }
    }

    /// Passes on what a write came to; one that is pending for too long becomes an error.
    fn watch<R>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !self.waiting {
            self.waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not take its answer")))
    }
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
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.watch(context, written)
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

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_write_without_progress_ends_after_the_limit_and_not_before() {
        let (socket, _peer) = tokio::io::duplex(64);
        let mut socket = WriteDeadline::new(socket, LIMIT);
        tokio::time::sleep(LIMIT * 2).await;
        socket.write_all(&[0; 64]).await.unwrap();
        let began = Instant::now();
        let error = socket.write_all(&[0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!((LIMIT..LIMIT * 2).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_that_reads_on_is_served_to_the_end() {
        let (socket, mut peer) = tokio::io::duplex(64);
        let mut socket = WriteDeadline::new(socket, LIMIT);
        let reader = tokio::spawn(async move {
            let mut bytes = [0; 64];
            let mut total = 0;
            loop {
                tokio::time::sleep(LIMIT / 2).await;
                match peer.read(&mut bytes).await.unwrap() {
                    0 => return total,
                    count => total += count,
                }
            }
        });
        let (first, second) = ([0; 500], [0; 500]);
        let slices = [IoSlice::new(&first), IoSlice::new(&second)];
        let mut sent = socket.write_vectored(&slices).await.unwrap();
        while sent < 1_000 {
            sent += socket.write(&first[..(1_000 - sent).min(500)]).await.unwrap();
        }
        socket.shutdown().await.unwrap();
        assert_eq!(reader.await.unwrap(), 1_000);
    }
}
