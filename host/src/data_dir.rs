//! The data folder: made private, locked by the one running service, holder of the key file.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::secret::{Vault, VaultError};

/// Name of the lock file inside the data folder.
const LOCK_FILE_NAME: &str = "satcast.lock";
/// Permissions of a data folder that we make: it holds keys.
const FOLDER_MODE: u32 = 0o700;

/// Why the data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// It cannot be made or written to.
    #[error(
        "cannot use the data folder {path}: {source}; make it writable for the service's user or set data_dir"
    )]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another service runs on it.
    #[error("another satcast is running with the data folder {0}; stop it or set data_dir")]
    Locked(PathBuf),
}

/// Held by the running service; released when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub struct DataDirLock(#[allow(dead_code, reason = "held, not read")] File);

/// Makes the data folder if it is missing; `true` when it was made.
///
/// # Errors
/// [`DataDirError::Unusable`].
pub fn prepare(path: &Path) -> Result<bool, DataDirError> {
    let failed = |source| DataDirError::Unusable { path: path.to_owned(), source };
    if path.is_dir() {
        return Ok(false);
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path).map_err(failed)?;
    Ok(true)
}

/// Takes the lock that only one running service can have.
///
/// # Errors
/// [`DataDirError::Locked`] when another service has it.
pub fn lock(path: &Path) -> Result<DataDirLock, DataDirError> {
    let failed = |source| DataDirError::Unusable { path: path.to_owned(), source };
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path.join(LOCK_FILE_NAME));
    let file = file.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(DataDirLock(file)),
        Err(TryLockError::WouldBlock) => Err(DataDirError::Locked(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// The vault of the configured key, or of the key file in the data folder, which is made if it is missing.
///
/// # Errors
/// The key or the key file cannot be used.
pub fn vault(config: &Config) -> Result<Vault, VaultError> {
    match &config.secret_key {
        Some(key) => Vault::from_hex(key, "secret_key"),
        None => Vault::load_or_create(&config.key_file()),
    }
}

/// Proves that the folder can be written to, by a file that is removed again.
///
/// # Errors
/// [`DataDirError::Unusable`].
pub fn probe_write(path: &Path) -> Result<(), DataDirError> {
    let failed = |source| DataDirError::Unusable { path: path.to_owned(), source };
    let probe = path.join(format!("probe.{}", crate::secret::new_uid()));
    fs::write(&probe, b"probe").map_err(failed)?;
    fs::remove_file(&probe).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_folder_is_made_private_and_locked_once() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/data");
        assert!(prepare(&path).unwrap());
        assert!(!prepare(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let held = lock(&path).unwrap();
        assert!(matches!(lock(&path), Err(DataDirError::Locked(_))));
        drop(held);
        assert!(lock(&path).is_ok());
        probe_write(&path).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = prepare(&file.join("data")).unwrap_err().to_string();
        assert!(error.contains("file/data") && error.contains("data_dir"), "{error}");
    }
}
