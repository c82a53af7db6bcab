//! The index of a recording: where its fragments are, so that viewers can watch it.
//!
//! One small file for each recording, beside the journal. The recorder appends to it after each fragment; it stays when the
//! local copy goes, and goes with the recording. Nothing depends on it being there: it is made again from the recording
//! ([`build`]), which is also how recordings of earlier versions get one.

pub(crate) mod build;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use satcast_plugin_api::driver::Fragment;

use crate::boxes::{Taken, Walk};
use crate::crc::Summing;

/// Bytes of a record: the head of the file, or a fragment.
const RECORD_BYTES: usize = 32;
/// Bytes of a record before its checksum.
const SUMMED_BYTES: usize = RECORD_BYTES - 4;
/// The first bytes of the file.
const MARK: [u8; 8] = *b"scindex1";

/// A part of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) init_bytes: u64,
    /// Number of fragments in the index.
    pub(crate) count: u64,
    /// End of the last of them in the recording, or of the initialization segment.
    pub(crate) bytes: u64,
    pub(crate) fragments: Vec<Fragment>,
}

/// Appends to an index file.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    file: Arc<File>,
    count: u64,
}

impl Writer {
    /// A new index without fragments; replaces an earlier one.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn create(path: &Path, init_bytes: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut head = [0; RECORD_BYTES];
        head[..8].copy_from_slice(&MARK);
        head[8..16].copy_from_slice(&init_bytes.to_be_bytes());
        file.write_all_at(&sealed(head), 0)?;
        Ok(Writer { file: Arc::new(file), count: 0 })
    }

    /// Goes on with an index that has `count` fragments; removes what follows them.
    ///
    /// # Errors
    /// It cannot be opened or cut.
    pub(crate) fn resume(path: &Path, count: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        file.set_len(place(count))?;
        Ok(Writer { file: Arc::new(file), count })
    }

    /// Adds the next fragment.
    ///
    /// # Errors
    /// It cannot be written; the next try writes to the same place.
    pub(crate) fn append(&mut self, fragment: &Fragment) -> io::Result<()> {
        self.file.write_all_at(&record(fragment), place(self.count))?;
        self.count += 1;
        Ok(())
    }

    /// # Errors
    /// The sync failed.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Place of fragment `number` in the file.
fn place(number: u64) -> u64 {
    number.saturating_add(1).saturating_mul(RECORD_BYTES as u64)
}

fn record(fragment: &Fragment) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&fragment.offset.to_be_bytes());
    bytes[8..16].copy_from_slice(&fragment.start_us.to_be_bytes());
    bytes[16..20].copy_from_slice(&fragment.bytes.to_be_bytes());
    bytes[20..24].copy_from_slice(&fragment.duration_us.to_be_bytes());
    bytes[24] = u8::from(fragment.is_keyframe);
    sealed(bytes)
}

/// With the checksum at the end: the last half of a CRC-64/NVME.
fn sealed(mut bytes: [u8; RECORD_BYTES]) -> [u8; RECORD_BYTES] {
    let sum = sum(&bytes[..SUMMED_BYTES]);
    bytes[SUMMED_BYTES..].copy_from_slice(&sum);
    bytes
}

fn sum(bytes: &[u8]) -> [u8; 4] {
    let mut summing = Summing::default();
    summing.add(bytes);
    summing.sum().short()
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
}

fn is_valid(bytes: &[u8]) -> bool {
    bytes.len() == RECORD_BYTES && sum(&bytes[..SUMMED_BYTES])[..] == bytes[SUMMED_BYTES..]
}

fn parse(bytes: &[u8]) -> Option<Fragment> {
    let fragment = Fragment {
        offset: u64::from_be_bytes(number(bytes, 0)),
        start_us: u64::from_be_bytes(number(bytes, 8)),
        bytes: u32::from_be_bytes(number(bytes, 16)),
        duration_us: u32::from_be_bytes(number(bytes, 20)),
        is_keyframe: bytes.get(24) == Some(&1),
    };
    (is_valid(bytes) && fragment.bytes > 0).then_some(fragment)
}

/// At most `most` fragments from number `first` on, of those that are whole in the first `bytes` bytes of the recording;
/// `None` when there is no index, or it is damaged.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn page(path: &Path, bytes: u64, first: u64, most: u64) -> io::Result<Option<Page>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let size = file.metadata()?.len();
    let mut head = [0; RECORD_BYTES];
    if size < RECORD_BYTES as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut head, 0)?;
    if !is_valid(&head) || !head.starts_with(&MARK) {
        return Ok(None);
    }
    let init_bytes = u64::from_be_bytes(number(&head, 8));
    let records = size / RECORD_BYTES as u64 - 1;
    let fragment = |number: u64| -> io::Result<Option<Fragment>> {
        let mut bytes = [0; RECORD_BYTES];
        file.read_exact_at(&mut bytes, place(number))?;
        Ok(parse(&bytes))
    };
    // The first of those that are not known yet; a damaged one counts so, and all behind it are found again.
    let (mut known, mut unknown) = (0, records);
    while known < unknown {
        let middle = known + (unknown - known) / 2;
        match fragment(middle)? {
            Some(fragment) if fragment.end() <= bytes => known = middle + 1,
            _ => unknown = middle,
        }
    }
    let end = match known.checked_sub(1) {
        Some(last) => fragment(last)?.map_or(init_bytes, |fragment| fragment.end()),
        None => init_bytes,
    };
    let mut page = Page { init_bytes, count: known, bytes: end, fragments: Vec::new() };
    let count = most.min(known.saturating_sub(first));
    let mut records = vec![0; usize::try_from(count).unwrap_or(0) * RECORD_BYTES];
    if count > 0 {
        file.read_exact_at(&mut records, place(first))?;
    }
    let mut expected = if first == 0 { Some((init_bytes, 0)) } else { None };
    for record in records.chunks(RECORD_BYTES) {
        let fragment = parse(record);
        let Some(fragment) = fragment.filter(|it| expected.is_none_or(|at| at == (it.offset, it.start_us)))
        else {
            return Ok(None);
        };
        expected = Some((fragment.end(), fragment.end_us()));
        page.fragments.push(fragment);
    }
    Ok(Some(page))
}

/// Writes the whole index of a recording.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(path: &Path, init_bytes: u64, fragments: &[Fragment]) -> io::Result<()> {
    let writer = Writer::create(path, init_bytes)?;
    let records: Vec<u8> = fragments.iter().flat_map(record).collect();
    writer.file.write_all_at(&records, place(0))?;
    writer.sync()
}

/// Follows a file that is written, and keeps its index. A failure ends it: the index is made again later.
#[derive(Debug, Clone, Default)]
pub(crate) struct Following {
    walk: Walk,
    writer: Option<Writer>,
}

impl Following {
    /// Begins with the initialization segment.
    pub(crate) fn begin(path: &Path, init: &[u8]) -> Self {
        let mut walk = Walk::default();
        let writer = match walk.take_from(init) {
            Ok(Taken::Init) => Writer::create(path, walk.init_bytes()).inspect_err(not_kept).ok(),
            _ => None,
        };
        Following { walk, writer }
    }

    /// Adds a fragment that was written.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let Some(writer) = &mut self.writer else { return };
        let added = match self.walk.take_from(bytes) {
            Ok(Taken::Fragment(fragment)) => writer.append(&fragment).inspect_err(not_kept),
            _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
        };
        if added.is_err() {
            self.writer = None;
        }
    }

    /// Makes the index durable.
    pub(crate) fn finish(&self) {
        if let Some(writer) = &self.writer {
            let _ = writer.sync().inspect_err(not_kept);
        }
    }
}

fn not_kept(error: &io::Error) {
    tracing::warn!(%error, "the index of a recording cannot be written; it is made again when somebody watches");
}

#[cfg(test)]
mod tests;
