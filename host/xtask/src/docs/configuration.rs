//! `docs/configuration.md`, from the commented default file.

use std::fmt::Write as _;

use crate::workspace;

const DEFAULTS: &str = "host/core/src/config/default.toml";

/// The document.
pub(super) fn document() -> Result<String, String> {
    Ok(configuration(&workspace::read(DEFAULTS)?))
}

/// The commented default file as a document: its first comment as text, then a heading and a block for each table.
fn configuration(defaults: &str) -> String {
    let mut document = String::from(
        "# Configuration\n\n\
         <!-- Made by `cargo xtask docs` from host/core/src/config/default.toml; change that file. -->\n\n\
         `satcast config` prints this file. `satcast check-config` checks yours, and has the drivers check their settings.\n\n",
    );
    let mut lines = defaults.lines().peekable();
    while let Some(line) = lines.next_if(|line| line.starts_with('#')) {
        // Writing to a String cannot fail.
        let _ = writeln!(document, "{}", line.trim_start_matches('#').trim_start());
    }
    let mut blocks: Vec<(String, String)> = vec![("General".into(), String::new())];
    for line in lines {
        if let Some(name) = table(line).filter(|name| blocks.last().is_none_or(|(last, _)| last != name)) {
            blocks.push((name.to_owned(), String::new()));
        }
        if let Some((_, block)) = blocks.last_mut() {
            let _ = writeln!(block, "{line}");
        }
    }
    for (name, block) in blocks {
        let _ = write!(document, "\n## {name}\n\n```toml\n{}\n```\n", block.trim());
    }
    document
}

/// The name of the table that a line begins.
fn table(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.strip_suffix(']').filter(|name| !name.starts_with('['))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_a_heading_and_its_lines() {
        let document = configuration(
            "# One.\n# Two.\n\na = 1  # why\n\n[http]\nlisten = \"x\"\n\n# [driver.rtmp]\n# b = 2\n",
        );
        assert!(document.contains("One.\nTwo.\n\n## General\n\n```toml\na = 1  # why\n```\n"), "{document}");
        let block = "\n## http\n\n```toml\n[http]\nlisten = \"x\"\n\n# [driver.rtmp]\n# b = 2\n```\n";
        assert!(document.ends_with(block), "{document}");
    }
}
