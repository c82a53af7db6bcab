//! The body of a response with bytes of a recording: they are read from the driver piece by piece, as the viewer takes them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use satcast_quota::Permit;
use tokio::task::JoinHandle;

use super::super::body::MEMORY_FRAME_BYTES_MAX;
use super::super::meter::Count;
use super::state::READ_BYTES;
use satcast_core::ids::AccountId;
use satcast_drivers::{Drivers, RecordingsError};
use satcast_store::ArchiveReport;

type Reading = JoinHandle<Result<Bytes, RecordingsError>>;

/// One range of a recording. If a read fails, the body ends with an error, which closes the connection.
pub(super) struct RecordingBody {
    drivers: Drivers,
    driver: String,
    file_name: String,
    /// The next byte to read.
    at: u64,
    /// Bytes that are not handed out.
    left: u64,
    ready: Bytes,
    reading: Option<Reading>,
    count: Count,
    _permit: Permit<AccountId>,
}

impl RecordingBody {
    /// `len` bytes from `first`, of which the first piece is read now.
    ///
    /// # Errors
    /// The first read failed.
    pub(super) async fn begin(
        drivers: &Drivers,
        report: &ArchiveReport,
        first: u64,
        len: u64,
        count: Count,
        permit: Permit<AccountId>,
    ) -> Result<Self, RecordingsError> {
        let (driver, file_name) = (report.driver.clone(), report.file_name.clone());
        let drivers = drivers.clone();
        let piece = piece(len);
        let ready = drivers.read_recording(&driver, &file_name, first, piece).await?;
        let at = first + u64::from(piece);
        Ok(Self { drivers, driver, file_name, at, left: len, ready, reading: None, count, _permit: permit })
    }

    fn read(&self, len: u32) -> Reading {
        let (drivers, at) = (self.drivers.clone(), self.at);
        let (driver, file_name) = (self.driver.clone(), self.file_name.clone());
        tokio::spawn(async move { drivers.read_recording(&driver, &file_name, at, len).await })
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        while self.ready.is_empty() {
            let piece = piece(self.left);
            if self.reading.is_none() {
                self.reading = Some(self.read(piece));
            }
            let Some(reading) = &mut self.reading else { continue };
            let outcome = ready!(Pin::new(reading).poll(context));
            self.reading = None;
            self.ready = outcome.map_err(io::Error::other)?.map_err(io::Error::other)?;
            self.at += u64::from(piece);
        }
        Poll::Ready(Ok(self.ready.split_to(self.ready.len().min(MEMORY_FRAME_BYTES_MAX))))
    }
}

fn piece(left: u64) -> u32 {
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
