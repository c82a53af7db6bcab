//! Bodies of pieces: memory sliced without a copy, files read piece by piece, several one after the other.
//!
//! A frame is small, so that an aborted answer is counted closely; one read from a file also because a slow viewer pins it,
//! while one of shared memory pins no more than its piece. A file's bytes are
//! taken at once when the kernel has them in memory, and by a thread that may wait for the disk when not. A file that
//! got shorter or is gone ends the body with an error, which closes the connection: never a wrong byte.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::ReadWriteFlags;
use satcast_plugin_api::AssetBody;
use tokio::task::JoinHandle;

use super::meter::Count;
use satcast_drivers::published::Published;

/// Most bytes of one frame read from a file.
pub const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of one frame of shared memory. Each frame is a write of its own, and each write wakes the viewer, so that
/// larger ones cost less; the last one is counted when it is given, which is what a broken-off answer may cost too much.
pub const MEMORY_FRAME_BYTES_MAX: usize = 256 * 1024;
/// Most bytes of one read of a file by a thread that may wait for the disk. What the kernel has in memory is read by the
/// frame, which costs no more and holds less for a slow viewer.
pub const WAITING_READ_BYTES_MAX: usize = 256 * 1024;

/// Bytes to send: in memory, or in a file whose piece is held until they have gone.
#[derive(Debug)]
pub(super) enum Slice {
    /// In memory, shared.
    Memory(Bytes),
    /// `len` bytes from `at` of the piece's file.
    File {
        /// A piece whose body is a file.
        piece: Arc<Published>,
        /// First byte, counted from the file's beginning.
        at: u64,
        /// Bytes.
        len: u64,
        /// The open file, once it is.
        file: Option<Arc<File>>,
    },
}

impl Slice {
    /// `len` bytes from `from` of a piece; `None` when it has not so many, or consists of others.
    pub(super) fn of(piece: &Arc<Published>, from: u64, len: u64) -> Option<Self> {
        let end = from.checked_add(len)?;
        match &piece.body {
            AssetBody::Memory(bytes) => {
                let range = usize::try_from(from).ok()?..usize::try_from(end).ok()?;
                (range.end <= bytes.len()).then(|| Slice::Memory(bytes.slice(range)))
            }
            AssetBody::File { offset, len: size, .. } if end <= *size => {
                Some(Slice::File { piece: piece.clone(), at: offset + from, len, file: None })
            }
            AssetBody::Open { file, offset, len: size } if end <= *size => {
                Some(Slice::File { piece: piece.clone(), at: offset + from, len, file: file.clone() })
            }
            AssetBody::File { .. } | AssetBody::Open { .. } | AssetBody::Parts(_) => None,
        }
    }

    fn len(&self) -> u64 {
        match self {
            Slice::Memory(bytes) => bytes.len() as u64,
            Slice::File { len, .. } => *len,
        }
    }

    /// Opens its file, if it has one, and sees that all its bytes are there.
    ///
    /// # Errors
    /// The file is gone, shorter than it was, or cannot be read.
    pub(super) async fn open(&mut self) -> io::Result<()> {
        let Slice::File { piece, at, len, file } = self else { return Ok(()) };
        if file.is_some() {
            return Ok(());
        }
        let (path, end) = (path_of(piece)?, *at + *len);
        let opened = match open_cached(path) {
            Some(file) => whole(file, end)?,
            None => {
                let path = path.to_owned();
                let opening = move || open_waiting(&path).and_then(|file| whole(file, end));
                tokio::task::spawn_blocking(opening).await.map_err(io::Error::other)??
            }
        };
        *file = Some(Arc::new(opened));
        Ok(())
    }
}

fn path_of(piece: &Published) -> io::Result<&Path> {
    match &piece.body {
        AssetBody::File { path, .. } => Ok(path),
        AssetBody::Memory(_) | AssetBody::Open { .. } | AssetBody::Parts(_) => {
            Err(io::Error::other("not a file"))
        }
    }
}

/// No link is followed, and nothing that is no file can make the opening wait.
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// The file, when opening it needs no disk. `None` also when the kernel does not know how to tell.
fn open_cached(path: &Path) -> Option<File> {
    rustix::fs::openat2(CWD, path, OPEN, Mode::empty(), ResolveFlags::CACHED).ok().map(File::from)
}

fn open_waiting(path: &Path) -> io::Result<File> {
    Ok(rustix::fs::open(path, OPEN, Mode::empty())?.into())
}

fn whole(file: File, end: u64) -> io::Result<File> {
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.len() >= end { Ok(file) } else { Err(shorter()) }
}

fn shorter() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a published file is shorter than it was")
}

/// What a read came to: the file (opened if it was not), and its next bytes, none at its end.
type Read = (Arc<File>, Vec<u8>);

/// The body of an answer.
#[derive(Debug)]
pub(super) struct PieceBody {
    slices: VecDeque<Slice>,
    left: u64,
    count: Option<Count>,
    /// Bytes that were read and not given yet.
    ready: Bytes,
    /// A thread that may wait for the disk reads the next bytes.
    reading: Option<JoinHandle<io::Result<Read>>>,
}

impl PieceBody {
    /// The slices one after the other, counted by `count`.
    pub(super) fn new(slices: impl IntoIterator<Item = Slice>, count: Option<Count>) -> Self {
        let slices: VecDeque<Slice> = slices.into_iter().filter(|slice| slice.len() > 0).collect();
        let left = slices.iter().map(Slice::len).sum();
        Self { slices, left, count, ready: Bytes::new(), reading: None }
    }

    /// Bytes that are still to come.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes, at most a frame; `None` at the end.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if !self.ready.is_empty() {
                let frame = self.ready.split_to(self.ready.len().min(FRAME_BYTES_MAX));
                return Poll::Ready(Ok(Some(frame)));
            }
            match self.slices.front_mut() {
                None => return Poll::Ready(Ok(None)),
                Some(Slice::Memory(bytes)) => {
                    let frame = bytes.split_to(bytes.len().min(MEMORY_FRAME_BYTES_MAX));
                    if bytes.is_empty() {
                        self.slices.pop_front();
                    }
                    return Poll::Ready(Ok(Some(frame)));
                }
                Some(Slice::File { .. }) => {
                    let read = ready!(self.poll_read(context))?;
                    self.take(read)?;
                }
            }
        }
    }

    /// Reads the next bytes of the file in front.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Read>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let read = ready!(Pin::new(reading).poll(context));
                self.reading = None;
                return Poll::Ready(read.map_err(io::Error::other).flatten());
            }
            if let Some(read) = self.begin_read()? {
                return Poll::Ready(Ok(read));
            }
        }
    }

    /// Reads what the kernel has in memory; `None` when a thread was sent for it.
    fn begin_read(&mut self) -> io::Result<Option<Read>> {
        let Some(Slice::File { piece, at, len, file }) = self.slices.front() else { return Err(shorter()) };
        let at = *at;
        let left = usize::try_from(*len).unwrap_or(usize::MAX);
        let file = match file {
            Some(file) => Some(file.clone()),
            None => open_cached(path_of(piece)?).map(Arc::new),
        };
        if let Some(file) = &file {
            let mut bytes = vec![0; left.min(FRAME_BYTES_MAX)];
            if let Ok(count @ 1..) = read_cached(file, &mut bytes, at) {
                bytes.truncate(count);
                return Ok(Some((file.clone(), bytes)));
            }
        }
        let opening = match file {
            Some(file) => Ok(file),
            None => Err(path_of(piece)?.to_owned()),
        };
        let work = move || {
            let file = opening.or_else(|path| open_waiting(&path).map(Arc::new))?;
            let mut bytes = vec![0; left.min(WAITING_READ_BYTES_MAX)];
            let count = file.read_at(&mut bytes, at)?;
            bytes.truncate(count);
            Ok((file, bytes))
        };
        self.reading = Some(tokio::task::spawn_blocking(work));
        Ok(None)
    }

    /// Makes the bytes of a read the next ones to give.
    fn take(&mut self, (opened, bytes): Read) -> io::Result<()> {
        let Some(Slice::File { at, len, file, .. }) = self.slices.front_mut() else { return Err(shorter()) };
        if bytes.is_empty() {
            return Err(shorter());
        }
        *at += bytes.len() as u64;
        *len -= bytes.len() as u64;
        *file = Some(opened);
        if *len == 0 {
            self.slices.pop_front();
        }
        self.ready = bytes.into();
        Ok(())
    }
}

/// Bytes that the kernel has in memory. An error also when it has none, or cannot tell.
fn read_cached(file: &File, bytes: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    rustix::io::preadv2(file, &mut [IoSliceMut::new(bytes)], at, ReadWriteFlags::NOWAIT)
}

impl Body for PieceBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let body = self.get_mut();
        if let Some(count) = &mut body.count {
            count.settle();
        }
        let Some(bytes) = ready!(body.poll_bytes(context))? else { return Poll::Ready(None) };
        body.left -= bytes.len() as u64;
        if let Some(count) = &mut body.count {
            count.give(bytes.len() as u64);
            if body.left == 0 {
                count.finish();
            }
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
