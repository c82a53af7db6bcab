//! Reads and discards the rest of a request body once the answer is known.
//!
//! Closing a connection with unread bytes resets it, and a reset can destroy the answer on its way:
//! a client that still sends would see a lost connection instead of "too large". The rest is read for a short time
//! while the answer is sent, and discarded.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};

/// Most bytes of a request's body that are discarded after its answer; a peer that sends more may see a reset.
pub(super) const LINGER_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest time for that. Each connection discards one body at a time, so the cap on connections bounds them.
pub(super) const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// A request body whose rest is discarded when its reader drops it.
pub(super) struct Lingering {
    inner: Option<BoxBody<Bytes, io::Error>>,
    /// Reading would send `100 Continue` to a peer that waits for it.
    asked_first: bool,
}

impl Lingering {
    /// `asks_first`: the peer waits for `100 Continue` before it sends.
    pub(super) fn new(inner: BoxBody<Bytes, io::Error>, asks_first: bool) -> Self {
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
