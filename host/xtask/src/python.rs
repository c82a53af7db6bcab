//! The Python tools for the API document and the wallets of the wallet tests, in committed exact versions. Each list has its own
//! environment below cargo's output.

use std::path::Path;

use crate::{process, workspace};

/// The environment of the tools for documents and clients.
const CLIENTS: &str = "clients-python";
/// The lists of packages, and the folder of each environment below cargo's output, where the tests look for it.
const ENVIRONMENTS: &[(&str, &str)] =
    &[("tests/clients/requirements.txt", CLIENTS), ("tests/wallets/requirements.txt", "wallets-python")];
/// A copy of the requirements, written as the last step.
const INSTALLED: &str = "requirements.txt";

/// Creates the environments that lack a required package.
pub(crate) fn install() -> Result<(), String> {
    ENVIRONMENTS.iter().try_for_each(|(requirements, folder)| make(requirements, folder))
}

/// Fails with every word of code and documents that is spelled wrong; `.codespellrc` has the exceptions.
pub(crate) fn spelling() -> Result<(), String> {
    let mut codespell = process::command(workspace::target_dir().join(CLIENTS).join("bin/codespell"));
    let documents = workspace::files("", "md")?.into_iter().filter(|path| !path.contains('/'));
    codespell.args(documents).args([
        "docs",
        "host",
        "openapi",
        "packaging",
        "plugin-api",
        "plugins",
        "tests",
    ]);
    process::run(&mut codespell)
}

fn make(requirements: &str, folder: &str) -> Result<(), String> {
    let folder = workspace::target_dir().join(folder);
    let required = workspace::read(requirements)?;
    if is_current(&folder, &required) {
        println!("  the packages of {requirements} are installed");
        return Ok(());
    }
    // A new environment, because old packages could hide that one is missing.
    process::run(process::command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = process::command(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    process::run(pip.arg("--requirement").arg(requirements))?;
    let mut check = process::command(folder.join("bin/python"));
    process::run(check.args(["-m", "pip", "check", "--disable-pip-version-check"]))?;
    let stamp = folder.join(INSTALLED);
    std::fs::write(&stamp, required).map_err(|error| format!("cannot write {}: {error}", stamp.display()))
}

fn is_current(folder: &Path, required: &str) -> bool {
    // An environment whose Python was removed or replaced cannot start it.
    std::fs::read_to_string(folder.join(INSTALLED)).is_ok_and(|installed| installed == required)
        && folder.join("bin/python").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_current_with_its_requirements_and_its_python() {
        let folder = std::env::temp_dir().join(format!("satcast-python-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        assert!(!is_current(&folder, "a==1\n"));
        std::fs::write(folder.join(INSTALLED), "a==1\n").unwrap();
        assert!(!is_current(&folder, "a==1\n"), "an environment without Python counts as current");
        std::fs::write(folder.join("bin/python"), "").unwrap();
        assert!(is_current(&folder, "a==1\n"));
        assert!(!is_current(&folder, "a==2\n"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_requirement_has_an_exact_version() {
        for (requirements, _) in ENVIRONMENTS {
            let text = workspace::read(requirements).unwrap();
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            let lines: Vec<_> = lines.collect();
            assert!(lines.len() > 10, "{requirements}");
            assert!(lines.iter().all(|line| line.contains("==")), "{lines:?}");
        }
    }
}
