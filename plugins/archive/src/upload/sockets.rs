//! HTTP/1.1 over sockets that the host's guard has checked: no look-up of names, proxy or redirect of our own.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use object_store::client::{HttpError, HttpRequestBody};
use tokio::time::{Instant, sleep, timeout};

use super::fault::Fault;
use super::tls::Trust;
use crate::outside::Outside;

/// Bytes of an answer that are read; ours are short documents.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Connections kept open for the next request, and for how long. Less than any store waits for one.
const IDLE_MAX: usize = 8;
const IDLE_AGE_MAX: Duration = Duration::from_secs(4);

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// A connection, TLS included.
    pub(crate) connect: Duration,
    /// No byte moves for so long: the store hangs.
    pub(crate) stall: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times { connect: Duration::from_secs(15), stall: Duration::from_secs(60) }
    }
}

type Sender = SendRequest<Counted>;

/// Connections to stores.
#[derive(Debug)]
pub(crate) struct Sockets {
    outside: Arc<dyn Outside>,
    trust: Trust,
    times: Times,
    idle: Mutex<Vec<Idle>>,
    start: Instant,
}

#[derive(Debug)]
struct Idle {
    place: String,
    sender: Sender,
    since: Instant,
}

impl Sockets {
    pub(crate) fn new(outside: Arc<dyn Outside>, times: Times) -> Self {
        Sockets { outside, trust: Trust::default(), times, idle: Mutex::default(), start: Instant::now() }
    }

    /// One request and its whole answer.
    pub(crate) async fn exchange(&self, request: Request<HttpRequestBody>) -> Result<Response<Bytes>, Fault> {
        let (mut parts, body) = request.into_parts();
        let place = Place::of(&parts.uri)?;
        let host = HeaderValue::from_str(&place.authority)
            .map_err(|_| Fault::config("endpoint: its host cannot be sent"))?;
        parts.headers.insert(header::HOST, host);
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path.parse().map_err(|_| Fault::internal("a request has an impossible path"))?;
        let moved = Arc::new(AtomicU64::new(self.now_ms()));
        loop {
            let counted = Counted { body: body.clone(), moved: moved.clone(), start: self.start };
            let request = Request::from_parts(parts.clone(), counted);
            let kept = self.take_idle(&place);
            let is_kept = kept.is_some();
            let sender = match kept {
                Some(sender) => sender,
                None => self.open(&place).await?,
            };
            moved.store(self.now_ms(), Ordering::Relaxed);
            let outcome = tokio::select! {
                outcome = self.send(sender, request, &place) => outcome,
                () = self.stalled(&moved) => return Err(Fault::network(format!(
                    "{} took and sent nothing for {} s", place.authority, self.times.stall.as_secs()
                ))),
            };
            match outcome {
                // A connection that was kept may have been closed by the other side meanwhile.
                Err(error) if is_kept && (error.is_canceled() || error.is_closed()) => {}
                Err(_) => {
                    return Err(Fault::network(format!("{} broke the connection off", place.authority)));
                }
                Ok(None) => {
                    return Err(Fault::network(format!("{} broke its answer off", place.authority)));
                }
                Ok(Some(answer)) => return Ok(answer),
            }
        }
    }

    /// `Ok(None)`: the answer is not whole, or too long.
    async fn send(
        &self,
        mut sender: Sender,
        request: Request<Counted>,
        place: &Place,
    ) -> Result<Option<Response<Bytes>>, hyper::Error> {
        sender.ready().await?;
        let answer = sender.send_request(request).await?;
        let (head, body) = answer.into_parts();
        let Some(body) = whole(body).await else { return Ok(None) };
        if !sender.is_closed() {
            self.keep(place, sender);
        }
        Ok(Some(Response::from_parts(head, body)))
    }

    async fn open(&self, place: &Place) -> Result<Sender, Fault> {
        let late = || Fault::network(format!("{} could not be reached in time", place.authority));
        timeout(self.times.connect, self.open_now(place)).await.map_err(|_| late())?
    }

    async fn open_now(&self, place: &Place) -> Result<Sender, Fault> {
        let connected = self.outside.connect(&place.host, place.port, self.times.connect).await;
        let socket = connected.map_err(Fault::from_host)?;
        // Parts are written in large pieces, requests in one: waiting to fill packets only delays.
        let _ = socket.set_nodelay(true);
        let broken = |_| Fault::network(format!("{} broke the connection off", place.authority));
        if place.is_tls {
            let stream = self.trust.connect(&place.host, socket).await?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
            tokio::spawn(connection);
            return Ok(sender);
        }
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(broken)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// Resolves when no byte of the body went and no answer came for too long.
    async fn stalled(&self, moved: &AtomicU64) {
        let stall_ms = u64::try_from(self.times.stall.as_millis()).unwrap_or(u64::MAX);
        loop {
            let quiet = self.now_ms().saturating_sub(moved.load(Ordering::Relaxed));
            if quiet >= stall_ms {
                return;
            }
            sleep(Duration::from_millis(stall_ms - quiet)).await;
        }
    }

    fn take_idle(&self, place: &Place) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|idle| idle.since.elapsed() < IDLE_AGE_MAX && !idle.sender.is_closed());
        let at = idle.iter().rposition(|idle| idle.place == place.name)?;
        Some(idle.remove(at).sender)
    }

    fn keep(&self, place: &Place, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(Idle { place: place.name.clone(), sender, since: Instant::now() });
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

async fn whole(body: Incoming) -> Option<Bytes> {
    let collected = Limited::new(body, ANSWER_BYTES_MAX).collect().await.ok()?;
    Some(collected.to_bytes())
}

/// Where a request goes.
struct Place {
    /// Scheme and authority.
    name: String,
    authority: String,
    host: String,
    port: u16,
    is_tls: bool,
}

impl Place {
    fn of(uri: &Uri) -> Result<Self, Fault> {
        let is_tls = uri.scheme_str() == Some("https");
        let (Some(authority), Some(host)) = (uri.authority(), uri.host()) else {
            return Err(Fault::config("endpoint: has no host"));
        };
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        // An IPv6 address stands in brackets in an address; the guard takes it without.
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        Ok(Place {
            name: format!("{is_tls} {authority}"),
            authority: authority.as_str().to_owned(),
            host: bare.to_owned(),
            port,
            is_tls,
        })
    }
}

/// A request's body that notes when a piece of it went.
#[derive(Debug)]
struct Counted {
    body: HttpRequestBody,
    moved: Arc<AtomicU64>,
    start: Instant,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.store(now, Ordering::Relaxed);
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
