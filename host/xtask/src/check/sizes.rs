//! Files that are too long.

use crate::workspace;

/// A longer file must be split, or be in [`EXCEPTIONS`] with a reason.
const MAX_FILE_LINES: usize = 600;

/// Files that are better whole: path and reason.
const EXCEPTIONS: &[(&str, &str)] = &[];

/// Fails with every Rust file over the limit, longest first, and with exceptions that are no longer needed.
pub(crate) fn check() -> Result<(), String> {
    let mut sizes = Vec::new();
    for folder in ["host", "plugin-api", "plugins", "tests"] {
        for path in workspace::files(folder, "rs")? {
            let lines = workspace::read(&path)?.lines().count();
            sizes.push((lines, path));
        }
    }
    sizes.sort_unstable_by(|left, right| right.cmp(left));
    let total: usize = sizes.iter().map(|(lines, _)| lines).sum();
    println!(
        "   {} files, {total} lines, the longest has {}",
        sizes.len(),
        sizes.first().map_or(0, |size| size.0)
    );

    let report = breaches(&sizes, EXCEPTIONS);
    if report.is_empty() { Ok(()) } else { Err(report.join("\n")) }
}

fn breaches(sizes: &[(usize, String)], exceptions: &[(&str, &str)]) -> Vec<String> {
    let too_long = |found: &str| sizes.iter().any(|(lines, path)| path == found && *lines > MAX_FILE_LINES);
    let excepted = |path: &str| exceptions.iter().any(|(exception, _)| *exception == path);
    let split = sizes
        .iter()
        .filter(|(_, path)| too_long(path) && !excepted(path))
        .map(|(lines, path)| format!("   {path}: {lines} lines, over {MAX_FILE_LINES}: split it"));
    let stale = exceptions
        .iter()
        .filter(|(path, _)| !too_long(path))
        .map(|(path, _)| format!("   {path}: the exception is no longer needed, remove it"));
    split.chain(stale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_split_or_has_its_reason() {
        let sizes = [(MAX_FILE_LINES + 1, "long.rs".to_owned()), (MAX_FILE_LINES, "short.rs".to_owned())];
        assert_eq!(breaches(&sizes, &[]).len(), 1);
        assert_eq!(breaches(&sizes, &[("long.rs", "one table")]).len(), 0);
        assert_eq!(breaches(&sizes, &[("long.rs", "one table"), ("short.rs", "none")]).len(), 1);
    }
}
