//! What a running process holds: memory, threads and descriptors, read from the system.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_link, read_to_string};
use std::path::PathBuf;

/// A look at one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Descriptors.
    pub files: usize,
    /// The same by what they stand for. Numbers and paths are left out, and so are sockets, of which servers keep some for a while.
    pub kinds: BTreeMap<String, usize>,
    /// Threads.
    pub threads: usize,
    /// Threads that run drivers, by their names.
    pub drivers: BTreeMap<String, usize>,
    /// Resident memory, in KiB.
    pub kib: u64,
}

impl Usage {
    /// Of the process `pid`, now.
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
        // One that was closed meanwhile is none.
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

/// What a descriptor stands for (`/memfd:satcast-media (deleted)`, `pipe`, `anon_inode:[eventfd]`), if it is neither socket nor path.
fn kind(link: &str) -> Option<String> {
    let kind = link.split(":[").next().unwrap_or(link);
    match link.starts_with("/memfd:") || link.starts_with("anon_inode:") {
        true => Some(link.to_owned()),
        false => (!link.starts_with('/') && kind != "socket").then(|| kind.to_owned()),
    }
}
