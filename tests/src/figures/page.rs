//! The page of the documents: the part between two marks is made from files of results.

use super::columns;
use super::growth;
use super::machine;
use super::ratios::{self, Entry, Outcome};
use super::results::Run;

/// The marks around the part that is made.
const BEGIN: &str = "<!-- made by `cargo xtask bench page` -->";
const END: &str = "<!-- end -->";

/// The document with its part replaced by the tables of `runs`.
///
/// # Errors
/// When the document does not have both marks, or a run has no machine.
pub fn filled(document: &str, runs: &[Run]) -> Result<String, String> {
    let missing = || format!("the page has no lines `{BEGIN}` and `{END}`; put them where the tables belong");
    let (before, rest) = document.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n\n{}\n{END}{after}", made(runs)?))
}

fn made(runs: &[Run]) -> Result<String, String> {
    let mut parts = Vec::new();
    for run in runs {
        let machine = run.machine.as_ref();
        let machine = machine.ok_or("a file of results has no machine; `cargo xtask bench` writes it")?;
        let entries = run.entries();
        if !entries.is_empty() {
            let count = |outcome: Outcome| entries.iter().filter(|entry| entry.outcome() == outcome).count();
            let [reached, missed, open] = [Outcome::Reached, Outcome::Missed, Outcome::Open].map(count);
            let (goals, others): (Vec<Entry>, Vec<Entry>) =
                entries.into_iter().partition(|entry| entry.outcome() != Outcome::None);
            parts.push("### Goals\n".to_owned());
            parts.push(format!("{reached} reached, {missed} missed, {open} not measured.\n"));
            parts.push(ratios::markdown(&goals));
            parts.push("### Other figures\n".to_owned());
            parts.push(ratios::markdown_without_goals(&others));
        }
        let growth = growth::markdown(&run.lines);
        if !growth.is_empty() {
            parts.push("### Growth\n".to_owned());
            parts.push(growth);
        }
        parts.push(columns::markdown(["Machine of this run", ""], &machine::rows(machine)));
    }
    Ok(parts.join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::results::{Line, OURS};
    use super::*;

    fn run() -> Run {
        let line = |figure: &str, step| Line {
            row: "relay 1x1".into(),
            figure: figure.into(),
            side: OURS.into(),
            repeat: 0,
            step,
            value: 4.0,
        };
        let lines =
            vec![line("wrong", None), line("first_ms", None), line("mib", Some(1)), line("mib", Some(9))];
        Run {
            name: "all".into(),
            machine: Some(json!({ "command": "bench x", "peers": { "nginx": "1.22" } })),
            lines,
        }
    }

    #[test]
    fn only_the_part_between_the_marks_changes() {
        let page = format!("# Page\n\n{BEGIN}\n0.123\n{END}\nafter\n");
        let once = filled(&page, &[run()]).unwrap();
        assert!(once.starts_with("# Page\n\n") && once.ends_with(&format!("{END}\nafter\n")), "{once}");
        assert!(!once.contains("0.123"), "{once}");
        // Those with a goal come first.
        let rows = [
            "| relay 1x1 | ms to the first frame | 4.00 |",
            "| relay 1x1 | frames lost, repeated or misrouted | 4.00 |",
            "1: 4.00, 9: 4.00",
            "| Command | bench x |",
            "| nginx | 1.22 |",
        ];
        let places: Vec<usize> = rows.iter().filter_map(|row| once.find(row)).collect();
        assert!(places.len() == rows.len() && places.is_sorted(), "{once}");
        assert_eq!(filled(&once, &[run()]), Ok(once));
    }

    #[test]
    fn the_committed_page_has_its_marks() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks.md");
        let page = std::fs::read_to_string(path).unwrap();
        assert!(filled(&page, &[run()]).is_ok());
    }

    #[test]
    fn a_page_without_marks_and_a_run_without_a_machine_are_refused() {
        assert!(filled("# Page\n", &[]).is_err());
        let page = format!("{BEGIN}\n{END}\n");
        assert!(filled(&page, &[Run { machine: None, ..run() }]).is_err());
    }
}
