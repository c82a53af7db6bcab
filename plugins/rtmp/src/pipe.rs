//! The two directions of a connection, with or without TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::client::TlsStream;

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
    Tls(WriteHalf<TlsStream<TcpStream>>),
}

/// Both directions of a connection without TLS.
pub(crate) fn plain(stream: TcpStream) -> (Reader, Writer) {
    let (reader, writer) = stream.into_split();
    (Reader::Plain(reader), Writer { half: Half::Plain(writer), unflushed: 0 })
}

/// Both directions of an encrypted connection.
pub(crate) fn tls(stream: TlsStream<TcpStream>) -> (Reader, Writer) {
    let (reader, writer) = tokio::io::split(stream);
    (Reader::Tls(reader), Writer { half: Half::Tls(writer), unflushed: 0 })
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
            Half::Tls(writer) => {
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
            Half::Tls(writer) => writer.shutdown().await,
        }
    }
}
