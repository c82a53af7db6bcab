//! Limits the memory of a child and its own children with a control group. Only where the service's own group was
//! delegated to it (`Delegate=yes` of a systemd unit): otherwise the service may change no group.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Mount point of the groups.
const GROUPS: &str = "/sys/fs/cgroup";
/// Mark of a group that systemd has delegated.
const DELEGATED: &str = "user.delegate";
/// Group of the service itself: a group with processes of its own cannot limit groups below it.
const OWN: &str = "service";

pub(super) struct Group {
    folder: PathBuf,
}

impl Group {
    /// A group that may use `bytes_max` of memory; `None` where none can be created.
    pub(super) fn new(id: &str, bytes_max: u64) -> Option<Self> {
        static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let root = ROOT.get_or_init(|| delegated().and_then(|root| begin(root).ok())).as_ref()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let made = Self::make(root.join(format!("driver-{id}-{number}")), bytes_max);
        made.inspect_err(
            |error| tracing::warn!(driver = id, %error, "no control group for a driver's process"),
        )
        .ok()
    }

    fn make(folder: PathBuf, bytes_max: u64) -> io::Result<Self> {
        fs::create_dir(&folder)?;
        let group = Self { folder };
        fs::write(group.folder.join("memory.max"), bytes_max.to_string())?;
        // Both files are missing on some systems: then swap is not limited, and the system ends single processes.
        let _ = fs::write(group.folder.join("memory.swap.max"), "0");
        let _ = fs::write(group.folder.join("memory.oom.group"), "1");
        Ok(group)
    }

    /// Adds a process, and with it all processes that it starts.
    pub(super) fn add(&self, pid: u32) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string())
    }

    /// The system ended a process in it because of the memory limit.
    pub(super) fn is_over(&self) -> bool {
        let events = fs::read_to_string(self.folder.join("memory.events")).unwrap_or_default();
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        killed.is_some_and(|count| count.trim() != "0")
    }

    /// Kills all its processes.
    pub(super) fn end(&self) {
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails only if processes are left, which hold no memory of the group.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The service's own group, if it was delegated.
fn delegated() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = Path::new(GROUPS).join(own);
    let user = rustix::process::geteuid();
    let is_ours = !user.is_root() && fs::metadata(&folder).ok()?.uid() == user.as_raw();
    let mut mark = [0; 1];
    let mut is_marked = || rustix::fs::getxattr(&folder, DELEGATED, &mut mark).is_ok() && mark == *b"1";
    (is_ours || is_marked()).then_some(folder)
}

/// Prepares `root`, the service's own group, for the groups of children.
fn begin(root: PathBuf) -> io::Result<PathBuf> {
    let own = root.join(OWN);
    fs::create_dir_all(&own)?;
    fs::write(own.join("cgroup.procs"), std::process::id().to_string())?;
    fs::write(root.join("cgroup.subtree_control"), "+memory")?;
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_limits_memory_and_reports_its_kills() {
        let root = tempfile::tempdir().unwrap();
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
        assert_eq!(begin(root.path().to_path_buf()).unwrap(), root.path());
        assert_eq!(read("service/cgroup.procs"), std::process::id().to_string());
        assert_eq!(read("cgroup.subtree_control"), "+memory");
        let group = Group::make(root.path().join("driver-a-0"), 5).unwrap();
        group.add(77).unwrap();
        assert_eq!(
            (read("driver-a-0/memory.max"), read("driver-a-0/cgroup.procs")),
            ("5".into(), "77".into())
        );
        assert!(!group.is_over());
        for (killed, is_over) in [(0, false), (2, true)] {
            fs::write(group.folder.join("memory.events"), format!("oom 3\noom_kill {killed}\n")).unwrap();
            assert_eq!(group.is_over(), is_over);
        }
        group.end();
        assert_eq!(read("driver-a-0/cgroup.kill"), "1");
        assert!(Group::make(root.path().join("driver-a-0"), 5).is_err());
    }
}
