//! The Python tools of the API document, by committed exact versions, in an environment of their own below cargo's output.

use std::path::Path;

use crate::{process, workspace};

/// What is installed.
const REQUIREMENTS: &str = "tests/clients/requirements.txt";
/// The environment, below cargo's output folder; the tests look for it there.
const FOLDER: &str = "clients-python";
/// A copy of the requirements, written last of all.
const INSTALLED: &str = "requirements.txt";

/// Makes the environment, unless it has what is required.
pub(crate) fn install() -> Result<(), String> {
    let folder = workspace::target_dir().join(FOLDER);
    let required = workspace::read(REQUIREMENTS)?;
    if is_current(&folder, &required) {
        println!("  the packages of {REQUIREMENTS} are there");
        return Ok(());
    }
    // From nothing: what an earlier version needed would only hide that something is missing.
    process::run(process::command("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut pip = process::command(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    process::run(pip.arg("--requirement").arg(REQUIREMENTS))?;
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
    fn an_environment_is_current_when_it_has_what_is_required_and_its_python() {
        let folder = std::env::temp_dir().join(format!("satcast-python-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        assert!(!is_current(&folder, "a==1\n"));
        std::fs::write(folder.join(INSTALLED), "a==1\n").unwrap();
        assert!(!is_current(&folder, "a==1\n"), "there is no Python");
        std::fs::write(folder.join("bin/python"), "").unwrap();
        assert!(is_current(&folder, "a==1\n"));
        assert!(!is_current(&folder, "a==2\n"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_requirement_has_an_exact_version() {
        let text = workspace::read(REQUIREMENTS).unwrap();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines: Vec<_> = lines.collect();
        assert!(lines.len() > 10);
        assert!(lines.iter().all(|line| line.contains("==")), "{lines:?}");
    }
}
