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

/// Bytes that may wait unsent in the system. Few: what a server does not take stays with the host, which drops to a keyframe
/// and says so. Enough for a burst of a usual stream.
const UNSENT_BYTES_MAX: u32 = 64 * 1024;

/// What a server sends.
pub(crate) enum Reader {
    /// As it is.
    Plain(OwnedReadHalf),
    /// Encrypted.
    Tls(ReadHalf<TlsStream<TcpStream>>),
}

/// What a server is sent.
pub(crate) struct Writer {
    half: Half,
    /// Bytes that TLS has taken and the socket has not: they do not count as written yet.
    unflushed: usize,
}

enum Half {
    Plain(OwnedWriteHalf),
    /// With a descriptor of its own, as the stream is behind the lock of its halves.
    Tls(WriteHalf<TlsStream<TcpStream>>, OwnedFd),
}

/// Keeps the system from taking more than it sends.
pub(crate) fn limit_unsent(stream: &TcpStream) {
    if let Err(error) = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX) {
        tracing::debug!(%error, "cannot set TCP_NOTSENT_LOWAT");
    }
}

/// Both directions of a connection without TLS.
pub(crate) fn plain(stream: TcpStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Reader::Plain(reader), Writer { half: Half::Plain(writer), unflushed: 0 })
}

/// Both directions of an encrypted connection.
///
/// # Errors
/// The process has no descriptor left.
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
    /// Sends from the front of `slices`; the bytes it returns are with the system. After `Pending` the next call must have
    /// the same bytes in front.
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

    /// Says that nothing more comes, in TLS with its closing alert too.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        match &mut self.half {
            Half::Plain(writer) => writer.shutdown().await,
            Half::Tls(writer, _) => writer.shutdown().await,
        }
    }

    /// Bytes that the server has not acknowledged; in TLS as they are on the wire.
    pub(crate) fn unacknowledged(&self) -> io::Result<u64> {
        match &self.half {
            Half::Plain(writer) => unacknowledged(writer.as_ref()),
            Half::Tls(_, socket) => unacknowledged(socket),
        }
    }

    /// Makes the end of this connection a reset: what the system still holds for the server is thrown away, and the server
    /// knows at once that nothing more comes.
    pub(crate) fn abort(&self) {
        let set = match &self.half {
            Half::Plain(writer) => SockRef::from(writer.as_ref()).set_linger(Some(Duration::ZERO)),
            Half::Tls(_, socket) => SockRef::from(socket).set_linger(Some(Duration::ZERO)),
        };
        if let Err(error) = set {
            tracing::debug!(%error, "cannot make the end of a connection a reset");
        }
    }
}
