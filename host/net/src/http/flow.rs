//! Deadlines for the streams of one HTTP/2 connection.
//!
//! An HTTP/2 peer can block a stream by its flow-control window while the socket accepts everything, so the deadline for
//! writes never expires; it can also keep a connection open without requests. Both are checked here, based on
//! the bodies of the streams.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::ServerLimits;

/// Checks of a connection within the shortest of its deadlines.
const LOOKS: u32 = 4;
/// Largest chunk of an answer in bytes. Each chunk has the time limit of a stalled write, which requires about 2 KiB
/// per second and stream, as with HTTP/1.1.
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Why a connection should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No request within the time limit of a request head.
    Idle,
    /// The peer accepted no bytes of a stream within the time limit of a write.
    Stalled,
}

/// State of the streams of a connection.
#[derive(Debug)]
pub(super) struct Flows {
    began: Instant,
    stall: Duration,
    idle: Duration,
    /// Streams between their request and the last byte of their answer.
    open: AtomicUsize,
    /// Milliseconds after `began` at which the last stream ended.
    ended: AtomicU64,
    answers: Mutex<Vec<Weak<Stream>>>,
}

impl Flows {
    pub(super) fn new(limits: &ServerLimits) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            stall: limits.write_stall_timeout,
            idle: limits.head_timeout,
            open: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
            answers: Mutex::default(),
        })
    }

    /// A request came.
    pub(super) fn begin(self: &Arc<Self>) -> Flow {
        self.open.fetch_add(1, Ordering::Relaxed);
        let (since, pending) = (AtomicU64::new(0), AtomicUsize::new(0));
        Flow(Arc::new(Stream { flows: self.clone(), since, pending }))
    }

    /// Waits until the connection should end.
    pub(super) async fn watch(&self) -> Fault {
        loop {
            sleep(self.stall.min(self.idle) / LOOKS).await;
            if let Some(fault) = self.look() {
                return fault;
            }
        }
    }

    fn look(&self) -> Option<Fault> {
        let now = self.now();
        let mut stalled = false;
        self.answers.lock().retain(|stream| {
            let Some(stream) = stream.upgrade() else { return false };
            let is_waiting = stream.pending.load(Ordering::Relaxed) > 0;
            let since = stream.since.load(Ordering::Relaxed);
            stalled |= is_waiting && now.saturating_sub(since) >= millis(self.stall);
            true
        });
        if stalled {
            return Some(Fault::Stalled);
        }
        let idle = now.saturating_sub(self.ended.load(Ordering::Relaxed));
        (self.open.load(Ordering::Relaxed) == 0 && idle >= millis(self.idle)).then_some(Fault::Idle)
    }

    fn now(&self) -> u64 {
        millis(self.began.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// One stream, from its request to the last byte of its answer.
#[derive(Debug)]
struct Stream {
    flows: Arc<Flows>,
    /// Milliseconds after the connection began at which a chunk was last given or taken.
    since: AtomicU64,
    /// Chunks that were given and are not taken yet.
    pending: AtomicUsize,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.flows.ended.store(self.flows.now(), Ordering::Relaxed);
        self.flows.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A running request.
#[derive(Debug)]
pub(super) struct Flow(Arc<Stream>);

impl Flow {
    /// The body of its answer, observed from now on.
    pub(super) fn around(self, inner: BoxBody<Bytes, io::Error>) -> Watched {
        let mut answers = self.0.flows.answers.lock();
        // Answers that ended since the last check are also removed here, so that fast ones do not accumulate.
        if answers.len() == answers.capacity() {
            answers.retain(|stream| stream.strong_count() > 0);
        }
        answers.push(Arc::downgrade(&self.0));
        drop(answers);
        Watched { inner, given: Bytes::new(), stream: self.0 }
    }
}

/// A body split into chunks that record when they were taken.
#[derive(Debug)]
pub(super) struct Watched {
    inner: BoxBody<Bytes, io::Error>,
    /// Bytes of the inner body that are not passed on yet.
    given: Bytes,
    stream: Arc<Stream>,
}

impl Watched {
    fn next_chunk(&mut self) -> Option<Frame<Chunk>> {
        let bytes = self.given.split_to(self.given.len().min(CHUNK_BYTES_MAX));
        (!bytes.is_empty()).then(|| Frame::data(Chunk::new(bytes, self.stream.clone())))
    }
}

impl Body for Watched {
    type Data = Chunk;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Chunk>, io::Error>>> {
        loop {
            if let Some(chunk) = self.next_chunk() {
                return Poll::Ready(Some(Ok(chunk)));
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(context)).transpose()? {
                None => return Poll::Ready(None),
                Some(frame) => match frame.into_data() {
                    Ok(bytes) => self.given = bytes,
                    Err(other) => {
                        let stream = self.stream.clone();
                        return Poll::Ready(Some(Ok(other.map_data(|bytes| Chunk::new(bytes, stream)))));
                    }
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.given.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, given) = (self.inner.size_hint(), self.given.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + given);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + given);
        }
        hint
    }
}

/// Bytes on their way; dropped when the socket has them.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: Bytes,
    stream: Arc<Stream>,
}

impl Chunk {
    fn new(bytes: Bytes, stream: Arc<Stream>) -> Self {
        stream.since.store(stream.flows.now(), Ordering::Relaxed);
        stream.pending.fetch_add(1, Ordering::Relaxed);
        Self { bytes, stream }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.stream.since.store(self.stream.flows.now(), Ordering::Relaxed);
        self.stream.pending.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    fn flows() -> Arc<Flows> {
        Flows::new(&ServerLimits::default())
    }

    /// A body that never has data, like an event stream without events.
    struct Silent;

    impl Body for Silent {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            Poll::Pending
        }
    }

    fn body(bytes: &'static [u8]) -> BoxBody<Bytes, io::Error> {
        BoxBody::new(Full::new(Bytes::from_static(bytes)).map_err(|never| match never {}))
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_requests_is_idle_after_the_head_timeout() {
        let flows = flows();
        let limits = ServerLimits::default();
        tokio::time::advance(limits.head_timeout - Duration::from_millis(1)).await;
        assert_eq!(flows.look(), None);
        let flow = flows.begin();
        tokio::time::advance(limits.head_timeout * 2).await;
        assert_eq!(flows.look(), None, "a long answer is not an idle connection");
        drop(flow);
        assert_eq!(flows.look(), None, "the time starts again");
        tokio::time::advance(limits.head_timeout).await;
        assert_eq!(flows.look(), Some(Fault::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_not_taken_end_the_connection_and_waiting_for_data_does_not() {
        let flows = flows();
        let stall = ServerLimits::default().write_stall_timeout;
        let mut silent = flows.begin().around(BoxBody::new(Silent));
        assert!(futures_util::poll!(silent.frame()).is_pending());
        tokio::time::advance(stall * 3).await;
        assert_eq!(flows.look(), None, "an event stream without events");
        let mut full = flows.begin().around(body(b"abc"));
        let chunk = full.frame().await.unwrap().unwrap();
        assert!(full.frame().await.is_none());
        drop(full);
        tokio::time::advance(stall - Duration::from_millis(1)).await;
        assert_eq!(flows.look(), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(flows.look(), Some(Fault::Stalled), "the last bytes of a body too");
        drop(chunk);
        assert_eq!(flows.look(), None, "the bytes were taken");
        drop(silent);
        assert_eq!(flows.watch().await, Fault::Idle);
        assert!(flows.answers.lock().is_empty(), "ended answers are removed");
    }

    #[tokio::test]
    async fn a_body_is_sent_completely_in_chunks() {
        let sent: Vec<u8> = (0..3 * CHUNK_BYTES_MAX + 1).map(|index| index as u8).collect();
        let whole = Full::new(Bytes::from(sent.clone())).map_err(|never| match never {});
        let mut watched = flows().begin().around(BoxBody::new(whole));
        let mut came = Vec::new();
        while let Some(frame) = watched.frame().await {
            assert_eq!(
                watched.size_hint().exact(),
                Some((sent.len() - came.len()) as u64 - frame_len(&frame))
            );
            let chunk = frame.unwrap().into_data().unwrap();
            assert!(chunk.remaining() <= CHUNK_BYTES_MAX);
            came.extend_from_slice(chunk.chunk());
        }
        assert!(came == sent && watched.is_end_stream());
    }

    fn frame_len(frame: &Result<Frame<Chunk>, io::Error>) -> u64 {
        frame.as_ref().unwrap().data_ref().unwrap().remaining() as u64
    }
}
