//! Results and durations of the steps of a run, and the slowest tests.

use std::path::Path;
use std::time::{Duration, Instant};

/// How many of the slowest tests are printed.
const SLOWEST: usize = 10;

/// Purpose of a step; durations are summed per kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Installs missing tools: once per machine.
    Tools,
    /// Builds or tests with the one feature set of the workspace.
    Work,
    /// Builds something outside the workspace's build.
    Apart,
}

/// The steps so far, with their seconds and results.
#[derive(Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
    slowest: Vec<(f64, String)>,
}

struct Step {
    name: String,
    kind: Kind,
    took: Duration,
    result: Result<(), String>,
}

impl Report {
    /// Runs a step that the following ones need. A failure ends the run.
    pub(crate) fn step<T>(
        &mut self,
        kind: Kind,
        name: &str,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        println!("== {name}");
        let started = Instant::now();
        let (value, result) = match work() {
            Ok(value) => (Some(value), Ok(())),
            Err(reason) => (None, Err(reason)),
        };
        let failed = result.clone().err();
        self.steps.push(Step { name: name.to_owned(), kind, took: started.elapsed(), result });
        value.ok_or_else(|| failed.unwrap_or_default())
    }

    /// Runs a step and continues after a failure.
    pub(crate) fn note(&mut self, kind: Kind, name: &str, work: impl FnOnce() -> Result<(), String>) {
        // The result stays in the report.
        let _ = self.step(kind, name, work);
    }

    /// Adds the tests of a JUnit file as nextest writes it; without the file there is nothing to add.
    pub(crate) fn tests(&mut self, junit: &Path) {
        self.slowest.extend(durations(&std::fs::read_to_string(junit).unwrap_or_default()));
        self.slowest.sort_by(|left, right| right.0.total_cmp(&left.0));
        self.slowest.truncate(SLOWEST);
    }

    /// Prints everything; fails when a step did.
    pub(crate) fn finish(self) -> Result<(), String> {
        if !self.slowest.is_empty() {
            println!("\n== the slowest tests");
            self.slowest.iter().for_each(|(seconds, name)| println!("  {seconds:7.1} s  {name}"));
        }
        println!("\n== what ran");
        for Step { name, took, result, .. } in &self.steps {
            let seconds = took.as_secs_f64();
            match result {
                Ok(()) => println!("  ok      {seconds:7.1} s  {name}"),
                Err(reason) => println!("  FAILED  {seconds:7.1} s  {name}: {reason}"),
            }
        }
        println!(
            "  tools {:.0} s; build and tests {:.0} s; builds apart from the workspace {:.0} s",
            self.seconds(Kind::Tools),
            self.seconds(Kind::Work),
            self.seconds(Kind::Apart)
        );
        match self.steps.iter().filter(|step| step.result.is_err()).count() {
            0 => Ok(()),
            failed => Err(format!("{failed} of {} steps failed", self.steps.len())),
        }
    }

    fn seconds(&self, kind: Kind) -> f64 {
        self.steps.iter().filter(|step| step.kind == kind).map(|step| step.took.as_secs_f64()).sum()
    }
}

/// Seconds and name of every test case in a JUnit file.
fn durations(junit: &str) -> impl Iterator<Item = (f64, String)> {
    junit.split("<testcase ").skip(1).filter_map(|rest| {
        let tag = &rest[..rest.find('>')?];
        let value = |name: &str| {
            let (_, rest) = tag.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let seconds = value(" time")?.parse().ok()?;
        Some((
            seconds,
            format!("{} {}", value("classname")?, tag.strip_prefix("name=\"")?.split_once('"')?.0),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_from_the_output_of_nextest() {
        let junit = "<testsuite name=\"a\" time=\"9\">\n\
            <testcase name=\"one::two\" classname=\"satcast\" timestamp=\"2026-01-01\" time=\"1.250\">\n</testcase>\n\
            <testcase name=\"three\" classname=\"tests::e2e\" time=\"0.004\"/>\n";
        let found: Vec<_> = durations(junit).collect();
        assert_eq!(found, [(1.25, "satcast one::two".to_owned()), (0.004, "tests::e2e three".to_owned())]);
    }

    #[test]
    fn a_failed_step_fails_the_run_and_a_needed_one_ends_it() {
        let mut report = Report::default();
        assert_eq!(report.step(Kind::Tools, "gives", || Ok(7)), Ok(7));
        assert_eq!(report.step::<()>(Kind::Work, "fails", || Err("why".into())), Err("why".into()));
        report.note(Kind::Work, "goes on", || Ok(()));
        assert_eq!(report.steps.len(), 3);
        assert!(report.finish().is_err());
    }
}
