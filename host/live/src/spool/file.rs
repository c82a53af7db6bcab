//! The file of a spool.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use satcast_plugin_api::host::Delivery;
use satcast_plugin_api::{Codec, Packet, Role};
use satcast_quota::Permit;

use super::share::account_full;
use crate::queue::Disk;
use satcast_core::ids::AccountId;

/// Bytes read at once.
const BLOCK_BYTES: usize = 1024 * 1024;
/// Bytes of the header before each payload.
const HEAD_BYTES: usize = 45;

const MARK_CONFIG: u8 = 1;
const MARK_KEYFRAME: u8 = 1 << 1;
const MARK_DISCONTINUITY: u8 = 1 << 2;
/// The discontinuity of this destination only.
const MARK_CUT: u8 = 1 << 3;

/// Numbers for the temporary names of files.
static NEXT_FILE: AtomicU64 = AtomicU64::new(1);

/// The file of a spool. It is created with the first packet.
pub(super) struct SpoolFile {
    folder: PathBuf,
    file: Option<File>,
    /// Bytes that stay free on the file system.
    free_bytes_min: u64,
    /// The file system frees the part that was read.
    gives_back: bool,
    read_at: u64,
    write_at: u64,
    share: Permit<AccountId>,
}

impl SpoolFile {
    pub(super) fn below(folder: &Path, free_bytes_min: u64, share: Permit<AccountId>) -> Self {
        Self {
            folder: folder.to_owned(),
            file: None,
            free_bytes_min,
            gives_back: true,
            read_at: 0,
            write_at: 0,
            share,
        }
    }

    fn block(&self, bytes: usize) -> io::Result<Bytes> {
        let mut block = vec![0; bytes];
        self.file.as_ref().ok_or_else(torn)?.read_exact_at(&mut block, self.read_at)?;
        Ok(block.into())
    }

    fn give_back(&mut self, bytes: u64) {
        let Some(file) = &self.file else { return };
        let from = self.read_at;
        self.read_at += bytes;
        if self.read_at == self.write_at {
            (self.read_at, self.write_at) = (0, 0);
            // If this fails, the space is overwritten.
            let _ = file.set_len(0);
        } else if self.gives_back {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            self.gives_back = rustix::fs::fallocate(file, flags, from, bytes).is_ok();
        }
        // A smaller size always fits.
        let _ = self.share.resize(self.bytes());
    }
}

impl Disk for SpoolFile {
    fn bytes(&self) -> u64 {
        // Without freed parts the whole file counts until all was read.
        if self.gives_back { self.write_at - self.read_at } else { self.write_at }
    }

    fn append(&mut self, packets: &[Delivery]) -> io::Result<()> {
        let mut block = Vec::new();
        packets.iter().try_for_each(|delivery| write_record(&mut block, delivery))?;
        if self.file.is_none() {
            self.file = Some(nameless(&self.folder)?);
        }
        let file = self.file.as_ref().ok_or_else(torn)?;
        let stats = rustix::fs::fstatvfs(file)?;
        let free = stats.f_bavail.saturating_mul(stats.f_frsize);
        if free < self.free_bytes_min.saturating_add(block.len() as u64) {
            return Err(too_little_free(free, self.free_bytes_min));
        }
        let before = self.bytes();
        self.share.resize(before + block.len() as u64).map_err(account_full)?;
        if let Err(error) = file.write_all_at(&block, self.write_at) {
            let _ = self.share.resize(before);
            return Err(error);
        }
        self.write_at += block.len() as u64;
        Ok(())
    }

    fn take(&mut self) -> io::Result<Vec<Delivery>> {
        let left = usize::try_from(self.write_at - self.read_at).unwrap_or(usize::MAX);
        let mut block = self.block(left.min(BLOCK_BYTES))?;
        if let Some(needed) = record_bytes(&block).filter(|needed| *needed > block.len()) {
            if needed > left {
                return Err(torn());
            }
            block = self.block(needed)?;
        }
        let (mut packets, mut at) = (Vec::new(), 0);
        while let Some(bytes) = record_bytes(&block[at..]).filter(|bytes| at + bytes <= block.len()) {
            packets.push(read_record(&block.slice(at..at + bytes)).ok_or_else(torn)?);
            at += bytes;
        }
        if packets.is_empty() {
            return Err(torn());
        }
        self.give_back(at as u64);
        Ok(packets)
    }
}

fn too_little_free(free: u64, free_min: u64) -> io::Error {
    let text = format!("only {free} bytes are free, and {free_min} must stay free for other data");
    io::Error::new(io::ErrorKind::StorageFull, text)
}

/// Opens a file without a name below `folder`, and creates the folder.
fn nameless(folder: &Path) -> io::Result<File> {
    std::fs::create_dir_all(folder)?;
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // The file system does not support `O_TMPFILE`.
        Err(_) => unnamed(folder),
    }
}

fn unnamed(folder: &Path) -> io::Result<File> {
    let number = NEXT_FILE.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

fn torn() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the packets on disk are damaged")
}

fn write_record(block: &mut Vec<u8>, delivery: &Delivery) -> io::Result<()> {
    let packet = &delivery.packet;
    let len = u32::try_from(packet.payload.len()).map_err(io::Error::other)?;
    let mark = |is: bool, mark: u8| if is { mark } else { 0 };
    let marks = mark(packet.is_config(), MARK_CONFIG)
        | mark(packet.keyframe, MARK_KEYFRAME)
        | mark(packet.discontinuity, MARK_DISCONTINUITY)
        | mark(delivery.discontinuity, MARK_CUT);
    block.extend_from_slice(&len.to_le_bytes());
    block.push(marks);
    block.extend_from_slice(&(packet.codec as u32).to_le_bytes());
    block.extend_from_slice(&packet.track.to_le_bytes());
    block.extend_from_slice(&packet.source.to_le_bytes());
    block.extend_from_slice(&packet.sequence.to_le_bytes());
    block.extend_from_slice(&packet.dts_ns.to_le_bytes());
    block.extend_from_slice(&packet.pts_ns.to_le_bytes());
    block.extend_from_slice(&packet.payload);
    Ok(())
}

/// Bytes of the record at the start of `block`; `None` when its length is incomplete.
fn record_bytes(block: &[u8]) -> Option<usize> {
    let (len, _) = block.split_first_chunk()?;
    Some(HEAD_BYTES + u32::from_le_bytes(*len) as usize)
}

fn read_record(record: &Bytes) -> Option<Delivery> {
    let field = |at: usize| record.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let number = |at: usize| record.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let marks = *record.get(4)?;
    let packet = Packet {
        codec: Codec::from_number(number(5)?)?,
        role: if marks & MARK_CONFIG == 0 { Role::Data } else { Role::Config },
        keyframe: marks & MARK_KEYFRAME != 0,
        discontinuity: marks & MARK_DISCONTINUITY != 0,
        track: number(9)?,
        source: field(13)?,
        sequence: field(21)?,
        dts_ns: field(29)?.cast_signed(),
        pts_ns: field(37)?.cast_signed(),
        payload: record.slice(HEAD_BYTES..),
    };
    Some(Delivery { packet: Arc::new(packet), discontinuity: marks & MARK_CUT != 0 })
}

#[cfg(test)]
mod tests {
    use super::super::share::Shares;
    use super::*;

    fn spool(folder: &Path) -> SpoolFile {
        SpoolFile::below(folder, 0, Shares::default().of(AccountId(1)))
    }

    fn delivery(sequence: u64, payload: Vec<u8>) -> Delivery {
        let is_even = sequence.is_multiple_of(2);
        let packet = Packet {
            codec: if is_even { Codec::Av1 } else { Codec::Opus },
            role: if sequence.is_multiple_of(3) { Role::Config } else { Role::Data },
            keyframe: sequence.is_multiple_of(5),
            discontinuity: sequence.is_multiple_of(7),
            track: sequence as u32,
            source: 9,
            sequence,
            dts_ns: i64::MIN + sequence as i64,
            pts_ns: -(sequence as i64),
            payload: payload.into(),
        };
        Delivery { packet: packet.into(), discontinuity: sequence.is_multiple_of(11) }
    }

    /// The fields without the payload, and the payload.
    fn facts(delivery: &Delivery) -> (String, Bytes) {
        let packet = Packet { payload: Bytes::new(), ..(*delivery.packet).clone() };
        (format!("{packet:?} {}", delivery.discontinuity), delivery.packet.payload.clone())
    }

    #[test]
    fn packets_come_back_as_they_were_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        let mut spool = spool(&below);
        assert!(!below.exists(), "the folder is created on demand");
        let sizes = [0, 1, 1000, BLOCK_BYTES - HEAD_BYTES, BLOCK_BYTES, 3 * BLOCK_BYTES, 7, 0];
        let all: Vec<_> =
            sizes.iter().enumerate().map(|(n, size)| delivery(n as u64, vec![n as u8; *size])).collect();
        for round in 0..3 {
            spool.append(&all[..4]).unwrap();
            assert_eq!(std::fs::read_dir(&below).unwrap().count(), 0, "no name");
            let mut back = spool.take().unwrap();
            spool.append(&all[4..]).unwrap();
            while spool.bytes() > 0 {
                back.extend(spool.take().unwrap());
            }
            let (back, all): (Vec<_>, Vec<_>) =
                (back.iter().map(facts).collect(), all.iter().map(facts).collect());
            assert!(back == all, "round {round}");
        }
        assert_eq!(spool.file.unwrap().metadata().unwrap().len(), 0, "all space was freed");
    }

    #[test]
    fn read_parts_are_freed_or_count_until_all_was_read() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let mut spool = spool(folder.path());
        let large: Vec<_> = (0..16).map(|n| delivery(n, vec![1; BLOCK_BYTES])).collect();
        spool.append(&large).unwrap();
        let blocks = |spool: &SpoolFile| spool.file.as_ref().unwrap().metadata().unwrap().blocks();
        let (before, all) = (blocks(&spool), spool.bytes());
        (0..12).for_each(|_| assert_eq!(spool.take().unwrap().len(), 1));
        if spool.gives_back {
            assert!(blocks(&spool) < before / 2, "{before} blocks, then {}", blocks(&spool));
        }
        spool.gives_back = false;
        assert_eq!(spool.bytes(), all);
        (0..4).for_each(|_| assert_eq!(spool.take().unwrap().len(), 1));
        assert_eq!(spool.bytes(), 0);
    }

    #[test]
    fn without_nameless_files_the_name_goes_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = SpoolFile { file: Some(unnamed(folder.path()).unwrap()), ..spool(folder.path()) };
        spool.append(&[delivery(1, vec![1; 10])]).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(spool.take().unwrap().len(), 1);
    }

    #[test]
    fn damaged_data_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = spool(folder.path());
        spool.append(&[delivery(1, vec![1; 10])]).unwrap();
        spool.file.as_ref().unwrap().write_all_at(&u32::MAX.to_le_bytes(), 0).unwrap();
        assert!(spool.take().is_err());
        spool.file.as_ref().unwrap().set_len(0).unwrap();
        assert!(spool.take().is_err());
    }

    #[test]
    fn a_full_or_nearly_full_disk_refuses_writes() {
        let folder = tempfile::tempdir().unwrap();
        let full = OpenOptions::new().read(true).write(true).open("/dev/full").unwrap();
        let mut spool = SpoolFile { file: Some(full), ..spool(folder.path()) };
        let packets = [delivery(1, vec![1; 10])];
        assert_eq!(spool.append(&packets).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let mut spool = SpoolFile::below(folder.path(), u64::MAX, Shares::default().of(AccountId(1)));
        let error = spool.append(&packets).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(error.raw_os_error(), None, "not the error of the system");
        assert_eq!(spool.bytes(), 0);
    }

    #[test]
    fn too_little_free_text() {
        assert_eq!(
            too_little_free(7, 9).to_string(),
            "only 7 bytes are free, and 9 must stay free for other data"
        );
    }
}
