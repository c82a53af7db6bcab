//! Packages of npm, from committed lock files: for the pages of the service, the players of the playback tests, the clients of the API
//! document, a wallet of the wallet tests and a server of the benchmarks.

use std::path::Path;
use std::time::SystemTime;

use crate::{process, workspace};

/// Folders of scripts that need packages.
const FOLDERS: &[&str] = &["tests/player", "tests/clients", "tests/wallets", "tests/peers"];
/// The last file that npm writes.
const INSTALLED: &str = "node_modules/.package-lock.json";

/// Installs the packages of the lock files where missing. Packages run no install scripts.
pub(crate) fn install() -> Result<(), String> {
    FOLDERS.iter().try_for_each(|name| install_in(name))
}

/// Installs the packages of one folder, unless those of its lock file are installed.
pub(crate) fn install_in(name: &str) -> Result<(), String> {
    let folder = workspace::root().join(name);
    if is_current(&folder) {
        println!("  the packages of {name} are installed");
        return Ok(());
    }
    let mut npm = process::command("npm");
    npm.current_dir(&folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    process::run(&mut npm)
}

fn is_current(folder: &Path) -> bool {
    match (changed(&folder.join(INSTALLED)), changed(&folder.join("package-lock.json"))) {
        (Some(installed), Some(locked)) => installed >= locked,
        _ => false,
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, create_dir_all, remove_dir_all};
    use std::time::Duration;

    #[test]
    fn packages_are_installed_again_when_the_lock_file_is_newer() {
        let folder = std::env::temp_dir().join(format!("satcast-npm-{}", std::process::id()));
        let _ = remove_dir_all(&folder);
        create_dir_all(folder.join("node_modules")).unwrap();
        let lock = File::create(folder.join("package-lock.json")).unwrap();
        assert!(!is_current(&folder));
        let installed = File::create(folder.join(INSTALLED)).unwrap();
        let now = SystemTime::now();
        lock.set_modified(now).unwrap();
        installed.set_modified(now).unwrap();
        assert!(is_current(&folder));
        installed.set_modified(now - Duration::from_secs(60)).unwrap();
        assert!(!is_current(&folder));
        remove_dir_all(folder).unwrap();
    }
}
