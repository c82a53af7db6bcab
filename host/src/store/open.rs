//! From an address to an open, migrated store.

use std::path::PathBuf;
use std::sync::Arc;

use super::sqlite::SqliteStore;
use super::{Result, Store, StoreError};
use crate::config::Durability;
use crate::secret::{Redacted, Vault};

/// What a store needs to open.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// `sqlite:FILE`.
    pub url: Redacted<String>,
    /// What a commit survives.
    pub durability: Durability,
    /// Encrypts and decrypts stored secrets.
    pub vault: Vault,
}

/// Opens the database, makes it if it is missing, and brings its schema up to date. Several processes may do
/// so at the same time.
///
/// # Errors
/// The address is refused, the file cannot be opened, or the schema is newer than this release.
pub async fn open(options: OpenOptions) -> Result<Store> {
    let path = database_file(options.url.expose())?;
    let store = SqliteStore::open(&path, options.durability, options.vault).await?;
    Ok(Arc::new(store))
}

/// The file that a database address names; opens nothing.
///
/// # Errors
/// [`StoreError::Address`] with the fix. The address itself is not repeated: it may hold a password.
pub fn database_file(url: &str) -> Result<PathBuf> {
    let refuse = |sentence: &str| Err(StoreError::Address(sentence.to_owned()));
    if url.starts_with("postgres:") || url.starts_with("postgresql:") {
        return refuse("PostgreSQL comes in a later release; use sqlite:FILE");
    }
    let Some(path) = url.strip_prefix("sqlite:") else {
        return refuse("the database address is unknown; use sqlite:FILE");
    };
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path.starts_with(":memory:") || path.contains('?') {
        return refuse("the database must be a file without options; use sqlite:FILE");
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sqlite_files_are_taken_and_passwords_are_not_repeated() {
        assert_eq!(database_file("sqlite:data/satcast.db").unwrap(), PathBuf::from("data/satcast.db"));
        assert_eq!(database_file("sqlite:///var/lib/s.db").unwrap(), PathBuf::from("/var/lib/s.db"));
        for url in ["", "data.db", "mysql://x", "sqlite:", "sqlite::memory:", "sqlite:x?mode=ro"] {
            assert!(database_file(url).is_err(), "{url}");
        }
        let error = database_file("postgres://user:hunter2@db/satcast").unwrap_err().to_string();
        assert!(
            error.contains("PostgreSQL comes in a later release") && !error.contains("hunter2"),
            "{error}"
        );
    }
}
