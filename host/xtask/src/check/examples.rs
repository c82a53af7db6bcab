//! Examples in documentation that no test would run.
//!
//! Packages without examples have `doctest = false`, which saves a compiler run for each of them. A new example in such a package
//! would never be tested.

use crate::workspace;

const OFF: &str = "doctest = false";

/// Fails with every fence of Rust code in a package whose documentation tests are off.
pub(crate) fn check() -> Result<(), String> {
    let mut report = Vec::new();
    for folder in ["host", "plugin-api", "plugins", "tests"] {
        for manifest in workspace::files(folder, "toml")? {
            let Some(package) = manifest.strip_suffix("/Cargo.toml") else { continue };
            if !workspace::read(&manifest)?.lines().any(|line| line == OFF) {
                continue;
            }
            for path in workspace::files(&format!("{package}/src"), "rs")? {
                let numbers = runnable_fences(&workspace::read(&path)?);
                report.extend(numbers.into_iter().map(|number| {
                    format!("   {path}:{number}: an example in a package with `{OFF}`: mark it `text` or switch them on")
                }));
            }
        }
    }
    if report.is_empty() { Ok(()) } else { Err(report.join("\n")) }
}

/// Line numbers (from 1) of the fences in doc comments that rustdoc would compile.
fn runnable_fences(text: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(kind) = comment.and_then(|comment| comment.trim_start().strip_prefix("```")) else {
            continue;
        };
        if !open && !["text", "toml", "json", "sh", "c", "ignore"].contains(&kind.trim()) {
            numbers.push(index + 1);
        }
        open = !open;
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compiled_examples_are_listed() {
        let text =
            "//! ```text\n//! a\n//! ```\n/// ```\n/// let a = 1;\n/// ```\n    /// ```no_run\n    /// ```\n";
        assert_eq!(runnable_fences(text), [4, 7]);
    }
}
