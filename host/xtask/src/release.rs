//! `cargo xtask release VERSION`: writes the version, dates its section of the changelog, commits and tags.
//!
//! Everything is checked before the first file is written. Nothing is pushed.

use std::path::Path;

use crate::{process, workspace};

/// The branch that releases come from.
const BRANCH: &str = "main";
const MANIFEST: &str = "Cargo.toml";
const LOCK: &str = "Cargo.lock";
const CHANGELOG: &str = "CHANGELOG.md";
const DOCUMENT: &str = "openapi/openapi.json";
/// What separates the sections of the changelog.
const SECTION: &str = "\n## ";
/// The section of the changes that no release has.
const UNRELEASED: &str = "Unreleased";
/// What begins a package of a lock file.
const PACKAGE: &str = "[[package]]\n";

/// Reads `VERSION` and publishes it with the date of today.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let [version] = args else {
        return Err("`cargo xtask release` takes one version, as in `cargo xtask release 0.2.0`".into());
    };
    let date = process::output(process::command("date").args(["--utc", "+%F"]))?;
    publish(&workspace::root(), version, date.trim())?;
    println!(
        "next: read `git show v{version}`, push it by `git push origin {BRANCH} v{version}`, \
         and make the archive by `cargo xtask dist`"
    );
    Ok(())
}

/// The version of the workspace, as its manifest has it.
pub(crate) fn present(manifest: &str) -> Result<&str, String> {
    let package = manifest.split_once("\n[workspace.package]\n").map(|(_, package)| package);
    let version = package.and_then(|package| package.strip_prefix("version = \"")?.split('"').next());
    version.ok_or_else(|| {
        format!("{MANIFEST} has no version as the first line of [workspace.package]; write it there")
    })
}

/// Fails when a file differs from the commit.
pub(crate) fn clean(root: &Path) -> Result<(), String> {
    let changed = git(root, &["status", "--porcelain"])?;
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!("these files differ from the commit; commit or stash them, then try again:\n{changed}"))
}

/// Runs git in `root` and returns its output.
pub(crate) fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let said = process::output(process::command("git").current_dir(root).args(args))?;
    Ok(said.trim_end().to_owned())
}

fn publish(root: &Path, version: &str, date: &str) -> Result<(), String> {
    let read = |path: &str| {
        std::fs::read_to_string(root.join(path)).map_err(|error| format!("cannot read {path}: {error}"))
    };
    let branch = git(root, &["rev-parse", "--abbrev-ref", "HEAD"])?;
    if branch != BRANCH {
        return Err(format!("this is branch {branch}; a release comes from {BRANCH}: `git switch {BRANCH}`"));
    }
    clean(root)?;
    let tag = format!("v{version}");
    let has_tag = !git(root, &["tag", "--list", &tag])?.is_empty();
    let manifest = read(MANIFEST)?;
    let old = present(&manifest)?;
    follows(version, old, has_tag)?;
    println!("checked: branch {BRANCH} without changes, {version} may follow {old}");

    let changelog = released(&read(CHANGELOG)?, version, date)?;
    let of_manifest = |version: &str| format!("\n[workspace.package]\nversion = \"{version}\"\n");
    // Four spaces: `info.version`. Examples have other versions, and stand deeper.
    let of_document = |version: &str| format!("\n    \"version\": \"{version}\"\n");
    let mut files = vec![
        (MANIFEST.to_owned(), exchanged(MANIFEST, &manifest, &of_manifest(old), &of_manifest(version))?),
        (
            DOCUMENT.to_owned(),
            exchanged(DOCUMENT, &read(DOCUMENT)?, &of_document(old), &of_document(version))?,
        ),
    ];
    let lock = read(LOCK)?;
    let members = members(&lock);
    // The workspace's own, and those of the crates outside of it that depend on its members.
    for path in git(root, &["ls-files", "*Cargo.lock"])?.lines() {
        files.push((path.to_owned(), relocked(&read(path)?, &members, old, version)));
    }
    let notes = notes(&changelog, version).to_owned();
    files.push((CHANGELOG.to_owned(), changelog));
    for (path, text) in &files {
        if read(path)? == *text {
            continue;
        }
        std::fs::write(root.join(path), text).map_err(|error| format!("cannot write {path}: {error}"))?;
        println!("wrote {path}");
    }
    record(root, version, &tag, &notes)
}

/// Commits the files of the release, if they changed, and tags the commit with the notes.
fn record(root: &Path, version: &str, tag: &str, notes: &str) -> Result<(), String> {
    if clean(root).is_err() {
        let subject = format!("release: publish {version}");
        git(root, &["commit", "--all", "--message", &subject])
            .map_err(|reason| format!("{reason}\nThe files are written; `git restore .` takes them back."))?;
        println!("committed \"{subject}\"");
    }
    // Without the cleanup git would take the headings of the notes for comments.
    let message = format!("Satcast {version}\n\n{notes}\n");
    git(root, &["tag", "--annotate", "--cleanup=whitespace", "--message", &message, tag])?;
    println!("tagged {tag} with {} lines of notes", notes.lines().count());
    Ok(())
}

/// Fails unless `version` may be the release after `old`: it is newer, or it is `old` itself and has no tag.
fn follows(version: &str, old: &str, has_tag: bool) -> Result<(), String> {
    let wanted = numbers(version).ok_or_else(|| {
        format!("\"{version}\" is no version; give three numbers, as in `cargo xtask release 0.2.0`")
    })?;
    let present = numbers(old)
        .ok_or_else(|| format!("{MANIFEST} has the version \"{old}\"; write three numbers, as in 0.2.0"))?;
    if has_tag {
        return Err(format!("the tag v{version} exists, so {version} is released; give a newer version"));
    }
    if wanted < present {
        return Err(format!("{version} is older than {old}, which {MANIFEST} has; give a newer version"));
    }
    Ok(())
}

/// The numbers of `MAJOR.MINOR.PATCH`, in the order in which versions are compared.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let number = |part: &str| {
        let is_plain = part == "0" || !part.starts_with('0');
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| is_plain && digits)
    };
    let numbers: Option<Vec<u64>> = version.split('.').map(number).collect();
    numbers?.try_into().ok()
}

/// The changelog in which the section of `version` has this date. Its entries are those of Unreleased, unless the section
/// was written before.
fn released(changelog: &str, version: &str, date: &str) -> Result<String, String> {
    let mut sections: Vec<String> = changelog.split(SECTION).map(str::to_owned).collect();
    let find = |title: &str| sections.iter().skip(1).position(|text| is_of(text, title)).map(|at| at + 1);
    let unreleased =
        find(UNRELEASED).ok_or_else(|| format!("{CHANGELOG} has no section \"## {UNRELEASED}\"; add it"))?;
    let has_entries = sections[unreleased].lines().any(|line| line.starts_with("- "));
    let place = match (find(version), has_entries) {
        (Some(place), false) => place,
        (None, true) => unreleased,
        (Some(_), true) => {
            return Err(format!(
                "{CHANGELOG} has entries in \"{UNRELEASED}\" and a section {version}; move them into the section"
            ));
        }
        (None, false) => {
            return Err(format!(
                "{CHANGELOG} has no entry in \"{UNRELEASED}\"; write what changed for users"
            ));
        }
    };
    sections[place] = format!("{version} - {date}\n{}", body(&sections[place]));
    if place == unreleased {
        sections.insert(unreleased, format!("{UNRELEASED}\n"));
    }
    Ok(sections.join(SECTION))
}

/// The entries of a version, as they stand in the changelog.
fn notes<'a>(changelog: &'a str, version: &str) -> &'a str {
    changelog.split(SECTION).skip(1).find(|text| is_of(text, version)).map_or("", |text| body(text).trim())
}

/// Whether a section has this title, with or without a date.
fn is_of(section: &str, title: &str) -> bool {
    section.split_whitespace().next() == Some(title)
}

/// A section without its title.
fn body(section: &str) -> &str {
    section.split_once('\n').map_or("", |(_, body)| body)
}

/// `text` with the one place of `from` exchanged.
fn exchanged(path: &str, text: &str, from: &str, to: &str) -> Result<String, String> {
    match text.matches(from).count() {
        1 => Ok(text.replace(from, to)),
        found => Err(format!(
            "{path} has {from:?} in {found} places instead of one; change the file or the text in {}",
            file!()
        )),
    }
}

/// Names of the packages in a lock file that come from this repository.
fn members(lock: &str) -> Vec<&str> {
    lock.split(PACKAGE).skip(1).filter(|package| is_local(package)).filter_map(name).collect()
}

/// A lock file with the new version of `members`.
///
/// Not by cargo, which would have to download what the crates outside of the workspace need.
fn relocked(lock: &str, members: &[&str], from: &str, to: &str) -> String {
    let of = |version: &str| format!("\nversion = \"{version}\"\n");
    let packages = lock.split(PACKAGE).map(|package| {
        if is_local(package) && name(package).is_some_and(|name| members.contains(&name)) {
            package.replacen(&of(from), &of(to), 1)
        } else {
            package.to_owned()
        }
    });
    packages.collect::<Vec<_>>().join(PACKAGE)
}

fn name(package: &str) -> Option<&str> {
    package.strip_prefix("name = \"")?.split('"').next()
}

fn is_local(package: &str) -> bool {
    !package.contains("\nsource = \"")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const FILES: [(&str, &str); 5] = [
        (MANIFEST, "[workspace]\n\n[workspace.package]\nversion = \"0.1.0\"\nedition = \"2024\"\n"),
        (
            LOCK,
            "version = 4\n\n[[package]]\nname = \"satcast\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"other\"\n\
             version = \"0.1.0\"\nsource = \"registry\"\n",
        ),
        (
            "outside/Cargo.lock",
            "version = 4\n\n[[package]]\nname = \"outside\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"satcast\"\n\
             version = \"0.1.0\"\n",
        ),
        (
            CHANGELOG,
            "# Changelog\n\n## Unreleased\n\n### Added\n- One thing.\n\n## 0.1.0 - 2026-01-01\n\n### Added\n- All.\n",
        ),
        (DOCUMENT, "{\n  \"info\": {\n    \"version\": \"0.1.0\"\n  },\n      \"version\": \"0.1.0\"\n}\n"),
    ];

    /// A repository with one commit.
    fn repository(test: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("satcast-release-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        for (path, text) in FILES {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), text).unwrap();
        }
        git(&root, &["init", "--quiet", "--initial-branch", BRANCH]).unwrap();
        git(&root, &["config", "user.name", "Test"]).unwrap();
        git(&root, &["config", "user.email", "test@example.com"]).unwrap();
        git(&root, &["add", "--all"]).unwrap();
        git(&root, &["commit", "--quiet", "--message", "test: begin"]).unwrap();
        root
    }

    fn text(root: &Path, path: &str) -> String {
        std::fs::read_to_string(root.join(path)).unwrap()
    }

    #[test]
    fn a_release_has_version_section_commit_and_tag() {
        let root = repository("whole");
        publish(&root, "0.2.0", "2026-02-03").unwrap();
        assert_eq!(present(&text(&root, MANIFEST)), Ok("0.2.0"));
        let changed = |path: &str| {
            let old = FILES.iter().find(|(name, _)| *name == path).unwrap().1;
            let new = text(&root, path);
            old.lines().zip(new.lines()).filter(|(old, new)| old != new).count()
        };
        assert_eq!(changed(LOCK), 1);
        assert_eq!(changed("outside/Cargo.lock"), 1);
        assert_eq!(changed(DOCUMENT), 1);
        clean(&root).unwrap();
        assert_eq!(git(&root, &["log", "-1", "--format=%s"]).unwrap(), "release: publish 0.2.0");
        let notes = git(&root, &["tag", "--list", "--format=%(contents:body)", "v0.2.0"]).unwrap();
        assert_eq!(notes, "### Added\n- One thing.");
        assert_eq!(git(&root, &["cat-file", "-t", "v0.2.0"]).unwrap(), "tag");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_section_that_is_there_is_tagged_without_a_new_version() {
        let root = repository("first");
        let changelog = text(&root, CHANGELOG).replace("\n### Added\n- One thing.\n", "");
        std::fs::write(root.join(CHANGELOG), changelog).unwrap();
        git(&root, &["commit", "--quiet", "--all", "--message", "docs: write the section"]).unwrap();
        publish(&root, "0.1.0", "2026-01-01").unwrap();
        // No file changed, so the last commit is the release.
        assert_eq!(git(&root, &["log", "-1", "--format=%s"]).unwrap(), "docs: write the section");
        assert_eq!(git(&root, &["tag", "--points-at", "HEAD"]).unwrap(), "v0.1.0");
        assert!(publish(&root, "0.1.0", "2026-01-01").is_err());
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn changes_and_other_branches_are_refused() {
        let root = repository("refused");
        std::fs::write(root.join("new.txt"), "new").unwrap();
        assert!(publish(&root, "0.2.0", "2026-02-03").is_err());
        std::fs::remove_file(root.join("new.txt")).unwrap();
        git(&root, &["switch", "--quiet", "--create", "other"]).unwrap();
        assert!(publish(&root, "0.2.0", "2026-02-03").is_err());
        for (path, before) in FILES {
            assert_eq!(text(&root, path), before);
        }
        git(&root, &["switch", "--quiet", BRANCH]).unwrap();
        publish(&root, "0.2.0", "2026-02-03").unwrap();
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn versions_have_three_numbers_and_go_up() {
        for version in ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.3-rc.1", "v1.2.3", "1.+2.3", "1..3"] {
            assert_eq!(numbers(version), None, "{version}");
        }
        assert!(numbers("0.10.0") > numbers("0.9.9"));
        assert!(follows("0.1.0", "0.1.0", false).is_ok());
        assert!(follows("0.1.0", "0.1.0", true).is_err());
        assert!(follows("0.1.1", "0.1.0", false).is_ok());
        assert!(follows("0.0.9", "0.1.0", false).is_err());
        assert!(follows("next", "0.1.0", false).is_err());
    }

    #[test]
    fn unreleased_becomes_the_section_of_the_version() {
        let (_, changelog) = FILES.iter().find(|(path, _)| *path == CHANGELOG).unwrap();
        let after = released(changelog, "0.2.0", "2026-02-03").unwrap();
        let expected = changelog.replace("Unreleased\n", "Unreleased\n\n## 0.2.0 - 2026-02-03\n");
        assert_eq!(after, expected);
        assert_eq!(notes(&after, "0.2.0"), "### Added\n- One thing.");
        assert_eq!(notes(&after, "0.1.0"), "### Added\n- All.");
        assert_eq!(notes(&after, UNRELEASED), "");
        // Nothing to release, and entries beside a section that was written before.
        assert!(released(&after, "0.3.0", "2026-02-03").is_err());
        assert!(released(changelog, "0.1.0", "2026-02-03").is_err());
        let dated = released(&after, "0.1.0", "2026-02-03").unwrap();
        assert_eq!(dated, after.replace("2026-01-01", "2026-02-03"));
    }
}
