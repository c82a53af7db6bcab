//! Writes the file of a clip: reads the headers of its segments, then copies their media. Blocking.

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use satcast_drivers::published::Published;
use satcast_media::fmp4::{
    BOX_HEADER_BYTES, BoxHeader, Clip, ClipSource, Fmp4Error, INIT_BYTES_MAX, MOOF_BYTES_MAX, READ_BYTES_MAX,
};
use satcast_plugin_api::{AssetBody, Error, NANOS_PER_MILLI};

/// Bytes that are copied at one time.
const BLOCK_BYTES: usize = 1024 * 1024;
/// Bytes that stay free on the disk, for recordings.
const FREE_BYTES_MIN: u64 = 1024 * 1024 * 1024;

/// A finished file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Time of its first frame, in milliseconds since 1970.
    pub(super) started_at_ms: i64,
    pub(super) duration_ms: u64,
    pub(super) bytes: u64,
    pub(super) audio_only: bool,
}

/// Segments of a DVR window.
#[derive(Debug)]
pub(super) struct HeldSegments {
    pub(super) init: Arc<Published>,
    /// By rising number, without a discontinuity between them.
    pub(super) segments: Vec<Arc<Published>>,
    /// Wall time of the first frame in the first segment, in milliseconds since 1970.
    pub(super) first_ms: i64,
}

/// What a clip is cut from.
pub(super) struct Source {
    pub(super) init: Media,
    pub(super) segments: Vec<Media>,
    /// A wall time in milliseconds since 1970, and its presentation time in nanoseconds: that of the first frame if `None`.
    pub(super) at_ms: i64,
    pub(super) at_ns: Option<i64>,
}

/// A segment or an initialization segment, or several segments.
pub(super) enum Media {
    Memory(Bytes),
    File { file: File, offset: u64, len: u64 },
}

impl Source {
    /// The segments of a DVR window.
    ///
    /// # Errors
    /// `Internal` for files that cannot be opened.
    pub(super) fn of_window(held: &HeldSegments) -> Result<Self, Error> {
        let segments = held.segments.iter().map(|asset| Media::of(asset));
        let segments = segments.collect::<io::Result<_>>().map_err(unreadable)?;
        let init = Media::of(&held.init).map_err(unreadable)?;
        Ok(Self { init, segments, at_ms: held.first_ms, at_ns: None })
    }
}

/// Writes the clip of a range, in milliseconds since 1970, to `target`, which is whole and on the disk when it has that
/// name.
///
/// # Errors
/// `Config` for a range without media and for damaged media, `Internal` for media that cannot be read and for the disk.
pub(super) fn write(media: &Source, (from_ms, to_ms): (i64, i64), target: &Path) -> Result<Written, Error> {
    let Source { init, segments, at_ms, at_ns } = media;
    if init.len() > INIT_BYTES_MAX as u64 {
        return Err(damaged("the initialization segment is too long"));
    }
    let init = init.bytes(0, init.len() as usize).map_err(unreadable)?;
    let mut source = ClipSource::new(&init).map_err(not_cut)?;
    for (segment, number) in segments.iter().zip(0..) {
        add(&mut source, segment, number)?;
    }
    let at_ns = at_ns.or_else(|| source.first_ns()).unwrap_or(0);
    let on_timeline =
        |wall_ms: i64| at_ns.saturating_add(wall_ms.saturating_sub(*at_ms).saturating_mul(NANOS_PER_MILLI));
    let clip = source.cut(on_timeline(from_ms), on_timeline(to_ms)).map_err(not_cut)?;
    copy(&clip, segments, target).map_err(|error| not_written(&error))?;
    Ok(Written {
        started_at_ms: at_ms.saturating_add(clip.start_ns.saturating_sub(at_ns) / NANOS_PER_MILLI),
        duration_ms: u64::try_from(clip.duration_ns / NANOS_PER_MILLI).unwrap_or(0),
        bytes: clip.bytes(),
        audio_only: clip.audio_only,
    })
}

/// A file without a name, for media that is cut: it is gone when it is closed, also after a kill. `path` is its name for a
/// moment, and it will have `bytes`.
///
/// # Errors
/// The disk has no room, or failed.
pub(super) fn unnamed(path: &Path, bytes: u64) -> io::Result<File> {
    make_room(path, bytes)?;
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
    fs::remove_file(path)?;
    reserve(&file, bytes)?;
    Ok(file)
}

/// Takes the space of a file, so that no other clip counts on it.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes.max(1)) {
        // Not every file system can.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        reserved => Ok(reserved?),
    }
}

/// Name of such a file of a clip.
pub(super) fn copied(target: &Path) -> PathBuf {
    target.with_extension("source")
}

/// The name of the file until it is whole.
pub(super) fn part(target: &Path) -> PathBuf {
    target.with_extension("part")
}

pub(super) fn not_written(error: &io::Error) -> Error {
    Error::internal(format!("the clip cannot be written to the disk of the service: {error}"))
}

fn unreadable(error: io::Error) -> Error {
    Error::internal(format!("a segment of the clip cannot be read: {error}"))
}

fn not_cut(error: Fmp4Error) -> Error {
    match error {
        Fmp4Error::NoMedia | Fmp4Error::ClipTooLarge => {
            Error::config(format!("the clip cannot be cut: {error}"))
        }
        _ => damaged(error),
    }
}

/// Media that is not as it was published or recorded. The reason is in the log alone.
fn damaged(why: impl Display) -> Error {
    tracing::warn!(%why, "the media of a clip is damaged");
    Error::config("the media of the clip is damaged, at the store or on the disk of the service")
}

/// Adds the fragments of a segment.
fn add(source: &mut ClipSource, segment: &Media, number: u32) -> Result<(), Error> {
    let (mut at, len) = (0, segment.len());
    while at < len {
        let head = segment.bytes(at, BOX_HEADER_BYTES.min((len - at) as usize)).map_err(unreadable)?;
        let header = BoxHeader::parse(&head).filter(|header| header.bytes <= len - at);
        let header = header.ok_or_else(|| damaged("a box is not whole"))?;
        if &header.kind == b"moof" {
            if header.bytes > MOOF_BYTES_MAX as u64 {
                return Err(damaged("a fragment header is too long"));
            }
            let moof = segment.bytes(at, header.bytes as usize).map_err(unreadable)?;
            source.push(&moof, number, at, len).map_err(not_cut)?;
        }
        at += header.bytes;
    }
    Ok(())
}

/// Writes under another name, syncs and renames: the target is whole or not there.
fn copy(clip: &Clip, segments: &[Media], target: &Path) -> io::Result<()> {
    let folder = make_room(target, clip.bytes())?;
    let unfinished = part(target);
    let written = fill(clip, segments, &unfinished)
        .and_then(|()| fs::rename(&unfinished, target))
        .and_then(|()| File::open(folder)?.sync_all());
    if written.is_err() {
        // The first error is the one that is told.
        let _ = fs::remove_file(&unfinished);
        let _ = fs::remove_file(target);
    }
    written
}

/// Makes the folder of a file if there is none, and returns it.
///
/// # Errors
/// The disk has no room for `bytes`, or failed.
fn make_room(path: &Path, bytes: u64) -> io::Result<&Path> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let stat = rustix::fs::statvfs(folder)?;
    if stat.f_bavail.saturating_mul(stat.f_frsize) < bytes.saturating_add(FREE_BYTES_MIN) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(folder)
}

fn fill(clip: &Clip, segments: &[Media], path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(&clip.head)?;
    let mut block = vec![0; BLOCK_BYTES];
    for range in &clip.ranges {
        let segment = segments.get(range.source as usize).ok_or(io::ErrorKind::InvalidData)?;
        let (mut at, mut left) = (range.offset, range.bytes);
        while left > 0 {
            let count = left.min(BLOCK_BYTES as u64) as usize;
            segment.read(&mut block[..count], at)?;
            file.write_all(&block[..count])?;
            (at, left) = (at + count as u64, left - count as u64);
        }
    }
    file.sync_all()
}

impl Media {
    fn of(asset: &Published) -> io::Result<Self> {
        match &asset.body {
            AssetBody::Memory(bytes) => Ok(Self::Memory(bytes.clone())),
            AssetBody::File { path, offset, len, .. } if *len <= READ_BYTES_MAX as u64 => {
                // As for viewers: does not follow a link in the last name, and does not block.
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                let file = rustix::fs::open(path, flags, Mode::empty())?.into();
                Ok(Self::File { file, offset: *offset, len: *len })
            }
            AssetBody::File { .. } | AssetBody::Open { .. } | AssetBody::Parts(_) => {
                Err(io::Error::other("the asset is not a segment in memory or in a file"))
            }
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { len, .. } => *len,
        }
    }

    fn bytes(&self, at: u64, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.read(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Fills `into` from byte `at` on.
    fn read(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Self::Memory(bytes) => {
                let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..into.len()));
                into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Self::File { file, offset, len } => {
                let end = at.checked_add(into.len() as u64).filter(|end| end <= len);
                end.ok_or(io::ErrorKind::UnexpectedEof)?;
                file.read_exact_at(into, offset.saturating_add(at))
            }
        }
    }
}
