//! Child processes that never outlive their test.
//!
//! Each child is started through `setpriv --pdeathsig KILL`, so that the kernel ends it when the thread that started
//! it ends, even if the test was killed; in the normal case dropping a [`Process`] ends it.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use crate::wait;

/// A command for `program` whose process ends with the thread that starts it.
#[must_use]
pub fn guarded(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).stdin(Stdio::null());
    command
}

/// A running child whose output goes to a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; its output is appended to the file `log`.
    ///
    /// # Panics
    /// When the program cannot be started or the file not be opened.
    #[must_use]
    pub fn start(name: &str, mut command: Command, log: &Path) -> Self {
        let output = append(log);
        let errors = output.try_clone().expect("a second handle on the log");
        let started = command.stdout(output).stderr(errors).spawn();
        let child = started.unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { name: name.to_owned(), child, log: log.to_owned() }
    }

    /// The same with `output` as its descriptor for what it makes: the standard output.
    ///
    /// # Panics
    /// As [`Self::start`].
    #[must_use]
    pub fn piped(name: &str, mut command: Command, log: &Path, output: ChildStdin) -> Self {
        let started = command.stdout(Stdio::from(output)).stderr(append(log)).spawn();
        let child = started.unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        Self { name: name.to_owned(), child, log: log.to_owned() }
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard input, when the command was given a pipe; once.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// The output so far.
    #[must_use]
    pub fn log(&self) -> String {
        read_lossy(&self.log)
    }

    /// The exit status, when it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the state of a child of ours")
    }

    /// Waits for it to end by itself.
    ///
    /// # Panics
    /// When it has not after `limit`.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let what = format!("{} to end", self.name);
        wait::within(&what, limit, || {
            self.ended().ok_or_else(|| format!("still running; it printed:\n{}", self.log()))
        })
    }

    /// Asks it to end (SIGTERM) and waits.
    ///
    /// # Panics
    /// As [`Process::wait`].
    #[track_caller]
    pub fn terminate(&mut self, limit: Duration) -> ExitStatus {
        if self.ended().is_none() {
            kill(self.pid(), Signal::SIGTERM).expect("SIGTERM to a child of ours");
        }
        self.wait(limit)
    }

    /// Ends it without asking (SIGKILL).
    pub fn kill(&mut self) {
        // Fails only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Suspends the process until [`Self::thaw`].
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("a signal to a child of ours");
    }

    /// CPU time that the process and its direct children have used so far (user and system).
    ///
    /// # Panics
    /// When the process has ended.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let children =
            std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.id())).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|id| id.parse().ok().map(Pid::from_raw));
        // A child that ends between the listing and the reading is not counted: benchmarks run in a steady state.
        children
            .filter_map(cpu_of)
            .fold(cpu_of(self.pid()).expect("CPU clock of a child of ours"), |sum, cpu| sum + cpu)
    }

    /// Memory that is resident now, in KiB.
    ///
    /// # Panics
    /// When the process has ended.
    #[must_use]
    pub fn resident_kib(&self) -> u64 {
        let status = read_lossy(Path::new(&format!("/proc/{}/status", self.id())));
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS of a running process");
        line.trim().trim_end_matches(" kB").parse().expect("VmRSS is a number")
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn cpu_of(pid: Pid) -> Option<Duration> {
    let time = clock_gettime(ClockId::pid_cpu_clock_id(pid).ok()?).ok()?;
    Some(Duration::new(time.tv_sec().try_into().ok()?, time.tv_nsec().try_into().ok()?))
}

fn append(path: &Path) -> File {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()))
}

/// The text of a file that may not exist yet, with invalid UTF-8 replaced.
pub(crate) fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}
