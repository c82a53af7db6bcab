//! A release of the build under test, and the packages that `cargo xtask pack` makes of it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::author::{clean, root, run};
use crate::service::binary;
use crate::source::target_dir;

/// Lays the build under test into `folder`, without symbols: a debug build is many times as large with them.
///
/// # Panics
/// When a part of the build is missing.
pub fn lay(folder: &Path) {
    let built = binary().parent().expect("the folder of the binary").to_owned();
    let drivers = folder.join("drivers");
    std::fs::create_dir_all(&drivers).expect("a folder for drivers");
    let strip = |from: &Path, to: &Path| {
        run(Command::new("strip").arg("--strip-all").arg("-o").arg(to).arg(from));
    };
    strip(&binary(), &folder.join("satcast"));
    let manifest = std::fs::read_to_string(built.join("drivers/manifest.json")).expect("the manifest");
    let mut manifest: Value = serde_json::from_str(&manifest).expect("the manifest in JSON");
    for (name, checksum) in manifest["files"].as_object_mut().expect("the files of the manifest") {
        let driver = drivers.join(name);
        strip(&built.join("drivers").join(name), &driver);
        *checksum = sha256(&driver).into();
    }
    std::fs::write(drivers.join("manifest.json"), manifest.to_string()).expect("the manifest");
    run(Command::new("cp").arg("--recursive").arg(built.join("web")).arg(folder));
}

/// Packs the build in `built` as `version` into `out`.
///
/// # Panics
/// When `cargo xtask pack` fails.
pub fn pack(built: &Path, out: &Path, version: &str) {
    let xtask = target_dir().join("debug/xtask");
    let mut command = clean(xtask.to_str().expect("a path in UTF-8"), &root());
    run(command.arg("pack").arg(built).arg(out).args(["--fast", "--version", version]));
}

/// The SHA-256 of a file in hexadecimal.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn sha256(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
