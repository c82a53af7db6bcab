//! The lock and the vault of the database.

use super::BootError;
use crate::data_dir::{self, DataDirLock};
use satcast_core::clock::Clock;
use satcast_core::config::Config;
use satcast_core::secret::{Vault, VaultError};
use satcast_store::{Address, Inspector, OpenOptions, Owner, Sharing, Store, StoreError};

/// The lock that keeps a second service from a database, unless both are nodes.
pub(super) enum DatabaseLock {
    File { _held: DataDirLock },
    Server(Owner),
}

impl DatabaseLock {
    pub(super) async fn take(address: &Address, config: &Config) -> Result<Self, BootError> {
        let sharing = if config.cluster.node.is_some() { Sharing::Nodes } else { Sharing::Alone };
        Ok(match address {
            Address::File(file) => Self::File { _held: data_dir::lock_database(file)? },
            Address::Server(server) => Self::Server(Owner::take(server, sharing).await?),
        })
    }

    /// Resolves when another service has the database.
    pub(super) async fn lost(&self) {
        match self {
            Self::File { .. } => std::future::pending().await,
            Self::Server(owner) => owner.lost().await,
        }
    }
}

/// The vault of the configured key or key file. A lost key file is not created again for a PostgreSQL database in use;
/// [`data_dir::vault`] does the same for SQLite files.
///
/// # Errors
/// The key or the key file cannot be used, or the database cannot be reached.
pub async fn vault(config: &Config) -> Result<Vault, BootError> {
    let (key_file, address) = (config.key_file(), Address::parse(config.database_url().expose())?);
    if config.secret_key.is_none() && !key_file.exists() && matches!(address, Address::Server(_)) {
        let database = Inspector::open(&address).await?;
        let version = database.schema_version().await;
        database.close().await;
        if version?.0 > 0 {
            return Err(VaultError::Missing(key_file).into());
        }
    }
    Ok(data_dir::vault(config)?)
}

/// Opens the database. A service that has it alone closes everything that a crashed process left open; a node does so
/// when it has its lease.
pub(super) async fn open_store(config: &Config, vault: Vault, clock: &Clock) -> Result<Store, BootError> {
    let options = OpenOptions {
        url: config.database_url(),
        durability: config.database.durability,
        vault,
        low_balance: config.low_balance(),
    };
    let store = satcast_store::open(options).await?;
    if config.cluster.node.is_some() {
        return Ok(store);
    }
    close_interrupted(&store, clock).await?;
    let cut_off = store.release_deliveries().await?;
    if cut_off > 0 {
        tracing::warn!(
            cut_off,
            "webhook deliveries were interrupted by the end of the last process and are sent again"
        );
    }
    Ok(store)
}

/// Ends sessions that a process or node has left without an end.
pub(super) async fn close_interrupted(store: &Store, clock: &Clock) -> Result<(), StoreError> {
    let interrupted = store.close_interrupted_sessions(clock.now()).await?;
    if !interrupted.is_empty() {
        let sessions = interrupted.len();
        tracing::warn!(sessions, "sessions of a process that died were ended at their last heartbeat");
    }
    Ok(())
}
