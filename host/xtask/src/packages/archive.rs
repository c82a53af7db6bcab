//! The archive: one folder that runs where it is unpacked.

use std::path::{Path, PathBuf};

use super::{Pack, copy, folder, gzip, lay, lay_examples, tar};
use crate::{process, workspace};

/// What it has beside the build: the path in the repository, and the name in the archive.
pub(super) const FILES: [(&str, &str); 6] = [
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("packaging/systemd/satcast.service", "satcast.service"),
    ("packaging/systemd/satcast.socket", "satcast.socket"),
    ("packaging/systemd/satcast-rtmp.socket", "satcast-rtmp.socket"),
];

pub(super) fn make(pack: &Pack, staging: &Path) -> Result<PathBuf, String> {
    let name = format!("satcast-{}", pack.version);
    let root = staging.join(&name);
    folder(&root)?;
    lay(pack, &root)?;
    lay_examples(&root.join("examples"))?;
    for (path, name) in FILES {
        copy(&workspace::root().join(path), &root.join(name), 0o644)?;
    }
    let file = pack.out.join(format!("{name}-{}.tar", target()?));
    tar(staging, &[&name], &file, &pack.seconds)?;
    gzip(pack, &file)
}

/// The target that this machine builds for, as in `x86_64-unknown-linux-gnu`.
fn target() -> Result<String, String> {
    let said = process::output(process::command("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| format!("`rustc -vV` names no host: \"{}\"", said.trim()))
}
