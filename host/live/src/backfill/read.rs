//! Reads the segments of a DVR window in order, up to the first packets in the queue.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use satcast_media::fmp4::{READ_BYTES_MAX, Reader};
use satcast_plugin_api::host::Delivery;
use satcast_plugin_api::{AssetBody, NANOS_PER_MILLI, Packet, SegmentPosition};

use super::join::Join;
use super::shared::Shared;
use satcast_drivers::published::{Assets, Opening};

/// Pause before the next check for a new segment.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Checks without a new segment while media is queued, before the reading ends: 30 s, three of the longest segments.
pub(super) const LOOKS_MAX: u32 = 300;
/// Time between two segments that counts as a gap, not as rounding, in nanoseconds.
const GAP_NANOS: i64 = 100 * NANOS_PER_MILLI;

/// The reading of one window.
pub(super) struct Reading {
    shared: Arc<Shared>,
    window: Arc<Opening>,
    source: u64,
    /// The initialization segment in use, by name.
    init: Option<(String, Reader)>,
    join: Join,
    /// Decode time where the last segment ended.
    end_ns: Option<i64>,
    /// The next media packet follows a loss.
    cut: bool,
    read: u64,
    missing: u64,
}

impl Reading {
    pub(super) fn new(shared: Arc<Shared>, window: Arc<Opening>, source: u64) -> Self {
        let (init, join, end_ns, cut, read, missing) = (None, Join::default(), None, false, 0, 0);
        Self { shared, window, source, init, join, end_ns, cut, read, missing }
    }

    pub(super) fn run(mut self) {
        if self.read_window() {
            let rest = self.join.finish(&self.shared.queue.head());
            self.put(rest);
        }
        let is_whole = self.join.is_whole() && !self.cut;
        tracing::info!(
            segments = self.read,
            missing = self.missing,
            whole = is_whole,
            "backfill of a destination is complete"
        );
        self.shared.finish(!is_whole);
    }

    /// Reads up to the queue, or until nothing more is published. False when the destination has ended.
    fn read_window(&mut self) -> bool {
        let window = self.window.clone();
        let (mut next, mut looks) = (first_number(window.assets()), 0);
        loop {
            // Checked before the segments: an opening publishes its last segments before it ends.
            let has_ended = window.ended();
            let found = window.assets().segments(next);
            if found.is_empty() {
                let head = self.shared.queue.head();
                looks += u32::from(head.video.is_some() || head.audio.is_some());
                if has_ended || looks > LOOKS_MAX {
                    return true;
                }
                if !self.shared.pause(LOOK_PAUSE) {
                    return false;
                }
            }
            for (place, name) in found {
                (next, looks) = (place.number.saturating_add(1), 0);
                let goes_on = match self.segment(window.assets(), &place, &name) {
                    Ok(packets) => self.put(packets),
                    Err(error) => self.miss(&name, &error),
                };
                if !goes_on {
                    return false;
                }
                if self.join.is_over() {
                    return true;
                }
            }
        }
    }

    /// A segment that cannot be read is skipped, with a discontinuity. Always true: the reading goes on.
    fn miss(&mut self, name: &str, error: &io::Error) -> bool {
        tracing::warn!(segment = name, %error, "cannot read a segment of a backfill; it is skipped");
        self.missing += 1;
        self.cut = self.read > 0;
        true
    }

    /// The packets of a segment that precede the queue, with the codec configurations if they changed.
    fn segment(&mut self, assets: &Assets, place: &SegmentPosition, name: &str) -> io::Result<Vec<Packet>> {
        let mut changed = None;
        if self.init.as_ref().is_none_or(|(known, _)| *known != place.init) {
            let mut reader = Reader::new(&read(assets, &place.init)?).map_err(io::Error::other)?;
            for config in self.shared.queue.head().configs.iter() {
                reader.set_record(config.codec, &config.payload);
            }
            changed = Some((place.init.clone(), reader));
        }
        let Some((_, reader)) = changed.as_ref().or(self.init.as_ref()) else { return Ok(Vec::new()) };
        let segment = reader.segment(&read(assets, name)?, place.offset_ns).map_err(io::Error::other)?;
        self.read += 1;
        self.cut |= self.end_ns.is_some_and(|end| segment.start_ns.saturating_sub(end) > GAP_NANOS);
        self.end_ns = Some(segment.end_ns);
        // Read after the segment was published: a packet of the segment that is not in the queue precedes it.
        let before = self.join.take(segment.packets, &self.shared.queue.head());
        let Some((name, reader)) = changed.filter(|_| !before.is_empty()) else { return Ok(before) };
        let mut packets = reader.configs(before[0].dts_ns);
        self.init = Some((name, reader));
        packets.extend(before);
        Ok(packets)
    }

    fn put(&mut self, packets: Vec<Packet>) -> bool {
        let source = self.source;
        let deliveries = packets.into_iter().map(|packet| {
            let discontinuity = !packet.is_config() && std::mem::take(&mut self.cut);
            Delivery { packet: Arc::new(Packet { source, ..packet }), discontinuity }
        });
        self.shared.put(deliveries.collect())
    }
}

/// The first segment in the DVR window. Older ones may still be published for viewers with an earlier playlist.
fn first_number(assets: &Assets) -> u64 {
    let first_ms = assets.playback().map_or(i64::MIN, |playback| playback.first_ms);
    let all = assets.segments(0);
    all.iter().find(|(place, _)| place.start_ms >= first_ms).map_or(0, |(place, _)| place.number)
}

/// The bytes of an asset.
fn read(assets: &Assets, name: &str) -> io::Result<Bytes> {
    let asset = assets.get(name).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    match &asset.body {
        AssetBody::Memory(bytes) => Ok(bytes.clone()),
        AssetBody::File { path, offset, len, .. } => read_at(&open(path)?, *offset, *len),
        AssetBody::Open { .. } | AssetBody::Parts(_) => {
            Err(io::Error::other("the asset is not a segment in memory or in a file"))
        }
    }
}

/// As for viewers: does not follow a link in the last name, and does not block.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn read_at(file: &File, offset: u64, len: u64) -> io::Result<Bytes> {
    let len = usize::try_from(len).ok().filter(|len| *len <= READ_BYTES_MAX);
    let mut bytes = vec![0; len.ok_or_else(|| io::Error::other("the segment is too long"))?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes.into())
}
