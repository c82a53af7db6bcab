//! `cargo xtask tour`: the screenshots of `docs/dashboard.md`, of the built dashboard with real encoders, servers and a wallet.

use crate::{build, npm, process, python, setup};

/// The test that writes them. Without this command it is left out.
const SCENE: &str = "dashboard::pages::tour";

/// Installs the tools, builds, and writes the screenshots.
pub(crate) fn run() -> Result<(), String> {
    setup::run()?;
    npm::install()?;
    python::install()?;
    let binary = build::with_tests()?;
    let mut cargo = process::cargo();
    cargo.args(["test", "--workspace", "--test", "e2e", "--", "--ignored", "--exact", SCENE, "--nocapture"]);
    process::run(cargo.env("SATCAST_BIN", binary))
}
