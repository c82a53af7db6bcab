//! How much memory a child takes, as the system counts it.
//!
//! The kernel bounds what a process asks for, used or not, and not at all what it could share: so the host looks.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

use super::SHARED_BYTES;

/// Open files that are looked at; a child has no more ([`crate::config::ProcessLimits`]), if its limit is not a large one.
const FILES_MAX: usize = 16 * 1024;
/// Bytes of a block, whatever the file system.
const BLOCK_BYTES: u64 = 512;
/// What the system calls memory with a descriptor.
const MEMORY_FILE: &str = "/memfd:";

/// Memory that a process has of its own, in bytes: private memory, in use or swapped out, and what it shares or could share. Memory that the
/// host gave it, the file `given`, does not count. `None` when it cannot be looked at.
pub(super) fn bytes(pid: Pid, given: (u64, u64)) -> Option<u64> {
    let folder = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let status = fs::read_to_string(folder.join("status")).ok()?;
    Some(sum(&status, files(&folder.join("fd"), given)))
}

/// The sum, from the text of `/proc/<pid>/status` and the bytes of files in memory. What is mapped of these is not counted twice.
fn sum(status: &str, files: u64) -> u64 {
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.unwrap_or(0).saturating_mul(1024)
    };
    // Of what is mapped, as much as there can be is the host's.
    let mapped = of("RssShmem").saturating_sub(SHARED_BYTES as u64);
    of("RssAnon").saturating_add(of("VmSwap")).saturating_add(mapped.max(files))
}

/// Bytes of memory that a process holds by descriptors, each file once. One that hides its descriptors holds nothing.
fn files(folder: &Path, given: (u64, u64)) -> u64 {
    let mut sizes = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().take(FILES_MAX).flatten() {
        let path = entry.path();
        let is_memory =
            |target: PathBuf| target.as_os_str().as_encoded_bytes().starts_with(MEMORY_FILE.as_bytes());
        if !fs::read_link(&path).is_ok_and(is_memory) {
            continue;
        }
        // It may be closed by now.
        if let Ok(facts) = fs::metadata(&path) {
            sizes.insert((facts.dev(), facts.ino()), facts.blocks().saturating_mul(BLOCK_BYTES));
        }
    }
    sizes.remove(&given);
    sizes.values().sum()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;

    use rustix::fs::MemfdFlags;

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn memory(bytes: usize) -> (OwnedFd, (u64, u64)) {
        let mut file = File::from(rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(&vec![1; bytes]).unwrap();
        let facts = file.metadata().unwrap();
        (file.into(), (facts.dev(), facts.ino()))
    }

    #[test]
    fn memory_without_a_mapping_counts_once_and_what_was_given_does_not() {
        let (first, given) = memory(64 * MIB);
        let _same = first.try_clone().unwrap();
        let (_second, other) = memory(32 * MIB);
        let folder = Path::new("/proc/self/fd");
        let size = |bytes: usize| bytes as u64;
        // Other tests may run in this process.
        assert!((size(32 * MIB)..size(64 * MIB)).contains(&files(folder, given)), "{}", files(folder, given));
        assert!((size(64 * MIB)..size(96 * MIB)).contains(&files(folder, other)), "{}", files(folder, other));
        let pid = rustix::process::getpid();
        assert!(bytes(pid, (0, 0)).unwrap() >= size(96 * MIB));
    }

    #[test]
    fn the_systems_figures_are_added_up() {
        let status = "Name:\tx\nVmSwap:\t      16 kB\nRssAnon:\t   1024 kB\nRssFile:\t 9999 kB\nRssShmem:\t  262208 kB\n";
        let shared = 64 * 1024;
        assert_eq!(sum(status, 0), (16 + 1024) * 1024 + shared, "beyond what the host shares");
        assert_eq!(sum(status, 1 << 30), (16 + 1024) * 1024 + (1 << 30), "not twice");
        assert_eq!(sum("RssAnon: many kB", 0), 0);
    }
}
