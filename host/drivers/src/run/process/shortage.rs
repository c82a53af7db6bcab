//! Shortages of the service when it cannot provide a child's resources: they are never a driver's fault.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use satcast_core::log_limit::LogLimit;

/// A shortage that lasts is logged again after this time.
pub(super) const SHORTAGE_LOG_PAUSE: Duration = Duration::from_secs(60);

const OPEN_FILES: &str =
    "the service is short of open files (descriptors): raise its limit, LimitNOFILE of the unit or ulimit -n";

/// The failed call found too little of a resource that may be available later.
pub(super) fn is_shortage(errno: Errno) -> bool {
    remedy(errno).is_some()
}

/// The short resource, and the remedy for the operator.
fn remedy(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::MFILE | Errno::TOOMANYREFS => OPEN_FILES,
        Errno::NFILE => "the system is short of open files: raise fs.file-max",
        Errno::NOMEM | Errno::NOBUFS => "the system is short of memory: give it more, or run less on it",
        Errno::AGAIN => {
            "the service may start no more processes or threads: raise TasksMax of the unit or ulimit -u"
        }
        _ => return None,
    })
}

/// The failed action on a child, the error, and the remedy.
pub(super) fn describe(action: &str, error: &io::Error) -> String {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match errno.and_then(remedy) {
        Some(remedy) => format!("{action}: {error}; {remedy}"),
        None => format!("{action}: {error}"),
    }
}

/// The text about a message whose descriptors were lost.
pub(super) fn lost() -> String {
    format!("a descriptor sent with a message of the driver was lost; {OPEN_FILES}")
}

/// Of many equal lines about a shortage the first is written, and then one in each [`SHORTAGE_LOG_PAUSE`].
pub(super) fn log_limit() -> LogLimit {
    LogLimit::new(1, SHORTAGE_LOG_PAUSE)
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::fd::OwnedFd;
    use std::process::Command;

    use super::*;

    /// Marks a test that runs in a process of its own.
    const INNER: &str = "SATCAST_PROCESS_TEST_INNER";
    /// Open files of such a process.
    const OPEN_FILES_FEW: u32 = 64;

    /// Runs the test `name` again in a process that may open few files; true in that process.
    pub(in super::super) fn in_a_process_with_few_files(name: &str) -> bool {
        if std::env::var_os(INNER).is_some() {
            return true;
        }
        let script = format!("ulimit -n {OPEN_FILES_FEW}; exec \"$0\" --exact \"$1\" --nocapture");
        let this = std::env::current_exe().unwrap();
        let ran =
            Command::new("sh").args(["-c", &script]).arg(this).arg(name).env(INNER, "1").output().unwrap();
        let (said, warned) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success() && said.contains("1 passed"), "{said}{warned}");
        false
    }

    /// All descriptors that are left.
    pub(in super::super) fn take_all_files() -> Vec<OwnedFd> {
        std::iter::from_fn(|| rustix::io::dup(rustix::stdio::stdout()).ok()).collect()
    }

    #[test]
    fn only_shortages_have_a_remedy() {
        let described = |errno: i32| describe("cannot be started", &io::Error::from_raw_os_error(errno));
        assert!(
            described(libc::EMFILE).contains("LimitNOFILE") && described(libc::ENFILE).contains("file-max")
        );
        assert!(described(libc::ENOMEM).contains("memory") && described(libc::EAGAIN).contains("TasksMax"));
        assert_eq!(described(libc::ENOENT), "cannot be started: No such file or directory (os error 2)");
        assert!(!is_shortage(Errno::NOENT) && is_shortage(Errno::TOOMANYREFS));
    }
}
