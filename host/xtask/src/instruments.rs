//! The code on both sides of the driver contract under instruments: AddressSanitizer, ThreadSanitizer and Miri.
//!
//! AddressSanitizer needs a nightly toolchain; Miri its component of that name. ThreadSanitizer needs a compiler with the sources of the
//! standard library, which must be built with it: locks of one that was not look like races. That is a nightly toolchain with `rust-src`, or
//! the system's compiler with its sources beside it (Debian: `rustc-web` and `rust-web-src`). Nothing is installed here: missing tools are
//! printed as skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{process, workspace};

/// The toolchain with these instruments.
const TOOLCHAIN: &str = "+nightly";
/// The tested package: the contract with the testkit, whose tests cover both sides.
const PACKAGE: [&str; 4] = ["--package", "satcast-plugin-api", "--features", "testkit"];
/// Tests of the contract's own memory. They have no driver runtime, which would take an interpreter too long.
const INTERPRETED: [&str; 4] = ["--lib", "--test", "tables", "--test=hostile"];
/// Tests that Miri cannot run: they read from the system, or start a driver's runtime.
const NOT_INTERPRETED: [&str; 2] = ["a_thousand_openings_leak_nothing", "panics_in_load_refuse_the_driver"];

/// The system's compiler, in addition to those of rustup.
const SYSTEM_COMPILER: &str = "/usr/bin/rustc";
/// Path of the standard library's sources in a compiler's folder.
const SOURCES: &str = "lib/rustlib/src/rust/library";

/// Runs all instruments that are installed, one after the other.
pub(crate) fn run() -> Result<(), String> {
    let triple = answer(Command::new("rustc").arg("-vV")).unwrap_or_default();
    let triple =
        triple.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc -vV names no host")?;
    let nightly = folder_of(Command::new("rustc").arg(TOOLCHAIN));
    match &nightly {
        Some(_) => sanitizer("address", triple, &[])?,
        None => println!("skipped: AddressSanitizer, which needs a nightly toolchain"),
    }
    threads(triple, nightly.as_deref())?;
    if answer(Command::new("cargo").args([TOOLCHAIN, "miri", "--version"])).is_none() {
        println!("skipped: Miri, which is a component of a nightly toolchain");
        return Ok(());
    }
    let skipped = NOT_INTERPRETED.iter().flat_map(|name| ["--skip", name]);
    let mut cargo = cargo("miri");
    cargo.args(["miri", "test"]).args(PACKAGE).args(INTERPRETED).arg("--").args(skipped);
    // A C driver keeps packets as integers; Miri yields threads where they would wait.
    process::run(
        cargo.env("MIRIFLAGS", "-Zmiri-permissive-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks"),
    )
}

/// ThreadSanitizer, with a compiler that has its sources.
fn threads(triple: &str, nightly: Option<&Path>) -> Result<(), String> {
    if nightly.is_some_and(|folder| folder.join(SOURCES).is_dir()) {
        return sanitizer("thread", triple, &["-Zbuild-std"]);
    }
    let system = folder_of(&mut Command::new(SYSTEM_COMPILER)).filter(|folder| folder.join(SOURCES).is_dir());
    let system = system.filter(|_| is_new_enough(&mut Command::new(SYSTEM_COMPILER)));
    let runtime = folder_of(&mut Command::new("rustc")).and_then(|folder| runtime(&folder, triple));
    let (Some(_), Some(runtime)) = (system, runtime) else {
        println!(
            "skipped: ThreadSanitizer, which needs a nightly toolchain with rust-src, or the system's compiler with its sources \
             (rustc-web and rust-web-src)"
        );
        return Ok(());
    };
    // The system's compiler comes without the instrument's library, but that of another version works. It is linked first, as the
    // compiler would do: after the system's libraries the linker would use nothing of it.
    let library = runtime.display();
    let flags = format!(
        "-Zsanitizer=thread -Zexternal-clangrt -Zpre-link-arg=-Wl,--whole-archive -Zpre-link-arg={library} \
         -Zpre-link-arg=-Wl,--no-whole-archive -Clink-arg=-lm -Clink-arg=-Wl,--export-dynamic"
    );
    let mut cargo = process::command("cargo");
    cargo.env("CARGO_TARGET_DIR", workspace::target_dir().join("instruments").join("thread"));
    cargo.env("RUSTC", SYSTEM_COMPILER).env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
    tests(triple, &["-Zbuild-std"], cargo)
}

/// Whether this compiler can build the workspace.
fn is_new_enough(compiler: &mut Command) -> bool {
    let minor = |version: &str| version.split('.').nth(1)?.parse::<u32>().ok();
    let said = answer(compiler.arg("--version")).unwrap_or_default();
    let said = said.split(' ').nth(1).and_then(minor);
    said.is_some_and(|said| Some(said) >= minor(env!("CARGO_PKG_RUST_VERSION")))
}

/// The library of ThreadSanitizer that came with a compiler.
fn runtime(folder: &Path, triple: &str) -> Option<PathBuf> {
    let libraries = std::fs::read_dir(folder.join("lib/rustlib").join(triple).join("lib")).ok()?;
    let is_it = |path: &PathBuf| path.to_string_lossy().ends_with("_rt.tsan.a");
    libraries.filter_map(|entry| Some(entry.ok()?.path())).find(is_it)
}

/// The folder of a compiler, if it is installed.
fn folder_of(compiler: &mut Command) -> Option<PathBuf> {
    answer(compiler.args(["--print", "sysroot"])).map(|folder| PathBuf::from(folder.trim()))
}

/// The tests with one sanitizer of the nightly toolchain; each has a build of its own.
fn sanitizer(name: &str, triple: &str, arguments: &[&str]) -> Result<(), String> {
    let mut cargo = cargo(name);
    cargo.env("RUSTFLAGS", format!("-Zsanitizer={name}"));
    tests(triple, arguments, cargo)
}

/// All tests of the contract; a report of an instrument fails the run.
fn tests(triple: &str, arguments: &[&str], mut cargo: Command) -> Result<(), String> {
    // Host tables and their contexts live for the process: a late call of a driver must find them.
    cargo.env("ASAN_OPTIONS", "detect_leaks=0");
    process::run(cargo.arg("test").args(PACKAGE).args(["--tests", "--target", triple]).args(arguments))
}

fn cargo(build: &str) -> Command {
    // The wrapper that selects toolchains, not the cargo that started this program.
    let mut cargo = process::command("cargo");
    cargo.arg(TOOLCHAIN).env_remove("RUSTUP_TOOLCHAIN");
    cargo.env("CARGO_TARGET_DIR", workspace::target_dir().join("instruments").join(build));
    cargo
}

/// The output of a program, if it exists and succeeds.
fn answer(command: &mut Command) -> Option<String> {
    let output = command.env_remove("RUSTUP_TOOLCHAIN").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
