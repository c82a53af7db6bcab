//! `cargo xtask dist`: builds a release and packs it.

use crate::build::{self, Profile};
use crate::packages::{self, Pack};
use crate::{manual, release, web, workspace};

/// Where the packages lie, in cargo's output folder.
const FOLDER_NAME: &str = "dist";

/// Builds, and packs the build of this commit. The same build gives the same packages, byte by byte.
pub(crate) fn run() -> Result<(), String> {
    let root = workspace::root();
    let manifest = workspace::read("Cargo.toml")?;
    let version = release::present(&manifest)?;
    release::clean(&root)?;
    build::run(Profile::Release)?;
    manual::build(&web::folder(Profile::Release))?;
    // A build that wrote a lock file has sources that no commit has.
    release::clean(&root)?;

    packages::make(&Pack {
        built: Profile::Release.folder(),
        out: workspace::target_dir().join(FOLDER_NAME),
        version: version.to_owned(),
        seconds: packages::seconds(&root)?,
        fast: false,
    })?;
    let tag = format!("v{version}");
    if !release::git(&root, &["tag", "--points-at", "HEAD"])?.lines().any(|line| line == tag) {
        println!("note: this commit has no tag {tag}; do not publish the packages as that release");
    }
    Ok(())
}
