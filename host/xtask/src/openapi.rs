//! The committed API document: written from the built binary, compared with it by the tests.

use crate::{build, process, workspace};

const COMMITTED: &str = "openapi/openapi.json";

/// Builds the service, then writes the document it prints, or with `--check` compares it.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let writes = match args {
        [] => true,
        [flag] if flag == "--check" => false,
        _ => return Err("`cargo xtask openapi` takes at most --check".into()),
    };
    build::run(build::Profile::Debug)?;
    if !writes {
        return compare(build::Profile::Debug);
    }
    let text = generated_by(build::Profile::Debug)?;
    std::fs::write(workspace::root().join(COMMITTED), text)
        .map_err(|error| format!("cannot write {COMMITTED}: {error}"))?;
    println!("wrote {COMMITTED}");
    Ok(())
}

/// Fails when the committed document differs from the output of the built binary.
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

/// The document of the built binary with its bundled drivers and default settings, independent of this machine's settings.
fn generated_by(profile: build::Profile) -> Result<String, String> {
    let folder = profile.folder();
    let mut command = process::command(folder.join("satcast"));
    // No satcast.toml lies beside the binary.
    command.arg("openapi").current_dir(&folder);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SATCAST_")) {
        command.env_remove(name);
    }
    process::output(&mut command)
}
