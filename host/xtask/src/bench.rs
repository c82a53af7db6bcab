//! `cargo xtask bench`: the cost of a stream, compared with another server in the same run.

use std::path::Path;

use crate::{build, npm, process, setup, workspace};

/// Benchmarks of whole servers.
const SERVERS: [&str; 5] = ["relay", "playback", "api", "webhooks", "boundary"];

/// Parts of `playback` with a name of their own.
const PLAYBACK_PARTS: [&str; 2] = ["package", "viewers"];

/// The benchmark of the database, which needs a server beside it.
const MONEY: &str = "money";

/// `money` measures the store on both of its engines. `relay`, `playback`, `api` and `webhooks` measure whole servers, `boundary` a
/// host with many streams and one driver, and `parts` the chunk reader, the writer and similar code.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    match args.split_first().map(|(which, rest)| (which.as_str(), rest)) {
        None => SERVERS
            .into_iter()
            .try_for_each(|name| servers(name, &[]))
            .and_then(|()| money())
            .and_then(|()| parts(&[])),
        Some((name, rest)) if SERVERS.contains(&name) => servers(name, rest),
        Some((part, _)) if PLAYBACK_PARTS.contains(&part) => servers("playback", args),
        Some((MONEY, _)) => money(),
        Some(("parts", rest)) => parts(rest),
        Some((other, _)) => {
            let known = [&SERVERS[..], &PLAYBACK_PARTS[..]].concat().join(", ");
            Err(format!("unknown benchmark \"{other}\"; the benchmarks are {known}, money and parts"))
        }
    }
}

/// CPU of the service and of nginx, release build, real encoders, servers and viewers.
fn servers(name: &str, args: &[String]) -> Result<(), String> {
    setup::run()?;
    npm::install()?;
    let binary = build::run(build::Profile::Release)?;
    let mut cargo = process::cargo();
    cargo.args(["bench", "--workspace", "--bench", name, "--"]).args(args);
    process::run(cargo.env("SATCAST_BIN", binary))
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
        let files = workspace::files(folder, "rs")?.into_iter().filter(|path| path.contains("/benches/"));
        names.extend(
            files.filter_map(|path| Some(Path::new(&path).file_stem()?.to_string_lossy().into_owned())),
        );
    }
    names.retain(|name| name != MONEY);
    if names.is_empty() {
        return Err("no package has a micro-benchmark".into());
    }
    let mut cargo = process::cargo();
    cargo.args(["bench", "--workspace"]).args(names.iter().flat_map(|name| ["--bench", name]));
    process::run(cargo.arg("--").args(args))
}
