//! Documents that are made from the sources: written by `cargo xtask docs`, compared by `cargo xtask check`.

mod codes;
mod configuration;
mod errors;
mod texts;
mod tokens;

use crate::workspace;

type Make = fn() -> Result<String, String>;

/// The generated documents.
const DOCUMENTS: [(&str, Make); 2] =
    [("docs/configuration.md", configuration::document), ("docs/errors.md", errors::document)];

/// Writes every generated document.
pub(crate) fn write() -> Result<(), String> {
    for (path, make) in DOCUMENTS {
        std::fs::write(workspace::root().join(path), make()?)
            .map_err(|error| format!("cannot write {path}: {error}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// Fails when a committed document is not what its sources give.
pub(crate) fn check() -> Result<(), String> {
    let mut report = Vec::new();
    for (path, make) in DOCUMENTS {
        if workspace::read(path)? != make()? {
            report.push(format!(
                "   {path} differs from its sources; run `cargo xtask docs`, read the change and commit it"
            ));
        }
    }
    if report.is_empty() { Ok(()) } else { Err(report.join("\n")) }
}
