//! Deadlines for the streams of one HTTP/2 connection.
//!
//! With HTTP/2 a peer can hold back a stream by its window while the socket takes everything, so that the deadline for
//! writes never sees it; and it can keep a connection open without asking for anything. Both are looked at here, from
//! what the streams' bodies do.

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

/// Looks at a connection in the shortest of its deadlines.
const LOOKS: u32 = 4;
/// Most bytes of an answer that are taken as one. Each has the time of a stalled write, so that this asks for about 2 KiB
/// a second and stream, as HTTP/1.1 does.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Why a connection should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No request for the time a request's head may take.
    Idle,
    /// A stream's bytes were not taken for the time a write may wait.
    Stalled,
}

/// What the streams of a connection do.
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
        let (since, pieces) = (AtomicU64::new(0), AtomicUsize::new(0));
        Flow(Arc::new(Stream { flows: self.clone(), since, pieces }))
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
            let is_waiting = stream.pieces.load(Ordering::Relaxed) > 0;
            let since = stream.since.load(Ordering::Relaxed);
            stalled |= is_waiting && now.saturating_sub(since) >= millis(self.stall);
            true
        });
        if stalled {
            return Some(Fault::Stalled);
        }
        let quiet = now.saturating_sub(self.ended.load(Ordering::Relaxed));
        (self.open.load(Ordering::Relaxed) == 0 && quiet >= millis(self.idle)).then_some(Fault::Idle)
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
    /// Milliseconds after the connection began at which a piece was given or taken last.
    since: AtomicU64,
    /// Pieces that were given and are not taken yet.
    pieces: AtomicUsize,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.flows.ended.store(self.flows.now(), Ordering::Relaxed);
        self.flows.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that runs.
#[derive(Debug)]
pub(super) struct Flow(Arc<Stream>);

impl Flow {
    /// The body of its answer, looked at from now on.
    pub(super) fn around(self, inner: BoxBody<Bytes, io::Error>) -> Watched {
        let mut answers = self.0.flows.answers.lock();
        // Answers that ended since the last look are let go of here too, so that fast ones do not pile up.
        if answers.len() == answers.capacity() {
            answers.retain(|stream| stream.strong_count() > 0);
        }
        answers.push(Arc::downgrade(&self.0));
        drop(answers);
        Watched { inner, given: Bytes::new(), stream: self.0 }
    }
}

/// A body whose bytes go in pieces that note when they were taken.
#[derive(Debug)]
pub(super) struct Watched {
    inner: BoxBody<Bytes, io::Error>,
    /// Bytes of the inner body that are not given on yet.
    given: Bytes,
    stream: Arc<Stream>,
}

impl Watched {
    fn piece(&mut self) -> Option<Frame<Piece>> {
        let bytes = self.given.split_to(self.given.len().min(PIECE_BYTES_MAX));
        (!bytes.is_empty()).then(|| Frame::data(Piece::new(bytes, self.stream.clone())))
    }
}

impl Body for Watched {
    type Data = Piece;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, io::Error>>> {
        loop {
            if let Some(piece) = self.piece() {
                return Poll::Ready(Some(Ok(piece)));
            }
            match ready!(Pin::new(&mut self.inner).poll_frame(context)).transpose()? {
                None => return Poll::Ready(None),
                Some(frame) => match frame.into_data() {
                    Ok(bytes) => self.given = bytes,
                    Err(other) => {
                        let stream = self.stream.clone();
                        return Poll::Ready(Some(Ok(other.map_data(|bytes| Piece::new(bytes, stream)))));
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
pub(super) struct Piece {
    bytes: Bytes,
    stream: Arc<Stream>,
}

impl Piece {
    fn new(bytes: Bytes, stream: Arc<Stream>) -> Self {
        stream.since.store(stream.flows.now(), Ordering::Relaxed);
        stream.pieces.fetch_add(1, Ordering::Relaxed);
        Self { bytes, stream }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.stream.since.store(self.stream.flows.now(), Ordering::Relaxed);
        self.stream.pieces.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Buf for Piece {
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

    /// Never has anything, as events that do not happen.
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
    async fn a_connection_without_requests_is_idle_after_the_time_of_a_head() {
        let flows = flows();
        let limits = ServerLimits::default();
        tokio::time::advance(limits.head_timeout - Duration::from_millis(1)).await;
        assert_eq!(flows.look(), None);
        let flow = flows.begin();
        tokio::time::advance(limits.head_timeout * 2).await;
        assert_eq!(flows.look(), None, "an answer that takes long is no idle connection");
        drop(flow);
        assert_eq!(flows.look(), None, "the time begins anew");
        tokio::time::advance(limits.head_timeout).await;
        assert_eq!(flows.look(), Some(Fault::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_are_not_taken_end_the_connection_and_waiting_for_ones_own_does_not() {
        let flows = flows();
        let stall = ServerLimits::default().write_stall_timeout;
        let mut silent = flows.begin().around(BoxBody::new(Silent));
        assert!(futures_util::poll!(silent.frame()).is_pending());
        tokio::time::advance(stall * 3).await;
        assert_eq!(flows.look(), None, "an event stream without events");
        let mut full = flows.begin().around(body(b"abc"));
        let piece = full.frame().await.unwrap().unwrap();
        assert!(full.frame().await.is_none());
        drop(full);
        tokio::time::advance(stall - Duration::from_millis(1)).await;
        assert_eq!(flows.look(), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(flows.look(), Some(Fault::Stalled), "the last bytes of a body too");
        drop(piece);
        assert_eq!(flows.look(), None, "they were taken after all");
        drop(silent);
        assert_eq!(flows.watch().await, Fault::Idle);
        assert!(flows.answers.lock().is_empty(), "nothing is kept of what ended");
    }

    #[tokio::test]
    async fn a_body_goes_in_pieces_and_whole() {
        let sent: Vec<u8> = (0..3 * PIECE_BYTES_MAX + 1).map(|index| index as u8).collect();
        let whole = Full::new(Bytes::from(sent.clone())).map_err(|never| match never {});
        let mut watched = flows().begin().around(BoxBody::new(whole));
        let mut came = Vec::new();
        while let Some(frame) = watched.frame().await {
            assert_eq!(
                watched.size_hint().exact(),
                Some((sent.len() - came.len()) as u64 - frame_len(&frame))
            );
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.remaining() <= PIECE_BYTES_MAX);
            came.extend_from_slice(piece.chunk());
        }
        assert!(came == sent && watched.is_end_stream());
    }

    fn frame_len(frame: &Result<Frame<Piece>, io::Error>) -> u64 {
        frame.as_ref().unwrap().data_ref().unwrap().remaining() as u64
    }
}
