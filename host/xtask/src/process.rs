//! Starting other programs: printed, with the repository root as working folder, checked.

use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};

use crate::workspace;

/// A command that works in the repository root.
///
/// Without what cargo told us of our own package: build scripts look at those variables too, and would run anew, with all that
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

/// The cargo that started us.
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

/// Runs a command quietly and gives its standard output; its standard error goes into the message of a failure.
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
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned();
    command.get_args().fold(name, |line, argument| format!("{line} {}", argument.to_string_lossy()))
}
