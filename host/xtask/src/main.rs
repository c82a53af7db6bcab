//! Project commands, run as `cargo xtask <command>` from any folder of the repository.
//!
//! Everything that the README asks of a newcomer and everything that CI runs goes through here, so that both do
//! the same thing. Each command prints what it starts; a failure is one sentence with the next step.

mod bench;
mod build;
mod check;
mod dist;
mod docs;
mod instruments;
mod manual;
mod map;
mod npm;
mod openapi;
mod packages;
mod process;
mod python;
mod release;
mod report;
mod setup;
mod soak;
mod symbols;
mod test;
mod tour;
mod web;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <command>

  setup                      check the tools and packages the project needs; install them when root
  build [--release]          build the workspace, lay drivers and pages beside the binary
  run [--release] [-- ARGS]  build, then start `satcast run ARGS` in this folder
  test [FILTER]              set up, build and run every test (FILTER: only tests whose name contains it)
  check                      formatting, lints, import rules, file sizes, types and tests of the pages
  header                     write plugin-api/include/satcast_driver.h from the C table; a test compares it
  openapi [--check]          write openapi/openapi.json from the built binary, or compare it
  docs [--release]           write the documents that are made from sources (a check compares them), build the manual
  release VERSION            write VERSION, date its section of the changelog, commit, tag
  tour                       write the screenshots of docs/dashboard.md with the built dashboard
  dist                       build a release, pack it as archive, Debian package and container image into target/dist
  pack BUILD OUT [ARGS]      the same from the build in the folder BUILD, with --version VERSION; --fast: hardly compressed
  map [ARGS]                 count lines, files, types and import circles of the product, with --root PATH those of another checkout;
                             with --circles name the files of each circle
  bench all [--short]        every row that has a goal beside other servers, with --repeats N and --seconds S; --short: a minute
  bench growth [NAME]        CPU, memory and p99 from one stream, viewer, webhook ... to many, with the law of each
  bench NAME [ARGS]          relay, playback, api, archive, webhooks, boundary: whole servers; money: the database; parts: micro-benchmarks
  bench compare BEFORE AFTER two files of results, which the commands above leave in target/bench
  bench page FILE...         write the tables of docs/benchmarks.md from files of results
  soak [MINUTES]             long tests: fuzzing (MINUTES for each target, default 5), mutations, kill -9 by the hundred, ten minutes of playback, sanitizers
  soak fuzz [EXECUTIONS]     every fuzz target so many times (default 10000000)
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<(), String> {
    let Some((command, rest)) = args.split_first() else {
        print!("{HELP}");
        return Ok(());
    };
    match command.as_str() {
        "setup" => none_left(rest).and_then(|()| setup::run()),
        "build" => build::run(build::Profile::from_args(rest)?).map(|_| ()),
        "run" => build::run_service(rest),
        "test" => test::run(rest),
        "check" => none_left(rest).and_then(|()| check::run()),
        "header" => none_left(rest).and_then(|()| build::header()),
        "openapi" => openapi::run(rest),
        "docs" => write_docs(build::Profile::from_args(rest)?),
        "release" => release::run(rest),
        "tour" => none_left(rest).and_then(|()| tour::run()),
        "dist" => none_left(rest).and_then(|()| dist::run()),
        "pack" => packages::run(rest),
        "map" => map::run(rest),
        "bench" => bench::run(rest),
        "soak" => soak::run(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("unknown command \"{other}\"; `cargo xtask help` lists them")),
    }
}

/// Writes the generated documents, then builds the manual from all documents into the pages of the build.
fn write_docs(profile: build::Profile) -> Result<(), String> {
    docs::write()?;
    manual::build(&web::folder(profile))
}

fn none_left(rest: &[String]) -> Result<(), String> {
    match rest.first() {
        None => Ok(()),
        Some(extra) => Err(format!("unexpected argument \"{extra}\"; `cargo xtask help` lists the commands")),
    }
}
