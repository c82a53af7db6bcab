//! Files that grew too long to be read in one sitting.

use crate::workspace;

/// Past this a file is to be split, or stands in [`EXCEPTIONS`] with its reason.
const MAX_FILE_LINES: usize = 600;

/// Files that were looked at again and are better whole: path and why.
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

    let excepted = |path: &str| EXCEPTIONS.iter().any(|(exception, _)| *exception == path);
    let too_long = sizes.iter().filter(|(lines, path)| *lines > MAX_FILE_LINES && !excepted(path));
    let mut report: Vec<String> = too_long
        .map(|(lines, path)| format!("   {path}: {lines} lines, over {MAX_FILE_LINES}: split it"))
        .collect();
    for (path, _) in EXCEPTIONS {
        if !sizes.iter().any(|(lines, found)| found == path && *lines > MAX_FILE_LINES) {
            report.push(format!("   {path}: the exception is no longer needed, remove it"));
        }
    }
    if report.is_empty() { Ok(()) } else { Err(report.join("\n")) }
}
