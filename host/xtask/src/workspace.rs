//! Paths: the repository root, the build output, the source files.

use std::path::{Component, Path, PathBuf};

/// The repository root: two folders above this package, independent of the caller's working folder.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.ancestors().nth(2).map_or(manifest.clone(), Path::to_path_buf)
}

/// Cargo's output folder: `CARGO_TARGET_DIR` (relative to the root) or `target`.
pub(crate) fn target_dir() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Every regular file below `folder` whose name ends in `.{extension}`, sorted, as paths relative to the root.
///
/// Build output, dependencies of the dashboard and hidden folders are left out.
pub(crate) fn files(folder: &str, extension: &str) -> Result<Vec<String>, String> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(current) = folders.pop() {
        let entries = match std::fs::read_dir(&current) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("cannot list {}: {error}", current.display())),
        };
        for entry in entries {
            let entry = entry.map_err(|error| format!("cannot list {}: {error}", current.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = entry.path();
            let kind =
                entry.file_type().map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            if kind.is_dir() {
                if !name.starts_with('.') && name != "target" && name != "node_modules" {
                    folders.push(path);
                }
            } else if name.rsplit_once('.').is_some_and(|(_, ending)| ending == extension) {
                let relative = path.strip_prefix(&root).unwrap_or(&path);
                found.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// `file` as it is named in the folder of the document `path`, from the root.
pub(crate) fn resolved(path: &str, file: &str) -> String {
    let mut target = PathBuf::new();
    for part in Path::new(path).parent().unwrap_or(Path::new("")).join(file).components() {
        match part {
            Component::ParentDir => drop(target.pop()),
            part => target.push(part),
        }
    }
    target.to_string_lossy().into_owned()
}

/// The text of a file named relative to the root.
pub(crate) fn read(relative: &str) -> Result<String, String> {
    std::fs::read_to_string(root().join(relative)).map_err(|error| format!("cannot read {relative}: {error}"))
}
