//! One connection: TLS where it is configured, then HTTP/1.1 or HTTP/2, until one side ends it. Writes have deadlines: a peer that
//! does not read its response loses the connection and its slot.
//!
//! HTTP/2 only inside TLS, negotiated by ALPN: no browser uses it in clear text, and proxies use HTTP/1.1.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use poem::http::header::EXPECT;
use poem::http::uri::Scheme;
use poem::web::{LocalAddr, RemoteAddr};
use poem::{Addr, Endpoint, IntoResponse as _, Request};
use satcast_quota::Permit;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::flow::{Fault, Flows};
use super::{
    HEAD_BYTES_MAX, HEADERS_MAX, RECEIVE_WINDOW_BYTES, STREAMS_MAX, Sent, ServerLimits, UNSENT_BYTES_MAX,
};
use crate::certificates::{ACME_TLS, HTTP_2};
use satcast_core::networks::Network;

/// Most bytes of a request's body that are discarded after its answer; a peer that sends more may see a reset.
pub(super) const LINGER_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest time for that. Each connection discards one body at a time, so the cap on connections bounds them.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a service that stops waits for the first request of a connection.
const FIRST_REQUEST_WAIT: Duration = Duration::from_secs(1);

/// The two ends of a connection.
#[derive(Clone, Copy)]
pub(super) struct Peers {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

/// The permits of a connection, released when it ends.
pub(super) struct Held {
    pub(super) _slot: OwnedSemaphorePermit,
    pub(super) _permit: Option<Permit<Network>>,
}

/// Context for serving a connection.
pub(super) struct Serving<E> {
    pub(super) endpoint: Arc<E>,
    pub(super) peers: Peers,
    pub(super) limits: ServerLimits,
    pub(super) stopped: CancellationToken,
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) _held: Held,
}

impl<E: Endpoint + 'static> Serving<E> {
    /// Serves until either side ends the connection.
    pub(super) async fn run(mut self, socket: TcpStream) {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        if let Err(error) = SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES_MAX) {
            tracing::debug!(%error, "cannot set TCP_NOTSENT_LOWAT");
        }
        let sent = Sent::default();
        let socket = WriteDeadline::new(socket, &self.limits, sent.clone());
        let Some(tls) = self.tls.take() else { return self.http_1(socket, sent, Scheme::HTTP).await };
        let Some(socket) = self.greet(tls, socket).await else { return };
        match socket.get_ref().1.alpn_protocol() {
            Some(HTTP_2) => self.http_2(socket, sent).await,
            // The handshake was the answer.
            Some(ACME_TLS) => {}
            _ => self.http_1(socket, sent, Scheme::HTTPS).await,
        }
    }

    /// The TLS handshake, within the time limit of a request head.
    async fn greet<T>(&mut self, tls: Arc<ServerConfig>, socket: T) -> Option<TlsStream<T>>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let greeting = tokio::time::timeout(self.limits.head_timeout, TlsAcceptor::from(tls).accept(socket));
        tokio::select! {
            greeted = greeting => match greeted {
                Ok(Ok(socket)) => Some(socket),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a TLS handshake failed");
                    None
                }
                Err(_) => None,
            },
            () = self.stopped.cancelled() => None,
        }
    }

    async fn http_1<T>(self, socket: T, sent: Sent, scheme: Scheme)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (endpoint, peers) = (self.endpoint.clone(), self.peers);
        let has_asked = AtomicBool::new(false);
        let service = service_fn(|mut request: hyper::Request<Incoming>| {
            let (endpoint, scheme) = (endpoint.clone(), scheme.clone());
            has_asked.store(true, Ordering::Relaxed);
            request.extensions_mut().insert(sent.clone());
            async move {
                let has_body = !request.body().is_end_stream();
                let mut request = poem_request(request, peers, scheme);
                if has_body {
                    let asks_first = request.headers().contains_key(EXPECT);
                    let body = Lingering::new(request.take_body().into(), asks_first);
                    request.set_body(poem::Body::from(BoxBody::new(body)));
                }
                Ok::<_, Infallible>(answer(&*endpoint, request).await)
            }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_timeout)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .writev(true)
            .serve_connection(TokioIo::new(socket), service);
        let mut serving = pin!(serving);
        let ended = tokio::select! {
            ended = &mut serving => ended,
            () = self.stopped.cancelled() => {
                // The first request of a client that has just connected is on its way.
                let wait = if has_asked.load(Ordering::Relaxed) { Duration::ZERO } else { FIRST_REQUEST_WAIT };
                match tokio::time::timeout(wait, &mut serving).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        serving.as_mut().graceful_shutdown();
                        serving.await
                    }
                }
            }
        };
        report(ended);
    }

    async fn http_2<T>(self, socket: T, sent: Sent)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let flows = Flows::new(&self.limits);
        let (endpoint, peers, begun) = (self.endpoint.clone(), self.peers, flows.clone());
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            let (endpoint, flow) = (endpoint.clone(), begun.begin());
            request.extensions_mut().insert(sent.clone());
            async move {
                let answer = answer(&*endpoint, poem_request(request, peers, Scheme::HTTPS)).await;
                Ok::<_, Infallible>(answer.map(|body| flow.around(body)))
            }
        });
        let serving = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .max_send_buf_size(UNSENT_BYTES_MAX as usize)
            .initial_stream_window_size(RECEIVE_WINDOW_BYTES)
            .initial_connection_window_size(RECEIVE_WINDOW_BYTES)
            .serve_connection(TokioIo::new(socket), service);
        let mut serving = pin!(serving);
        let mut leaving = false;
        loop {
            tokio::select! {
                ended = &mut serving => return report(ended),
                () = self.stopped.cancelled(), if !leaving => {
                    leaving = true;
                    serving.as_mut().graceful_shutdown();
                }
                fault = flows.watch() => match fault {
                    Fault::Idle if !leaving => {
                        leaving = true;
                        serving.as_mut().graceful_shutdown();
                    }
                    // The peer does not take the data it was given, or does not leave after it was asked to.
                    Fault::Idle | Fault::Stalled => return,
                },
            }
        }
    }
}

fn report(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "an http connection ended early");
    }
}

fn poem_request(request: hyper::Request<Incoming>, peers: Peers, scheme: Scheme) -> Request {
    let local = LocalAddr(Addr::SocketAddr(peers.local));
    let remote = RemoteAddr(Addr::SocketAddr(peers.remote));
    Request::from((request, local, remote, scheme))
}

async fn answer<E: Endpoint>(endpoint: &E, request: Request) -> hyper::Response<BoxBody<Bytes, io::Error>> {
    match endpoint.call(request).await {
        Ok(response) => response.into_response().into(),
        Err(error) => error.into_response().into(),
    }
}

/// A request body whose rest is read and discarded when its reader drops it: once the answer is known.
///
/// Closing a connection with unread bytes resets it, and a reset can destroy the answer on its way: a client that still
/// sends would see a lost connection instead of "too large". The rest is read for a short time while the answer is sent.
struct Lingering {
    inner: Option<BoxBody<Bytes, io::Error>>,
    /// Reading would send `100 Continue` to a peer that waits for it.
    asked_first: bool,
}

impl Lingering {
    /// `asks_first`: the peer waits for `100 Continue` before it sends.
    fn new(inner: BoxBody<Bytes, io::Error>, asks_first: bool) -> Self {
        Self { inner: Some(inner), asked_first: asks_first }
    }
}

impl Body for Lingering {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let polled = Pin::new(inner).poll_frame(cx);
        match &polled {
            // Failed or at its end: nothing is left.
            Poll::Ready(None | Some(Err(_))) => self.inner = None,
            Poll::Ready(Some(Ok(_))) | Poll::Pending => self.asked_first = false,
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if self.asked_first || self.is_end_stream() {
            return;
        }
        // Without a runtime the service is ending, and no peer waits for the answer.
        if let (Some(left), Ok(runtime)) = (self.inner.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(LINGER_TIMEOUT, read_away(left)));
        }
    }
}

async fn read_away(mut body: BoxBody<Bytes, io::Error>) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, |data| data.len() as u64);
        if read > LINGER_BYTES_MAX {
            return;
        }
    }
}

/// A socket whose pending write must make progress within a time limit, and at a minimum rate over a longer window. A slow
/// reader of a large answer is not cut off, as any progress restarts the first limit; one that only pretends to read is.
/// Also counts the written bytes.
#[derive(Debug)]
struct WriteDeadline<T> {
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
    fn new(socket: T, limits: &ServerLimits, sent: Sent) -> Self {
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
