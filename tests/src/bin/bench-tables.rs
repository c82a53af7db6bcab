//! Makes tables from the results of benchmarks, for `cargo xtask bench`.
//!
//! `bench-tables begin NAME COMMAND` makes a file of results and prints its path; `table FILE`, `compare BEFORE AFTER` and
//! `page DOCUMENT FILE...` read such files.

use std::path::Path;
use std::process::ExitCode;

use satcast_tests::figures::results::{Run, begin};
use satcast_tests::figures::{columns, compare, growth, machine, page, ratios};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<String, String> {
    match words {
        ["begin", name, command] => begin(name, command).map(|path| path.display().to_string()),
        ["table", file] => table(&read(file)?),
        ["compare", before, after] => Ok(compare::text(&read(before)?.lines, &read(after)?.lines)),
        ["page", document, files @ ..] if !files.is_empty() => {
            let runs: Vec<Run> = files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
            let text = std::fs::read_to_string(document)
                .map_err(|error| format!("cannot read {document}: {error}"))?;
            std::fs::write(document, page::filled(&text, &runs)?)
                .map_err(|error| format!("cannot write {document}: {error}"))?;
            Ok(format!("wrote {document}"))
        }
        _ => {
            Err("usage: bench-tables begin NAME COMMAND | table FILE | compare BEFORE AFTER | page DOCUMENT FILE..."
                .into())
        }
    }
}

fn read(file: &str) -> Result<Run, String> {
    Run::of(Path::new(file))
}

fn table(run: &Run) -> Result<String, String> {
    let rows = run.machine.as_ref().map(machine::rows).unwrap_or_default();
    let machine = columns::text(["machine", ""], &rows);
    Ok(format!("{machine}\n{}\n{}", ratios::text(&run.entries()), growth::text(&run.lines)))
}
