//! The committed API document: written from the built binary, compared with it by the tests.

use crate::{build, process, workspace};

const COMMITTED: &str = "openapi/openapi.json";

/// Builds the service and writes the document it prints.
pub(crate) fn write() -> Result<(), String> {
    let text = generated(build::Profile::Debug)?;
    std::fs::write(workspace::root().join(COMMITTED), text)
        .map_err(|error| format!("cannot write {COMMITTED}: {error}"))?;
    println!("wrote {COMMITTED}");
    Ok(())
}

/// Fails when the committed document is not what the built binary prints.
pub(crate) fn compare(profile: build::Profile) -> Result<(), String> {
    let generated = generated_by(profile)?;
    let committed = workspace::read(COMMITTED)?;
    let first = generated.lines().zip(committed.lines()).position(|(left, right)| left != right);
    match first {
        None if generated == committed => Ok(()),
        None => Err(format!(
            "{COMMITTED} ends differently from the code; run `cargo xtask openapi` and commit it"
        )),
        Some(line) => Err(format!(
            "{COMMITTED}:{} differs from the code; run `cargo xtask openapi`, read the change and commit it",
            line + 1
        )),
    }
}

fn generated(profile: build::Profile) -> Result<String, String> {
    build::run(profile)?;
    generated_by(profile)
}

fn generated_by(profile: build::Profile) -> Result<String, String> {
    process::output(process::command(profile.folder().join("satcast")).arg("openapi"))
}
