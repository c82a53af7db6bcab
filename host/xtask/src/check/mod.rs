//! `cargo xtask check`: automatic checks of code and documents.

mod documents;
mod examples;
mod features;
mod imports;
mod layers;
mod prose;
mod sizes;
mod source;
mod words;

pub(crate) use source::shipped_lines;

use std::time::Instant;

use crate::{docs, process, web};

type Check = fn() -> Result<(), String>;

/// Runs every check, also after a failed one, and lists the failed ones.
pub(crate) fn run() -> Result<(), String> {
    let checks: [(&str, Check); 13] = [
        ("formatting", formatting),
        ("lints", lints),
        ("import rules", imports::check),
        ("order of modules", layers::check),
        ("file sizes", sizes::check),
        ("examples in documentation", examples::check),
        ("links and lines of documents", documents::check),
        ("generated documents", docs::check),
        ("words of the glossary", words::check),
        ("one feature set", features::check),
        ("assertions on codes and states", prose::check),
        ("types and tests of the pages", web::check),
        ("documentation of the driver contract", documentation),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        println!("== {name}");
        let started = Instant::now();
        let outcome = check();
        let seconds = started.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => println!("   ok, {seconds:.1} s"),
            Err(reason) => {
                println!("{reason}\n   failed, {seconds:.1} s");
                failed.push(name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("these checks failed: {}", failed.join(", "))) }
}

fn formatting() -> Result<(), String> {
    process::run(process::cargo().args(["fmt", "--all", "--check"]))
}

fn lints() -> Result<(), String> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    process::run(process::cargo().args(arguments))
}

fn documentation() -> Result<(), String> {
    let mut cargo = process::cargo();
    cargo.args(["doc", "--package", "satcast-plugin-api", "--no-deps", "--all-features", "--quiet"]);
    process::run(cargo.env("RUSTDOCFLAGS", "--deny warnings"))
}
