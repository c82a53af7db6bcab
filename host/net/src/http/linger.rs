//! Reads away what is left of a request's body once the answer is known.
//!
//! A connection that is closed while bytes of its peer are unread is reset, and a reset destroys the answer that was on its way:
//! a client that still sends would learn of a lost connection instead of "too large". What is left is read for a short time
//! beside the answer, and thrown away.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};

/// Most bytes of a request's body that are read away after its answer; a peer that sends more may see a reset.
pub(super) const LINGER_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest time for that. One body at a time of each connection is read away, so that the cap on connections bounds them.
pub(super) const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// A request's body that is read to its end when whoever reads it has had enough.
pub(super) struct Lingering {
    inner: Option<BoxBody<Bytes, io::Error>>,
    /// Reading is what asks a peer that waits for `100 Continue` to send its body.
    asked_first: bool,
}

impl Lingering {
    /// `asks_first`: the peer sends nothing until it is told to go on.
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
            // Broken off or at its end: nothing is left.
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
        // Outside a runtime the service is ending, and nobody waits for the answer.
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
