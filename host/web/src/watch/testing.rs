//! A small built folder.

use std::sync::Arc;

use tempfile::TempDir;

use super::Pages;

/// Its assets, by name.
pub(super) const ASSETS: [&str; 2] = [SCRIPT, "tiny.css"];
/// The asset that is worth compressing.
pub(crate) const SCRIPT: &str = "script-A1.js";

/// The folder.
pub(super) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("assets")).unwrap();
    std::fs::write(folder.path().join("assets").join(SCRIPT), "play();\n".repeat(100)).unwrap();
    std::fs::write(folder.path().join("assets/tiny.css"), "a{}").unwrap();
    let page = "<title>{{label}}</title><main data-state=\"{{state}}\"><p>{{headline}}<p>{{advice}}</main>";
    std::fs::write(folder.path().join("watch.html"), page).unwrap();
    folder
}

/// Its pages.
pub(crate) fn pages() -> Arc<Pages> {
    Arc::new(Pages::load(folder().path()))
}
