//! Third-party tools and generated clients for the committed API document: npm packages of `tests/clients`, and the Python packages
//! that `cargo xtask setup` installs below cargo's output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::process::{Process, guarded};
use crate::source::target_dir;

/// Longest that one tool may take; generating is quick, type checking and a flow in real time are not.
const TOOL_LIMIT: Duration = Duration::from_secs(150);

/// The folder of the scripts and of the npm packages.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// The committed document.
#[must_use]
pub fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../openapi/openapi.json")
}

/// A command of an installed npm package.
///
/// # Panics
/// When it is not installed.
#[must_use]
pub fn npm(name: &str) -> Command {
    installed(&folder().join("node_modules/.bin").join(name))
}

/// A command of the Python environment, `python` itself too.
///
/// # Panics
/// When it is not installed.
#[must_use]
pub fn python(name: &str) -> Command {
    let mut command = installed(&target_dir().join("clients-python/bin").join(name));
    // Imports no other packages of the machine, and writes nothing beside the sources.
    command.env("PYTHONNOUSERSITE", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn installed(program: &Path) -> Command {
    assert!(program.exists(), "{} is not there; `cargo xtask test` installs it", program.display());
    guarded(program)
}

/// Runs a tool that must succeed; returns its standard output.
///
/// # Panics
/// When it fails.
#[track_caller]
pub fn run(name: &str, command: &mut Command) -> String {
    let output = output(name, command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} ended with {}:\n{said}\n{errors}", output.status);
    said
}

/// Runs a tool to its end.
///
/// # Panics
/// When it cannot be started.
pub fn output(name: &str, command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot start {name}: {error}"))
}

/// Runs a long one with a limit of time; gives the last line that it printed.
///
/// # Panics
/// When it fails or does not end, with everything it printed.
#[track_caller]
pub fn last_line(name: &str, command: Command, log: &Path) -> String {
    let mut process = Process::start(name, command, log);
    let status = process.wait(TOOL_LIMIT);
    let said = process.log();
    assert!(status.success(), "{name} ended with {status}:\n{said}");
    said.lines().last().unwrap_or_default().to_owned()
}
