//! The code on both sides of the driver contract under instruments: AddressSanitizer, ThreadSanitizer and Miri.
//!
//! All of them need a nightly toolchain, ThreadSanitizer also the sources of the standard library (component `rust-src`), and Miri its
//! own component. Nothing is installed here: what is not there is printed as skipped.

use std::path::Path;
use std::process::Command;

use crate::{process, workspace};

/// The toolchain that has them.
const TOOLCHAIN: &str = "+nightly";
/// What is looked at: the contract with the testkit, whose tests hold it from both sides.
const PACKAGE: [&str; 4] = ["--package", "satcast-plugin-api", "--features", "testkit"];
/// Tests of the contract's own memory, without a driver's runtime, which an interpreter takes too long for.
const INTERPRETED: [&str; 4] = ["--lib", "--test", "tables", "--test=hostile"];
/// Those of them that Miri cannot run: they look at the system, or start a driver's runtime.
const NOT_INTERPRETED: [&str; 2] = ["opened_and_ended_a_thousand_times", "a_driver_that_panics_is_refused"];

/// Runs all that can be run here, one after the other.
pub(crate) fn run() -> Result<(), String> {
    let Some(sysroot) = answer(Command::new("rustc").args([TOOLCHAIN, "--print", "sysroot"])) else {
        println!("skipped: AddressSanitizer, ThreadSanitizer and Miri, which need a nightly toolchain");
        return Ok(());
    };
    let triple = answer(Command::new("rustc").args([TOOLCHAIN, "-vV"])).unwrap_or_default();
    let triple = triple
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .ok_or("rustc -vV of the nightly toolchain names no host")?;
    sanitizer("address", triple, &[])?;
    if Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library").is_dir() {
        sanitizer("thread", triple, &["-Zbuild-std"])?;
    } else {
        // Locks of a standard library that was built without it look like races.
        println!("skipped: ThreadSanitizer, which needs the component rust-src of the nightly toolchain");
    }
    if answer(Command::new("cargo").args([TOOLCHAIN, "miri", "--version"])).is_none() {
        println!("skipped: Miri, which is a component of the nightly toolchain");
        return Ok(());
    }
    let skipped = NOT_INTERPRETED.iter().flat_map(|name| ["--skip", name]);
    let mut cargo = cargo("miri");
    cargo.args(["miri", "test"]).args(PACKAGE).args(INTERPRETED).arg("--").args(skipped);
    // Packets go through integers where a C driver keeps them; threads yield where they would wait.
    process::run(
        cargo.env("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks"),
    )
}

/// All tests of the contract with one sanitizer; each has a build of its own.
fn sanitizer(name: &str, triple: &str, arguments: &[&str]) -> Result<(), String> {
    let mut cargo = cargo(name);
    cargo.args(["test"]).args(PACKAGE).args(["--tests", "--target", triple]).args(arguments);
    // Host tables and their contexts live for the process: a late call of a driver must find them.
    cargo.env("ASAN_OPTIONS", "detect_leaks=0");
    process::run(cargo.env("RUSTFLAGS", format!("-Zsanitizer={name}")))
}

fn cargo(build: &str) -> Command {
    // The wrapper that knows toolchains, not the cargo that started us.
    let mut cargo = process::command("cargo");
    cargo.arg(TOOLCHAIN).env_remove("RUSTUP_TOOLCHAIN");
    cargo.env("CARGO_TARGET_DIR", workspace::target_dir().join("instruments").join(build));
    cargo
}

/// What a program prints, if it is there and content.
fn answer(command: &mut Command) -> Option<String> {
    let output = command.env_remove("RUSTUP_TOOLCHAIN").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
