//! Writes one segment, whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::posix_fallocate;
use nix::sys::statvfs::statvfs;
use satcast_media::playlist::segment_name;

/// Free space that segments must leave, in bytes: the service's database is usually on the same disk.
const FREE_BYTES_MIN: u64 = 1024 * 1024 * 1024;
/// The same for a small disk, as a fraction: one in this many.
const FREE_SHARE: u64 = 50;
const FILE_MODE: u32 = 0o600;

/// Why a segment was not written.
#[derive(Debug)]
pub(crate) struct WriteFailed {
    /// Shown to the owner.
    pub(crate) reason: String,
    /// Bytes that must become free before the same write can work; `None` when the failure is not a lack of space.
    pub(crate) short_bytes: Option<u64>,
    /// Bytes of files that are about to be removed.
    pub(crate) going_bytes: u64,
}

impl WriteFailed {
    /// `bytes`: size of the segment.
    pub(crate) fn new(error: &io::Error, bytes: usize) -> Self {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        WriteFailed { reason: error.to_string(), short_bytes: full.then_some(bytes as u64), going_bytes: 0 }
    }
}

/// Writes a segment's bytes under its number into a folder: [`write_segment`], except in tests.
pub(crate) type Write = fn(&Path, u64, &[u8]) -> Result<(), WriteFailed>;

/// Writes a segment into `folder`, which is created if needed. Blocks.
///
/// # Errors
/// Any error of the file system, also when too little space would be left. No part of the file remains then.
pub(crate) fn write_segment(folder: &Path, sequence: u64, bytes: &[u8]) -> Result<(), WriteFailed> {
    let failed = |error: io::Error| WriteFailed::new(&error, bytes.len());
    crate::folder::make(folder).map_err(failed)?;
    check_space(folder, bytes.len())?;
    write_file(folder, sequence, bytes).map_err(failed)
}

fn write_file(folder: &Path, sequence: u64, bytes: &[u8]) -> io::Result<()> {
    let name = segment_name(sequence);
    let temporary = folder.join(format!("{name}.tmp"));
    let written =
        write_whole(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, folder.join(&name)));
    if written.is_err() {
        // Half a file takes the space that the next try needs.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn check_space(folder: &Path, bytes: usize) -> Result<(), WriteFailed> {
    let space = statvfs(folder).map_err(|error| WriteFailed::new(&error.into(), bytes))?;
    let (all, free) = (space.blocks(), space.blocks_available());
    let (all, free) = (all.saturating_mul(space.fragment_size()), free.saturating_mul(space.fragment_size()));
    let short_bytes = short_of(all, free, bytes as u64);
    if short_bytes == 0 {
        return Ok(());
    }
    let reason = format!("only {} MB are free on the disk", free / 1_000_000);
    Err(WriteFailed { reason, short_bytes: Some(short_bytes), going_bytes: 0 })
}

/// Bytes that are missing to write `bytes` on a disk of size `all` with `free` bytes left.
fn short_of(all: u64, free: u64, bytes: u64) -> u64 {
    bytes.saturating_add(FREE_BYTES_MIN.min(all / FREE_SHARE)).saturating_sub(free)
}

/// No fsync: the segment is useless after its session.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    reserve(&file, bytes.len())?;
    file.write_all(bytes)
}

/// Allocates the space first: a disk that becomes full in the middle of a write shows it only at the next one.
fn reserve(file: &File, bytes: usize) -> io::Result<()> {
    let bytes = i64::try_from(bytes).map_err(io::Error::other)?;
    match posix_fallocate(file, 0, bytes) {
        // Not supported by every file system. An empty segment would be refused, but never comes here.
        Ok(()) | Err(Errno::EOPNOTSUPP | Errno::EINVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_segment_is_written_whole_with_private_mode() {
        let data = tempfile::tempdir().unwrap();
        let folder = data.path().join("boot/100");
        write_segment(&folder, 101, b"segment").unwrap();
        write_segment(&folder, 101, b"again").unwrap();
        assert_eq!(std::fs::read(folder.join("101.m4s")).unwrap(), b"again");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        let mode = std::fs::metadata(folder.join("101.m4s")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn some_space_stays_free() {
        const GB: u64 = 1_000_000_000;
        assert_eq!(short_of(500 * GB, 2 * GB, 1_000_000), 0);
        assert_eq!(short_of(500 * GB, GB, 1_000_000), 74_741_824, "a large disk keeps a gibibyte");
        assert_eq!(short_of(10 * GB, GB / 4, 1_000_000), 0, "a small one a fiftieth");
        assert_eq!(short_of(10 * GB, GB / 5, 1_000_000), 1_000_000);
        assert_eq!(short_of(0, 0, 1), 1);
    }

    #[test]
    fn a_full_disk_is_distinguished_from_a_broken_one() {
        let short = |error: Errno| WriteFailed::new(&error.into(), 500).short_bytes;
        assert_eq!((short(Errno::ENOSPC), short(Errno::EDQUOT)), (Some(500), Some(500)));
        assert_eq!((short(Errno::EIO), short(Errno::EFBIG)), (None, None));
    }

    const INNER: &str = "SATCAST_HLS_TEST_FOLDER";

    /// A limit on file sizes makes the kernel refuse what a full disk refuses, in a process of its own.
    #[test]
    fn a_refused_write_leaves_nothing_behind() {
        if let Some(folder) = std::env::var_os(INNER) {
            let folder = Path::new(&folder);
            write_segment(folder, 1, &[7; 4096]).unwrap();
            write_segment(folder, 2, &[7; 1 << 20]).unwrap_err();
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let this = std::env::current_exe().unwrap();
        let script = "trap '' XFSZ; ulimit -f 64; exec \"$0\" --exact \"$1\"";
        let name = "disk::tests::a_refused_write_leaves_nothing_behind";
        let mut shell = Command::new("sh");
        let ran = shell.args(["-c", script]).arg(this).arg(name).env(INNER, folder.path()).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["1.m4s"]);
    }
}
