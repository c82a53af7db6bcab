//! `cargo xtask bench`: the cost of a stream, compared with other servers in the same run.

use std::path::{Path, PathBuf};

use crate::{build, npm, process, setup, workspace};

/// Benchmarks of whole servers.
const SERVERS: [&str; 7] = ["relay", "playback", "api", "archive", "webhooks", "boundary", "growth"];

/// Parts of `playback` with a name of their own.
const PLAYBACK: &str = "playback";
const PLAYBACK_PARTS: [&str; 4] = ["start", "package", "viewers", "recorded"];

/// The benchmark of the database, which needs a server beside it.
const MONEY: &str = "money";

/// A benchmark with its arguments.
type Part = (&'static str, &'static [&'static str]);

/// The rows that have goals.
const ALL: [Part; 4] = [
    ("relay", &["1x1", "1x3", "10x1", "100x1", "100x3", "10x3-now", "100x3-now", "srt-1x1", "srt-10x1"]),
    (PLAYBACK, &PLAYBACK_PARTS),
    ("api", &["offline", "live"]),
    ("archive", &[]),
];
/// The rows that tell a developer most in a minute.
const SHORT: [Part; 3] = [
    ("relay", &["10x3", "10x3-now", "--short", "--repeats", "1", "--seconds", "3"]),
    (PLAYBACK, &["newest", "--short", "--repeats", "1", "--seconds", "3"]),
    ("api", &["offline", "--short", "--repeats", "1", "--seconds", "3"]),
];

/// The page that is made from results.
const PAGE: &str = "docs/benchmarks.md";
/// The program that makes files and tables of results.
const TABLES: &str = "bench-tables";
/// The variable with the file that benchmarks write their results to.
const RESULTS: &str = "BENCH_RESULTS";

/// `all` measures every row that has a goal. `money` measures the store on both of its engines, `boundary` a host with many streams and
/// one driver, and `parts` the chunk reader, the writer and similar code.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let Some((name, rest)) = args.split_first() else {
        return Err(format!("name a benchmark: {}", known()));
    };
    match name.as_str() {
        "all" => match rest.iter().position(|argument| argument == "--short") {
            Some(at) => measure("short", &SHORT, &[&rest[..at], &rest[at + 1..]].concat()),
            None => measure("all", &ALL, rest),
        },
        "compare" => match rest {
            [before, after] => tables("compare", &[absolute(before)?, absolute(after)?]),
            _ => Err("`cargo xtask bench compare` takes two files of results: BEFORE AFTER".into()),
        },
        "page" => {
            let mut paths = vec![workspace::root().join(PAGE)];
            for file in rest {
                paths.push(absolute(file)?);
            }
            tables("page", &paths)
        }
        MONEY => money(),
        "parts" => parts(rest),
        part if PLAYBACK_PARTS.contains(&part) => measure(part, &[(PLAYBACK, &[])], args),
        server => match SERVERS.iter().find(|known| **known == server) {
            Some(server) => measure(server, &[(*server, &[])], rest),
            None => Err(format!("unknown benchmark \"{server}\"; there are {}", known())),
        },
    }
}

fn known() -> String {
    let servers = [&SERVERS[..], &PLAYBACK_PARTS[..]].concat().join(", ");
    format!("all, {servers}, money and parts; compare and page make tables of results")
}

/// A path of the caller, who may be in another folder.
fn absolute(path: &str) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("cannot use the path {path}: {error}"))
}

/// Measures the parts one after the other with a release build, real encoders, servers and viewers; then prints all results. A part
/// that fails does not keep the others from being measured.
fn measure(name: &str, parts: &[Part], more: &[String]) -> Result<(), String> {
    setup::run()?;
    npm::install()?;
    let binary = build::run(build::Profile::Release)?;
    let program = binary.with_file_name(TABLES);
    let command: Vec<String> = std::env::args().skip(1).collect();
    let command = format!("cargo xtask {}", command.join(" "));
    let file = process::output(process::command(&program).args(["begin", name, &command]))?;
    let file = file.trim();
    let mut failed = Vec::new();
    for (bench, args) in parts {
        let mut cargo = process::cargo();
        cargo.args(["bench", "--workspace", "--bench", *bench, "--"]).args(*args).args(more);
        if let Err(reason) = process::run(cargo.env("SATCAST_BIN", &binary).env(RESULTS, file)) {
            println!("error: {reason}");
            failed.push(*bench);
        }
    }
    process::run(process::command(&program).args(["table", file]))?;
    println!("the results are in {file}");
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "these benchmarks failed, and the table lacks their results: {}; their output above tells why",
        failed.join(", ")
    ))
}

/// Makes a table of files of results.
fn tables(command: &str, paths: &[PathBuf]) -> Result<(), String> {
    process::run(process::cargo().args(["build", "--workspace", "--release", "--bin", TABLES]))?;
    let program = build::Profile::Release.folder().join(TABLES);
    process::run(process::command(program).arg(command).args(paths))
}

/// The store in one process, release build, on files and on its own PostgreSQL server with an operator's durability.
fn money() -> Result<(), String> {
    setup::run()?;
    let binary = build::run(build::Profile::Release)?;
    let mut command = process::command(binary.with_file_name("with-postgres"));
    command.arg("--durable").arg(process::cargo().get_program());
    process::run(command.args(["bench", "--workspace", "--bench", MONEY]))
}

/// Micro-benchmarks of all packages; `args` go to criterion.
///
/// Each package is named, because cargo would otherwise start the unit tests too, which do not know criterion's arguments.
fn parts(args: &[String]) -> Result<(), String> {
    let mut names = Vec::new();
    for folder in ["plugin-api", "plugins", "host"] {
        names.extend(workspace::files(folder, "rs")?.iter().filter_map(|path| target(path)));
    }
    names.retain(|name| name != MONEY && !SERVERS.contains(&name.as_str()));
    if names.is_empty() {
        return Err("no package has a micro-benchmark".into());
    }
    let mut cargo = process::cargo();
    cargo.args(["bench", "--workspace"]).args(names.iter().flat_map(|name| ["--bench", name]));
    process::run(cargo.arg("--").args(args))
}

/// The benchmark whose file this is. Deeper files are modules of one.
fn target(path: &str) -> Option<String> {
    let path = Path::new(path);
    let is_direct = path.parent()?.file_name()? == "benches";
    is_direct.then(|| path.file_stem().map(|name| name.to_string_lossy().into_owned()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_run_is_a_benchmark() {
        for (bench, _) in ALL.iter().chain(&SHORT) {
            assert!(SERVERS.contains(bench), "{bench}");
        }
    }

    #[test]
    fn only_files_directly_in_a_folder_of_benchmarks_are_benchmarks() {
        assert_eq!(target("plugins/hls/benches/minute.rs"), Some("minute".to_owned()));
        assert_eq!(target("plugins/archive/benches/common/mod.rs"), None);
        assert_eq!(target("plugins/hls/src/lib.rs"), None);
    }

    #[test]
    fn unknown_names_and_missing_files_are_refused() {
        for line in ["", "nothing", "compare one"] {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            assert!(run(&args).is_err(), "{line}");
        }
    }
}
