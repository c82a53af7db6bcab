//! Starts a child and waits for its end.

use std::io::{BufRead as _, BufReader, PipeReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use satcast_plugin_api::host::{LogLine, Services};

use super::cgroup::Group;
use super::message::{BYTES_PER_MB, RUNNER_COMMAND};
use satcast_core::config::ProcessLimits;

/// Longest line of a child's output that is logged, in bytes; longer lines are split.
const OUTPUT_LINE_BYTES_MAX: u64 = 2 * 1024;
/// Interval of checks for the end of a child.
const POLL_MS: u64 = 5;
/// Log level of its output lines: warn.
const OUTPUT_LEVEL: u32 = 2;

/// Input for the start of a child.
#[derive(Clone)]
pub(crate) struct Spec {
    /// This binary.
    pub(crate) exe: PathBuf,
    /// Id of the driver.
    pub(crate) id: String,
    /// Absolute path of the private copy of its library.
    pub(crate) image: PathBuf,
    pub(crate) limits: ProcessLimits,
}

/// A child process, which leads its own process group.
pub(super) struct Spawned {
    child: Child,
    group: Pid,
    memory: Option<Group>,
    /// Its memory limit, as text for users.
    bound: String,
}

/// Starts a child; its end of the socket is its standard input, its environment is empty. Its output is logged. The
/// calling thread must live as long as the child: the end of the thread kills the child.
pub(super) fn spawn(spec: &Spec, socket: OwnedFd, services: &Arc<dyn Services>) -> std::io::Result<Spawned> {
    let (id, memory_mb) = (spec.id.as_str(), spec.limits.memory_mb);
    let (output, writer) = std::io::pipe()?;
    let mut command = Command::new(&spec.exe);
    command
        .arg(RUNNER_COMMAND)
        .arg(id)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(socket))
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn()?;
    // Drops our copies of the writing end: otherwise the pipe would never end.
    drop(command);
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group = group.ok_or_else(|| std::io::Error::other("the system returned no process id"))?;
    let services = services.clone();
    let logging =
        thread::Builder::new().name(format!("e:{id}")).spawn(move || log_output(output, &*services));
    if let Err(error) = logging {
        // It has not begun anything yet. An error means that it has ended.
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    let memory = Group::new(id, memory_mb.saturating_mul(BYTES_PER_MB));
    let memory = memory.filter(|memory| memory.add(child.id()).is_ok());
    let bound = format!("its {memory_mb} MiB ([driver.{id}] limits, memory_mb)");
    Ok(Spawned { child, group, memory, bound })
}

/// Logs the output of a child line by line; the service's own limits for log lines apply.
fn log_output(output: PipeReader, services: &dyn Services) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while matches!(output.by_ref().take(OUTPUT_LINE_BYTES_MAX).read_until(b'\n', &mut line), Ok(1..)) {
        let message = String::from_utf8_lossy(&line).trim().to_owned();
        if !message.is_empty() {
            let target = "output".to_owned();
            services.log(LogLine { dest: 0, level: OUTPUT_LEVEL, target, message, fields: Vec::new() });
        }
        line.clear();
    }
}

impl Spawned {
    /// Waits at most `grace` for its end, then kills it and its group. Returns how it ended by itself, or `None`.
    pub(super) fn end(mut self, grace: Duration) -> Option<Ended> {
        let ended_itself = self.wait(grace);
        // Before its process id can be reused. An error means that no process is left.
        let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
        self.memory.iter().for_each(Group::end);
        let status = self.child.wait().ok()?;
        if self.memory.as_ref().is_some_and(Group::is_over) {
            return Some(Ended::Crashed(format!("took more memory than {}", self.bound)));
        }
        // Without a group the system refuses memory, and most programs then abort.
        let bound = self.memory.is_none().then_some(&*self.bound);
        let spent = status.signal() == Some(libc::SIGXCPU);
        ended_itself.then(|| if spent { Ended::Spent } else { Ended::Crashed(verdict(status, bound)) })
    }

    /// It and its own children are in a control group, which limits their memory.
    pub(super) fn is_grouped(&self) -> bool {
        self.memory.is_some()
    }

    /// It has ended; a process that it left behind may still hold its socket.
    pub(super) fn has_ended(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Whether it ended within `limit`. Its process id stays reserved.
    fn wait(&self, limit: Duration) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        for _ in 0..=limit.as_millis() as u64 / POLL_MS {
            match rustix::process::waitid(WaitId::Pid(self.group), options) {
                Ok(None) if limit.is_zero() => return false,
                Ok(None) => thread::sleep(Duration::from_millis(POLL_MS)),
                Ok(Some(_)) | Err(_) => return true,
            }
        }
        false
    }
}

pub(super) enum Ended {
    /// A fault, with its text.
    Crashed(String),
    /// It used up its processor time.
    Spent,
}

/// How it ended; `bound` is the memory limit that may have been hit.
fn verdict(status: ExitStatus, bound: Option<&str>) -> String {
    let Some(signal) = status.signal() else {
        return format!("ended with exit code {}", status.code().unwrap_or(-1));
    };
    let meaning = match signal {
        libc::SIGSEGV => ", a memory fault",
        libc::SIGBUS => ", a bus error",
        libc::SIGABRT => ", aborted",
        libc::SIGILL => ", an illegal instruction",
        libc::SIGFPE => ", an arithmetic fault",
        libc::SIGKILL => ", killed",
        _ => "",
    };
    let hint = bound.filter(|_| signal == libc::SIGABRT);
    let hint = hint.map(|bound| format!("; a program that needs more memory than {bound} ends like this"));
    format!("crashed (signal {signal}{meaning}){}", hint.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_named() {
        let bound = Some("its 8 MiB");
        assert_eq!(verdict(ExitStatus::from_raw(11), bound), "crashed (signal 11, a memory fault)");
        assert_eq!(verdict(ExitStatus::from_raw(7 << 8), bound), "ended with exit code 7");
        assert_eq!(verdict(ExitStatus::from_raw(6), None), "crashed (signal 6, aborted)");
        assert_eq!(
            verdict(ExitStatus::from_raw(6), bound),
            "crashed (signal 6, aborted); a program that needs more memory than its 8 MiB ends like this"
        );
    }
}
