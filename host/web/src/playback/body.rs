//! Response bodies of assets: memory is sliced without a copy, files are read in frames, and several slices can follow each other.
//!
//! Files that several viewers want are read once into the shared [`Cache`] and sent like memory. The others are read in frames.
//!
//! Frames from files are small, because a slow viewer holds the frame's memory; a frame of shared memory holds only the asset. File
//! bytes in the kernel's page cache are read at once, others by a thread that may wait for the disk. If a file is gone or has become
//! shorter, the body ends with an error, which closes the connection: wrong bytes are never sent.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::Version;
use hyper::body::{Body, Frame, SizeHint};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::ReadWriteFlags;
use satcast_plugin_api::AssetBody;
use tokio::task::JoinHandle;

use super::meter::Count;
use satcast_core::ids::AccountId;
use satcast_drivers::published::{Cache, Opening, Published};

/// Most bytes of one frame read from a file. Each frame costs a read, a write and often a wake-up.
pub const FRAME_BYTES_MAX: usize = 128 * 1024;
/// Most bytes of one frame of shared memory by HTTP/1.1. Each frame is a write of its own that wakes the viewer, so larger frames cost
/// less. A frame is counted when the next one is handed out, up to what its connection has written.
pub const MEMORY_FRAME_BYTES_MAX: usize = 1024 * 1024;
/// Most bytes of the last frame, which is counted when it is handed out: an aborted response may be counted up to these bytes too high.
/// Also of every frame by HTTP/2: other streams write to its connection as well, and each stream may be counted up to a frame too high.
pub const COUNTED_FRAME_BYTES_MAX: usize = 128 * 1024;
/// Most bytes of one read by a thread that may wait for the disk. Cached bytes are read frame by frame, which costs no more and
/// holds less memory for a slow viewer.
pub const WAITING_READ_BYTES_MAX: usize = 256 * 1024;

/// Bytes to send: in memory, or in a file whose asset is held until the bytes are sent.
#[derive(Debug)]
pub(super) enum Slice {
    /// Shared memory.
    Memory(Bytes),
    /// `len` bytes from `at` of the asset's file.
    File {
        /// An asset whose body is a file.
        asset: Arc<Published>,
        /// Offset of the first byte in the file.
        at: u64,
        /// Number of bytes.
        len: u64,
        /// The file, once it is open.
        file: Option<Arc<File>>,
    },
}

impl Slice {
    /// `len` bytes from `from` of an asset; `None` if the asset is shorter or consists of other assets.
    pub(super) fn of(asset: &Arc<Published>, from: u64, len: u64) -> Option<Self> {
        let end = from.checked_add(len)?;
        match &asset.body {
            AssetBody::Memory(bytes) => {
                let range = usize::try_from(from).ok()?..usize::try_from(end).ok()?;
                (range.end <= bytes.len()).then(|| Slice::Memory(bytes.slice(range)))
            }
            AssetBody::File { offset, len: size, .. } if end <= *size => {
                Some(Slice::File { asset: asset.clone(), at: offset + from, len, file: None })
            }
            AssetBody::Open { file, offset, len: size } if end <= *size => {
                Some(Slice::File { asset: asset.clone(), at: offset + from, len, file: file.clone() })
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

    /// Opens the file, if there is one, and checks that it is long enough.
    ///
    /// # Errors
    /// The file is gone, too short, or cannot be read.
    pub(super) async fn open(&mut self) -> io::Result<()> {
        let Slice::File { asset, at, len, file } = self else { return Ok(()) };
        if file.is_some() {
            return Ok(());
        }
        let (path, end) = (path_of(asset)?, *at + *len);
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

fn path_of(asset: &Published) -> io::Result<&Path> {
    match &asset.body {
        AssetBody::File { path, .. } => Ok(path),
        AssetBody::Memory(_) | AssetBody::Open { .. } | AssetBody::Parts(_) => Err(not_a_file()),
    }
}

fn not_a_file() -> io::Error {
    io::Error::other("not a file")
}

/// Links are not followed, and opening something other than a file does not block.
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// The file, if opening it needs no disk access. `None` also if the kernel does not support this.
fn open_cached(path: &Path) -> Option<File> {
    rustix::fs::openat2(CWD, path, OPEN, Mode::empty(), ResolveFlags::CACHED).ok().map(File::from)
}

fn open_waiting(path: &Path) -> io::Result<File> {
    Ok(rustix::fs::open(path, OPEN, Mode::empty())?.into())
}

/// All bytes of an asset in a file, by one read. Blocks.
fn read_whole(asset: &Published) -> io::Result<Vec<u8>> {
    let AssetBody::File { path, offset, len, .. } = &asset.body else { return Err(not_a_file()) };
    let file = whole(open_waiting(path)?, offset.checked_add(*len).ok_or_else(shorter)?)?;
    let mut bytes = vec![0; usize::try_from(*len).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, *offset)?;
    Ok(bytes)
}

fn whole(file: File, end: u64) -> io::Result<File> {
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.len() >= end { Ok(file) } else { Err(shorter()) }
}

fn shorter() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a published file has become shorter")
}

/// Result of a read: the file (if it was opened) and its next bytes; empty at the end.
type Read = (Arc<File>, Vec<u8>);

/// A response body.
#[derive(Debug)]
pub(super) struct ResponseBody {
    slices: VecDeque<Slice>,
    left: u64,
    count: Option<Count>,
    /// Most bytes of a frame of shared memory.
    frame_bytes_max: usize,
    /// Bytes that were read but not handed out yet.
    ready: Bytes,
    /// The running read on a thread that may wait for the disk.
    reading: Option<JoinHandle<io::Result<Read>>>,
}

impl ResponseBody {
    /// The slices in order, counted by `count`.
    pub(super) fn new(slices: impl IntoIterator<Item = Slice>, count: Option<Count>) -> Self {
        let slices: VecDeque<Slice> = slices.into_iter().filter(|slice| slice.len() > 0).collect();
        let left = slices.iter().map(Slice::len).sum();
        Self {
            slices,
            left,
            count,
            frame_bytes_max: COUNTED_FRAME_BYTES_MAX,
            ready: Bytes::new(),
            reading: None,
        }
    }

    /// The same, with frames for this version of HTTP.
    pub(super) fn with_frames_of(self, version: Version) -> Self {
        Self { frame_bytes_max: frame_bytes_max(version), ..self }
    }

    /// Remaining bytes.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes, at most one frame; `None` at the end.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if !self.ready.is_empty() {
                let frame = self.ready.split_to(self.ready.len().min(FRAME_BYTES_MAX));
                return Poll::Ready(Ok(Some(frame)));
            }
            match self.slices.front_mut() {
                None => return Poll::Ready(Ok(None)),
                Some(Slice::Memory(bytes)) => {
                    let frame = frame_of(bytes, self.left, self.frame_bytes_max);
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

    /// Reads the next bytes of the first file.
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

    /// Reads cached bytes; `None` if a thread was started for the read.
    fn begin_read(&mut self) -> io::Result<Option<Read>> {
        let Some(Slice::File { asset, at, len, file }) = self.slices.front() else { return Err(shorter()) };
        let at = *at;
        let left = usize::try_from(*len).unwrap_or(usize::MAX);
        let file = match file {
            Some(file) => Some(file.clone()),
            None => open_cached(path_of(asset)?).map(Arc::new),
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
            None => Err(path_of(asset)?.to_owned()),
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

    /// Queues the bytes of a read for handing out.
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

/// Most bytes of a frame of shared memory.
pub(super) fn frame_bytes_max(version: Version) -> usize {
    if version == Version::HTTP_2 { COUNTED_FRAME_BYTES_MAX } else { MEMORY_FRAME_BYTES_MAX }
}

/// The next frame of shared memory, of at most `most` bytes, of a body that has `left` bytes in all.
pub(super) fn frame_of(bytes: &mut Bytes, left: u64, most: usize) -> Bytes {
    let is_end = bytes.len() as u64 == left && bytes.len() > COUNTED_FRAME_BYTES_MAX;
    let last = if is_end { COUNTED_FRAME_BYTES_MAX } else { 0 };
    bytes.split_to((bytes.len() - last).min(most))
}

/// Reads bytes from the page cache. An error also if none are cached or the kernel does not support this.
fn read_cached(file: &File, bytes: &mut [u8], at: u64) -> rustix::io::Result<usize> {
    rustix::io::preadv2(file, &mut [IoSliceMut::new(bytes)], at, ReadWriteFlags::NOWAIT)
}

impl Body for ResponseBody {
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

/// Assets with bytes of their own, in order.
pub(super) struct Chain {
    parts: Vec<(Arc<Published>, u64)>,
    /// Total number of bytes.
    pub(super) size: u64,
}

impl Chain {
    /// The chain of an asset: itself, or the parts that it names; `None` if one of them is missing.
    pub(super) fn of(opening: &Opening, asset: &Arc<Published>) -> Option<Self> {
        let parts: Vec<(Arc<Published>, u64)> = match &asset.body {
            AssetBody::Parts(names) => {
                let part = |name: &String| sized(opening.assets().get(name)?);
                names.iter().map(part).collect::<Option<_>>()?
            }
            AssetBody::Memory(_) | AssetBody::File { .. } | AssetBody::Open { .. } => {
                vec![sized(asset.clone())?]
            }
        };
        let size = parts.iter().map(|(_, size)| size).sum();
        Some(Self { parts, size })
    }

    /// `len` bytes from `first`; the range must be within the chain. `shared`: the cache for files that several viewers
    /// want, and the account whose part of it they use.
    ///
    /// # Errors
    /// The first file is gone, too short, or cannot be read.
    pub(super) async fn cut(
        &self,
        mut first: u64,
        mut len: u64,
        shared: Shared<'_>,
    ) -> io::Result<Vec<Slice>> {
        let mut slices = Vec::with_capacity(self.parts.len());
        for (part, size) in &self.parts {
            let from = first.min(*size);
            let here = len.min(size - from);
            first -= from;
            len -= here;
            if here > 0 {
                let bytes = in_memory(part, *size, shared).await;
                let range = |bytes: Bytes| {
                    let range = usize::try_from(from).ok()?..usize::try_from(from + here).ok()?;
                    Some(Slice::Memory(bytes.slice(range)))
                };
                slices.extend(bytes.and_then(range).or_else(|| Slice::of(part, from, here)));
            }
        }
        if let Some(first) = slices.first_mut() {
            first.open().await?;
        }
        Ok(slices)
    }
}

/// The cache and the account that its bytes count for; `None` where each request reads the file.
pub(super) type Shared<'a> = Option<(&'a Arc<Cache>, AccountId)>;

/// All bytes of an asset in a file that several viewers want.
async fn in_memory(asset: &Arc<Published>, size: u64, shared: Shared<'_>) -> Option<Bytes> {
    let ((cache, account), slot) = (shared?, asset.slot()?);
    let read = || {
        let asset = asset.clone();
        async { tokio::task::spawn_blocking(move || read_whole(&asset)).await.ok()?.ok().map(Bytes::from) }
    };
    // A request that reads the file by itself finds out why it cannot be read.
    cache.bytes(slot, account, size, read).await.ok()
}

/// An asset with its size; `None` if it consists of other assets.
fn sized(asset: Arc<Published>) -> Option<(Arc<Published>, u64)> {
    let size = match &asset.body {
        AssetBody::Memory(bytes) => bytes.len() as u64,
        AssetBody::File { len, .. } | AssetBody::Open { len, .. } => *len,
        AssetBody::Parts(_) => return None,
    };
    Some((asset, size))
}
