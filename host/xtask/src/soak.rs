//! `cargo xtask soak`: the tests of `cargo xtask test` in their long forms. Bounded, and every seed is printed.

use std::path::Path;

use crate::{build, instruments, npm, process, python, setup, workspace};

/// Minutes for each fuzz target when none are named.
const FUZZ_MINUTES: u64 = 5;
/// Executions of each fuzz target with `fuzz`, when none are named.
const FUZZ_EXECUTIONS: u64 = 10_000_000;
/// Targets whose inputs are kept short, in bytes: longer ones repeat themselves, and millions of them would take days.
const FUZZ_LENGTHS: [(&str, usize); 1] = [("segmenter", 768)];
/// Factor for the rounds of the mutation and property tests (each has thousands in its short form).
const MUTATION_FACTOR: u64 = 500;
/// Times that the service is killed in mid-stream and started again.
const CRASHES: u64 = 200;
/// Tests with a browser that plays.
const BROWSERS: [&str; 2] = ["player::", "player_window::"];
/// The fuzz crates, outside the workspace because of their compiler flags.
const FUZZ: [&str; 2] = ["plugin-api/media/fuzz", "host/live/fuzz"];

/// Instrumentation that guides libFuzzer, as rustc's stable channel has it.
const FUZZ_FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cdebug-assertions=on -Ccodegen-units=1";

/// Runs the long forms, one after the other, and stops at the first failure.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let number = |text: &str, what| text.parse().map_err(|_| format!("\"{text}\" is not a number of {what}"));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let minutes = match args[..] {
        [] => FUZZ_MINUTES,
        ["fuzz"] => return fuzz(&Budget::Executions(FUZZ_EXECUTIONS)),
        ["fuzz", executions] => return fuzz(&Budget::Executions(number(executions, "executions")?)),
        [minutes] => number(minutes, "minutes")?,
        _ => {
            return Err(
                "`cargo xtask soak` takes minutes for each fuzz target, or fuzz and executions".into()
            );
        }
    };
    setup::run()?;
    npm::install()?;
    python::install()?;
    let binary = build::run(build::Profile::Debug)?;
    rounds(&["--workspace", "--exclude", "satcast-tests"], MUTATION_FACTOR, &binary, &[])?;
    rounds(
        &["--package", "satcast-tests"],
        CRASHES,
        &binary,
        &BROWSERS.map(|module| ["--skip", module]).concat(),
    )?;
    browsers(&binary)?;
    instruments::run()?;
    fuzz(&Budget::Seconds(minutes * 60))
}

/// How long each fuzz target runs.
enum Budget {
    Seconds(u64),
    Executions(u64),
}

impl Budget {
    /// The argument for libFuzzer.
    fn argument(&self) -> String {
        match self {
            Budget::Seconds(seconds) => format!("-max_total_time={seconds}"),
            Budget::Executions(count) => format!("-runs={count}"),
        }
    }
}

/// Tests whose name contains `soak_` or `mutated` read `SATCAST_SOAK_ITERATIONS`; in a normal run they use their short form.
fn rounds(packages: &[&str], iterations: u64, binary: &Path, more: &[&str]) -> Result<(), String> {
    let mut cargo = process::cargo();
    cargo.args(["test"]).args(packages).args(["--", "soak_", "mutated", "--nocapture"]).args(more);
    cargo.env("SATCAST_SOAK_ITERATIONS", iterations.to_string()).env("SATCAST_BIN", binary);
    process::run(&mut cargo)
}

/// Ten minutes each at the live edge, plain and with low latency, one after the other: a busy machine stalls every player.
fn browsers(binary: &Path) -> Result<(), String> {
    let mut cargo = process::cargo();
    cargo.args(["test", "--package", "satcast-tests", "--test", "e2e", "--"]);
    cargo.args(BROWSERS.map(|module| format!("{module}soak_"))).args(["--nocapture", "--test-threads=1"]);
    cargo.env("SATCAST_SOAK_ITERATIONS", CRASHES.to_string()).env("SATCAST_BIN", binary);
    process::run(&mut cargo)
}

/// Runs every fuzz target. libFuzzer prints the seed and the number of runs, and writes its findings into `artifacts`.
fn fuzz(budget: &Budget) -> Result<(), String> {
    FUZZ.iter().try_for_each(|package| fuzz_package(package, budget))
}

fn fuzz_package(package: &str, budget: &Budget) -> Result<(), String> {
    let targets = workspace::files(&format!("{package}/fuzz_targets"), "rs")?;
    if targets.is_empty() {
        return Err(format!("there is no fuzz target below {package}/fuzz_targets"));
    }
    // With a target of its own, build scripts and macros are built without the instrumentation.
    let triple = process::output(process::command("rustc").arg("-vV"))?;
    let triple =
        triple.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc -vV names no host")?;
    let folder = workspace::root().join(package);
    for target in targets {
        let name = Path::new(&target).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (corpus, artifacts) = (folder.join("corpus").join(&name), folder.join("artifacts"));
        for path in [&corpus, &artifacts] {
            std::fs::create_dir_all(path)
                .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        }
        // New inputs go to the first folder, which is not the committed one.
        let found = folder.join("target").join("found").join(&name);
        std::fs::create_dir_all(&found)
            .map_err(|error| format!("cannot make {}: {error}", found.display()))?;
        let mut cargo = process::cargo();
        cargo.current_dir(&folder).env("RUSTFLAGS", FUZZ_FLAGS);
        cargo.args(["run", "--release", "--target", triple, "--bin", &name, "--"]);
        cargo.arg(&found).arg(&corpus).arg(budget.argument());
        if let Some((_, bytes)) = FUZZ_LENGTHS.iter().find(|(target, _)| *target == name) {
            cargo.arg(format!("-max_len={bytes}"));
        }
        cargo.arg(format!("-artifact_prefix={}/", artifacts.display()));
        process::run(cargo.args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]))?;
    }
    Ok(())
}
