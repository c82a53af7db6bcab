//! The body of a response with bytes of a recording: they are read from the driver chunk by chunk, as the viewer takes them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::Version;
use hyper::body::{Body, Frame, SizeHint};
use satcast_quota::Permit;
use tokio::task::JoinHandle;

use super::super::body::{frame_bytes_max, frame_of};
use super::super::meter::Count;
use super::ranges::Ranges;
use super::source::Source;
use super::state::READ_BYTES;
use crate::base::ApiError;
use satcast_core::ids::AccountId;
use satcast_core::networks::Network;

/// Of the account and the viewer's network.
pub(super) type Permits = (Permit<AccountId>, Permit<Network>);
type Reading = JoinHandle<Result<Bytes, ApiError>>;

/// One range of a recording. If a read fails, the body ends with an error, which closes the connection.
pub(super) struct RecordingBody {
    ranges: Arc<Ranges>,
    source: Source,
    /// The next byte to read.
    at: u64,
    /// Bytes that are not handed out.
    left: u64,
    ready: Bytes,
    reading: Option<Reading>,
    count: Count,
    frame_bytes_max: usize,
    _permits: Permits,
}

impl RecordingBody {
    /// `len` bytes from `first`, of which the first chunk is read now.
    ///
    /// # Errors
    /// The first read failed.
    pub(super) async fn begin(
        ranges: Arc<Ranges>,
        source: Source,
        first: u64,
        len: u64,
        count: Count,
        permits: Permits,
        version: Version,
    ) -> Result<Self, ApiError> {
        let chunk = chunk(len);
        let ready = ranges.read(&source, first, chunk).await?;
        let at = first + u64::from(chunk);
        Ok(Self {
            ranges,
            source,
            at,
            left: len,
            ready,
            reading: None,
            count,
            frame_bytes_max: frame_bytes_max(version),
            _permits: permits,
        })
    }

    fn read(&self, len: u32) -> Reading {
        let (ranges, source, at) = (self.ranges.clone(), self.source.clone(), self.at);
        tokio::spawn(async move { ranges.read(&source, at, len).await })
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        while self.ready.is_empty() {
            let chunk = chunk(self.left);
            if self.reading.is_none() {
                self.reading = Some(self.read(chunk));
            }
            let Some(reading) = &mut self.reading else { continue };
            let outcome = ready!(Pin::new(reading).poll(context));
            self.reading = None;
            self.ready = outcome.map_err(io::Error::other)?.map_err(io::Error::other)?;
            self.at += u64::from(chunk);
        }
        Poll::Ready(Ok(frame_of(&mut self.ready, self.left, self.frame_bytes_max)))
    }
}

fn chunk(left: u64) -> u32 {
    u32::try_from(left).unwrap_or(u32::MAX).min(READ_BYTES)
}

impl Body for RecordingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let body = self.get_mut();
        body.count.settle();
        if body.left == 0 {
            return Poll::Ready(None);
        }
        let bytes = ready!(body.poll_bytes(context))?;
        body.left -= bytes.len() as u64;
        body.count.give(bytes.len() as u64);
        if body.left == 0 {
            body.count.finish();
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

impl Drop for RecordingBody {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}
