//! One connection: TLS where it is configured, then HTTP/1.1 or HTTP/2, until one side ends it.
//!
//! HTTP/2 only inside TLS, negotiated by ALPN: no browser uses it in clear text, and proxies use HTTP/1.1.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use poem::http::header::EXPECT;
use poem::http::uri::Scheme;
use poem::web::{LocalAddr, RemoteAddr};
use poem::{Addr, Endpoint, IntoResponse as _, Request};
use satcast_quota::Permit;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::flow::{Fault, Flows};
use super::linger::Lingering;
use super::stall::WriteDeadline;
use super::{
    HEAD_BYTES_MAX, HEADERS_MAX, RECEIVE_WINDOW_BYTES, STREAMS_MAX, Sent, ServerLimits, UNSENT_BYTES_MAX,
};
use crate::certificates::HTTP_2;
use satcast_core::networks::Network;

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
        if socket.get_ref().1.alpn_protocol() == Some(HTTP_2) {
            self.http_2(socket, sent).await;
        } else {
            self.http_1(socket, sent, Scheme::HTTPS).await;
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
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            let (endpoint, scheme) = (endpoint.clone(), scheme.clone());
            request.extensions_mut().insert(sent.clone());
            async move {
                let has_body = !hyper::body::Body::is_end_stream(request.body());
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
                serving.as_mut().graceful_shutdown();
                serving.await
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
