//! What a release is published as: an archive, a Debian package and a container image, made from one build.
//!
//! The same build, version and time give the same bytes on every machine with the same tools.

mod archive;
mod debian;
mod image;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::{build, process, release, web, workspace};

/// Folder of the drivers beside the binary.
const DRIVERS: &str = "drivers";
/// Configurations for other programs: the folder in the repository, and the name where users find it.
const EXAMPLES: [&str; 4] = ["containers", "grafana", "nginx", "prometheus"];
/// Where binary, drivers and pages lie in a package and in an image.
const LIBRARY: &str = "usr/lib/satcast";

/// What is packed, and how.
#[derive(Clone)]
pub(crate) struct Pack {
    /// The folder with binary, drivers and pages.
    pub(crate) built: PathBuf,
    /// The folder for the results. A folder with the name of the version in it is replaced.
    pub(crate) out: PathBuf,
    pub(crate) version: String,
    /// The Unix time that all files get.
    pub(crate) seconds: String,
    /// For tests: the least compression.
    pub(crate) fast: bool,
}

/// Reads `BUILD OUT [--version VERSION] [--fast]` and packs.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let root = workspace::root();
    let manifest = workspace::read("Cargo.toml")?;
    let (mut folders, mut version, mut fast) = (Vec::new(), release::present(&manifest)?.to_owned(), false);
    let mut rest = args.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--fast" => fast = true,
            "--version" => version = rest.next().ok_or("--version needs a version, as in 0.2.0")?.clone(),
            // Commands start in the repository, not in the caller's folder.
            folder => folders
                .push(std::path::absolute(folder).map_err(|error| format!("cannot use {folder}: {error}"))?),
        }
    }
    let [built, out] = folders.try_into().map_err(|_| {
        "`cargo xtask pack` takes the folder of a build and one for the packages, as in \
         `cargo xtask pack target/release target/dist`"
    })?;
    make(&Pack { built, out, version, seconds: seconds(&root)?, fast }).map(|_| ())
}

/// The time of all files: `SOURCE_DATE_EPOCH` if it is set, otherwise the time of the commit.
pub(crate) fn seconds(root: &Path) -> Result<String, String> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) if text.parse::<u64>().is_ok() => Ok(text),
        Ok(text) => Err(format!("SOURCE_DATE_EPOCH is \"{text}\"; give it seconds since 1970, or unset it")),
        Err(_) => release::git(root, &["log", "-1", "--format=%ct"]),
    }
}

/// Makes everything, each file with its checksum beside it; gives their paths.
pub(crate) fn make(pack: &Pack) -> Result<Vec<PathBuf>, String> {
    folder(&pack.out)?;
    let staging = pack.out.join(format!("satcast-{}", pack.version));
    let _ = std::fs::remove_dir_all(&staging);
    let made = vec![
        archive::make(pack, &staging)?,
        debian::make(pack, &staging.join("package"))?,
        image::make(pack, &staging.join("image"))?,
    ];
    std::fs::remove_dir_all(&staging)
        .map_err(|error| format!("cannot remove {}: {error}", staging.display()))?;
    for path in &made {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let sum = sha256(path)?;
        write(&pack.out.join(format!("{name}.sha256")), &format!("{sum}  {name}\n"))?;
        println!("made {}", path.display());
    }
    Ok(made)
}

/// Lays binary, drivers and pages into `to`.
fn lay(pack: &Pack, to: &Path) -> Result<(), String> {
    let drivers = to.join(DRIVERS);
    folder(&drivers)?;
    copy(&pack.built.join("satcast"), &to.join("satcast"), 0o755)?;
    // By name: the folder of the build may contain drivers that are not ours.
    let libraries = build::DRIVERS.map(|(id, _)| format!("{id}.so"));
    for name in libraries.iter().map(String::as_str).chain([build::MANIFEST]) {
        copy(&pack.built.join(DRIVERS).join(name), &drivers.join(name), 0o644)?;
    }
    copy_folder(&pack.built.join(web::FOLDER_NAME), to)
}

/// Lays what a package and an image have in common below `root`: the library folder, the command and the licence.
fn lay_system(pack: &Pack, root: &Path) -> Result<(), String> {
    lay(pack, &root.join(LIBRARY))?;
    link("../lib/satcast/satcast", &root.join("usr/bin/satcast"))?;
    let copyright = root.join("usr/share/doc/satcast/copyright");
    parent(&copyright)?;
    copy(&workspace::root().join("LICENSE"), &copyright, 0o644)
}

/// Lays the configurations for other programs into `to`.
fn lay_examples(to: &Path) -> Result<(), String> {
    folder(to)?;
    EXAMPLES.iter().try_for_each(|name| copy_folder(&workspace::root().join("packaging").join(name), to))
}

/// A tar file of `names` in `folder`, without what differs between two machines: order, times, owners and modes.
fn tar(folder: &Path, names: &[&str], file: &Path, seconds: &str) -> Result<(), String> {
    let mut tar = portable_tar("--create", folder, file, seconds);
    process::run(tar.args(["--mode=u=rwX,go=rX", "--owner=0", "--group=0"]).args(names))
}

/// Adds the folder `name` of `folder` with an owner and a mode of its own, without its content.
fn add_folder(folder: &Path, name: &str, file: &Path, seconds: &str, of: (u32, &str)) -> Result<(), String> {
    let mut tar = portable_tar("--append", folder, file, seconds);
    tar.args(["--no-recursion", &format!("--mode={}", of.1)]);
    process::run(tar.args([format!("--owner={}", of.0), format!("--group={}", of.0), name.to_owned()]))
}

fn portable_tar(action: &str, folder: &Path, file: &Path, seconds: &str) -> std::process::Command {
    let mut tar = process::command("tar");
    tar.current_dir(folder).arg(action).arg("--file").arg(file);
    tar.args(["--format=gnu", "--sort=name", "--numeric-owner", &format!("--mtime=@{seconds}")]);
    tar
}

/// Compresses a file; the result has `.gz` at its end.
fn gzip(pack: &Pack, file: &Path) -> Result<PathBuf, String> {
    let level = if pack.fast { "--fast" } else { "--best" };
    process::run(process::command("gzip").args(["--no-name", "--force", level]).arg(file))?;
    Ok(PathBuf::from(format!("{}.gz", file.display())))
}

/// The SHA-256 of a file in hexadecimal.
fn sha256(file: &Path) -> Result<String, String> {
    let said = process::output(process::command("sha256sum").arg("--binary").arg(file))?;
    let digest = said.trim_start_matches('\\').split(' ').next();
    digest.map(str::to_owned).ok_or_else(|| format!("sha256sum printed \"{}\"", said.trim()))
}

fn folder(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|error| format!("cannot make {}: {error}", path.display()))
}

fn parent(path: &Path) -> Result<(), String> {
    path.parent().map_or(Ok(()), folder)
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    std::fs::copy(from, to)
        .and_then(|_| std::fs::set_permissions(to, Permissions::from_mode(mode)))
        .map_err(|error| format!("cannot copy {} to {}: {error}", from.display(), to.display()))
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    process::run(process::command("cp").arg("--recursive").arg(from).arg(to))
}

fn link(target: &str, path: &Path) -> Result<(), String> {
    parent(path)?;
    std::os::unix::fs::symlink(target, path)
        .map_err(|error| format!("cannot make the link {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tar_file_depends_on_names_and_content_alone() {
        let base = std::env::temp_dir().join(format!("satcast-pack-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        let packed = |first: &str, second: &str, mode: u32| {
            let inner = base.join("satcast-0.1.0");
            folder(&inner).unwrap();
            for name in [first, second] {
                write(&inner.join(name), name).unwrap();
                std::fs::set_permissions(inner.join(name), Permissions::from_mode(mode)).unwrap();
            }
            let file = base.join("test.tar");
            tar(&base, &["satcast-0.1.0"], &file, "1770000000").unwrap();
            let bytes = std::fs::read(file).unwrap();
            std::fs::remove_dir_all(&base).unwrap();
            bytes
        };
        assert_eq!(packed("a", "b", 0o600), packed("b", "a", 0o664));
        assert_ne!(packed("a", "b", 0o644), packed("a", "b", 0o755));
    }

    #[test]
    fn what_a_release_takes_from_the_repository_is_there() {
        let examples = EXAMPLES.map(|name| format!("packaging/{name}"));
        for path in archive::FILES.map(|(path, _)| path.to_owned()).into_iter().chain(examples) {
            assert!(workspace::root().join(&path).exists(), "{path}");
        }
    }

    #[test]
    fn the_same_build_gives_the_same_packages() {
        let base = std::env::temp_dir().join(format!("satcast-same-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        let packed = |name: &str, mode: u32| {
            let built = base.join(name);
            folder(&built.join(DRIVERS)).unwrap();
            folder(&built.join(web::FOLDER_NAME)).unwrap();
            // Any program and library: what is in them does not matter.
            let files = build::DRIVERS.map(|(id, _)| format!("{DRIVERS}/{id}.so"));
            for file in files.iter().map(String::as_str).chain(["satcast"]) {
                copy(Path::new("/bin/true"), &built.join(file), mode).unwrap();
            }
            for file in [format!("{DRIVERS}/{}", build::MANIFEST), format!("{}/index.html", web::FOLDER_NAME)]
            {
                write(&built.join(&file), "{}").unwrap();
                std::fs::set_permissions(built.join(file), Permissions::from_mode(mode)).unwrap();
            }
            let (version, seconds) = ("0.1.0".to_owned(), "1770000000".to_owned());
            let out = base.join(format!("{name}-out"));
            let made = make(&Pack { built, out, version, seconds, fast: true }).unwrap();
            made.iter().map(|path| sha256(path).unwrap()).collect::<Vec<_>>()
        };
        let first = packed("first", 0o755);
        assert_eq!(first.len(), 3);
        assert_eq!(first, packed("second", 0o700));
        std::fs::remove_dir_all(base).unwrap();
    }
}
