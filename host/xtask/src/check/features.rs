//! One feature set for the build and the tests.
//!
//! Cargo adds the features of dev-dependencies only when it builds tests. The affected packages of the service, and all packages that
//! use them, would then be compiled a second time. `tests/Cargo.toml` names those features in its ordinary dependencies.

use std::collections::BTreeSet;

use crate::process;

/// Fails with every package that the tests would compile with other features than the build.
pub(crate) fn check() -> Result<(), String> {
    let report = differences(&features("normal,build")?, &features("normal,build,dev")?);
    if report.is_empty() { Ok(()) } else { Err(report.join("\n")) }
}

/// Every package with its features, a line each.
fn features(edges: &str) -> Result<BTreeSet<String>, String> {
    let mut cargo = process::cargo();
    cargo.args([
        "tree",
        "--workspace",
        "--locked",
        "--prefix",
        "none",
        "--format",
        "{p} {f}",
        "--edges",
        edges,
    ]);
    Ok(listed(&process::output(&mut cargo)?))
}

/// A package that was listed before ends in ` (*)`.
fn listed(text: &str) -> BTreeSet<String> {
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

fn differences(build: &BTreeSet<String>, tests: &BTreeSet<String>) -> Vec<String> {
    let report = |line: &String| {
        format!(
            "   {line}: tests ask for other features; name them in tests/Cargo.toml (`cargo tree -i` shows which package requires them)"
        )
    };
    build.difference(tests).map(report).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packages_of_both_builds_are_compared() {
        let build = listed("tokio v1.0.0 net\nbytes v1.0.0 std\ntokio v1.0.0 net (*)\n");
        let tests = listed("tokio v1.0.0 net,test-util\nbytes v1.0.0 std\ncriterion v1.0.0 default\n");
        assert_eq!(differences(&build, &tests).len(), 1);
        assert_eq!(differences(&build, &build), [""; 0]);
    }
}
