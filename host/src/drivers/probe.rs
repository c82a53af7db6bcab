//! Looking at a library in a child process: whatever it does there, this process lives.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use super::loader::{self, LoadError};

/// Name of the hidden subcommand the child runs.
pub const PROBE_COMMAND: &str = "driver-probe";
/// How long a probe may take.
pub const PROBE_TIMEOUT_MS: u64 = 5_000;
/// CPU time a probe may use.
const PROBE_CPU_SECS: u64 = 5;
/// Bytes of the child's error text that are read.
const PROBE_TEXT_BYTES_MAX: u64 = 4 * 1024;
/// How often the parent looks whether the child has ended.
const POLL_MS: u64 = 2;
/// Exit code of a child that refused the library in order.
const EXIT_REFUSED: u8 = 3;

/// Body of the child: opens the library, checks its table, says on standard error why not.
#[allow(unsafe_code)] // Sets limits of this process.
pub fn child(path: &Path) -> ExitCode {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let cpu = libc::rlimit { rlim_cur: PROBE_CPU_SECS, rlim_max: PROBE_CPU_SECS };
    // SAFETY: plain system calls with valid pointers.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::setrlimit(libc::RLIMIT_CPU, &raw const cpu);
    }
    match loader::open(path) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

/// Probes the library at the absolute `path` with the binary `exe`. Blocks for at most [`PROBE_TIMEOUT_MS`].
pub(super) fn probe(exe: &Path, path: &Path) -> Result<(), LoadError> {
    // A file and not a pipe: a library may leave a process behind that holds the pipe open for ever.
    let said = path.with_extension("probe");
    let stderr = File::create(&said)
        .map_err(|error| LoadError::Probe(format!("cannot be probed: {}: {error}", said.display())))?;
    let child = Command::new(exe)
        .arg(PROBE_COMMAND)
        .arg(path)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn();
    let mut child =
        child.map_err(|error| LoadError::Probe(format!("cannot be probed: {}: {error}", exe.display())))?;
    let Some(status) = wait(&mut child) else {
        // Both only fail when the child has ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
        return Err(LoadError::Probe(format!("did not load within {PROBE_TIMEOUT_MS} ms")));
    };
    if status.success() {
        return Ok(());
    }
    let mut text = Vec::new();
    // Nothing read means that nothing was said.
    let _ = File::open(&said).and_then(|said| said.take(PROBE_TEXT_BYTES_MAX).read_to_end(&mut text));
    Err(LoadError::Probe(verdict(status, &String::from_utf8_lossy(&text))))
}

fn wait(child: &mut Child) -> Option<ExitStatus> {
    for _ in 0..PROBE_TIMEOUT_MS / POLL_MS {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(POLL_MS));
    }
    None
}

fn verdict(status: ExitStatus, text: &str) -> String {
    if let Some(signal) = status.signal() {
        return format!("crashes when it is loaded (signal {signal})");
    }
    let text: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match status.code() {
        Some(code) if code == i32::from(EXIT_REFUSED) && !text.is_empty() => text,
        code => format!("ends the process when it is loaded (exit code {})", code.unwrap_or(-1)),
    }
}
