//! Checks a library in a child process, so that nothing it does harms this process.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use super::error::LoadError;
use super::loader::{self, KNOWN_EXTENSION};

/// Name of the hidden subcommand that the child runs.
pub const PROBE_COMMAND: &str = "driver-probe";
pub const PROBE_TIMEOUT_MS: u64 = 5_000;
const PROBE_CPU_SECS: u64 = 5;
/// Bytes of the child's error text that are read.
const PROBE_TEXT_BYTES_MAX: u64 = 4 * 1024;
const POLL_MS: u64 = 2;
/// A new release probes again.
const RELEASE: &str = env!("CARGO_PKG_VERSION");
/// Exit code of a child that refused the library regularly.
const EXIT_REFUSED: u8 = 3;
/// Exit code of a child that accepted the library. Not 0: a library that exits with success is not accepted.
const EXIT_GOOD: u8 = 33;

/// Body of the child: opens the library, checks its table, writes the reason of a refusal to standard error.
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
        Ok(_) => ExitCode::from(EXIT_GOOD),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(EXIT_REFUSED)
        }
    }
}

enum Verdict {
    Good,
    /// Refused regularly. The reason may depend on the system, so the library is probed again later.
    Refused(String),
    /// It crashed, exited or did not return: it is not run again.
    Dangerous(String),
}

/// Probes the library at the absolute `path`, which is named by its hash, with the binary `exe`; once per content and
/// release. Blocks for at most [`PROBE_TIMEOUT_MS`].
pub(crate) fn probe(exe: &Path, path: &Path) -> Result<(), LoadError> {
    let known = path.with_extension(KNOWN_EXTENSION);
    match read_known(&known) {
        Some(reason) if reason.is_empty() => return Ok(()),
        Some(reason) => return Err(LoadError::Probe(blocked(&reason, &known))),
        None => {}
    }
    match look(exe, path)? {
        Verdict::Good => {
            write_known(&known, "");
            Ok(())
        }
        Verdict::Refused(reason) => Err(LoadError::Probe(reason)),
        Verdict::Dangerous(reason) => {
            write_known(&known, &reason);
            Err(LoadError::Probe(blocked(&reason, &known)))
        }
    }
}

fn blocked(reason: &str, known: &Path) -> String {
    format!("{reason}; the library is not tried again until {} is deleted", known.display())
}

/// The stored result: empty for a good library, else the reason not to run it. `None` when this release has not
/// probed it.
fn read_known(known: &PathBuf) -> Option<String> {
    let text = fs::read_to_string(known).ok()?;
    let (release, reason) = text.split_once('\n')?;
    (release == RELEASE).then(|| reason.trim().to_owned())
}

fn write_known(known: &PathBuf, reason: &str) {
    // Without the file the library is probed again the next time.
    if let Err(error) = fs::write(known, format!("{RELEASE}\n{reason}\n")) {
        tracing::warn!(file = %known.display(), %error, "cannot store the result of a probe");
    }
}

fn look(exe: &Path, path: &Path) -> Result<Verdict, LoadError> {
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
        // Both only fail when the child has already ended.
        let _ = child.kill();
        let _ = child.wait();
        return Ok(Verdict::Dangerous(format!("did not load within {PROBE_TIMEOUT_MS} ms")));
    };
    if status.code() == Some(i32::from(EXIT_GOOD)) {
        return Ok(Verdict::Good);
    }
    let mut text = Vec::new();
    // If nothing can be read, there is no text.
    let _ = File::open(&said).and_then(|said| said.take(PROBE_TEXT_BYTES_MAX).read_to_end(&mut text));
    Ok(verdict(status, &String::from_utf8_lossy(&text)))
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

fn verdict(status: ExitStatus, text: &str) -> Verdict {
    if let Some(signal) = status.signal() {
        return Verdict::Dangerous(format!("crashes when it is loaded (signal {signal})"));
    }
    let text: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match status.code() {
        Some(code) if code == i32::from(EXIT_REFUSED) && !text.is_empty() => Verdict::Refused(text),
        code => {
            let code = code.unwrap_or(-1);
            Verdict::Dangerous(ends(code))
        }
    }
}

fn ends(code: i32) -> String {
    format!("ends the process when it is loaded (exit code {code})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_content_is_probed_once_and_a_crashed_one_never_again() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let script = |name: &str, body: &str| {
            let exe = folder.path().join(name);
            let text = format!("#!/bin/sh\necho run >> {}\n{body}\n", runs.display());
            fs::write(&exe, text).unwrap();
            fs::set_permissions(&exe, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            exe
        };
        let count = || fs::read_to_string(&runs).unwrap_or_default().lines().count();
        let image = |name: &str| folder.path().join(format!("{name}.so"));
        let (good, bad) = (script("good", "exit 33"), script("bad", "kill -ABRT $$"));
        let refuses = script("refuses", "echo no driver >&2; exit 3");
        for _ in 0..2 {
            probe(&good, &image("aa")).unwrap();
            let error = probe(&bad, &image("bb")).unwrap_err().to_string();
            assert!(error.contains("signal 6") && error.contains("bb.known"), "{error}");
        }
        assert_eq!(count(), 2, "each once");
        for _ in 0..2 {
            assert_eq!(probe(&refuses, &image("cc")).unwrap_err().to_string(), "no driver");
        }
        assert_eq!(count(), 4, "a regular refusal is probed again");
        fs::remove_file(folder.path().join("bb.known")).unwrap();
        fs::write(folder.path().join("aa.known"), "0.0.1\n\n").unwrap();
        probe(&good, &image("bb")).unwrap();
        probe(&good, &image("aa")).unwrap();
        assert_eq!(count(), 6, "deleted, or from another release");
        let error = probe(&script("ends", "exit 0"), &image("dd")).unwrap_err().to_string();
        assert!(error.starts_with(&ends(0)), "{error}");
    }

    #[test]
    fn a_library_that_ends_the_process_text() {
        assert_eq!(ends(7), "ends the process when it is loaded (exit code 7)");
    }
}
