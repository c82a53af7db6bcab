//! Resources of a running process: memory, threads and descriptors, read from the system.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_link, read_to_string};
use std::path::PathBuf;

/// Open files for the largest crowds of the benchmarks.
const OPEN_FILES_WANTED: u64 = 65_536;

/// Lets this process, and those that it starts, open as many files as the largest crowd needs, or as many as the system allows.
pub fn allow_many_files() {
    let wanted = OPEN_FILES_WANTED;
    let (soft, hard) = rlimit::getrlimit(rlimit::Resource::NOFILE).unwrap_or_default();
    // Only root may raise the hard limit. Where all fails, connections fail and are counted.
    if rlimit::setrlimit(rlimit::Resource::NOFILE, soft.max(wanted), hard.max(wanted)).is_err() {
        let _ = rlimit::increase_nofile_limit(wanted);
    }
}

/// The resources of one process at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Descriptors.
    pub files: usize,
    /// Descriptors by kind, without numbers and paths, and without sockets, of which servers keep some for a while.
    pub kinds: BTreeMap<String, usize>,
    /// Threads.
    pub threads: usize,
    /// Threads that run drivers, by their names.
    pub drivers: BTreeMap<String, usize>,
    /// Resident memory, in KiB.
    pub kib: u64,
}

impl Usage {
    /// The current resources of the process `pid`.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    #[track_caller]
    pub fn of(pid: i32) -> Self {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let listed = |name: &str| read_dir(folder.join(name)).expect("a running process").flatten();
        let mut drivers = BTreeMap::new();
        let names: Vec<String> =
            listed("task").filter_map(|task| read_to_string(task.path().join("comm")).ok()).collect();
        for name in names.iter().filter(|name| ["c:", "p:", "r:"].iter().any(|mark| name.starts_with(mark))) {
            *drivers.entry(name.trim().to_owned()).or_default() += 1;
        }
        let (mut files, mut kinds) = (0, BTreeMap::new());
        // A descriptor that was closed meanwhile is not counted.
        for link in listed("fd").filter_map(|file| read_link(file.path()).ok()) {
            files += 1;
            if let Some(kind) = kind(&link.to_string_lossy()) {
                *kinds.entry(kind).or_default() += 1;
            }
        }
        let status = read_to_string(folder.join("status")).expect("a running process");
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        let kib = kib.trim().trim_end_matches(" kB").parse().expect("a number");
        Self { files, kinds, threads: names.len(), drivers, kib }
    }
}

/// The kind of a descriptor (`/memfd:satcast-media (deleted)`, `pipe`, `anon_inode:[eventfd]`); `None` for sockets and paths.
fn kind(link: &str) -> Option<String> {
    let kind = link.split(":[").next().unwrap_or(link);
    match link.starts_with("/memfd:") || link.starts_with("anon_inode:") {
        true => Some(link.to_owned()),
        false => (!link.starts_with('/') && kind != "socket").then(|| kind.to_owned()),
    }
}
