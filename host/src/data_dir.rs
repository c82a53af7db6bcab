//! The data folder: made private, locked by the one running service, holder of the key file.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use satcast_core::config::Config;
use satcast_core::secret::{Vault, VaultError};
use satcast_store::Address;

/// Name of the lock file inside the data folder.
const LOCK_FILE_NAME: &str = "satcast.lock";
/// Suffix of the lock file next to the database file.
const DATABASE_LOCK_SUFFIX: &str = "-lock";
/// Permissions of a created folder: it contains keys.
const FOLDER_MODE: u32 = 0o700;
/// Permission bit that lets all users create files in a folder. Group access is allowed: operators share folders that way.
const WRITABLE_BY_OTHERS: u32 = 0o002;
/// Tries for a lock: a process that only checks the lock holds it for an instant.
const LOCK_TRIES: u32 = 10;
/// Wait between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Why the data folder, or the database's, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// It cannot be made or written to.
    #[error(
        "cannot use the data folder {path}: {source}; make it writable for the service's user or set data_dir"
    )]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Other users can write to it.
    #[error("the folder {path} can be changed by other users (mode {mode:o}); run: chmod o-w {path}")]
    Exposed {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another service runs on it.
    #[error("another satcast is running with the data folder {0}; stop it or set data_dir")]
    Locked(PathBuf),
    /// Another service runs on the database, from another data folder.
    #[error("another satcast is running on the database {0}; stop it or set another [database] url")]
    DatabaseLocked(PathBuf),
    /// The lock beside the database cannot be made.
    #[error(
        "cannot lock the database {path}: {source}; make its folder, writable for the service's user, or set [database] url"
    )]
    DatabaseFolder {
        /// The database file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Held by the running service; released when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub struct DataDirLock {
    _held: File,
}

/// Makes the folder if it is missing; `true` when it was made.
///
/// # Errors
/// [`DataDirError::Unusable`], or [`DataDirError::Exposed`] for a folder that was there before.
pub fn prepare(path: &Path) -> Result<bool, DataDirError> {
    let failed = |source| DataDirError::Unusable { path: path.to_owned(), source };
    if path.is_dir() {
        check_mode(path)?;
        return Ok(false);
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path).map_err(failed)?;
    Ok(true)
}

/// Refuses a folder in which other users could replace the key, the database or a driver.
///
/// # Errors
/// [`DataDirError::Exposed`].
pub fn check_mode(path: &Path) -> Result<(), DataDirError> {
    let failed = |source| DataDirError::Unusable { path: path.to_owned(), source };
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(DataDirError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Takes the lock on the data folder that only one running service can have.
///
/// # Errors
/// [`DataDirError::Locked`] when another service has it.
pub fn lock(path: &Path) -> Result<DataDirLock, DataDirError> {
    let failed = |source| DataDirError::Unusable { path: path.to_owned(), source };
    match lock_file(&path.join(LOCK_FILE_NAME)) {
        Ok(file) => Ok(DataDirLock { _held: file }),
        Err(TryLockError::WouldBlock) => Err(DataDirError::Locked(path.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Takes the lock beside the database that only one running service can have, whatever its data folder: two of them
/// would end each other's sessions.
///
/// # Errors
/// [`DataDirError::DatabaseLocked`] when another service has it.
pub fn lock_database(database: &Path) -> Result<DataDirLock, DataDirError> {
    // A symbolic link gives the file another name; its lock must be the same.
    let real = database.canonicalize().unwrap_or_else(|_| database.to_owned());
    let mut name = real.into_os_string();
    name.push(DATABASE_LOCK_SUFFIX);
    match lock_file(Path::new(&name)) {
        Ok(file) => Ok(DataDirLock { _held: file }),
        Err(TryLockError::WouldBlock) => Err(DataDirError::DatabaseLocked(database.to_owned())),
        Err(TryLockError::Error(source)) => {
            Err(DataDirError::DatabaseFolder { path: database.to_owned(), source })
        }
    }
}

fn lock_file(path: &Path) -> Result<File, TryLockError> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    let file = file.map_err(TryLockError::Error)?;
    for _ in 1..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            other => return other.map(|()| file),
        }
    }
    file.try_lock().map(|()| file)
}

/// Whether a service runs with this data folder. Creates nothing and prevents no service from starting: the lock is
/// shared, held for an instant, and a service tries more than once.
pub fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path.join(LOCK_FILE_NAME)) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// The vault of the configured key or of the key file; `None` when there is no key file yet.
///
/// # Errors
/// The key or the key file cannot be used.
pub fn existing_vault(config: &Config) -> Result<Option<Vault>, VaultError> {
    match &config.secret_key {
        Some(key) => Vault::from_hex(key, "secret_key").map(Some),
        None if config.key_file().exists() => Vault::load(&config.key_file()).map(Some),
        None => Ok(None),
    }
}

/// The vault of the configured key, or of the key file in the data folder, which is created together with the database. If
/// there is a database but no key file, the key was lost, and a new one would only hide that.
///
/// # Errors
/// The key or the key file cannot be used.
pub fn vault(config: &Config) -> Result<Vault, VaultError> {
    let file = config.key_file();
    match &config.secret_key {
        Some(key) => Vault::from_hex(key, "secret_key"),
        None if !file.exists() && has_database(config) => Err(VaultError::Missing(file)),
        None => Vault::load_or_create(&file),
    }
}

fn has_database(config: &Config) -> bool {
    let address = Address::parse(config.database_url().expose());
    matches!(address, Ok(Address::File(file)) if file.exists())
}

/// Checks that the folder is writable, by a temporary file.
///
/// # Errors
/// [`DataDirError::Unusable`].
pub fn probe_write(path: &Path) -> Result<(), DataDirError> {
    let failed = |source| DataDirError::Unusable { path: path.to_owned(), source };
    let probe = path.join(format!("probe.{}", satcast_core::secret::new_uid()));
    fs::write(&probe, b"probe").map_err(failed)?;
    fs::remove_file(&probe).map_err(failed)
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_lost_key_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let env = [("SATCAST_DATA_DIR".to_owned(), folder.path().display().to_string())];
        let config = Config::load(None, env, &Default::default()).unwrap().config;
        vault(&config).unwrap();
        fs::write(folder.path().join("satcast.db"), b"rows").unwrap();
        vault(&config).unwrap();
        fs::remove_file(config.key_file()).unwrap();
        assert!(matches!(vault(&config), Err(VaultError::Missing(file)) if file == config.key_file()));
        assert!(!config.key_file().exists());
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused_with_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        for (mode, refused) in [(0o777, true), (0o1777, true), (0o770, false), (0o755, false), (0o700, false)]
        {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            match prepare(folder.path()) {
                Ok(made) => assert!(!refused && !made, "{mode:o}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(refused && text.contains(&format!("{mode:o}")), "{text}");
                    assert!(text.ends_with(&format!("chmod o-w {}", folder.path().display())), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_database_has_one_service_under_all_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("s.db");
        fs::write(&database, b"").unwrap();
        let other_name = folder.path().join("link.db");
        std::os::unix::fs::symlink(&database, &other_name).unwrap();
        let held = lock_database(&database).unwrap();
        for name in [&database, &other_name] {
            let error = lock_database(name).unwrap_err();
            assert!(matches!(&error, DataDirError::DatabaseLocked(of) if of == name), "{error}");
        }
        drop(held);
        assert!(lock_database(&other_name).is_ok());
        let error = lock_database(&folder.path().join("missing/s.db")).unwrap_err().to_string();
        assert!(error.contains("missing/s.db") && error.contains("[database] url"), "{error}");
    }

    #[test]
    fn checking_for_a_service_creates_nothing_and_prevents_no_start() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_locked(folder.path()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let held = lock(folder.path()).unwrap();
        assert!(is_locked(folder.path()));
        drop(held);
        assert!(!is_locked(folder.path()));
        let looking = File::open(folder.path().join(LOCK_FILE_NAME)).unwrap();
        looking.try_lock_shared().unwrap();
        let looker = thread::spawn(move || {
            thread::sleep(2 * LOCK_PAUSE);
            drop(looking);
        });
        assert!(lock(folder.path()).is_ok(), "a service waits for a process that only checks");
        looker.join().unwrap();
    }

    #[test]
    fn a_database_in_use_text() {
        assert_eq!(
            DataDirError::DatabaseLocked("data/s.db".into()).to_string(),
            "another satcast is running on the database data/s.db; stop it or set another [database] url"
        );
    }
}
