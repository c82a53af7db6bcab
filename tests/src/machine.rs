//! A machine of its own for packages: this system with systemd as its first process, in namespaces of their own. It has its own processes,
//! its own network with nothing but loopback, and keeps every change in memory, so what is installed there is gone with it.
//!
//! It needs root and the right to mount.

use std::path::Path;
use std::process::Output;

use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::process::{Process, guarded};
use crate::wait;

/// What its first process does.
const BOOT: &str = include_str!("machine.sh");
/// Succeeds inside the machine alone.
const IS_INSIDE: &str = "grep -qz '^container=satcast-test$' /proc/1/environ";
/// Where the shared folder is in it.
pub const SHARED: &str = "/srv/shared";
const PATH: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
/// Longest time of one script, in seconds.
const SCRIPT_LIMIT: &str = "60";

/// A running machine.
#[derive(Debug)]
pub struct Machine {
    process: Process,
    first: String,
    group: String,
    _folder: TempDir,
}

impl Machine {
    /// Whether this user may start one, here: root of a container may lack the right to mount.
    #[must_use]
    pub fn is_possible() -> bool {
        let script = "mount --make-rprivate / && mount -t tmpfs tmpfs /mnt && cd /mnt && mkdir groups upper work root
            mount -t cgroup2 cgroup2 groups && mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root";
        let mut command = guarded(Path::new("unshare"));
        command.args(["--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "sh", "-c", script]);
        geteuid().is_root() && command.current_dir("/").output().is_ok_and(|output| output.status.success())
    }

    /// Starts a machine that has the folder `shared`.
    ///
    /// # Panics
    /// When it does not start, or without root.
    #[must_use]
    pub fn boot(shared: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the machine");
        let script = folder.path().join("machine.sh");
        std::fs::write(&script, BOOT).expect("a script");
        let mut command = guarded(Path::new("unshare"));
        command.args(["--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child"]);
        let group = format!("satcast-test-{}", std::process::id());
        command.arg("sh").arg(&script).env("SHARED", shared).env("GROUP", &group);
        let process = Process::start("the machine", command, &folder.path().join("log"));
        let children = format!("/proc/{0}/task/{0}/children", process.id());
        let mut machine = Self { process, first: String::new(), group, _folder: folder };
        wait::until("the machine to start", || {
            assert!(machine.process.ended().is_none(), "the machine ended: {}", machine.process.log());
            let first = std::fs::read_to_string(&children).unwrap_or_default();
            first.trim().clone_into(&mut machine.first);
            // Before its root is in place, the real system would answer.
            let said = machine.enter(&format!("{IS_INSIDE} && systemctl is-system-running"));
            let state = String::from_utf8_lossy(&said.stdout).trim().to_owned();
            if ["running", "degraded"].contains(&&*state) {
                return Ok(());
            }
            Err(format!("{state} {}; {}", String::from_utf8_lossy(&said.stderr), machine.process.log()))
        });
        machine
    }

    /// Runs a script of bash as root, which must succeed; gives its standard output.
    ///
    /// # Panics
    /// When a command of it fails, or when it takes longer than a minute.
    #[track_caller]
    pub fn run(&self, script: &str) -> String {
        let output = self.enter(script);
        let (said, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(
            output.status.success(),
            "{}: {script}\n{said}\n{errors}\n{}",
            output.status,
            self.process.log()
        );
        said.into_owned()
    }

    /// Removes its control groups, which outlive their processes. `rmdir` takes empty ones alone.
    fn forget_groups(&self) {
        // The processes end a moment after the first one.
        let script = "mount --make-rprivate / && mount -t cgroup2 cgroup2 /mnt && cd /mnt
            for attempt in 1 2 3 4 5 6 7 8 9 10; do
                find \"$GROUP\" -depth -type d -exec rmdir {} + && exit
                sleep 0.2
            done";
        let mut command = guarded(Path::new("unshare"));
        command.args(["--mount", "sh", "-c", script]).env("GROUP", &self.group).current_dir("/");
        // A group that is left behind does no harm.
        let _ = command.output();
    }

    fn enter(&self, script: &str) -> Output {
        let mut command = guarded(Path::new("timeout"));
        command.args([SCRIPT_LIMIT, "nsenter", "--target", &self.first]);
        command.args(["--mount", "--pid", "--cgroup", "--ipc", "--uts", "--net", "--root", "--"]);
        command.args(["env", "-i", PATH, "bash", "-euo", "pipefail", "-c", &format!("cd /\n{script}")]);
        command.current_dir("/").output().expect("util-linux is installed (cargo xtask setup)")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.process.kill();
        self.forget_groups();
    }
}
