//! HTTP/1.1 over sockets that the host's outbound guard has checked: no name look-up, proxy or redirect here.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use object_store::client::{HttpError, HttpRequestBody};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::fault::Fault;
use super::tls::Trust;
use crate::outside::Outside;

/// Largest answer that is read, in bytes; expected answers are short documents.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Idle connections kept for the next request, and for how long: less than any store's idle limit.
const IDLE_MAX: usize = 8;
const IDLE_AGE_MAX: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// Connecting, with TLS.
    pub(crate) connect: Duration,
    /// Longest time without progress of a request before the connection counts as dead.
    pub(crate) stall: Duration,
    /// From the last byte of a request, which may still be in this machine's buffers, to the whole answer. Stores need
    /// time to make one object of many parts.
    pub(crate) answer: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            connect: Duration::from_secs(15),
            stall: Duration::from_secs(60),
            answer: Duration::from_secs(180),
        }
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

    /// With other certificate authorities than the machine's.
    #[cfg(test)]
    pub(crate) fn trusting(self, trust: Trust) -> Self {
        Sockets { trust, ..self }
    }

    /// Sends one request and reads the whole answer.
    pub(crate) async fn exchange(&self, request: Request<HttpRequestBody>) -> Result<Response<Bytes>, Fault> {
        let (mut parts, body) = request.into_parts();
        let place = Place::of(&parts.uri)?;
        let host = HeaderValue::from_str(&place.authority)
            .map_err(|_| Fault::config("endpoint: the host is not valid in a request"))?;
        parts.headers.insert(header::HOST, host);
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = path.parse().map_err(|_| Fault::internal("a request has an invalid path"))?;
        loop {
            let progress = Arc::new(Progress::new(self.start, body.content_length() as u64));
            let counted = Counted { body: body.clone(), progress: progress.clone() };
            let request = Request::from_parts(parts.clone(), counted);
            let kept = self.take_idle(&place);
            let is_kept = kept.is_some();
            let sender = match kept {
                Some(sender) => sender,
                None => self.open(&place).await?,
            };
            progress.moved(0);
            let outcome = tokio::select! {
                outcome = self.send(sender, request, &place) => outcome,
                idle = self.stalled(&progress) => return Err(silent(&place.authority, idle)),
            };
            match outcome {
                // The other side may have closed a kept connection meanwhile.
                Err(error) if is_kept && (error.is_canceled() || error.is_closed()) => {}
                Err(_) => {
                    return Err(Fault::network(format!("{} closed the connection early", place.authority)));
                }
                Ok(None) => return Err(half_answer(&place.authority)),
                Ok(Some(answer)) => return Ok(answer),
            }
        }
    }

    /// `Ok(None)`: the answer is incomplete or too long.
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
        // Parts are written in large chunks, requests in one: Nagle's algorithm would only delay them.
        let _ = socket.set_nodelay(true);
        let broken = |_| Fault::network(format!("{} closed the connection early", place.authority));
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

    /// Resolves, with the elapsed time, when no byte of the body was sent and no answer came for too long.
    async fn stalled(&self, progress: &Progress) -> Duration {
        loop {
            let limit = if progress.is_sent() { self.times.answer } else { self.times.stall };
            let idle = progress.idle();
            if idle >= limit {
                return limit;
            }
            // Checked again before the shorter one is over, because the limit that applies may change.
            sleep((limit - idle).min(self.times.stall)).await;
        }
    }

    fn take_idle(&self, place: &Place) -> Option<Sender> {
        let mut idle = self.idle.lock();
        idle.retain(|idle| idle.since.elapsed() < IDLE_AGE_MAX && !idle.sender.is_closed());
        let at = idle.iter().rposition(|idle| idle.place == place.name)?;
        Some(idle.remove(at).sender)
    }

    fn keep(&self, place: &Place, sender: Sender) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(Idle { place: place.name.clone(), sender, since: Instant::now() });
        }
    }
}

/// The store at `authority` accepted and sent no data for so long.
pub(crate) fn silent(authority: &str, idle: Duration) -> Fault {
    Fault::network(format!("{authority} accepted and sent no data for {} s", idle.as_secs()))
}

/// The answer of the store at `authority` is incomplete or too long.
pub(crate) fn half_answer(authority: &str) -> Fault {
    Fault::network(format!("{authority} sent an incomplete or too long answer"))
}

async fn whole(body: Incoming) -> Option<Bytes> {
    let collected = Limited::new(body, ANSWER_BYTES_MAX).collect().await.ok()?;
    Some(collected.to_bytes())
}

/// Target of a request.
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
        // An IPv6 address is in brackets in a URL; the guard takes it without.
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

/// Progress of a request.
#[derive(Debug)]
struct Progress {
    start: Instant,
    /// When a chunk was last sent, in milliseconds from the start.
    moved_ms: AtomicU64,
    /// Bytes not sent yet.
    left: AtomicU64,
}

impl Progress {
    fn new(start: Instant, bytes: u64) -> Self {
        let progress = Progress { start, moved_ms: AtomicU64::new(0), left: AtomicU64::new(bytes) };
        progress.moved(0);
        progress
    }

    fn moved(&self, bytes: u64) {
        let now_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(now_ms, Ordering::Relaxed);
        self.left.fetch_sub(bytes.min(self.left.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    fn is_sent(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    fn idle(&self) -> Duration {
        let moved = Duration::from_millis(self.moved_ms.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(moved)
    }
}

/// A request body that records its progress.
#[derive(Debug)]
struct Counted {
    body: HttpRequestBody,
    progress: Arc<Progress>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.progress.moved(frame.data_ref().map_or(0, Bytes::len) as u64);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
