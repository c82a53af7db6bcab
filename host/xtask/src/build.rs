//! Builds the workspace and installs drivers and pages next to the binary, where the service looks for them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::{process, web, workspace};

/// Our drivers: the id that operators enable, and the cdylib that cargo makes.
///
/// The list is explicit because a stale library in the output folder would otherwise be shipped as a second driver.
pub(crate) const DRIVERS: [(&str, &str); 5] = [
    ("archive", "libsatcast_plugin_archive.so"),
    ("hls", "libsatcast_plugin_hls.so"),
    ("platform", "libsatcast_plugin_platform.so"),
    ("rtmp", "libsatcast_plugin_rtmp.so"),
    ("srt", "libsatcast_plugin_srt.so"),
];

/// The file that lists the libraries of this project in the drivers folder: `{"files": {"<name>": "<sha256 hex>"}}`.
pub(crate) const MANIFEST: &str = "manifest.json";

/// Build profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quick to build; the tests use it.
    Debug,
    /// The build for operators; benchmarks use it.
    Release,
}

impl Profile {
    /// Reads `[--release]`.
    pub(crate) fn from_args(args: &[String]) -> Result<Self, String> {
        match args {
            [] => Ok(Self::Debug),
            [flag] if flag == "--release" => Ok(Self::Release),
            _ => Err(format!("cannot read \"{}\"; the only option is --release", args.join(" "))),
        }
    }

    /// Cargo's output folder of this profile.
    pub(crate) fn folder(self) -> PathBuf {
        workspace::target_dir().join(match self {
            Self::Debug => "debug",
            Self::Release => "release",
        })
    }
}

/// Builds the whole workspace, installs the drivers and builds the pages; gives the path of the service's binary.
///
/// Always the whole workspace: building one package alone would choose other features for shared dependencies
/// and compile half the tree a second time.
pub(crate) fn run(profile: Profile) -> Result<PathBuf, String> {
    let release = (profile == Profile::Release).then_some("--release");
    process::run(process::cargo().args(["build", "--workspace"]).args(release))?;
    lay_down(profile)
}

/// A debug build with all tests, in one command, so that cargo compiles tests while the service is linked.
pub(crate) fn with_tests() -> Result<PathBuf, String> {
    process::run(process::cargo().args(["build", "--workspace", "--lib", "--bins", "--tests"]))?;
    lay_down(Profile::Debug)
}

/// Puts drivers and pages beside the binary and gives its path.
fn lay_down(profile: Profile) -> Result<PathBuf, String> {
    install_drivers(&profile.folder())?;
    web::build(profile)?;
    Ok(profile.folder().join("satcast"))
}

/// Builds, then becomes the service, in the caller's working folder.
pub(crate) fn run_service(args: &[String]) -> Result<(), String> {
    let (ours, theirs) = match args.iter().position(|argument| argument == "--") {
        Some(at) => (&args[..at], &args[at + 1..]),
        None => (args, &args[..0]),
    };
    let binary = run(Profile::from_args(ours)?)?;
    let error = std::process::Command::new(&binary).arg("run").args(theirs).exec();
    Err(format!("cannot start {}: {error}", binary.display()))
}

/// Writes the C header of the driver contract. A test of the contract does it, so that other builds need no generator.
pub(crate) fn header() -> Result<(), String> {
    let mut cargo = process::cargo();
    cargo.args(["test", "--workspace", "--quiet", "--test", "header"]);
    process::run(cargo.env("SATCAST_WRITE_HEADER", "1"))
}

fn install_drivers(folder: &Path) -> Result<(), String> {
    let drivers = folder.join("drivers");
    std::fs::create_dir_all(&drivers)
        .and_then(|()| std::fs::set_permissions(&drivers, Permissions::from_mode(0o755)))
        .map_err(|error| format!("cannot make {}: {error}", drivers.display()))?;
    let before = previous_manifest(&drivers);
    let mut files = Vec::new();
    for (id, library) in DRIVERS {
        let name = format!("{id}.so");
        let path = drivers.join(&name);
        install(&folder.join(library), &path)?;
        files.push((name, sha256(&path)?));
    }
    for stale in before.iter().filter(|old| !files.iter().any(|(name, _)| name == *old)) {
        // Only files installed by an earlier build: the folder may contain an operator's own drivers.
        match std::fs::remove_file(drivers.join(stale)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("cannot remove the stale driver {stale}: {error}"));
            }
            _ => println!("  removed the stale driver {stale}"),
        }
    }
    replace(&drivers.join(MANIFEST), manifest(&files).as_bytes())
}

/// The manifest as JSON, a line for each file. Names and digests hold nothing that JSON would escape.
fn manifest(files: &[(String, String)]) -> String {
    let lines: Vec<String> =
        files.iter().map(|(name, digest)| format!("    \"{name}\": \"{digest}\"")).collect();
    format!("{{\n  \"files\": {{\n{}\n  }}\n}}\n", lines.join(",\n"))
}

/// Copies a library into the drivers folder, unless it is there already.
fn install(from: &Path, to: &Path) -> Result<(), String> {
    let bytes = std::fs::read(from).map_err(|error| format!("cannot read {}: {error}", from.display()))?;
    // A new file under the old name, never an overwrite in place: a running service has the old one mapped.
    let is_ours = |facts: std::fs::Metadata| facts.permissions().mode() & 0o022 == 0;
    if std::fs::metadata(to).is_ok_and(is_ours) && std::fs::read(to).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    replace(to, &bytes)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let temporary = path.with_extension("new");
    // Independent of the umask: the service refuses files that other users can write to.
    std::fs::write(&temporary, bytes)
        .and_then(|()| std::fs::set_permissions(&temporary, Permissions::from_mode(0o644)))
        .and_then(|()| std::fs::rename(&temporary, path))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The SHA-256 of a file in lowercase hex. By coreutils: a library would be built for this alone, and with other features than
/// the service's.
fn sha256(path: &Path) -> Result<String, String> {
    let said = process::output(process::command("sha256sum").arg("--binary").arg(path))?;
    let digest = said.split_whitespace().next().filter(|digest| digest.len() == 64);
    digest.map(str::to_owned).ok_or_else(|| format!("sha256sum printed \"{}\"", said.trim()))
}

/// Names of the libraries that the last build laid down. Only plain `*.so` names count, so that a damaged
/// manifest can never make us remove anything outside the folder.
fn previous_manifest(drivers: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(drivers.join(MANIFEST)).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.trim().strip_prefix('"')?.split_once("\": \""));
    let plain = |name: &&str| name.ends_with(".so") && !name.contains('/');
    names.map(|(name, _)| name).filter(plain).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("satcast-xtask-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("drivers")).unwrap();
        for (_, library) in DRIVERS {
            std::fs::write(folder.join(library), b"library").unwrap();
        }
        folder
    }

    #[test]
    fn drivers_are_laid_down_with_their_digest() {
        let folder = scratch("install");
        install_drivers(&folder).unwrap();
        let text = std::fs::read_to_string(folder.join("drivers/manifest.json")).unwrap();
        // SHA-256 of the seven bytes.
        let digest = "b718f1354f7247312eca086d9a024afe5fa717ddea5adeddd6f12bcf945b2e8c";
        let line = |id: &str| format!("    \"{id}.so\": \"{digest}\"");
        let lines = ["archive", "hls", "platform", "rtmp", "srt"].map(line).join(",\n");
        assert_eq!(text, format!("{{\n  \"files\": {{\n{lines}\n  }}\n}}\n"));
        assert_eq!(previous_manifest(&folder.join("drivers")), DRIVERS.map(|(id, _)| format!("{id}.so")));
        assert_eq!(std::fs::read(folder.join("drivers/rtmp.so")).unwrap(), b"library");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_stale_drivers_of_ours_are_removed() {
        let folder = scratch("stale");
        let drivers = folder.join("drivers");
        std::fs::write(drivers.join("old.so"), b"ours").unwrap();
        std::fs::write(drivers.join("third.so"), b"theirs").unwrap();
        std::fs::write(folder.join("outside.so"), b"outside").unwrap();
        let before = ["old.so", "../outside.so"].map(|name| (name.to_owned(), "00".to_owned()));
        std::fs::write(drivers.join(MANIFEST), manifest(&before)).unwrap();
        install_drivers(&folder).unwrap();
        assert!(!drivers.join("old.so").exists());
        assert!(drivers.join("third.so").exists());
        assert!(folder.join("outside.so").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn an_unknown_option_is_refused() {
        assert_eq!(Profile::from_args(&["--release".to_owned()]), Ok(Profile::Release));
        assert!(Profile::from_args(&["--fast".to_owned()]).is_err());
    }
}
