//! The connection to one server, with or without TLS, and its RTMP session, from handshake to close.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use satcast_media::rtmp::chunk::ChunkOutput;
use satcast_media::rtmp::client::{ClientConfig, ClientEvent, ClientSession};
use satcast_plugin_api::Error;
use satcast_plugin_api::driver::{Ctx, unacknowledged};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

use crate::login::{Question, proofs};
use crate::refusal;
use crate::target::Target;

/// Most segments of one write: a full batch of one-chunk messages needs half of it. Below every system's `IOV_MAX`.
const WRITE_SLICES_MAX: usize = 256;
/// Buffer of one read: a server sends a publisher only short messages.
const READ_BYTES: usize = 4096;
/// The same once the server has accepted the stream: it then sends acknowledgements and pings of a few bytes.
const ACCEPTED_READ_BYTES: usize = 512;
/// How long to wait for the server's reason after a failed write; a closed connection is readable at once.
const LAST_WORDS_WAIT_MAX: Duration = Duration::from_millis(100);
/// Bytes that a server may send at once, beyond the allowed rate.
const INPUT_BURST_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes per second that a server may send in the long run; acknowledgements and pings are below a hundredth of it.
const INPUT_BYTES_PER_SECOND_MAX: u64 = 64 * 1024;

pub(crate) struct Link<'a> {
    pub(crate) target: &'a Target,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    pub(crate) session: ClientSession,
    pub(crate) input: BytesMut,
    /// Buffer of the next read.
    input_size: usize,
    input_bytes: u64,
    since: Instant,
    question: Option<Question>,
    /// Values derived from the password that were sent to the server in this attempt.
    proofs: Vec<String>,
    /// Output position that the server has acknowledged as read.
    pub(crate) read_bytes: u64,
    ctx: Ctx,
}

impl<'a> Link<'a> {
    /// The last of `answers` is appended to the app where the server asked for a login; the server got the earlier
    /// ones before.
    pub(crate) fn new(
        target: &'a Target,
        (reader, writer): (Reader, Writer),
        ctx: &Ctx,
        answers: &[String],
    ) -> Self {
        let answer = answers.last().map(String::as_str);
        let session = ClientSession::new(ClientConfig {
            app: with_answer(target.app(), answer),
            tc_url: with_answer(target.tc_url(), answer),
            stream_key: target.publish_name().to_owned(),
            flash_ver: flash_ver(&ctx.about().via),
            ..ClientConfig::default()
        });
        let (input, since) = (BytesMut::with_capacity(READ_BYTES), Instant::now());
        Link {
            target,
            reader,
            writer,
            session,
            input,
            input_size: READ_BYTES,
            input_bytes: 0,
            since,
            question: None,
            proofs: answers.iter().flat_map(|answer| proofs(answer)).map(str::to_owned).collect(),
            read_bytes: 0,
            ctx: ctx.clone(),
        }
    }

    pub(crate) async fn publish(&mut self) -> Result<(), Error> {
        loop {
            tokio::select! {
                biased;
                written = write_some(&mut self.writer, self.session.output()),
                    if !self.session.output().is_empty() => self.wrote(written).await?,
                read = self.reader.read_buf(&mut self.input) => {
                    if read.as_ref().map_or_else(refusal::is_close, |bytes| *bytes == 0) {
                        return Err(refusal::closed_early(self.target));
                    }
                    if self.received(read)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Bytes were read, or reading failed. True when the server has accepted the stream.
    pub(crate) fn received(&mut self, read: io::Result<usize>) -> Result<bool, Error> {
        let bytes = read.map_err(|error| refusal::io(self.target, &error))?;
        if bytes == 0 {
            return Err(refusal::closed(self.target));
        }
        if self.input_bytes == 0
            && let Some(error) = refusal::foreign(self.target, &self.input)
        {
            return Err(error);
        }
        self.check_input_rate(bytes)?;
        let parsed = self.session.input(self.input.split().freeze());
        let mut publishing = false;
        // The server's message before the protocol error is the better reason.
        while let Some(event) = self.session.poll_event() {
            match event {
                ClientEvent::Publishing => publishing = true,
                ClientEvent::Rejected { code, description } => {
                    self.question = Question::find(&description);
                    return Err(refusal::refused(self.target, &self.proofs, &code, &description));
                }
                ClientEvent::PeerClosed { code, description } => {
                    return Err(refusal::ended(self.target, &self.proofs, &code, &description));
                }
                ClientEvent::Acknowledged { bytes } => self.read_bytes = bytes,
            }
        }
        if publishing {
            self.input = BytesMut::new();
            self.input_size = ACCEPTED_READ_BYTES;
        }
        self.input.reserve(self.input_size);
        parsed
            .map_err(|error| Error::remote(format!("{} violates the RTMP protocol: {error}", self.target)))?;
        Ok(publishing)
    }

    fn check_input_rate(&mut self, bytes: usize) -> Result<(), Error> {
        self.input_bytes += bytes as u64;
        let allowed = INPUT_BURST_BYTES_MAX + self.since.elapsed().as_secs() * INPUT_BYTES_PER_SECOND_MAX;
        if self.input_bytes > allowed {
            return Err(refusal::floods(self.target));
        }
        Ok(())
    }

    pub(crate) async fn wrote(&mut self, written: io::Result<usize>) -> Result<(), Error> {
        let bytes = match written {
            Ok(bytes) => bytes,
            Err(error) => {
                let said = self.last_words().await;
                return Err(said.unwrap_or_else(|| refusal::io(self.target, &error)));
            }
        };
        self.session.output().advance(bytes);
        self.ctx.bytes_sent(bytes as u64);
        Ok(())
    }

    /// The reason for the close, if the server sent one before writing to it failed.
    async fn last_words(&mut self) -> Option<Error> {
        let by = Instant::now() + LAST_WORDS_WAIT_MAX;
        self.input.reserve(READ_BYTES);
        let read = timeout_at(by, self.reader.read_buf(&mut self.input)).await;
        let bytes = read.ok()?.ok().filter(|bytes| *bytes > 0)?;
        self.received(Ok(bytes)).err()
    }

    /// The login question in the server's refusal, if there is one.
    pub(crate) fn question(&self) -> Option<Question> {
        self.question.clone()
    }

    /// Output position that the server has acknowledged, and whether no bytes are in flight.
    pub(crate) fn acknowledged(&mut self) -> Result<(u64, bool), Error> {
        let waiting = self.writer.unacknowledged().map_err(|error| refusal::io(self.target, &error))?;
        let output = self.session.output();
        // With TLS the bytes in flight are longer than their plain text, so this position is rather too low.
        let taken = output.total_bytes() - output.len_bytes() as u64;
        Ok((taken.saturating_sub(waiting), waiting == 0 && output.is_empty()))
    }

    /// Closes our side and reads until the server has closed its own: closing a socket with unread input would reset
    /// the connection and lose data that the server has not read.
    pub(crate) async fn close(mut self, by: Instant) {
        let shut = timeout_at(by, async {
            self.writer.shutdown().await?;
            while self.reader.read_buf(&mut self.input).await? > 0 {
                self.input.clear();
            }
            io::Result::Ok(())
        });
        // Everything is written; the way in which the server closes changes nothing.
        let outcome = shut.await;
        tracing::debug!(target = %self.target, clean = matches!(outcome, Ok(Ok(()))), "closed");
    }
}

/// Our client version, with the marks of the services that the media came through.
fn flash_ver(via: &[String]) -> String {
    match via {
        [] => ClientConfig::default().flash_ver,
        via => format!("FMLE/3.0 (compatible; Satcast; via {})", via.join(" ")),
    }
}

fn with_answer(text: &str, answer: Option<&str>) -> String {
    match answer {
        Some(answer) if text.contains('?') => format!("{text}&{answer}"),
        Some(answer) => format!("{text}?{answer}"),
        None => text.to_owned(),
    }
}

/// Writes from the front of `output`. Cancel safe.
pub(crate) async fn write_some(writer: &mut Writer, output: &ChunkOutput) -> io::Result<usize> {
    let written = poll_fn(|cx| {
        let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
        let count = output.slices(&mut slices);
        writer.poll_send(cx, &slices[..count])
    });
    match written.await {
        Ok(0) => Err(io::ErrorKind::BrokenPipe.into()),
        written => written,
    }
}

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
