//! The pages of the service (`host/dashboard`): TypeScript, bundled into the folder `web` beside the binary.

use std::path::{Path, PathBuf};

use crate::build::Profile;
use crate::{npm, process, setup, workspace};

/// Where their sources are.
pub(crate) const SOURCES: &str = "host/dashboard";
/// Where they lie beside the binary.
pub(crate) const FOLDER_NAME: &str = "web";

/// Builds the pages into `folder` of the profile. Without Node a debug build goes on without them, as the service does; a
/// release is not made without.
pub(crate) fn build(profile: Profile) -> Result<(), String> {
    if let Err(reason) = setup::node() {
        let reason = format!("the pages need it: {reason}");
        if profile == Profile::Release {
            return Err(reason);
        }
        println!("  left out the pages: {reason}; then `cargo xtask build`");
        return Ok(());
    }
    npm::install_in(SOURCES)?;
    // Not the manual: its tool would have to be compiled first. `cargo xtask docs` and `dist` build it.
    build_into(&folder(profile))
}

/// Folder of the built pages.
pub(crate) fn folder(profile: Profile) -> PathBuf {
    profile.folder().join(FOLDER_NAME)
}

fn build_into(folder: &Path) -> Result<(), String> {
    let mut node = process::command("node");
    process::run(node.current_dir(workspace::root().join(SOURCES)).arg("build.mjs").arg(folder))
}

/// Fails when the types of the pages' sources do not fit, something in them is not used, or a test of theirs fails.
pub(crate) fn check() -> Result<(), String> {
    setup::node()?;
    npm::install_in(SOURCES)?;
    let node = |arguments: &[&str]| {
        let mut node = process::command("node");
        process::run(node.current_dir(workspace::root().join(SOURCES)).args(arguments))
    };
    // Writes the types of the API document, which the sources use.
    node(&["types.mjs"])?;
    node(&["node_modules/typescript/bin/tsc", "--noEmit"])?;
    node(&["--test"])
}
