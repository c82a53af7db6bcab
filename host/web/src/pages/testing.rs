//! A small built folder.

use std::sync::Arc;

use tempfile::TempDir;

use super::Pages;

/// The asset that is worth compressing.
pub(crate) const SCRIPT: &str = "script-A1.js";

/// The folder.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(&format!("assets/{SCRIPT}"), &"play();\n".repeat(100));
    write("assets/tiny.css", "a{}");
    write("docs.html", "<title>Reference</title>");
    write("index.html", "<title>Dashboard</title>");
    write("licences.txt", "one 1.0.0 (MIT)");
    write("manual/index.html", "<title>Manual</title>");
    write("manual/drivers/guide.html", "<title>Guide</title>");
    let page = "<title>{{label}}</title><main data-kind=\"{{kind}}\" data-state=\"{{state}}\"><p>{{headline}}<p>{{advice}}</main>";
    write("watch.html", page);
    folder
}

/// Its pages.
pub(crate) fn pages() -> Arc<Pages> {
    Arc::new(Pages::load(folder().path()))
}
