//! Reads the segments of a rewind window, in order, until it comes to what waits in the queue.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use satcast_media::fmp4::{READ_BYTES_MAX, ReadSegment, Reader};
use satcast_plugin_api::host::{Delivery, SegmentPlace};
use satcast_plugin_api::{NANOS_PER_MILLI, Packet};

use super::joint::Joint;
use super::{About, Core};
use crate::drivers::{Assets, PublishedBody};
use crate::live::queue::Head;
use crate::live::shelf::Shelf;

/// Pause before the window is looked at again for its next segment.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Looks without a new segment while media waits, before it is given up: 30 s, three of the longest segments.
pub(super) const LOOKS_MAX: u32 = 300;
/// Time between two segments that is a gap and no rounding, in nanoseconds.
const GAP_NANOS: i64 = 100 * NANOS_PER_MILLI;

/// The reading of one window.
pub(super) struct Feed {
    core: Arc<Core>,
    window: Arc<Shelf>,
    about: About,
    /// Segments that are known and not read.
    known: VecDeque<String>,
    /// Number of the next one.
    next: u64,
    /// The initialization segment in use, by name.
    init: Option<(String, Reader)>,
    joint: Joint,
    /// Decode time where the last segment ended.
    end_ns: Option<i64>,
    /// The next media packet follows a loss.
    cut: bool,
    read: u64,
    missing: u64,
}

/// What a segment is read for.
struct Piece {
    reader: Reader,
    /// Another configuration than before.
    is_new: Option<String>,
    segment: ReadSegment,
}

impl Feed {
    pub(super) fn new(core: Arc<Core>, window: Arc<Shelf>, about: About) -> Self {
        let joint = Joint::default();
        let known = VecDeque::new();
        let (next, init, end_ns, cut, read, missing) = (0, None, None, false, 0, 0);
        Self { core, window, about, known, next, init, joint, end_ns, cut, read, missing }
    }

    pub(super) fn run(mut self) {
        self.next = first_number(self.window.assets());
        let goes_on = self.feed();
        let head = self.core.queue.head();
        let rest = self.joint.finish(&head);
        if goes_on {
            self.put_all(rest);
        }
        let is_whole = self.joint.is_whole() && !self.cut;
        let About { destination, session, .. } = &self.about;
        tracing::info!(
            %session, %destination, segments = self.read, missing = self.missing, whole = is_whole,
            "a destination was given what was before it"
        );
        self.core.finish(!is_whole);
    }

    /// False when nobody takes any more.
    fn feed(&mut self) -> bool {
        let mut looks = 0;
        while !self.joint.is_over() {
            // Looked at first: what an opening publishes as it ends is there when it has ended.
            let has_ended = self.window.ended();
            let Some(name) = self.next_name() else {
                let waits = self.core.queue.head().has_media();
                looks += u32::from(waits);
                if has_ended || looks > LOOKS_MAX {
                    break;
                }
                if !self.core.pause(LOOK_PAUSE) {
                    return false;
                }
                continue;
            };
            looks = 0;
            let goes_on = match self.piece(&name) {
                Ok(piece) => self.put_piece(piece),
                Err(error) => self.miss(&name, &error),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    fn next_name(&mut self) -> Option<String> {
        if self.known.is_empty() {
            let found = self.window.assets().segments(self.next);
            if let Some((last, _)) = found.last() {
                self.next = last.number.saturating_add(1);
            }
            self.known.extend(found.into_iter().map(|(_, name)| name));
        }
        self.known.pop_front()
    }

    /// A segment that cannot be had costs itself and a discontinuity. Always true: it goes on.
    fn miss(&mut self, name: &str, error: &io::Error) -> bool {
        let About { destination, session, .. } = &self.about;
        tracing::warn!(%session, %destination, segment = name, %error, "a segment of the past is missing");
        self.missing += 1;
        self.cut = self.read > 0;
        true
    }

    fn piece(&self, name: &str) -> io::Result<Piece> {
        let assets = self.window.assets();
        let place = place(assets, name).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let (reader, is_new) = match &self.init {
            Some((known, reader)) if *known == place.init => (reader.clone(), None),
            _ => {
                let mut reader = Reader::new(&read(assets, &place.init)?).map_err(io::Error::other)?;
                for config in self.core.queue.head().configs.iter() {
                    reader.know(config.codec, &config.payload);
                }
                (reader, Some(place.init))
            }
        };
        let bytes = read(assets, name)?;
        let segment = reader.segment(&bytes, place.offset_ns).map_err(io::Error::other)?;
        Ok(Piece { reader, is_new, segment })
    }

    fn put_piece(&mut self, piece: Piece) -> bool {
        let Piece { reader, is_new, segment } = piece;
        self.read += 1;
        let is_gap = self.end_ns.is_some_and(|end| segment.start_ns.saturating_sub(end) > GAP_NANOS);
        self.cut |= is_gap;
        self.end_ns = Some(segment.end_ns);
        // Seen after the segment was published: what is in it and not here came before.
        let head = self.core.queue.head();
        let before = self.joint.take(segment.packets, &head);
        let mut packets = Vec::new();
        if let (Some(name), Some(first)) = (is_new, before.first()) {
            packets = reader.configs(first.dts_ns);
            self.init = Some((name, reader));
        }
        packets.extend(before);
        self.put_all(packets)
    }

    fn put_all(&mut self, packets: Vec<Packet>) -> bool {
        packets.into_iter().all(|packet| {
            let is_media = !packet.is_config();
            let discontinuity = is_media && std::mem::take(&mut self.cut);
            let packet = Arc::new(Packet { source: self.about.source, ..packet });
            self.core.put(Delivery { packet, discontinuity })
        })
    }
}

impl Head {
    /// Something waits.
    fn has_media(&self) -> bool {
        self.video.is_some() || self.audio.is_some()
    }
}

/// The first segment that viewers can go back to; older ones are still there for who asked a moment ago.
fn first_number(assets: &Assets) -> u64 {
    let first_ms = assets.playback().map_or(i64::MIN, |playback| playback.first_ms);
    let all = assets.segments(0);
    all.iter().find(|(place, _)| place.start_ms >= first_ms).map_or(0, |(place, _)| place.number)
}

fn place(assets: &Assets, name: &str) -> Option<SegmentPlace> {
    assets.get(name)?.followed.segment.clone()
}

/// The bytes of a piece.
fn read(assets: &Assets, name: &str) -> io::Result<Bytes> {
    let piece = assets.get(name).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    match &piece.body {
        PublishedBody::Memory(bytes) => Ok(bytes.clone()),
        PublishedBody::File { path, offset, len, .. } => read_at(&open(path)?, *offset, *len),
        PublishedBody::Open { file, offset, len } => read_at(file, *offset, *len),
        PublishedBody::Parts(_) => Err(io::Error::other("a segment is no list of other pieces")),
    }
}

/// As for viewers: the last name is no link, and nothing waits to be opened.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn read_at(file: &File, offset: u64, len: u64) -> io::Result<Bytes> {
    let len = usize::try_from(len).ok().filter(|len| *len <= READ_BYTES_MAX);
    let mut bytes = vec![0; len.ok_or_else(|| io::Error::other("a segment is too long"))?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes.into())
}
