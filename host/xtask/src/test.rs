//! `cargo xtask test`: everything a change must pass, on a machine that has only Rust to begin with.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::{build, npm, openapi, process, python, setup, workspace};

/// Modules of the service whose tests have a database, and are run on SQLite with all others and on PostgreSQL besides.
const WITH_DATABASE: [&str; 5] = ["store", "billing", "webhooks", "playback", "wallet"];

/// Not those that are cut off at each of their steps: each cut costs a connection to the server, and they take minutes there.
const CUT_OFF: &str = "^wallet::desk::tests::crash::";

/// Sets up, builds and runs all tests, or those whose name contains the one argument.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let filter = match args {
        [] => None,
        [filter] if !filter.starts_with('-') => Some(filter.as_str()),
        _ => return Err("`cargo xtask test` takes at most one word to filter the tests by".into()),
    };
    let mut report = Report::default();
    report.step("system packages", setup::run)?;
    report.step("players and clients", npm::install)?;
    report.step("Python tools", python::install)?;
    let mut binary = None;
    report.step("build", || build::run(build::Profile::Debug).map(|path| binary = Some(path)))?;
    let binary = binary.ok_or("the build gave no binary")?;

    report.step("drivers outside the workspace", outside)?;
    if filter.is_none() {
        report.note("the queue in every order of its threads", models);
    }

    let nextest = process::available("cargo-nextest", "--version");
    // All of these run even when one fails, so that one run shows everything that is wrong.
    report.note("unit, integration and end-to-end tests", || {
        let mut cargo = process::cargo();
        if nextest {
            cargo.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
            cargo.args(["--config-file", "tests/nextest.toml"]);
        } else {
            cargo.args(["test", "--workspace", "--no-fail-fast"]);
        }
        process::run(cargo.args(filter).env("SATCAST_BIN", &binary))
    });
    report.note("tests of the database on PostgreSQL", || on_postgres(nextest, &binary, filter));
    if nextest {
        report.note("documentation tests", || {
            process::run(process::cargo().args(["test", "--workspace", "--doc", "--quiet"]).args(filter))
        });
    }
    if filter.is_none() {
        report.note("openapi/openapi.json is what the code says", || openapi::compare(build::Profile::Debug));
    }
    report.finish()
}

/// Compiles what the tests of drivers outside the workspace need, into the folders they use: within a test it would take too long.
fn outside() -> Result<(), String> {
    let builds = workspace::target_dir().join("authors");
    let cargo = |arguments: &[&str]| {
        let mut cargo = process::cargo();
        cargo.args(arguments).args(["--locked", "--manifest-path", "plugins/examples/recorder/Cargo.toml"]);
        cargo.env("CARGO_TARGET_DIR", builds.join("out")).env("CARGO_BUILD_BUILD_DIR", builds.join("build"));
        process::run(&mut cargo)
    };
    cargo(&["build", "--lib"])?;
    cargo(&["test"])
}

/// Outside the workspace, because the checker would change what the service is built with.
fn models() -> Result<(), String> {
    let mut cargo = process::cargo();
    cargo.args(["run", "--quiet", "--locked", "--manifest-path", "host/model/Cargo.toml"]);
    process::run(cargo.env("CARGO_TARGET_DIR", workspace::target_dir().join("model")))
}

/// Runs the unit tests that have a database once more, beside a server that ends with them.
fn on_postgres(nextest: bool, binary: &Path, filter: Option<&str>) -> Result<(), String> {
    // Built with the tests, beside the service.
    let mut command = process::command(binary.with_file_name("with-postgres"));
    command.arg(process::cargo().get_program());
    if nextest {
        command.args(["nextest", "run", "--workspace", "--no-fail-fast", "--no-tests", "pass"]);
        command.args(["--config-file", "tests/nextest.toml", "-E"]);
        command.arg(format!(
            "package(satcast) and kind(lib) and test(/^({})::/) and not test(/{CUT_OFF}/)",
            WITH_DATABASE.join("|")
        ));
    } else {
        command.args(["test", "--workspace", "--lib", "--no-fail-fast", "--"]);
        command.args(WITH_DATABASE.map(|module| format!("{module}::")));
    }
    // The other form would add its tests, not leave out those of other names.
    process::run(command.args(filter.filter(|_| nextest)))
}

/// What ran, how long it took, and what failed.
#[derive(Default)]
struct Report {
    lines: Vec<(String, Duration, Result<(), String>)>,
}

impl Report {
    /// Runs a step that the following ones need: its failure ends the run.
    fn step(&mut self, name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        self.note(name, work);
        match self.lines.last() {
            Some((_, _, Err(reason))) => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    /// Runs a step and goes on whatever comes of it.
    fn note(&mut self, name: &str, work: impl FnOnce() -> Result<(), String>) {
        println!("== {name}");
        let started = Instant::now();
        let result = work();
        self.lines.push((name.to_owned(), started.elapsed(), result));
    }

    fn finish(self) -> Result<(), String> {
        println!("\n== what ran");
        let mut failed = 0_usize;
        for (name, took, result) in &self.lines {
            let seconds = took.as_secs_f64();
            match result {
                Ok(()) => println!("  ok      {seconds:7.1} s  {name}"),
                Err(reason) => {
                    failed += 1;
                    println!("  FAILED  {seconds:7.1} s  {name}: {reason}");
                }
            }
        }
        if failed == 0 { Ok(()) } else { Err(format!("{failed} of {} steps failed", self.lines.len())) }
    }
}
