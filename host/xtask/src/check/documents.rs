//! Documents: links with an existing target, and lines of limited length.

use crate::workspace;

/// Longest line in characters, except in tables, in code and in lines that cannot be broken.
const LINE_CHARS_MAX: usize = 120;

/// Fails with every link to a missing file or heading, and with every line that is too long.
pub(crate) fn check() -> Result<(), String> {
    let mut report = Vec::new();
    for path in workspace::files("", "md")? {
        let text = workspace::read(&path)?;
        report.extend(
            long_lines(&text).map(|number| format!("   {path}:{number}: over {LINE_CHARS_MAX} characters")),
        );
        for link in links(&text) {
            if let Some(fault) = fault_of(&path, &text, link) {
                report.push(format!("   {path}: {link}: {fault}"));
            }
        }
    }
    if report.is_empty() { Ok(()) } else { Err(report.join("\n")) }
}

/// Lines outside of code, with their numbers from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

fn long_lines(text: &str) -> impl Iterator<Item = usize> {
    prose(text)
        .filter(|(_, line)| line.chars().count() > LINE_CHARS_MAX && !line.starts_with('|'))
        .map(|(number, _)| number)
}

/// Targets of links to something in the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets =
        prose(text).flat_map(|(_, line)| line.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// The fault of a link in the document `path`, which has this text.
fn fault_of(path: &str, text: &str, link: &str) -> Option<&'static str> {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { path.to_owned() } else { workspace::resolved(path, file) };
    if !workspace::root().join(&target).exists() {
        return Some("there is no such file");
    }
    let anchor = anchor?;
    let other = if file.is_empty() { text.to_owned() } else { workspace::read(&target).unwrap_or_default() };
    let is_there = headings(&other).any(|heading| heading == anchor);
    (!is_there).then_some("there is no such heading")
}

/// Anchors of the headings of a document.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let heading =
        |line: &str| line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim().to_lowercase());
    prose(text).filter_map(move |(_, line)| heading(line)).map(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A `title`, here\n\n[in](#a-title-here) [out](#nothing) [far](https://example.com/x)\n\n```\n[code](nowhere.md)\n```\n";

    #[test]
    fn links_lead_to_files_and_headings() {
        assert_eq!(links(TEXT).collect::<Vec<_>>(), ["#a-title-here", "#nothing"]);
        assert_eq!(fault_of("README.md", TEXT, "#a-title-here"), None);
        assert!(fault_of("README.md", TEXT, "#nothing").is_some());
        assert_eq!(fault_of("docs/api.md", TEXT, "../README.md#two-commands"), None);
        assert!(fault_of("docs/api.md", TEXT, "README.md#two-commands").is_some());
        assert!(fault_of("docs/api.md", TEXT, "nowhere.md").is_some());
    }

    #[test]
    fn long_lines_are_those_of_prose() {
        let long = "x ".repeat(LINE_CHARS_MAX);
        let text = format!("{long}\n| {long} |\n```\n{long}\n```\nshort\n");
        assert_eq!(long_lines(&text).collect::<Vec<_>>(), [1]);
    }
}
