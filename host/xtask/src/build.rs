//! Building the workspace and laying drivers and pages beside the binary, where the service looks for them.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{process, web, workspace};

/// Our drivers: the id that operators enable, and the cdylib that cargo makes.
///
/// The list is explicit because a stale library in the output folder would otherwise be shipped as a second driver.
pub(crate) const DRIVERS: &[(&str, &str)] = &[
    ("archive", "libsatcast_plugin_archive.so"),
    ("hls", "libsatcast_plugin_hls.so"),
    ("platform", "libsatcast_plugin_platform.so"),
    ("rtmp", "libsatcast_plugin_rtmp.so"),
];

/// The file that says which libraries in the drivers folder are ours: `{"files": {"<name>": "<sha256 hex>"}}`.
const MANIFEST: &str = "manifest.json";

/// Which build to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quick to build; the tests use it.
    Debug,
    /// What operators run; benchmarks use it.
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
    let mut cargo = process::cargo();
    cargo.args(["build", "--workspace"]);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    process::run(&mut cargo)?;
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

fn install_drivers(folder: &Path) -> Result<(), String> {
    let drivers = folder.join("drivers");
    std::fs::create_dir_all(&drivers)
        .and_then(|()| std::fs::set_permissions(&drivers, Permissions::from_mode(0o755)))
        .map_err(|error| format!("cannot make {}: {error}", drivers.display()))?;
    let before = previous_manifest(&drivers);
    let mut files = BTreeMap::new();
    for (id, library) in DRIVERS {
        let name = format!("{id}.so");
        let digest = install(&folder.join(library), &drivers.join(&name))?;
        files.insert(name, digest);
    }
    for stale in before.iter().filter(|name| !files.contains_key(*name)) {
        // Only files that an earlier build of ours laid down: the folder may hold an operator's own drivers.
        match std::fs::remove_file(drivers.join(stale)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("cannot remove the stale driver {stale}: {error}"));
            }
            _ => println!("  removed the stale driver {stale}"),
        }
    }
    let text = format!("{:#}\n", json!({ "files": files }));
    replace(&drivers.join(MANIFEST), text.as_bytes())
}

/// Copies a library into the drivers folder and gives its SHA-256 in lowercase hex.
fn install(from: &Path, to: &Path) -> Result<String, String> {
    let bytes = std::fs::read(from).map_err(|error| format!("cannot read {}: {error}", from.display()))?;
    // A new file under the old name, never an overwrite in place: a running service has the old one mapped.
    let is_ours = |facts: std::fs::Metadata| facts.permissions().mode() & 0o022 == 0;
    if std::fs::metadata(to).is_ok_and(is_ours) && std::fs::read(to).is_ok_and(|present| present == bytes) {
        return Ok(sha256(&bytes));
    }
    replace(to, &bytes)?;
    Ok(sha256(&bytes))
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let temporary = path.with_extension("new");
    // Whatever the umask is: the service refuses what others can write to.
    std::fs::write(&temporary, bytes)
        .and_then(|()| std::fs::set_permissions(&temporary, Permissions::from_mode(0o644)))
        .and_then(|()| std::fs::rename(&temporary, path))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names of the libraries that the last build laid down. Only plain `*.so` names count, so that a damaged
/// manifest can never make us remove anything outside the folder.
fn previous_manifest(drivers: &Path) -> Vec<String> {
    let Ok(text) = std::fs::read_to_string(drivers.join(MANIFEST)) else { return Vec::new() };
    let Ok(manifest) = serde_json::from_str::<serde_json::Value>(&text) else { return Vec::new() };
    let Some(files) = manifest["files"].as_object() else { return Vec::new() };
    files.keys().filter(|name| name.ends_with(".so") && !name.contains('/')).cloned().collect()
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
        let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(manifest["files"]["rtmp.so"], sha256(b"library"));
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
        let manifest = json!({ "files": { "old.so": "00", "../outside.so": "00" } });
        std::fs::write(drivers.join(MANIFEST), manifest.to_string()).unwrap();
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
