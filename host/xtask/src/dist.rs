//! `cargo xtask dist`: packs a release build into an archive with a checksum.

use std::path::Path;

use crate::build::{self, Profile};
use crate::{manual, process, release, web, workspace};

/// Where the archives lie, in cargo's output folder.
const FOLDER_NAME: &str = "dist";
/// Folder of the drivers beside the binary.
const DRIVERS: &str = "drivers";

/// What a release has beside the build: the path in the repository, and the name in the archive.
const FILES: [(&str, &str); 4] = [
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("host/satcast.service", "satcast.service"),
];

/// Builds, and packs the build of this commit. The same build gives the same archive, byte by byte.
pub(crate) fn run() -> Result<(), String> {
    let root = workspace::root();
    let manifest = workspace::read("Cargo.toml")?;
    let version = release::present(&manifest)?;
    release::clean(&root)?;
    build::run(Profile::Release)?;
    manual::build(&web::folder(Profile::Release))?;
    // A build that wrote a lock file has sources that no commit has.
    release::clean(&root)?;

    let folder = workspace::target_dir().join(FOLDER_NAME);
    let name = format!("satcast-{version}");
    stage(&Profile::Release.folder(), &folder.join(&name))?;
    let archive = format!("{name}-{}.tar", target()?);
    let seconds = release::git(&root, &["log", "-1", "--format=%ct"])?;
    pack(&folder, &name, &archive, &seconds)?;
    let archive = format!("{archive}.gz");
    let checksum = process::output(process::command("sha256sum").current_dir(&folder).arg(&archive))?;
    write(&folder.join(format!("{archive}.sha256")), &checksum)?;
    println!("made {} and its checksum", folder.join(&archive).display());
    let tag = format!("v{version}");
    if !release::git(&root, &["tag", "--points-at", "HEAD"])?.lines().any(|line| line == tag) {
        println!("note: this commit has no tag {tag}; do not publish the archive as that release");
    }
    Ok(())
}

/// Copies what a release has from the build and the repository.
fn stage(built: &Path, folder: &Path) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(folder);
    let drivers = folder.join(DRIVERS);
    std::fs::create_dir_all(&drivers)
        .map_err(|error| format!("cannot make {}: {error}", drivers.display()))?;
    for (path, name) in FILES {
        copy(&workspace::root().join(path), &folder.join(name))?;
    }
    copy(&built.join("satcast"), &folder.join("satcast"))?;
    // By name: the folder of the build may contain drivers that are not ours.
    let libraries = build::DRIVERS.map(|(id, _)| format!("{id}.so"));
    for name in libraries.iter().map(String::as_str).chain([build::MANIFEST]) {
        copy(&built.join(DRIVERS).join(name), &drivers.join(name))?;
    }
    process::run(process::command("cp").arg("--recursive").arg(built.join(web::FOLDER_NAME)).arg(folder))
}

/// Packs `name` of `folder`, without what differs between two machines: order, times, owners and modes.
fn pack(folder: &Path, name: &str, archive: &str, seconds: &str) -> Result<(), String> {
    let mut tar = process::command("tar");
    tar.current_dir(folder).args(["--create", "--file", archive, "--format=gnu", "--sort=name"]);
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]);
    process::run(tar.arg(format!("--mtime=@{seconds}")).arg(name))?;
    let mut gzip = process::command("gzip");
    process::run(gzip.current_dir(folder).args(["--no-name", "--best", "--force", archive]))
}

/// The target that this machine builds for, as in `x86_64-unknown-linux-gnu`.
fn target() -> Result<String, String> {
    let said = process::output(process::cargo().arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| format!("`cargo -vV` names no host: \"{}\"", said.trim()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to).map(|_| ()).map_err(|error| format!("cannot copy {}: {error}", from.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_archive_depends_on_names_and_content_alone() {
        let folder = std::env::temp_dir().join(format!("satcast-dist-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let packed = |first: &str, second: &str, mode: u32| {
            std::fs::create_dir_all(folder.join("satcast-0.1.0")).unwrap();
            for name in [first, second] {
                let path = folder.join("satcast-0.1.0").join(name);
                write(&path, name).unwrap();
                std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            }
            pack(&folder, "satcast-0.1.0", "test.tar", "1770000000").unwrap();
            let bytes = std::fs::read(folder.join("test.tar.gz")).unwrap();
            std::fs::remove_dir_all(&folder).unwrap();
            bytes
        };
        assert_eq!(packed("a", "b", 0o600), packed("b", "a", 0o664));
        assert_ne!(packed("a", "b", 0o644), packed("a", "b", 0o755));
    }

    #[test]
    fn files_of_a_release_are_there() {
        for (path, _) in FILES {
            assert!(workspace::root().join(path).is_file(), "{path}");
        }
    }
}
