//! Private copies of the drivers under test, for the data folders of services: to copy and to probe them costs as much as the rest
//! of a start.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::service::binary;
use crate::source::target_dir;

/// Where a service has them, in its data folder.
const FOLDER: &str = "driver-images";

/// Gives a data folder what the services of earlier tests have made; on another file system nothing, and the service makes its own.
pub(crate) fn lend(data: &Path) {
    let to = data.join(FOLDER);
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&to);
    made.expect("a folder for copies of drivers");
    for name in names() {
        share(&kept().join(&name), &to.join(&name));
    }
}

/// Keeps those of a service that has started, and forgets those of earlier builds.
pub(crate) fn keep(data: &Path) {
    let (names, kept) = (names(), kept());
    if names.iter().all(|name| kept.join(name).exists()) {
        return;
    }
    fs::create_dir_all(&kept).expect("a folder for copies of drivers");
    for old in fs::read_dir(&kept).into_iter().flatten().flatten() {
        if !old.file_name().to_str().is_some_and(|name| names.contains(name)) {
            let _ = fs::remove_file(old.path());
        }
    }
    // A driver that did not pass its probe, on a busy machine for one, is probed again by the next service.
    let passed = |name: &&String| {
        let known = data.join(FOLDER).join(name).with_extension("known");
        fs::read_to_string(known).is_ok_and(|text| text.lines().skip(1).all(str::is_empty))
    };
    for name in names.iter().filter(passed) {
        share(&data.join(FOLDER).join(name), &kept.join(name));
    }
}

/// Leaves out what is missing; a copy of a driver that is there already stays.
fn share(from: &Path, to: &Path) {
    // A service never writes into its copy of a driver, but it does into the result of a probe.
    let _ = if from.extension().is_some_and(|ending| ending == "so") {
        fs::hard_link(from, to)
    } else {
        fs::copy(from, to).map(drop)
    };
}

fn kept() -> PathBuf {
    target_dir().join("e2e").join(FOLDER)
}

/// The copies of the drivers beside the binary, and the results of their probes: by their checksums.
fn names() -> BTreeSet<String> {
    let manifest = binary().with_file_name("drivers").join("manifest.json");
    let manifest = fs::read(manifest).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let files = manifest.as_ref().and_then(|manifest| manifest["files"].as_object());
    let checksums = files.into_iter().flat_map(|files| files.values()).filter_map(Value::as_str);
    checksums.flat_map(|checksum| ["so", "known"].map(|ending| format!("{checksum}.{ending}"))).collect()
}
