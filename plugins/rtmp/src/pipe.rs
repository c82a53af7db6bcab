//! The two directions of a connection, with or without TLS.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use satcast_plugin_api::driver::unacknowledged;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::client::TlsStream;

/// Bytes that may wait unsent in the system. Few: data that the server does not take stays with the host, which drops
/// to a keyframe and reports it. Enough for a burst of a usual stream.
const UNSENT_BYTES_MAX: u32 = 64 * 1024;

/// The receiving half.
pub(crate) enum Reader {
    Plain(OwnedReadHalf),
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

/// The sending half.
pub(crate) struct Writer {
    half: Half,
    /// Bytes that TLS has accepted and the socket has not; they do not count as written.
    unflushed: usize,
}

enum Half {
    Plain(OwnedWriteHalf),
    /// With its own descriptor, because the stream is behind the lock of its halves.
    Tls(WriteHalf<TlsStream<TcpStream>>, OwnedFd),
}

/// Keeps the system from buffering more than it sends.
pub(crate) fn limit_unsent(stream: &TcpStream) {
    if let Err(error) = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX) {
        tracing::debug!(%error, "cannot set TCP_NOTSENT_LOWAT");
    }
}

pub(crate) fn plain(stream: TcpStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Reader::Plain(reader), Writer { half: Half::Plain(writer), unflushed: 0 })
}

/// # Errors
/// The process has no free descriptor.
pub(crate) fn tls(stream: TlsStream<TcpStream>) -> io::Result<(Reader, Writer)> {
    let socket = stream.get_ref().0.as_fd().try_clone_to_owned()?;
    let (reader, writer) = tokio::io::split(stream);
    Ok((Reader::Tls(reader), Writer { half: Half::Tls(writer, socket), unflushed: 0 }))
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Reader::Plain(reader) => Pin::new(reader).poll_read(cx, buffer),
            Reader::Tls(reader) => Pin::new(reader).poll_read(cx, buffer),
        }
    }
}

impl Writer {
    /// Sends from the front of `slices`; the returned number of bytes is with the system. After `Pending` the next
    /// call must have the same bytes in front.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.half {
            Half::Plain(writer) => Pin::new(writer).poll_write_vectored(cx, slices),
            Half::Tls(writer, _) => {
                if self.unflushed == 0 {
                    self.unflushed = ready!(Pin::new(&mut *writer).poll_write_vectored(cx, slices))?;
                }
                ready!(Pin::new(writer).poll_flush(cx))?;
                Poll::Ready(Ok(std::mem::take(&mut self.unflushed)))
            }
        }
    }

    /// Ends the sending direction, in TLS with a closing alert.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        match &mut self.half {
            Half::Plain(writer) => writer.shutdown().await,
            Half::Tls(writer, _) => writer.shutdown().await,
        }
    }

    /// Bytes that the server has not acknowledged, with TLS as they are on the wire.
    pub(crate) fn unacknowledged(&self) -> io::Result<u64> {
        match &self.half {
            Half::Plain(writer) => unacknowledged(writer.as_ref()),
            Half::Tls(_, socket) => unacknowledged(socket),
        }
    }

    /// Makes the close of this connection a reset: data that the system still holds for the server is discarded, and
    /// the server sees the end at once.
    pub(crate) fn abort(&self) {
        let set = match &self.half {
            Half::Plain(writer) => SockRef::from(writer.as_ref()).set_linger(Some(Duration::ZERO)),
            Half::Tls(_, socket) => SockRef::from(socket).set_linger(Some(Duration::ZERO)),
        };
        if let Err(error) = set {
            tracing::debug!(%error, "cannot set SO_LINGER to reset the connection at its close");
        }
    }
}
