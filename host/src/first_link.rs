//! The link of the first start: with it a person makes the first account, which operates the service.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use satcast_core::config::Config;
use satcast_core::ids::UnixMillis;
use satcast_core::secret::{Redacted, is_invite_token, key_hash};
use satcast_store::{By, Origin, Store, StoreError};
use satcast_web::auth::link::{link_address, new_link};

/// Permissions of the file: only the service's user may read it.
const FILE_MODE: u32 = 0o600;

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum FirstLinkError {
    /// The database.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The file.
    #[error(
        "cannot write the file {path} with the first link: {source}; make it writable for the service's user"
    )]
    File {
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The link, and the file that holds it.
#[derive(Clone, Debug)]
pub struct FirstLink {
    pub address: Redacted<String>,
    pub file: PathBuf,
}

/// The link below the address `base` while there is no account. The next start gives the same link, or a new one when that was used
/// or has ended. Once there is an account, the link ends and the file is removed.
///
/// # Errors
/// The database or the file failed.
pub async fn first_link(
    store: &Store,
    config: &Config,
    base: &str,
    now: UnixMillis,
) -> Result<Option<FirstLink>, FirstLinkError> {
    let file = config.setup_link_file();
    let failed = |source| FirstLinkError::File { path: file.clone(), source };
    if store.count_accounts().await? > 0 {
        end_first_link(store, config).await?;
        return Ok(None);
    }
    let token = match waiting(store, &file, now).await? {
        Some(token) => token,
        None => {
            let (token, link) = new_link(now);
            let origin = Origin { by: By::Service, address: None, now };
            store.create_invite(&origin, &link.token_hash, true, link.expires_at).await?;
            token
        }
    };
    let address = Redacted::new(link_address(base, None, token.expose()));
    write(&file, &address).map_err(failed)?;
    Ok(Some(FirstLink { address, file }))
}

/// Ends the link, if there is one, and removes its file.
///
/// # Errors
/// The database or the file failed.
pub async fn end_first_link(store: &Store, config: &Config) -> Result<(), FirstLinkError> {
    let path = config.setup_link_file();
    if let Some(token) = token_in(&path) {
        store.end_link(&key_hash(token.expose())).await?;
    }
    remove(&path).map_err(|source| FirstLinkError::File { path, source })
}

/// The token in the file of an earlier start, if it is still of use.
async fn waiting(
    store: &Store,
    file: &Path,
    now: UnixMillis,
) -> Result<Option<Redacted<String>>, StoreError> {
    let Some(token) = token_in(file) else { return Ok(None) };
    let is_known = store.link(&key_hash(token.expose()), now).await?.is_some();
    Ok(is_known.then_some(token))
}

fn token_in(file: &Path) -> Option<Redacted<String>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let token = text.trim().rsplit('#').next().filter(|token| is_invite_token(token));
    token.map(|token| Redacted::new(token.to_owned()))
}

fn write(file: &Path, address: &Redacted<String>) -> io::Result<()> {
    // An earlier file may have other permissions.
    remove(file)?;
    let mut file = OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(file)?;
    writeln!(file, "{}", address.expose())
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use satcast_core::ids::Msat;
    use satcast_core::secret::Vault;
    use satcast_store::{NewAccount, OpenOptions as StoreOptions};

    const BASE: &str = "http://127.0.0.1:8080";
    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

    async fn rig() -> (Store, Config, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let env = [("SATCAST_DATA_DIR".to_owned(), folder.path().display().to_string())];
        let config = Config::load(None, env, &Default::default()).unwrap().config;
        let options = StoreOptions {
            url: satcast_store::testing::url(&folder.path().join("t.db")).await,
            durability: config.database.durability,
            vault: Vault::new(&[7; 32]),
            low_balance: Msat(0),
        };
        (satcast_store::open(options).await.unwrap(), config, folder)
    }

    fn account() -> NewAccount {
        NewAccount { name: "me".into(), password_hash: None, operator: false, initial_credit: Msat(0) }
    }

    #[tokio::test]
    async fn the_link_stays_until_it_is_used_and_makes_an_operator() {
        let (store, config, _folder) = rig().await;
        let link = async |at: i64| {
            let now = UnixMillis(NOW.0 + at);
            first_link(&store, &config, BASE, now).await.unwrap()
        };
        let first = link(0).await.unwrap();
        let token = first.address.expose().strip_prefix("http://127.0.0.1:8080/setup#").unwrap();
        assert!(is_invite_token(token), "{token}");
        assert_eq!(fs::read_to_string(&first.file).unwrap().trim(), first.address.expose());
        assert_eq!(fs::metadata(&first.file).unwrap().permissions().mode() & 0o777, FILE_MODE);
        assert_eq!(link(1).await.unwrap().address.expose(), first.address.expose(), "the same link");
        let moved = first_link(&store, &config, "https://a.example", NOW).await.unwrap().unwrap();
        assert_eq!(moved.address.expose(), &format!("https://a.example/setup#{token}"));
        let other = link(DAY_MS).await.unwrap();
        assert_ne!(other.address.expose(), first.address.expose(), "the first link has ended");
        let token = other.address.expose().rsplit('#').next().unwrap();
        let origin = Origin { by: By::Visitor, address: None, now: UnixMillis(NOW.0 + DAY_MS) };
        let id = store.use_invite(&origin, &key_hash(token), account()).await.unwrap();
        assert!(store.account(id).await.unwrap().unwrap().operator);
        assert!(link(DAY_MS).await.is_none() && !other.file.exists());
    }

    #[tokio::test]
    async fn a_file_that_holds_no_link_is_replaced() {
        let (store, config, _folder) = rig().await;
        for text in ["", "x", "http://a/setup#inv_x", "\u{fffd}"] {
            fs::write(config.setup_link_file(), text).unwrap();
            let link = first_link(&store, &config, BASE, NOW).await.unwrap().unwrap();
            assert_eq!(fs::read_to_string(&link.file).unwrap().trim(), link.address.expose());
            assert_eq!(fs::metadata(&link.file).unwrap().permissions().mode() & 0o777, FILE_MODE);
        }
    }
}
