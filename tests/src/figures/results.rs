//! The form of a measurement: a line of JSON, `{"row":"relay 1x3","figure":"cpu","side":"satcast","repeat":0,"value":0.34}`.
//!
//! A line of a benchmark of growth has a `step` too. A benchmark appends its lines to the file that the variable
//! `BENCH_RESULTS` names; `cargo xtask bench` makes it, with the machine in its first line.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{growth, machine, ratios};
use crate::source::target_dir;

/// The variable that names the file of the results.
const FILE: &str = "BENCH_RESULTS";
/// Folder of these files below cargo's output.
const FOLDER: &str = "bench";
/// The run of all rows that have a goal.
const ALL: &str = "all";
/// Our own side of every figure.
pub const OURS: &str = "satcast";

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The measured case.
    pub row: String,
    /// A name of [`super::goals::FIGURES`].
    pub figure: String,
    /// The measured server.
    pub side: String,
    /// Which repeat, from 0 on. A ratio is made inside one.
    pub repeat: usize,
    /// The size of the case, in a benchmark of growth.
    pub step: Option<u64>,
    /// The value.
    pub value: f64,
}

impl Line {
    fn json(&self) -> Value {
        let Self { row, figure, side, repeat, step, value } = self;
        let mut line =
            json!({ "row": row, "figure": figure, "side": side, "repeat": repeat, "value": value });
        if let Some(step) = step {
            line["step"] = json!(step);
        }
        line
    }

    fn read(line: &Value) -> Option<Self> {
        let text = |name: &str| line[name].as_str().map(str::to_owned);
        Some(Self {
            row: text("row")?,
            figure: text("figure")?,
            side: text("side")?,
            repeat: usize::try_from(line["repeat"].as_u64()?).ok()?,
            step: line["step"].as_u64(),
            value: line["value"].as_f64()?,
        })
    }
}

/// The measurements of one benchmark.
#[derive(Debug, Default)]
pub struct Results {
    lines: Vec<Line>,
    file: Option<File>,
}

impl Results {
    /// None yet. They go to the file of the environment too, where it names one.
    ///
    /// # Panics
    /// When that file cannot be written.
    #[must_use]
    pub fn new() -> Self {
        let file = std::env::var_os(FILE).map(|path| {
            let opened = OpenOptions::new().append(true).open(&path);
            opened.unwrap_or_else(|error| panic!("cannot write {}: {error}", Path::new(&path).display()))
        });
        Self { lines: Vec::new(), file }
    }

    /// Notes a measurement of the server `side`.
    ///
    /// # Panics
    /// When the value is no finite number, or the file cannot be written.
    pub fn note(&mut self, row: &str, figure: &str, side: &str, repeat: usize, value: f64) {
        self.push(Line {
            row: row.into(),
            figure: figure.into(),
            side: side.into(),
            repeat,
            step: None,
            value,
        });
    }

    /// Notes our own measurement of a case of size `step`.
    ///
    /// # Panics
    /// As [`Self::note`].
    pub fn note_step(&mut self, row: &str, step: u64, figure: &str, repeat: usize, value: f64) {
        self.push(Line {
            row: row.into(),
            figure: figure.into(),
            side: OURS.into(),
            repeat,
            step: Some(step),
            value,
        });
    }

    fn push(&mut self, line: Line) {
        let Line { row, figure, side, value, .. } = &line;
        assert!(value.is_finite(), "{figure} of {side} in {row} is {value}: nothing was measured");
        if let Some(file) = &mut self.file {
            writeln!(file, "{}", line.json()).expect("the file of the results can be written");
        }
        self.lines.push(line);
    }

    /// Prints the tables of all measurements so far.
    pub fn print(&self) {
        print!("\n{}{}", ratios::text(&ratios::entries(&self.lines)), growth::text(&self.lines));
    }
}

/// A file of results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Name of the command that made it.
    pub name: String,
    /// The machine, as [`machine::describe`] gave it.
    pub machine: Option<Value>,
    /// The measurements.
    pub lines: Vec<Line>,
}

impl Run {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is not there, or has a line of another form.
    pub fn of(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            format!("cannot read {shown} ({error}); `cargo xtask bench all` makes such a file")
        })?;
        Self::read(&text).map_err(|reason| format!("{shown} is no file of results: {reason}"))
    }

    fn read(text: &str) -> Result<Self, String> {
        let mut run = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let value: Value =
                serde_json::from_str(line).map_err(|error| format!("line {number} is not JSON: {error}"))?;
            if value["machine"].is_object() {
                run.machine = Some(value["machine"].clone());
                run.name = value["run"].as_str().unwrap_or_default().to_owned();
            } else {
                let line = Line::read(&value);
                run.lines.push(line.ok_or_else(|| format!("line {number} is no measurement"))?);
            }
        }
        Ok(run)
    }

    /// The table of this run. One of all rows shows the goals for which nothing was measured too.
    #[must_use]
    pub fn entries(&self) -> Vec<ratios::Entry> {
        let mut entries = ratios::entries(&self.lines);
        if self.name == ALL {
            entries.extend(ratios::unmeasured(&entries));
        }
        entries
    }
}

/// Makes an empty file of results for the run `name`, with its command and the machine in its first line; gives its path.
///
/// # Errors
/// When it cannot be written.
pub fn begin(name: &str, command: &str) -> Result<PathBuf, String> {
    let machine = machine::describe(command);
    let date: String = machine["date"].as_str().unwrap_or_default().chars().filter(|c| *c != ':').collect();
    let folder = target_dir().join(FOLDER);
    let path = folder.join(format!("{name}-{date}.jsonl"));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&path, format!("{}\n", json!({ "run": name, "machine": machine }))))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let mut results = Results::default();
        results.note("relay 1x3", "cpu", "nginx-rtmp", 2, 0.125);
        results.note_step("growth streams", 500, "cpu", 0, 7.0);
        let machine = json!({ "run": "all", "machine": { "kernel": "6.1" } });
        let lines: Vec<String> = results.lines.iter().map(|line| line.json().to_string()).collect();
        let run = Run::read(&format!("{machine}\n{}\n", lines.join("\n"))).unwrap();
        assert_eq!(run.lines, results.lines);
        assert_eq!((run.name.as_str(), &run.machine), ("all", &Some(json!({ "kernel": "6.1" }))));
        let short = Run { name: "short".into(), ..run.clone() };
        assert!(run.entries().len() > short.entries().len(), "goals without a measurement");
    }

    #[test]
    fn other_lines_are_refused() {
        for text in
            ["{", "{}", "[]", "{\"row\":\"a\",\"figure\":\"cpu\",\"side\":\"b\",\"repeat\":-1,\"value\":1}"]
        {
            assert!(Run::read(text).is_err(), "{text}");
        }
    }

    #[test]
    #[should_panic(expected = "nothing was measured")]
    fn a_value_that_is_no_number_ends_the_run_text() {
        Results::default().note("viewers", "p99_ms", OURS, 0, f64::NAN);
    }
}
