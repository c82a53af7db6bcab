//! Starting other programs: printed, with the repository root as working folder, checked.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::workspace;

/// A command that works in the repository root.
///
/// Removes cargo's variables of this package: build scripts depend on them, and would run again, with all that
/// depends on them, in every cargo that the command starts.
pub(crate) fn command<S: AsRef<OsStr>>(program: S) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace::root());
    let of_package = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for name in std::env::vars_os().map(|(name, _)| name).filter(of_package) {
        command.env_remove(name);
    }
    command
}

/// The cargo that started this program.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Prints the command line, runs it with our terminal, and fails unless it exits with 0.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let line = line(command);
    println!("+ {line}");
    let status = command.status().map_err(|error| format!("cannot start `{line}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` failed: {status}")) }
}

/// A command that runs in parallel; its output goes to a file until `finish`.
pub(crate) struct Beside {
    child: Child,
    line: String,
    printed: PathBuf,
}

impl Beside {
    /// Starts the command; its output goes to the file `printed`.
    pub(crate) fn start(command: &mut Command, printed: &Path) -> Result<Self, String> {
        let line = line(command);
        println!("+ {line} (beside what follows)");
        let cannot = |error: std::io::Error| format!("cannot start `{line}`: {error}");
        let out = File::create(printed).map_err(cannot)?;
        let err = out.try_clone().map_err(cannot)?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().map_err(cannot)?;
        Ok(Self { child, line, printed: printed.to_owned() })
    }

    /// Waits for its end, prints its output, and fails unless it exits with 0.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        let line = self.line;
        let status = self.child.wait().map_err(|error| format!("cannot wait for `{line}`: {error}"))?;
        println!("+ {line}");
        let mut printed = File::open(&self.printed)
            .map_err(|error| format!("cannot read {}: {error}", self.printed.display()))?;
        std::io::copy(&mut printed, &mut std::io::stdout())
            .map_err(|error| format!("cannot print {}: {error}", self.printed.display()))?;
        if status.success() { Ok(()) } else { Err(format!("`{line}` failed: {status}")) }
    }
}

/// Runs a command without output and returns its standard output; an error contains its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let line = line(command);
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("cannot start `{line}`: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{line}` failed: {}: {}", output.status, stderr.trim()));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{line}` printed something that is not UTF-8"))
}

/// Whether `program` can be started at all (it is asked for its version).
pub(crate) fn available(program: &str, version_argument: &str) -> bool {
    Command::new(program)
        .arg(version_argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned();
    command.get_args().fold(name, |line, argument| format!("{line} {}", argument.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parallel_command_reports_its_exit_and_output() {
        let printed = std::env::temp_dir().join(format!("satcast-beside-{}", std::process::id()));
        let run = |script: &str| {
            let beside = Beside::start(Command::new("sh").args(["-c", script]), &printed)?;
            beside
                .finish()
                .and_then(|()| std::fs::read_to_string(&printed).map_err(|error| error.to_string()))
        };
        assert_eq!(run("echo out; echo err >&2"), Ok("out\nerr\n".to_owned()));
        assert!(run("exit 3").is_err_and(|reason| reason.contains('3')));
        std::fs::remove_file(&printed).unwrap();
        assert!(Beside::start(&mut Command::new("/no/such/program"), &printed).is_err());
        std::fs::remove_file(&printed).unwrap();
    }
}
