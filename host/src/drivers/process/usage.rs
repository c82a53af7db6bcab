//! How much memory a child and the processes it started take, as the system counts it.
//!
//! The kernel bounds what a process asks for, used or not, and not at all what it could share, or what its own children take: so the host
//! looks. A child adopts what it started and lost ([`super::child`]), so that all of it is below it. Not seen is memory that is on its way
//! through a socket, and what a process hides from its own user.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, RawPid};

use super::SHARED_BYTES;

/// Open files that are looked at; a child has no more ([`crate::config::ProcessLimits`]), if its limit is not a large one.
const FILES_MAX: usize = 16 * 1024;
/// Threads of a process that are asked for its children.
const THREADS_MAX: usize = 16 * 1024;
/// Most processes of one driver; a child with more is ended.
pub(super) const PROCESSES_MAX: usize = 1024;
/// Bytes of a block, whatever the file system.
const BLOCK_BYTES: u64 = 512;
/// What the system calls memory with a descriptor.
const MEMORY_FILE: &str = "/memfd:";

/// What a child takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Bytes of its own.
    pub(super) own: u64,
    /// Bytes, with those of all that it started.
    pub(super) all: u64,
    /// It, and what it started.
    pub(super) processes: usize,
}

/// Whether a child takes too much, from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Watch {
    was_over: bool,
}

impl Watch {
    /// Whether it takes `bytes_max` or more. What it does not take alone is too much at the second look: a process that is being started
    /// has all of its parent's memory for a moment.
    pub(super) fn is_over(&mut self, taken: Taken, bytes_max: u64) -> bool {
        let is_over = taken.all >= bytes_max;
        let was_over = std::mem::replace(&mut self.was_over, is_over);
        taken.own >= bytes_max || (is_over && was_over)
    }
}

/// Memory that a process and those below it have of their own: private memory, in use or swapped out, and what they share or could share.
/// Memory that the host gave it, the file `given`, does not count. `None` when it cannot be looked at.
pub(super) fn taken(pid: Pid, given: (u64, u64)) -> Option<Taken> {
    let pid = pid.as_raw_nonzero().get();
    let mut held = files(&folder(pid).join("fd"));
    held.remove(&given);
    let own = Figures::of_status(&fs::read_to_string(folder(pid).join("status")).ok()?).sum(&held);
    let family = family(pid, PROCESSES_MAX);
    if family.len() == 1 {
        return Some(Taken { own, all: own, processes: 1 });
    }
    let mut all = Figures::default();
    for pid in &family {
        all.add(&Figures::of(*pid));
        held.extend(files(&folder(*pid).join("fd")));
    }
    held.remove(&given);
    Some(Taken { own, all: all.sum(&held).max(own), processes: family.len() })
}

/// A process and all below it, no more than one over `most`.
pub(super) fn family(pid: RawPid, most: usize) -> Vec<RawPid> {
    let (mut all, mut at) = (vec![pid], 0);
    while let Some(parent) = all.get(at).copied() {
        at += 1;
        for child in children(parent) {
            // One whose parent ended meanwhile may be met again.
            if all.len() <= most && !all.contains(&child) {
                all.push(child);
            }
        }
    }
    all
}

fn children(pid: RawPid) -> Vec<RawPid> {
    let threads = fs::read_dir(folder(pid).join("task")).into_iter().flatten().take(THREADS_MAX).flatten();
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    texts.flat_map(|text| numbers(&text)).collect()
}

fn numbers(text: &str) -> Vec<RawPid> {
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn folder(pid: RawPid) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Bytes of private memory, and of shared memory that is mapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Figures {
    private: u64,
    mapped: u64,
}

impl Figures {
    /// Those of one of several processes: what they share is divided among them. Nothing for one that has ended.
    fn of(pid: RawPid) -> Self {
        let text = fs::read_to_string(folder(pid).join("smaps_rollup")).unwrap_or_default();
        if text.contains("Pss_Anon:") {
            let private = kib(&text, "Pss_Anon").saturating_add(kib(&text, "SwapPss"));
            return Self { private, mapped: kib(&text, "Pss_Shmem") };
        }
        // An older system, or one that hides it.
        Self::of_status(&fs::read_to_string(folder(pid).join("status")).unwrap_or_default())
    }

    /// From the text of `/proc/<pid>/status`.
    fn of_status(status: &str) -> Self {
        let private = kib(status, "RssAnon").saturating_add(kib(status, "VmSwap"));
        Self { private, mapped: kib(status, "RssShmem") }
    }

    fn add(&mut self, other: &Self) {
        self.private = self.private.saturating_add(other.private);
        self.mapped = self.mapped.saturating_add(other.mapped);
    }

    /// The sum with the files in memory. What is mapped of these is not counted twice.
    fn sum(self, held: &Held) -> u64 {
        // Of what is mapped, as much as there can be is the host's.
        let mapped = self.mapped.saturating_sub(SHARED_BYTES as u64);
        self.private.saturating_add(mapped.max(held.values().sum()))
    }
}

/// A figure of a file of the system, in bytes.
fn kib(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Files in memory by device and number, and their bytes.
type Held = BTreeMap<(u64, u64), u64>;

/// Memory that a process holds by descriptors, each file once. One that hides its descriptors holds nothing.
fn files(folder: &Path) -> Held {
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
    sizes
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command};
    use std::thread;
    use std::time::Duration;

    use rustix::fs::MemfdFlags;
    use rustix::process::Signal;

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
        let without = |file: (u64, u64)| {
            let mut held = files(Path::new("/proc/self/fd"));
            held.remove(&file);
            held.values().sum::<u64>()
        };
        let size = |bytes: usize| bytes as u64;
        // Other tests may run in this process.
        assert!((size(32 * MIB)..size(64 * MIB)).contains(&without(given)), "{}", without(given));
        assert!((size(64 * MIB)..size(96 * MIB)).contains(&without(other)), "{}", without(other));
        let own = taken(rustix::process::getpid(), (0, 0)).unwrap().own;
        assert!(own >= size(96 * MIB), "{own}");
    }

    /// A shell with what it started, which ends with this.
    struct Group(Child);

    impl Group {
        fn pid(&self) -> Pid {
            Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap()
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            let _ = rustix::process::kill_process_group(self.pid(), Signal::KILL);
            let _ = self.0.wait();
        }
    }

    fn until(group: &Group, what: &str, is_so: impl Fn(Taken) -> bool) -> Taken {
        let mut last = None;
        for _ in 0..2_000 {
            last = taken(group.pid(), (0, 0));
            if let Some(taken) = last.filter(|taken| is_so(*taken)) {
                return taken;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{what}: {last:?}")
    }

    #[test]
    fn what_a_child_started_counts_below_it_however_deep() {
        // The last one keeps what the first one says until that one ends.
        let script = "(head -c 67108864 /dev/zero; sleep 600) | (tail -c 67108864; true); true";
        let group = Group(Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap());
        let most = 64 * MIB as u64;
        let seen = until(&group, "64 MiB below it", |taken| taken.all >= most);
        assert!(seen.own < most / 2 && seen.processes >= 4, "{seen:?}");
    }

    #[test]
    fn so_many_processes_are_counted_and_no_more() {
        let script = "for n in 1 2 3 4 5 6 7 8 9; do sleep 600 & done; wait";
        let group = Group(Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap());
        until(&group, "all of them", |taken| taken.processes == 10);
        assert_eq!(
            family(group.pid().as_raw_nonzero().get(), 4).len(),
            5,
            "one more says that there are more"
        );
    }

    #[test]
    fn what_is_shared_by_processes_is_over_at_the_second_look() {
        let (mut watch, taken) = (Watch::default(), |own, all| Taken { own, all, processes: 2 });
        assert!(watch.is_over(taken(10, 10), 10) && !watch.is_over(taken(9, 9), 10));
        assert!(!watch.is_over(taken(6, 12), 10), "a process that is being started");
        assert!(!watch.is_over(taken(6, 9), 10) && !watch.is_over(taken(6, 12), 10));
        assert!(watch.is_over(taken(6, 12), 10));
    }

    #[test]
    fn the_systems_figures_are_added_up() {
        let status = "Name:\tx\nVmSwap:\t      16 kB\nRssAnon:\t   1024 kB\nRssFile:\t 9999 kB\nRssShmem:\t  262208 kB\n";
        let (shared, figures) = (64 * 1024, Figures::of_status(status));
        let held = |bytes: u64| Held::from([((1, 1), bytes)]);
        assert_eq!(figures.sum(&held(0)), (16 + 1024) * 1024 + shared, "beyond what the host shares");
        assert_eq!(figures.sum(&held(1 << 30)), (16 + 1024) * 1024 + (1 << 30), "not twice");
        assert_eq!(Figures::of_status("RssAnon: many kB"), Figures::default());
    }
}
