//! `cargo xtask test`: everything a change must pass, on a machine that has only Rust and Node to begin with.
//!
//! One build of one feature set serves the service, every test and the pass on PostgreSQL. Steps that need another build are of
//! [`Kind::Apart`], so that the report shows their seconds.

use std::path::{Path, PathBuf};

use crate::process::Beside;
use crate::report::{Kind, Report};
use crate::{build, npm, openapi, process, python, setup, symbols, workspace};

/// Packages whose tests use a database. They run on SQLite with all others, and also on PostgreSQL. nextest refuses unknown names.
const WITH_DATABASE: [&str; 4] = ["satcast-store", "satcast-money", "satcast-archive", "satcast-webhooks"];

/// A single module with such tests: its package, and its folder.
const MODULE_WITH_DATABASE: (&str, &str) = ("satcast-web", "host/web/src/playback");

/// Tests that are left out there: they are cut off at each of their steps, and each cut costs a connection, so they take minutes.
const CUT_OFF: &str = "^wallet::topups::tests::crash::";

/// The file with nextest's durations, below cargo's output.
const JUNIT: [&str; 2] = ["nextest/default/junit.xml", "nextest/postgres/junit.xml"];

/// Sets up, builds and runs all tests, or those whose name contains the one argument.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let filter = match args {
        [] => None,
        [filter] if !filter.starts_with('-') => Some(filter.as_str()),
        _ => return Err("`cargo xtask test` takes at most one filter for the names of tests".into()),
    };
    let mut report = Report::default();
    // A failed step ends the run, and the report names it.
    if let Ok(binary) = prepare(&mut report) {
        test(&mut report, &binary, filter);
    }
    report.finish()
}

/// Installs the tools and builds everything; gives the path of the service.
fn prepare(report: &mut Report) -> Result<PathBuf, String> {
    report.step(Kind::Tools, "system packages", setup::run)?;
    report.step(Kind::Tools, "packages of npm", npm::install)?;
    report.step(Kind::Tools, "packages of Python", python::install)?;
    let binary = report.step(Kind::Work, "build the service and every test", build::with_tests)?;
    report.step(Kind::Apart, "build an example driver outside of the workspace", examples)?;
    Ok(binary)
}

/// All of these steps run even when one fails, so that one run shows all failures.
fn test(report: &mut Report, binary: &Path, filter: Option<&str>) {
    if filter.is_none() {
        report.note(Kind::Apart, "the queue in every order of its threads (loom)", models);
    }
    let junit = JUNIT.map(|file| workspace::target_dir().join(file));
    // The durations of an earlier run must not be shown.
    junit.iter().for_each(|file| drop(std::fs::remove_file(file)));
    // End-to-end tests wait for media more than they compute.
    let on_postgres = on_postgres(binary, filter);
    report.note(Kind::Work, "unit, integration and end-to-end tests", || {
        let mut cargo = process::cargo();
        cargo.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
        cargo.args(["--config-file", "tests/nextest.toml"]);
        process::run(cargo.args(filter).env("SATCAST_BIN", binary))
    });
    report.note(Kind::Work, "tests of the database on PostgreSQL (begun with the step before)", || {
        on_postgres.and_then(Beside::finish)
    });
    junit.iter().for_each(|file| report.tests(file));
    // cargo also checks packages with `doctest = false`, which takes less than a second. A single named package would be built with
    // other features.
    report.note(Kind::Work, "documentation tests", || {
        process::run(process::cargo().args(["test", "--workspace", "--doc", "--quiet"]).args(filter))
    });
    if filter.is_none() {
        report.note(Kind::Work, "spelling", python::spelling);
        report.note(Kind::Work, "exported symbols of the service and its drivers", || {
            symbols::check(&build::Profile::Debug.folder())
        });
        report
            .note(Kind::Work, "openapi/openapi.json is current", || openapi::compare(build::Profile::Debug));
    }
}

/// Compiles the drivers outside the workspace into the folders that their tests use, because it would take too long within a test.
fn examples() -> Result<(), String> {
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

/// Outside the workspace, because the checker would change the features of the service.
fn models() -> Result<(), String> {
    let mut cargo = process::cargo();
    cargo.args(["run", "--quiet", "--locked", "--manifest-path", "host/model/Cargo.toml"]);
    process::run(cargo.env("CARGO_TARGET_DIR", workspace::target_dir().join("model")))
}

/// Starts the unit tests with a database again, beside a PostgreSQL server that ends with them.
fn on_postgres(binary: &Path, filter: Option<&str>) -> Result<Beside, String> {
    let (package, folder) = MODULE_WITH_DATABASE;
    let module = Path::new(folder).file_name().unwrap_or_default().to_string_lossy();
    if !Path::new(folder).is_dir() {
        return Err(format!(
            "the folder {folder} does not exist; correct the module with a database in host/xtask/src/test.rs"
        ));
    }
    // Built with the tests, beside the service.
    let mut command = process::command("nice");
    command.arg(binary.with_file_name("with-postgres"));
    command.arg(process::cargo().get_program());
    command.args(["nextest", "run", "--workspace", "--no-fail-fast", "--no-tests"]);
    // The filter of the user may match no test here.
    command.arg(if filter.is_some() { "pass" } else { "fail" });
    command.args(["--config-file", "tests/nextest.toml", "--profile", "postgres", "-E"]);
    command.arg(format!(
        "kind(lib) and (package({}) or package({package}) and test(/^{module}::/)) and not test(/{CUT_OFF}/)",
        WITH_DATABASE.join(") or package(")
    ));
    Beside::start(command.args(filter), &workspace::target_dir().join("on-postgres.txt"))
}
